"""The folder of a run: a log that grows with the run, the checkpoint to go on from, and what a
notebook shows of them."""

import copy
import json
import os
import pathlib
import pickle
from pathlib import Path

import numpy as np
import pytest
from train.tiny import losses, trainer
from train.tiny import trainer as tiny_trainer

from ttkit import TTKitError
from ttkit import __main__ as cli
from ttkit.train import AutoContext
from ttkit.train.run import checkpoint
from ttkit.train.run.run_folder import LOG, History, Record
from ttkit.train.run.tokenizers import BPETokenizer

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def closed():
    yield
    AutoContext.get_instance().close_device()


def refused(call, *phrases):
    with pytest.raises(TTKitError) as error:
        call()
    assert all(phrase in str(error.value) for phrase in (*phrases, "try: ")), str(error.value)


def trained(folder, steps=4, **options):
    with trainer(checkpoint_dir=str(folder), model_save_interval=1, **options) as run:
        run.fit(steps, show=False)
    return run


# ------------------------------------------------------------ the log
def test_a_checkpoint_is_as_big_at_the_last_step_as_at_the_first(tmp_path):
    trained(tmp_path, 1)
    (first,) = checkpoint.checkpoints(tmp_path)
    assert sorted(checkpoint.load(first)[1]) == ["optimizer_steps", "settings", "step", "tokenizer"]
    with trainer(checkpoint_dir=str(tmp_path)) as run:
        run.history = [Record(step + 1, 1.0, 1e-3, 0.1, 100.0) for step in range(50_000)]
        run.steps = 50_000
        (tmp_path / LOG).unlink()  # it is written anew where it is not as this run left it
        run.fit(1, show=False)
        size = (tmp_path / LOG).stat().st_size
        run.fit(1, show=False)
        assert size < (tmp_path / LOG).stat().st_size < size + 300
    assert abs(checkpoint.latest(tmp_path).stat().st_size - first.stat().st_size) < 100
    with trainer(checkpoint_dir=str(tmp_path)) as again:
        assert again.history == run.history and len(again.history) == 50_002


def test_a_checkpoint_without_its_log_goes_on(tmp_path):
    trained(tmp_path, 3)
    (tmp_path / LOG).unlink()
    run = trained(tmp_path, 1)
    assert [record.step for record in run.history] == [4] and run.history[0].loss == losses(4)[3]


# ------------------------------------------------------------ which checkpoint
def test_weights_that_are_no_numbers_are_not_saved(tmp_path):
    with trainer(checkpoint_dir=str(tmp_path)) as run:
        run.fit(2, show=False)
        name, parameter = next(iter(run.parameters.items()))
        parameter.place(np.full(parameter.global_shape, np.nan, np.float32))
        run.steps = 3
        refused(
            run.save,
            "save step 3",
            f"the update of step 3 left numbers in model/{name} that are not finite",
            "step 2 again: Trainer(..., step=2)",
        )
        with np.errstate(all="ignore"):
            refused(run.step, "step 4: the loss is nan", "ttkit train --step 2")
    assert [path.name for path in checkpoint.checkpoints(tmp_path)] == ["step_00000002.safetensors"]


def test_an_earlier_step_is_chosen_by_its_number(tmp_path):
    run = trained(tmp_path, 4)
    newest = checkpoint.latest(tmp_path)
    refused(
        lambda: trainer_at(tmp_path, 1),
        "it has no checkpoint of step 1",
        "one of the steps 4, 3, 2",
    )
    with trainer_at(tmp_path, 2) as again:
        # nothing is touched before it trains
        assert again.history == run.history[:2] and newest.exists()
        again.fit(1, show=False)
    assert sorted(path.name for path in tmp_path.glob("step*")) == [
        "step_00000002.safetensors",
        "step_00000003.safetensors",
        "step_00000003.safetensors.set_aside",
        "step_00000004.safetensors.set_aside",
    ]
    assert [record.loss for record in again.history] == losses(3)
    assert len((tmp_path / LOG).read_text().splitlines()) == 3


def trainer_at(folder, step):
    return trainer(checkpoint_dir=str(folder), step=step)


def test_the_step_on_the_command(tmp_path, capsys):
    file = tmp_path / "run.yaml"
    file.write_text(
        f"training_config: {{batch_size: 4, max_steps: 3, tokenizer_type: byte, checkpoint_dir: "
        f"{tmp_path}/kept, model_save_interval: 1, eval_every: 0}}\n"
        "transformer_config: {num_heads: 2, embedding_dim: 32, num_blocks: 1, "
        "max_sequence_length: 32}\n"
    )
    assert cli.main(["train", "--config", str(file)]) == 0
    assert cli.main(["train", "--config", str(file), "--step", "2"]) == 0
    assert "Going on from step 2" in capsys.readouterr().out
    assert cli.main(["train", "--config", str(file), "--step", "9"]) == 1
    assert "it has no checkpoint of step 9" in capsys.readouterr().err
    refused(lambda: trainer(step=3), "Trainer(step=3)", "checkpoint_dir is empty")


def test_another_tokenizer_is_refused(tmp_path):
    trained(tmp_path, 1)
    refused(
        lambda: trainer(checkpoint_dir=str(tmp_path), tokenizer_type="char"),
        "its tokenizer_type is byte, the configuration says char",
        "tokenizer_type: byte",
    )


def test_another_tokenizer_path_is_refused(tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(BPETokenizer.train("the mesh").to_dict()["tokenizer"]))
    options = {"tokenizer_type": "bpe", "tokenizer_path": str(path)}
    trained(tmp_path / "run", 1, **options)
    for other in (None, "another.json"):
        changed = options | {"tokenizer_path": other}
        refused(
            lambda changed=changed: trainer(checkpoint_dir=str(tmp_path / "run"), **changed),
            f"its tokenizer_path is {path}, the configuration says {other}",
            f"tokenizer_path: {path}",
        )
    path.unlink()  # the checkpoint has the tokenizer
    assert trained(tmp_path / "run", 1, **options).steps == 2


MADE = {
    "folder": lambda path: path.mkdir(),
    "link to nothing": lambda path: path.symlink_to("nowhere"),
    "pipe": os.mkfifo,
}


@pytest.mark.parametrize("made", MADE)
def test_what_is_named_like_a_checkpoint_and_is_no_file_is_passed_over(tmp_path, made):
    trained(tmp_path, 1)
    path = tmp_path / "step_00000009.safetensors"
    MADE[made](path)
    assert trained(tmp_path, 1).steps == 2
    if path.is_dir():
        refused(
            lambda: checkpoint.save(tmp_path, 9, {}, {}),
            "it cannot be written: Is a directory",
        )
    else:
        assert checkpoint.load(checkpoint.save(tmp_path, 9, {}, {"a": 1}))[1] == {"a": 1}


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
        assert [*first, *trainer.fit(1, show=False)] == trainer.history
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
