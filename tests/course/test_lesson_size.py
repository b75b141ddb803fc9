"""A lesson is short: what it may hold, as docs and README promise, is counted here."""

import re

import nbformat
import pytest

from ttkit.lessons.cli import notebooks

CELLS, WORDS, LINES, CELL_LINES = 40, 1500, 150, 20


@pytest.fixture(params=notebooks(), ids=lambda path: path.stem)
def cells(request):
    return nbformat.read(request.param, as_version=4).cells


def words(text):
    """The words that a reader sees: the addresses of links do not count."""
    return re.findall(r"[\w'’]+", re.sub(r"<[^>]*>", "", re.sub(r"\]\([^)]*\)", "]", text)))


def lines(cell):
    return [line for line in cell.source.splitlines() if line.strip()]


def test_a_lesson_is_read_in_one_sitting(cells):
    prose = [cell for cell in cells if cell.cell_type == "markdown"]
    code = [cell for cell in cells if cell.cell_type == "code"]
    open_code = [cell for cell in code if "solution" not in cell.metadata.get("tags", [])]
    assert len(cells) <= CELLS
    assert sum(len(words(cell.source)) for cell in prose) <= WORDS
    assert sum(len(lines(cell)) for cell in open_code) <= LINES
    assert not [cell.source for cell in open_code if len(lines(cell)) > CELL_LINES]


def test_the_first_picture_comes_early(cells):
    pictures = [
        i
        for i, cell in enumerate(cells)
        if any("text/html" in out.get("data", {}) for out in cell.get("outputs", []))
    ]
    assert pictures[0] < 6
