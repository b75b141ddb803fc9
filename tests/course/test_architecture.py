"""docs/architecture.md: its made parts are as the code is now, its links lead to files."""

import importlib.util
import pathlib
import re
import subprocess
import sys

import pytest

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "architecture.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def maker():
    path = DOCS / "make_architecture.py"
    spec = importlib.util.spec_from_file_location("make_architecture", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_made_parts_are_current():
    # A process of its own has no tensors of other tests, so that every call goes its shortest way.
    command = [sys.executable, str(DOCS / "make_architecture.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_part_without_its_marks_is_named(maker):
    with pytest.raises(ValueError, match="there is no <!-- made: rooms -->"):
        maker.render("no marks")


def test_links_lead_to_files():
    links = re.findall(r"\]\(([^)#]+)\)", PAGE)
    assert len(links) > 20
    assert [link for link in links if not (DOCS / link).is_file()] == []


def test_a_module_is_short_enough_to_be_read():
    package = DOCS.parent / "ttkit"
    long = {
        str(path.relative_to(package)): lines
        for path in package.rglob("*.py")
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > 450
    }
    assert not long, "look for what belongs elsewhere"
