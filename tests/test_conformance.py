"""The strict dialect is ttnn 0.81.1: the recorded cases, run by their own runner in a process of
its own.
"""

import pathlib

from started import all_cases_pass

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Frozen, because the runner collects garbage at each close, and what imports made is never any.
STRICT = "import gc, ttkit; ttkit.strict(); from ttkit import ttnn; gc.freeze()"


def test_recorded_cases(capsys):
    cases = sorted(
        str(path.relative_to(ROOT)) for path in (ROOT / "tests" / "conformance").glob("*.json")
    )
    all_cases_pass(capsys, "conformance", "tests/conformance/run.py", STRICT, *cases)
