"""A cell of a lesson fits a laptop's screen, and code is in a code cell."""

import ast

import nbformat
import pytest

from ttkit.lessons.cli import notebooks

LINES, COLUMNS = 20, 84


@pytest.mark.parametrize("path", notebooks(), ids=lambda path: path.stem)
def test_a_cell_fits_a_laptop(path):
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "code":
            lines = [line for line in cell.source.splitlines() if line.strip()]
            assert max(map(len, lines), default=0) <= COLUMNS, cell.source
            if not {"solution", "script"} & {*cell.metadata.get("tags", [])}:  # They are folded.
                assert len(lines) <= LINES, cell.source


def is_python(source: str) -> bool:
    try:
        return bool(ast.parse(source).body)
    except SyntaxError:
        return False


@pytest.mark.parametrize("path", notebooks(), ids=lambda path: path.stem)
def test_no_code_is_in_a_markdown_cell(path):
    cells = nbformat.read(path, as_version=4).cells
    prose = [cell.source for cell in cells if cell.cell_type == "markdown"]
    assert prose and not list(filter(is_python, prose))
