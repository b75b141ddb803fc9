"""The installed package: found from any folder, also from one that holds a clone named ttkit."""

import os
import pathlib
import subprocess
import sys

import pytest


def test_a_folder_named_ttkit_does_not_hide_the_package(tmp_path):
    (tmp_path / "ttkit").mkdir()  # a clone: `python -c` sees it as a package without a file
    words = [sys.executable, "-c", "from ttkit import ttnn"]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    said = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert (said.returncode, said.stderr) == (0, "")


@pytest.mark.long
def test_a_wheel_in_an_empty_folder():
    script = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "try_wheel.py"
    subprocess.run([sys.executable, str(script)], check=True)
