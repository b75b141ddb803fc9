"""docs/coverage.yaml names lessons, cells and tests that exist, and docs/coverage.md is made
from it.
"""

import ast
import functools
import json
import pathlib
import subprocess
import sys

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCUMENTS = yaml.safe_load((ROOT / "docs" / "coverage.yaml").read_text(encoding="utf-8"))
FIELDS = {"piece", "lesson", "test"}
# values that name nothing to look for
SETTLED = {"lesson": ("not yet", "none"), "test": ("not yet", "none", "lesson")}


@functools.cache
def anchors(path):
    """What a link into a notebook may name: its headings as JupyterLab spells them, and the ids
    of its cells.
    """
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    lines = [
        line
        for cell in cells
        if cell["cell_type"] == "markdown"
        for line in "".join(cell["source"]).splitlines()
    ]
    headings = {
        line.lstrip("#").strip().replace(" ", "-") for line in lines if line.startswith("#")
    }
    return headings | {cell["id"] for cell in cells if "id" in cell}


@functools.cache
def functions(path):
    """Names of a test file's functions, those of a class as `TestClass::test_name`."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            names.update(
                f"{node.name}::{inner.name}"
                for inner in node.body
                if isinstance(inner, ast.FunctionDef)
            )
    return names


def problem_of_lesson(lesson):
    name, _, anchor = lesson.partition("#")
    path = ROOT / "notebooks" / name
    if path.suffix != ".ipynb" or not path.exists():
        return f"no lesson notebooks/{name}"
    return (
        f"notebooks/{name} has no heading or cell '{anchor}'" if anchor not in anchors(path) else ""
    )


def problem_of_test(test):
    name, _, function = test.partition("::")
    path = ROOT / name
    if not name.startswith("tests/") or not path.exists():
        return f"no test file {name}"
    if path.suffix == ".py" and function and function.split("[")[0] not in functions(path):
        return f"{name} has no {function}"
    return ""


def row_problem(row):
    """ "" or what is wrong with a row."""
    kind = {"section"} if "section" in row else {"block", "language", "title"}
    if set(row) - {"note"} != kind | FIELDS:
        return f"has {sorted(row)}, should have {sorted(kind | FIELDS)}"
    if row["piece"] not in range(1, 6):
        return f"piece {row['piece']} is not 1 to 5"
    if "none" in (row["lesson"], row["test"]) and "note" not in row:
        return "says none without a note why"
    lesson, test = (
        "" if row[field].split(":")[0] in settled else row[field]
        for field, settled in SETTLED.items()
    )
    return (lesson and problem_of_lesson(lesson)) or (test and problem_of_test(test))


def test_every_row_names_what_exists():
    rows = [(document["document"], row) for document in DOCUMENTS for row in document["rows"]]
    wrong = [
        f"{document} {row.get('section') or row.get('block')}: {problem}"
        for document, row in rows
        if (problem := row_problem(row))
    ]
    assert not wrong, "\n".join(wrong)


def test_blocks_are_numbered_and_stand_in_a_section():
    assert [document["document"] for document in DOCUMENTS] == ["000", "001", "002", "003", "004"]
    for document in DOCUMENTS:
        assert "section" in document["rows"][0]
        blocks = [row["block"] for row in document["rows"] if "block" in row]
        assert blocks == list(range(1, len(blocks) + 1)), document["document"]


def test_wrong_rows_are_seen():
    row = {
        "section": "x",
        "piece": 1,
        "lesson": "not yet",
        "test": "tests/course/test_coverage.py::test_wrong_rows_are_seen",
    }
    assert row_problem(row) == ""
    assert "has no test_nothing" in row_problem(
        row | {"test": "tests/course/test_coverage.py::test_nothing"}
    )
    assert "no test file" in row_problem(row | {"test": "tests/test_nothing.py"})
    assert "no lesson" in row_problem(row | {"lesson": "99_nothing.ipynb#x"})
    assert "note" in row_problem(row | {"lesson": "none"})
    assert "should have" in row_problem({"section": "x", "piece": 1})
    assert "not 1 to 5" in row_problem(row | {"piece": 6})


@pytest.mark.parametrize("maker", ["make_coverage.py", "make_images.py"])
def test_what_is_made_is_in_step(maker):
    subprocess.run([sys.executable, str(ROOT / "docs" / maker), "--check"], check=True)
