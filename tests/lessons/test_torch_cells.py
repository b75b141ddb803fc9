"""Cells that need torch: they run where it is, and show their record where it is not; the record
is what the lessons have saved.
"""

import json
import pathlib

import pytest

from ttkit import TTKitError
from ttkit.lessons import torch_cells

NOTEBOOKS = sorted((pathlib.Path(__file__).resolve().parents[2] / "notebooks").glob("*.ipynb"))


def saved():
    """{key: what the notebook has saved} of every cell that needs torch."""
    found = {}
    for path in NOTEBOOKS:
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            first, _, text = "".join(cell["source"]).partition("\n")
            if first.startswith("%%torch"):
                found[torch_cells.key(text)] = "".join(
                    "".join(output["text"]) for output in cell["outputs"]
                )
    return found


class Shell:
    """What `run` uses of a notebook."""

    def __init__(self):
        self.user_ns, self.asked = {}, []

    def run_cell_magic(self, *call):
        self.asked.append(call)


def test_the_record_is_what_the_lessons_show():
    # else: python scripts/record_torch.py, with torch
    assert torch_cells.record()["cells"] == saved()
    assert len(saved()) >= 3


def test_without_torch_a_cell_shows_its_record(monkeypatch, capsys):
    monkeypatch.setattr(torch_cells, "installed", lambda: False)
    for path in NOTEBOOKS:
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            first, _, text = "".join(cell["source"]).partition("\n")
            if first.startswith("%%torch"):
                # as IPython gives it
                torch_cells.run(None, first.removeprefix("%%torch"), text + "\n")
                assert capsys.readouterr().out == saved()[torch_cells.key(text)]


def test_a_changed_cell_is_not_shown_with_the_output_of_another(monkeypatch):
    monkeypatch.setattr(torch_cells, "installed", lambda: False)
    with pytest.raises(TTKitError, match="not as it was recorded"):
        torch_cells.run(None, "", "print(1)")


def test_with_torch_a_cell_runs(monkeypatch, capsys):
    monkeypatch.setattr(torch_cells, "installed", lambda: True)
    shell = Shell()
    torch_cells.run(shell, "", "x = 3\nprint(x)")
    assert capsys.readouterr().out == "3\n" and shell.user_ns["x"] == 3
    torch_cells.run(shell, "--ranks", "print(x)")
    assert shell.asked == [("px", "", "print(x)")]


def test_other_words_after_it_are_refused():
    with pytest.raises(TTKitError, match="--ranks is all"):
        torch_cells.run(Shell(), "--rank", "")


def test_installed_is_told_without_importing(torch):
    assert torch_cells.installed()
