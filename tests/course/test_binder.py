"""binder/ holds what repo2docker reads, in step with pyproject.toml, from PyPI and Debian only."""

import ast
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINDER = ROOT / "binder"


def lines(name):
    return [
        line.strip()
        for line in (BINDER / name).read_text().splitlines()
        if line.strip() and not line.startswith("#")
    ]


def test_only_files_that_repo2docker_reads_together():
    # environment.yml (or a Dockerfile) would silently win over requirements.txt
    together = {"requirements.txt", "runtime.txt", "postBuild", "start", "apt.txt"}
    assert {path.name for path in BINDER.iterdir()} <= together


def test_requirements_are_the_project_itself():
    assert lines("requirements.txt") == ["-e ."], (
        "dependencies are named once, in pyproject.toml; no index, no link"
    )


def test_dependencies_come_from_an_index():
    # A small reader instead of tomllib, which Python 3.10 does not have.
    text = (ROOT / "pyproject.toml").read_text()
    dependencies = ast.literal_eval(
        re.search(r"^dependencies = (\[.*?^\])", text, re.S | re.M).group(1)
    )
    assert len(dependencies) > 5
    assert not [name for name in dependencies if "@" in name or "://" in name]


def test_python_is_one_that_the_project_supports():
    (runtime,) = lines("runtime.txt")
    version = re.fullmatch(r"python-(3\.\d+)", runtime).group(1)
    assert f"Python :: {version}" in (ROOT / "pyproject.toml").read_text()


@pytest.mark.parametrize(
    "name", [name for name in ("postBuild", "start") if (BINDER / name).exists()]
)
def test_scripts_can_run(name):
    assert os.access(BINDER / name, os.X_OK), f"binder/{name} must be executable"
    assert (BINDER / name).read_text().startswith("#!/usr/bin/env bash\n")
    subprocess.run(["bash", "-n", str(BINDER / name)], check=True)


@pytest.mark.long
def test_steps_in_a_clean_folder():
    subprocess.run([sys.executable, str(ROOT / "scripts" / "try_binder.py")], check=True)
