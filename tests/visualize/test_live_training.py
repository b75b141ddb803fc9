"""What shows a run: lines in a log, and on a notebook's page figures and a curve as they come, and
the chart that stays.
"""

import re
import signal
from types import SimpleNamespace

import pytest
from train import tiny
from visualize.test_plans import record, run

from ttkit.train.run.checkpoint import Record
from ttkit.visualize.widgets import live_training


def test_a_log_has_some_lines_whatever_the_length(capsys):
    view = live_training.progress(run(), 1000)
    assert isinstance(view, live_training.Lines)  # pytest's output is no terminal
    for step in range(1, 1001):
        view.update(record(step, 2.0 if step == 333 else None))
    view.close()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == live_training.LINES + 1
    assert "step 333/1000: loss 0.0180, validation 2.0000, 12,346 tokens/s" in lines
    assert lines[-1].startswith("step 1000/1000")


@pytest.mark.parametrize(
    "options, says",
    [({"rank": 1, "world": 2}, False), ({"rank": 1, "world": 2, "replicas": object()}, True)],
)
def test_drivers_of_one_mesh_speak_once(capsys, options, says):
    view = live_training.progress(run(**options), 1)
    view.update(record(1))
    view.close()
    assert bool(capsys.readouterr().out) == says


def test_ranks_report_the_figures_of_the_run_that_goes_on(monkeypatch, capsys):
    monkeypatch.setattr(live_training.time, "monotonic", iter([0.0, 3.0, 4.0, 5.0]).__next__)
    trainer = run(world=2)
    view = live_training.progress(trainer, 100)
    assert isinstance(view, live_training.Lines) and live_training.Lines.now == ""
    trainer.history = [record(1), Record(2, 3.0, 1e-3, 1.5, 2000.0)]
    view.update(trainer.history[-1])
    # 98 steps more as slow as these two
    now = "step 2/100: loss 3.0000, 2,000 tokens/s, 147 s left"
    assert live_training.Lines.now == now
    view.close()
    assert live_training.Lines.now == "" == capsys.readouterr().out
    quiet = live_training.progress(run(world=2, rank=1), 100)
    quiet.update(record(1))
    assert live_training.Lines.now == ""


def test_an_engine_alone_prints_lines(monkeypatch):
    import IPython

    monkeypatch.setattr(IPython, "get_ipython", lambda: SimpleNamespace(kernel=object()))
    monkeypatch.setenv("TTKIT_PROGRESS", "0")
    assert isinstance(live_training.progress(run(), 3), live_training.Page)
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "0")
    assert isinstance(live_training.progress(run(), 3), live_training.Lines)


@pytest.fixture
def shown(monkeypatch):
    """All that is displayed or put in the place of it, in order: (which, data)."""
    import IPython

    monkeypatch.setenv("TTKIT_PROGRESS", "1")
    found, count = [], iter(range(9))

    def display(data, raw=False, display_id=False):
        which = next(count)
        found.append((which, data))
        return SimpleNamespace(update=lambda data, raw=False: found.append((which, data)))

    monkeypatch.setattr(IPython.display, "display", display)
    return found


def test_a_page_shows_the_figures_and_leaves_the_chart(shown):
    trainer = run()
    view = live_training.Page(trainer, 3)
    assert shown[0][1]["text/plain"].startswith("step 0\nstories: 0 steps")
    trainer.history.append(record(1, 2.5))
    view.update(record(1))
    assert len(shown) == 1  # too soon after the first
    view.drawn -= live_training.EVERY_S
    view.update(record(1, 2.5))
    which, data = shown[-1]
    figures = "step 1/3: loss 6.0000, validation 2.5000, 12,346 tokens/s, "
    assert which == 0 and data["text/plain"].startswith(figures)
    view.close()
    chart = "stories: 1 step\n  training loss: 6 at step 1\n  validation loss: 2.5 at step 1"
    assert shown[-1][0] == 0 and shown[-1][1]["text/plain"].endswith(f" s left\n{chart}")
    # The page is as tall before the first step as after the last: a line of words, then the chart.
    words = r"<div[^>]*>[^<>]+</div><div[^>]*min-height:0px\">[^<>]*</div></div>.*<svg"
    assert all(re.search(words, data["text/html"], re.DOTALL) for _, data in shown)


def test_a_page_shows_what_the_model_writes(shown):
    trainer = run()
    trainer.sample = lambda prompt, temperature: f"{prompt} at <{len(trainer.history)}>"
    view = live_training.Page(trainer, 3, "The fox")
    for step in (1, 2):
        trainer.history.append(record(step))
        view.drawn -= live_training.EVERY_S
        view.update(record(step))
        data = shown[-1][1]
        assert f"\nThe model writes: The fox at <{step}>\nstories: " in data["text/plain"]
        assert f"The fox at &lt;{step}&gt;" in data["text/html"]


def test_where_outputs_are_compared_only_the_chart_is_shown(shown, monkeypatch):
    monkeypatch.setenv("TTKIT_PROGRESS", "0")
    trainer = run(1)
    view = live_training.Page(trainer, 3)
    view.drawn -= 1
    view.update(record(1))
    assert shown == []
    view.close()
    assert [repr(chart) for _, chart in shown] == ["stories: 1 step\n  training loss: 6 at step 1"]


def test_an_update_stays_small_however_long_the_run_is(shown):
    trainer = run(20_000)
    view = live_training.Page(trainer, 40_000)
    view.drawn = 0
    view.update(trainer.history[-1])
    assert len(shown) == 2 and len(shown[-1][1]["text/html"]) < 60_000


def test_an_interrupt_ends_the_cell(shown, monkeypatch, tmp_path, capsys):
    """The notebook's stop button interrupts the kernel; the run is saved, the chart stays, no later
    line of the cell runs, and in another cell the same call goes on.
    """
    import IPython

    monkeypatch.setattr(IPython, "get_ipython", lambda: SimpleNamespace(kernel=object()))
    with tiny.trainer(checkpoint_dir=str(tmp_path)) as trainer:

        def stop(record):
            if record.step == 2:
                signal.raise_signal(signal.SIGINT)

        with pytest.raises(KeyboardInterrupt) as ended:
            trainer.fit(5, on_step=stop)
            trainer.fit(9)
        saved = tmp_path / "step_00000002.safetensors"
        stopped = f"Stopped after step 2. Saved {saved}; the same call resumes from there."
        # a sentence in place of frames, and not printed besides
        assert ended.value._render_traceback_() == [f"KeyboardInterrupt: {stopped}"]
        assert trainer.steps == 2 and saved.exists() and not capsys.readouterr().out
        assert "\ntt_train_nano_gpt: 2 steps" in shown[-1][1]["text/plain"]
        assert [each.step for each in trainer.fit(3)] == [3, 4, 5]
