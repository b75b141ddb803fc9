"""Each cell of a lesson runs twice, and a learner can go back from an exercise to the section
before it.
"""

import nbformat
import pytest
from nbclient import NotebookClient

from ttkit.lessons.cli import notebooks
from ttkit.lessons.progress import CHECK

pytestmark = pytest.mark.long
CELL_S = 240


def sections(cells):
    """For each cell the number of the one with its section's heading."""
    found, heading = [], 0
    for number, cell in enumerate(cells):
        if cell.cell_type == "markdown" and "\n## " in f"\n{cell.source}":
            heading = number
        found.append(heading)
    return found


@pytest.mark.parametrize("path", notebooks(), ids=lambda path: path.stem)
def test_every_cell_twice_and_back_from_each_exercise(path):
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=CELL_S,
        kernel_name="python3",
        allow_errors=True,
        resources={"metadata": {"path": str(path.parent)}},
    )
    headings, wrong = sections(notebook.cells), []

    def run(number, when):
        cell = notebook.cells[number]
        if cell.cell_type != "code":
            return
        client.execute_cell(cell, number)
        if "raises-exception" not in cell.metadata.get("tags", []):
            errors = [out for out in cell.outputs if out.output_type == "error"]
            wrong.extend(f"{cell.id}, {when}: {error.evalue}" for error in errors)

    with client.setup_kernel():
        for number, cell in enumerate(notebook.cells):
            run(number, "first")
            run(number, "again")
            if cell.cell_type == "code" and CHECK.search(cell.source):
                here = headings[number]
                before = max((one for one in headings[:number] if one < here), default=0)
                for other in range(before, number + 1):
                    run(other, f"back from {cell.id}")
    assert not wrong, "\n".join(wrong)
