"""Runs that are killed at random times go on as if nobody had."""

import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent


@pytest.mark.parametrize("runs", [2, pytest.param(50, marks=pytest.mark.long)])
def test_killed_runs_end_with_the_losses_of_one_that_was_not(tmp_path, runs):
    command = [sys.executable, str(HERE / "killed_runs.py"), str(tmp_path), str(runs), str(runs)]
    done = subprocess.run(command, cwd=HERE.parents[1], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(f"{runs} runs, killed ")
