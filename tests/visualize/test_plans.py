"""Charts of training: the losses of a run, and memory against speed."""

from types import SimpleNamespace

from ttkit.train.config.settings import Settings, TrainingConfig
from ttkit.train.run.checkpoint import Record
from ttkit.visualize.charts.plans import loss_curves, pareto


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
        repr(loss_curves(trainer))
        == "stories: 4 steps\n  training loss: 6 at step 1, 3 at step 2, 2 at step 3, 1.5 at step 4"
    )
    trainer.history[2] = record(3, 2.5)
    assert repr(loss_curves(trainer)).endswith("validation loss: 2.5 at step 3")
    assert repr(loss_curves(run())) == "stories: 0 steps\n  training loss: nothing yet"


POINTS = (("A", 2.0, 10.0), ("B", 1.0, 5.0), ("C", 3.0, 9.0), ("D", 2.0, 8.0), ("E", 4.0, 12.0))


def test_the_bars_are_the_front():
    fitting = [
        SimpleNamespace(layout=name, memory=SimpleNamespace(total=1e9 * gb), tokens_per_s=speed)
        for name, gb, speed in POINTS
    ]
    machine = SimpleNamespace(room=10.8e9)
    chart = pareto(SimpleNamespace(fitting=fitting, machine=machine, title="layouts"))
    assert repr(chart).splitlines()[1:] == [
        "  B: 1 GB, 5 tokens/s",
        "  A: 2 GB, 10 tokens/s",
        "  E: 4 GB, 12 tokens/s",
    ]
    nothing = pareto(SimpleNamespace(fitting=[], machine=machine, title="layouts"))
    assert "<img" in chart._repr_html_() and "<img" in nothing._repr_html_()
