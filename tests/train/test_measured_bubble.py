"""The bubble that ranks measure beside the one that a schedule's timeline gives."""

import importlib.util
import json
import pathlib
import re
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent


@pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="mpi4py is not installed")  # not imported here: only ranks may
@pytest.mark.parametrize(("stages", "micro_batches", "schedule"), [(2, 4, "1f1b"), (2, 3, "one_at_a_time")])
def test_sleeping_stages_have_the_bubble_of_the_model(stages, micro_batches, schedule):
    program = [sys.executable, "-m", "mpi4py", str(HERE / "ranks" / "sleeping.py"), str(stages), str(micro_batches), schedule]
    done = subprocess.run([sys.executable, "-m", "ttkit", "run", "-n", str(stages), *program], cwd=HERE.parents[1], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    measured, modelled = json.loads(re.search(r"bubbles (\[.*\])", done.stdout)[1])
    assert measured == pytest.approx(modelled, rel=0.1)
