"""Cells that need torch: they run where it is, and show their record where it is not; the record
is what the lessons have saved.
"""

import json
import pathlib

import pytest

from course import lesson_07
from ttkit import TTKitError

NOTEBOOKS = sorted((pathlib.Path(__file__).resolve().parents[2] / "notebooks").glob("*.ipynb"))


def torch_cells():
    """(options, text, what the notebook has saved) of every cell that needs torch."""
    for path in NOTEBOOKS:
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            first, _, text = "".join(cell["source"]).partition("\n")
            if first.startswith("%%torch"):
                saved = "".join("".join(output["text"]) for output in cell["outputs"])
                yield first.removeprefix("%%torch"), text, saved


class Shell:
    """What `run` uses of a notebook."""

    def __init__(self):
        self.user_ns, self.asked = {}, []

    def run_cell_magic(self, *call):
        self.asked.append(call)


def test_the_record_is_what_the_lessons_show():
    # else: python scripts/record_torch.py, with torch
    saved = {lesson_07.key(text): output for _, text, output in torch_cells()}
    assert lesson_07.record()["cells"] == saved and len(saved) >= 3


def test_without_torch_a_cell_shows_its_record(monkeypatch, capsys):
    monkeypatch.setattr(lesson_07, "installed", lambda: False)
    for options, text, saved in torch_cells():
        lesson_07.run_torch_cell(None, options, text + "\n")  # as IPython gives it
        assert capsys.readouterr().out == saved


def test_a_changed_cell_is_not_shown_with_the_output_of_another(monkeypatch):
    monkeypatch.setattr(lesson_07, "installed", lambda: False)
    with pytest.raises(TTKitError, match="the cell has changed"):
        lesson_07.run_torch_cell(None, "", "print(1)")


def test_with_torch_a_cell_runs(monkeypatch, capsys):
    monkeypatch.setattr(lesson_07, "installed", lambda: True)
    shell = Shell()
    lesson_07.run_torch_cell(shell, "", "x = 3\nprint(x)")
    assert capsys.readouterr().out == "3\n" and shell.user_ns["x"] == 3
    lesson_07.run_torch_cell(shell, "--ranks", "print(x)")
    assert shell.asked == [("px", "", "print(x)")]


def test_installed_is_told_without_importing(torch):
    assert lesson_07.installed()
