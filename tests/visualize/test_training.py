"""What shows a run: lines in a log, a bar on a terminal, curves in a notebook."""

import sys
from types import SimpleNamespace

import pytest

from ttkit.train.config import Settings, TrainingConfig
from ttkit.train.run_folder import Record
from ttkit.visualize import training


def run(steps=0, world=1, rank=0, replicas=None):
    """What the views read of a trainer."""
    settings = Settings(training_config=TrainingConfig(project_name="stories"))
    return SimpleNamespace(
        history=[record(i + 1) for i in range(steps)],
        steps=steps,
        world=world,
        rank=rank,
        replicas=replicas,
        settings=settings,
    )


def record(step, validation=None):
    return Record(step, 6 / step, 1e-3, 0.5, 12345.6, validation)


def test_curves_of_a_history():
    trainer = run(4)
    assert (
        repr(training.loss_curves(trainer))
        == "stories: 4 steps\n  training loss: 6 at step 1, 3 at step 2, 2 at step 3, 1.5 at step 4"
    )
    trainer.history[2] = record(3, 2.5)
    assert repr(training.loss_curves(trainer)).endswith("validation loss: 2.5 at step 3")
    assert "nothing yet" in training.loss_curves(run())._repr_html_()


def test_a_log_has_some_lines_whatever_the_length(capsys):
    view = training.progress(run(), 1000)
    assert isinstance(view, training.Lines)  # pytest's output is no terminal
    for step in range(1, 1001):
        view.update(record(step, 2.0 if step == 333 else None))
    view.close()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == training.LINES + 1
    assert "step 333/1000: loss 0.0180, validation 2.0000, 12,346 tokens/s" in lines and lines[
        -1
    ].startswith("step 1000/1000")


@pytest.mark.parametrize(
    "options, says",
    [({"rank": 1, "world": 2}, False), ({"rank": 1, "world": 2, "replicas": object()}, True)],
)
def test_drivers_of_one_mesh_speak_once(capsys, options, says):
    view = training.progress(run(**options), 1)
    view.update(record(1))
    assert bool(capsys.readouterr().out) == says


def test_a_bar_on_a_terminal(monkeypatch, capsys):
    for stream in (sys.stdout, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert isinstance(training.progress(run(world=2), 3), training.Lines)
    view = training.progress(run(1), 3)
    assert isinstance(view, training.Bar)
    view.update(record(2))
    assert (
        view.bar.tasks[0].completed == 2
        and view.bar.tasks[0].total == 3
        and "loss 3.0000" in view.bar.tasks[0].description
    )
    view.close()
    assert view.bar.finished is False and not view.bar.live.is_started


def test_curves_in_a_notebook(monkeypatch):
    import IPython

    shown = []
    handle = SimpleNamespace(update=shown.append)
    monkeypatch.setattr(IPython, "get_ipython", lambda: SimpleNamespace(kernel=object()))
    monkeypatch.setattr(
        IPython.display, "display", lambda chart, display_id: shown.append(chart) or handle
    )
    assert isinstance(training.progress(run(world=2), 3), training.Lines)
    trainer = run()
    view = training.progress(trainer, 3)
    assert (
        isinstance(view, training.Page)
        and repr(shown[0]) == "stories: 0 steps\n  training loss: nothing yet"
    )
    trainer.history.append(record(1))
    view.update(record(1))
    assert len(shown) == 1  # too soon after the first picture
    view.drawn -= training.EVERY_S
    view.update(record(1))
    view.close()
    assert len(shown) == 3 and repr(shown[-1]) == "stories: 1 step\n  training loss: 6 at step 1"
