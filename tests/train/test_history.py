"""What training returns: a list of records that shows itself in five lines; and a trainer's own
lines.
"""

import copy
import pickle
from pathlib import Path

import pytest
from train.tiny import trainer as tiny_trainer

from ttkit.train.run.history import History
from ttkit.train.run.run_folder import Record


def records(first, last, validation=None):
    return [
        Record(step, 6 / step, 1e-3, 0.5, 1000.0 * step, validation and validation + step)
        for step in range(first, last + 1)
    ]


def test_it_is_a_list_of_records():
    given = records(1, 5)
    history = History(given, Path("ck"))
    assert history == given and given == history and history != given[:4]
    assert len(history) == 5 and history[-1].loss == 6 / 5 and [*history] == given
    assert isinstance(history[1:3], History) and history[1:3] == given[1:3]
    assert history[1:3].checkpoint is None  # which is that of the last step
    both = history + History(records(6, 7), Path("other"))
    assert isinstance(both, History) and both == records(1, 7) and both.checkpoint == Path("other")
    assert history + [given[0]] == [*given, given[0]]
    for same in (pickle.loads(pickle.dumps(history)), copy.deepcopy(history)):
        assert same == history and same.checkpoint == Path("ck")


def test_it_shows_itself_in_five_lines(monkeypatch):
    monkeypatch.setenv("TTKIT_PROGRESS", "1")
    history = History(records(1, 400, 2.0), Path("ck/step_00000400.safetensors"))
    assert repr(history).splitlines() == [
        "400 steps, 1 to 400",
        "loss 6 at first, 0.015 at last",
        "best validation loss 3, at step 1",
        "200 s, 200,500 tokens/s (measured)",
        "checkpoint: ck/step_00000400.safetensors",
    ]
    assert history._repr_html_().count("<br>") == 4 and "200,500" in history._repr_html_()
    assert repr(History()) == "no steps"
    assert "checkpoint: a&lt;b" in History(records(1, 1), Path("a<b"))._repr_html_()


def test_what_is_measured_is_not_shown_where_outputs_are_compared(monkeypatch):
    monkeypatch.setenv("TTKIT_PROGRESS", "0")
    assert repr(History(records(1, 1))) == "1 step, 1 to 1\nloss 6 at first, 6 at last"


def test_fit_returns_it_with_its_checkpoint(tmp_path):
    with tiny_trainer(eval_every=2, checkpoint_dir=str(tmp_path)) as trainer:
        first = trainer.fit(2, show=False)
        path = tmp_path / "step_00000002.safetensors"
        assert first.checkpoint == path and path.exists()
        assert first + trainer.fit(1, show=False) == trainer.history
        assert isinstance(trainer.history, History)
    with tiny_trainer(checkpoint_dir=str(tmp_path)) as trainer:
        assert isinstance(trainer.history, History) and len(trainer.history) == 3
    with tiny_trainer() as trainer:
        assert trainer.fit(1, show=False).checkpoint is None


@pytest.mark.parametrize("form, axes", [("one", "one copy on each chip"), ("DP4", "DDP on axis 1")])
def test_a_trainer_says_what_it_trains(form, axes):
    with tiny_trainer(form, project_name="stories") as trainer:
        lines = repr(trainer).splitlines()
        assert lines[0] == "Trainer of stories" and "0x" not in repr(trainer)
        count = sum(array.size for array in weights_of(trainer))
        assert lines[1] == f"  model: gpt2, 1 block, {count:,} parameters"
        assert lines[2] == f"  mesh: 1x{4 if form == 'DP4' else 1}, {axes}"
        assert lines[3] == "  batch: 8 sequences of 16 tokens"
        end = f"of {trainer.max_steps}"
        assert lines[4] == f"  step 0 {end}; checkpoints: none"
        (record,) = trainer.fit(1, show=False)
        assert repr(trainer).endswith(f"  step 1 {end}, loss {record.loss:.3g}; checkpoints: none")


def weights_of(trainer):
    return [parameter.gather() for parameter in trainer.parameters.values()]
