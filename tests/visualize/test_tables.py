"""The printed tables, where the recorded cases of the repository do not look: parts of meshes,
odd placements, failures.
"""

import re

import numpy as np
import pytest

import ttkit
from ttkit import ttnn
from ttkit.visualize.tables import Report, as_text, mesh_table, system_table


def cells(text):
    """What stands in each box of a table, row by row: a list of lists of lines."""
    rows, lines = [], []
    for line in text[text.index("┌") :].splitlines():
        if line.startswith("│"):
            lines.append([part.strip() for part in line.strip("│").split("│")])
        elif line.startswith(("├", "└")):
            rows.append([[line for line in column if line] for column in zip(*lines)])
            lines = []
    return rows


def test_mesh_and_machine(mesh):
    assert cells(as_text(mesh_table(mesh)))[1][3] == ["Dev. ID: 7", "(1, 3)"]
    lines = as_text(system_table()).splitlines()
    assert lines[1] == "SystemMesh Global Shape: MeshShape([2, 4])"
    assert "Global Shape: (2, 4) | Local Shape: (2, 4)" in lines[5]
    assert [cell[0] for row in cells("\n".join(lines)) for cell in row] == [
        f"Dev. ID: {d}" for d in (4, 0, 2, 6, 5, 1, 3, 7)
    ]


@pytest.mark.parametrize("width", [60, 80, 160])
def test_a_table_fits_the_terminal(monkeypatch, capsys, mesh, width):
    monkeypatch.setenv("COLUMNS", str(width))
    how = {"device": mesh, "mesh_mapper": ttnn.ShardTensorToMesh(mesh, dim=0)}
    ttkit.visualize_tensor(ttkit.from_numpy(np.zeros((8, 4), np.float32), **how))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    assert max(len(line) for line in lines if line.startswith("┌")) == min(width, 125)


@pytest.mark.parametrize("room", [ttkit, ttnn], ids=["ttkit", "ttnn"])
@pytest.mark.parametrize("name", ["visualize_tensor", "visualize_mesh_device"])
def test_what_cannot_be_shown_prints_no_table_and_does_not_raise(capsys, room, name):
    assert getattr(room, name)(7) is None
    out, err = capsys.readouterr()
    assert not out and re.match(r"Error visualizing (tensor|mesh device): .*'int'", err)


def test_a_report_escapes_and_keeps_words_whole():
    report = Report(
        "a < b, [red]modelled[/red]",
        ("<name", "size"),
        [("x" * 40, "[bold]1")] * 2,
        ("all & sundry", "2"),
    )
    text, html = repr(report), report._repr_html_()
    assert "x" * 40 in text
    assert "[bold]1" in text
    assert "[red]modelled[/red]" in text
    assert "all & sundry" in text
    assert "a &lt; b" in html and "all &amp; sundry" in html and html.count("<tr") == 4


def test_a_name_is_not_broken_at_its_hyphen():
    page = Report("a", ["<layout"], [["DP8 ZeRO-3"]])._repr_html_()
    assert '>DP8 <span style="white-space:nowrap">ZeRO-3</span><' in page


def test_a_report_that_is_too_wide_folds_its_text_and_loses_no_column():
    text = repr(
        Report(
            "long", ("<line", "<words", "size"), [("x" * 150, "first words, more words", "18.4 MB")]
        )
    )
    assert "x" * 150 in text and "18.4 MB │" in text
    assert [line.split("│")[2].strip() for line in text.splitlines()[4:6]] == ["first", "words,"]
