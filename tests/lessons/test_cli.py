"""The commands `ttkit lab` and `ttkit lessons`."""

import json
import os
import sys

import nbformat
import pytest
from nbconvert import HTMLExporter
from traitlets.config import Config

from ttkit.__main__ import main
from ttkit.lessons import cli, progress


@pytest.fixture
def opened(monkeypatch, tmp_path):
    """What would be run in the place of this process."""
    calls = []

    def instead(program, words):
        calls.append(words)
        sys.exit(0)

    monkeypatch.setattr(os, "execv", instead)
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", "somewhere")
    monkeypatch.chdir(tmp_path)
    return calls


def lab(*words):
    with pytest.raises(SystemExit):
        main(["lab", *words])


def test_lab_copies_the_course_and_opens_lesson_00(opened, tmp_path, capsys):
    lab("my lessons", "--no-browser", "--port", "8899")
    ((program, _, module, *words),) = opened
    assert (program, module) == (sys.executable, "jupyterlab")
    notebooks = tmp_path / "my lessons" / "notebooks"
    assert f"--ServerApp.root_dir={notebooks}" in words
    assert "--LabApp.default_url=/lab/tree/00_start_here.ipynb" in words
    assert words[-3:] == ["--no-browser", "--port", "8899"]
    assert os.environ["JUPYTER_CONFIG_PATH"] == f"{cli.SETTINGS}{os.pathsep}somewhere"
    assert str(notebooks) in capsys.readouterr().out
    first = nbformat.read(notebooks / "00_start_here.ipynb", as_version=4)
    assert not any(cell.outputs for cell in first.cells if cell.cell_type == "code")
    (window,) = (tmp_path / "my lessons" / ".ttkit" / "windows").iterdir()
    window.write_text("the learner's own")
    lab("my lessons")
    assert window.read_text() == "the learner's own"


def test_an_option_of_jupyterlab_is_no_folder(opened, tmp_path):
    lab("--port", "8899")
    assert (tmp_path / "ttkit-lessons").is_dir() and not (tmp_path / "8899").exists()
    assert opened[0][-2:] == ["--port", "8899"]


def test_lab_only_copies(opened, tmp_path):
    assert main(["lab", "here", "--copy-only"]) == 0
    assert (tmp_path / "here" / "configs").is_dir() and not opened


def test_settings_are_what_jupyterlab_reads():
    names = {path.name for path in (cli.SETTINGS / "labconfig").iterdir()}
    assert names == {"default_setting_overrides.json", "page_config.json"}
    for path in cli.SETTINGS.rglob("*"):
        assert path.is_dir() or json.loads(path.read_text())


def test_progress_of_every_lesson(monkeypatch, tmp_path, capsys):
    file = tmp_path / "lessons.json"
    monkeypatch.setenv("TTKIT_LEARNER", str(file))
    asked, exercises = progress.contents(cli.notebooks()[0])
    assert asked and "00.double" in exercises
    kept = {
        "predictions": {f"{asked[0]}.bytes": 16},
        "exercises": {"00.double": "passed", "00.share": "tried"},
    }
    file.write_text(json.dumps(kept))
    assert main(["lessons"]) == 0
    head, first, *others, last = capsys.readouterr().out.splitlines()
    assert head.split() == ["lesson", "predicted", "exercises"]
    assert first.split()[:4] == ["00_start_here", "1", "of", str(len(asked))]
    assert "double passed" in first and "share tried" in first
    assert len(others) == len(cli.notebooks()) - 1 and all(" 0 of " in line for line in others)
    assert last == f"kept in {file}"


@pytest.mark.parametrize("program", ["jupyter_nbconvert_config", "jupyter_server_config"])
def test_an_exported_page_has_no_solutions(program):
    settings = json.loads((cli.SETTINGS / f"{program}.json").read_text())
    lesson = nbformat.read(cli.notebooks()[0], as_version=4)
    for config, count in (({}, 2), (settings, 0)):
        page, _ = HTMLExporter(config=Config(config)).from_notebook_node(lesson)
        assert page.count("celltag_solution") == count
        assert "00.double" in page
