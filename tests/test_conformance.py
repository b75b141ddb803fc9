"""The strict dialect is ttnn 0.81.1: the recorded cases, run by their own runner in a process of
its own.
"""

import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Frozen, because the runner collects garbage at each close, and what imports made is never any.
STRICT = "import gc, ttkit; ttkit.strict(); from ttkit import ttnn; gc.freeze()"


def test_recorded_cases(capsys):
    cases = sorted(
        str(path.relative_to(ROOT)) for path in (ROOT / "tests" / "conformance").glob("*.json")
    )
    command = [sys.executable, "tests/conformance/run.py", STRICT, *cases]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True
    )
    *rows, last = done.stdout.splitlines() or [""]
    with capsys.disabled():
        print(f"\nconformance: {last}")
    passed = re.fullmatch(r"passed (\d+)/(\d+)", last)
    assert done.returncode == 0 and passed and passed[1] == passed[2] != "0", "\n".join(
        [*[row for row in rows if "FAIL" in row], last, done.stderr[-2000:]]
    )
