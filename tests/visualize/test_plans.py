"""The chart of training: the losses of a run."""

from types import SimpleNamespace

from ttkit.train.config.settings import Settings, TrainingConfig
from ttkit.train.run.checkpoint import Record
from ttkit.visualize.charts.plans import loss_curves


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
