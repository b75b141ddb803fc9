"""The folder of a run: a log that grows with the run, checkpoints that are whole or not there, the
one to go on from, and what a notebook shows of them."""

import json
import os
import resource
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy
from train.runs import latest, refused
from train.tiny import losses, trainer

from ttkit import __main__ as cli
from ttkit.errors import fail
from ttkit.train.run import checkpoint
from ttkit.train.run.checkpoint import LOG, History, Record, load, save
from ttkit.train.run.tokenizers import BPETokenizer

TENSORS = {
    "weight": np.arange(6, dtype=np.float32).reshape(1, 1, 2, 3),
    "tokens": np.array([3, 1], np.uint32),
}
DTYPES = "bool int8 int32 int64 uint8 uint32 float16 float32 float64".split()


def trained(folder, steps=4, **options):
    with trainer(checkpoint_dir=str(folder), model_save_interval=1, **options) as run:
        run.fit(steps, show=False)
    return run


# ------------------------------------------------------------ one file
def names(folder):
    return sorted(os.listdir(folder))


arrays = st.sampled_from(sorted(DTYPES)).flatmap(
    lambda dtype: st_numpy.arrays(
        dtype, st_numpy.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
    )
)


@settings(max_examples=10, deadline=None)
@given(
    st.dictionaries(
        st.text(st.characters(blacklist_categories=["Cs"])).filter(
            lambda name: name != "__metadata__"
        ),
        arrays,
        max_size=4,
    ),
    st.text(),
)
def test_what_was_saved_comes_back(tensors, word):
    meta = {"step": 3, "losses": [0.1, 1e-30, 7], "tokenizer": {"characters": word}, "none": None}
    with tempfile.TemporaryDirectory() as folder:
        found, reported = load(save(folder, 3, tensors, meta))
    assert reported == meta and found.keys() == tensors.keys()
    for name, array in tensors.items():
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape
        assert found[name].tobytes() == array.tobytes()
        assert found[name].flags.writeable


def test_the_newest_stay(tmp_path):
    for step in range(0, 100_000_101, 20_000_020):
        save(tmp_path, step, TENSORS, {}, keep=2)
    assert names(tmp_path) == ["step_100000100.safetensors", "step_80000080.safetensors"]
    assert latest(tmp_path).stem == "step_100000100"
    # a run that was set back: what it writes is never what goes
    save(tmp_path, 7, TENSORS, {}, keep=2)
    assert names(tmp_path) == ["step_00000007.safetensors", "step_100000100.safetensors"]
    save(tmp_path, 8, TENSORS, {}, keep=1)
    assert names(tmp_path) == ["step_00000008.safetensors"]
    save(tmp_path, 8, TENSORS, {"again": True}, keep=1)
    assert load(latest(tmp_path))[1] == {"again": True}


def test_other_files_are_left_alone(tmp_path):
    others = ["notes.txt", "step_1.safetensors", "step_00000001.safetensors.bak", ".hidden.part"]
    for name in others:
        (tmp_path / name).write_text("mine")
    (tmp_path / ".step_00000009.safetensors.part").write_text("of a process that was killed")
    for step in range(5):
        save(tmp_path, step, TENSORS, {}, keep=1)
    assert names(tmp_path) == sorted([*others, "step_00000004.safetensors"])


def test_what_is_no_checkpoint_is_refused(tmp_path):
    good = save(tmp_path, 1, TENSORS, {"a": 1})
    bad = tmp_path / "step_00000002.safetensors"
    whole = good.read_bytes()
    for size in (0, 7, 8, 40, len(whole) - 1):
        bad.write_bytes(whole[:size])
        refused(lambda: load(bad), "step_00000002.safetensors: it was cut short or", "step=N")
    safetensors.numpy.save_file(TENSORS, bad)
    refused(lambda: load(bad), "or is no checkpoint of ttkit")
    refused(lambda: load(tmp_path / "no"), "No such file or directory")


def test_a_save_that_fails_leaves_the_others(tmp_path, monkeypatch):
    good = save(tmp_path, 1, TENSORS, {})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        big = {"big": np.zeros(100_000, np.float32)}
        refused(lambda: save(tmp_path, 2, big, {}, keep=1), "cannot be written: File too large")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert names(tmp_path) == [good.name] and latest(tmp_path) == good


# ------------------------------------------------------------ the log
def test_a_checkpoint_is_as_big_at_the_last_step_as_at_the_first(tmp_path):
    trained(tmp_path, 1)
    first = latest(tmp_path)
    assert sorted(checkpoint.load(first)[1]) == ["optimizer_steps", "settings", "step", "tokenizer"]
    with trainer(checkpoint_dir=str(tmp_path)) as run:
        run.history = [Record(step + 1, 1.0, 1e-3, 0.1, 100.0) for step in range(5_000)]
        run.steps = 5_000
        (tmp_path / LOG).unlink()  # each call of `fit` writes it anew
        run.fit(1, show=False)
        size = (tmp_path / LOG).stat().st_size
        run.fit(1, show=False)
        assert size < (tmp_path / LOG).stat().st_size < size + 300
    assert abs(latest(tmp_path).stat().st_size - first.stat().st_size) < 100
    with trainer(checkpoint_dir=str(tmp_path)) as again:
        assert again.history == run.history and len(again.history) == 5_002


# ------------------------------------------------------------ which checkpoint
def test_an_earlier_step_is_chosen_by_its_number(tmp_path):
    run = trained(tmp_path, 4)
    newest = latest(tmp_path)
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
    assert "Resuming from step 2" in capsys.readouterr().out
    assert cli.main(["train", "--config", str(file), "--step", "9"]) == 1
    assert "it has no checkpoint of step 9" in capsys.readouterr().err


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
    refused(
        lambda: trainer(checkpoint_dir=str(tmp_path / "run"), tokenizer_type="char"),
        "its tokenizer_path is",
    )
    path.unlink()  # the checkpoint has the tokenizer
    assert trained(tmp_path / "run", 1, **options).steps == 2


# ------------------------------------------------------------ what is shown
def records(first, last, validation=None):
    return [
        Record(step, 6 / step, 1e-3, 0.5, 1000.0 * step, validation and validation + step)
        for step in range(first, last + 1)
    ]


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
    assert repr(History()) == "no steps"


def test_fit_returns_it_with_its_checkpoint(tmp_path):
    with trainer(eval_every=2, checkpoint_dir=str(tmp_path)) as run:
        first = run.fit(2, show=False)
        path = tmp_path / "step_00000002.safetensors"
        assert first.checkpoint == path and path.exists()
        assert [*first, *run.fit(1, show=False)] == run.history
        assert isinstance(run.history, History)
    with trainer(checkpoint_dir=str(tmp_path)) as run:
        assert isinstance(run.history, History) and len(run.history) == 3
    with trainer() as run:
        assert run.fit(1, show=False).checkpoint is None


def test_every_error_of_ttkit_is_a_message(monkeypatch, capsys):
    """Also those that are a ValueError, as for a character that a tokenizer does not have."""
    said = partial(fail, "encode", "no such character", kind=ValueError)
    monkeypatch.setattr(cli, "command_named", lambda name: lambda parser, words: said())
    assert cli.main(["train"]) == 1
    assert capsys.readouterr().err == "Error: encode: no such character\n"
