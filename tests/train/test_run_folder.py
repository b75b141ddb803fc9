"""The folder of a run: one trainer at a time, a log that grows with the run, and the checkpoint
to go on from.
"""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import warnings

import numpy as np
import pytest
from train.tiny import losses, trainer

from ttkit import TTKitError, cli
from ttkit.train import AutoContext
from ttkit.train.run import checkpoint
from ttkit.train.run.run_folder import LOCK, LOG, Record, RunFolder, not_finite
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


def rewritten(path, change):
    """Change the meta of a checkpoint, and sign it again."""
    tensors, meta = checkpoint.load(path)
    checkpoint.save(path.parent, checkpoint.step_of(path), tensors, change(meta))


# ------------------------------------------------------------ one trainer at a time
HOLD = """
import os, sys, time
from pathlib import Path
from ttkit.train.run.run_folder import RunFolder
folder = RunFolder(Path(sys.argv[1]))
folder.take()
ready, tell = os.pipe()
child = os.fork() if sys.argv[2] == "fork" else -1
if child <= 0:
    os.write(tell, b"!")  # the child has started
if child != 0:
    os.read(ready, 1)
    print(os.getpid(), child, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("how", ["alone", "fork"])
def test_a_second_process_is_refused_until_the_first_is_gone(tmp_path, how):
    # of a process that was killed: the lock is free
    (tmp_path / LOCK).write_text('{"host": "elsewhere", "pid": 1}')
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, tmp_path, how], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as other:
        pid, child = map(int, other.stdout.readline().split())
        refused(
            RunFolder(tmp_path).take,
            f"train in {tmp_path}: process {pid} on {socket.gethostname()} trains there since 20",
            "another checkpoint_dir",
        )
        other.kill()
        other.wait()
        folder = RunFolder(tmp_path)
        folder.take()  # the child of the fork lives on, and does not hold it
        assert json.loads((tmp_path / LOCK).read_text())["pid"] == os.getpid()
        if child > 0:
            os.kill(child, signal.SIGKILL)
    folder.release()


def test_a_trainer_holds_its_folder_from_its_first_step_to_its_end(tmp_path):
    hold = [sys.executable, "-c", HOLD.replace("time.sleep(60)", ""), str(tmp_path), "alone"]
    with trainer(checkpoint_dir=str(tmp_path)) as run:
        # it has written nothing yet
        assert subprocess.run(hold, cwd=ROOT, capture_output=True).returncode == 0
        run.fit(1, show=False)
        done = subprocess.run(hold, cwd=ROOT, capture_output=True, text=True)
        assert f"process {os.getpid()} on " in done.stderr
    assert subprocess.run(hold, cwd=ROOT, capture_output=True).returncode == 0


def test_of_two_trainers_in_one_process_the_newer_one_goes_on(tmp_path):
    first = trainer(checkpoint_dir=str(tmp_path))
    first.fit(2, show=False)
    with trainer(checkpoint_dir=str(tmp_path)) as second:  # a cell of a notebook that is run again
        second.fit(1, show=False)
        refused(
            lambda: first.fit(1, show=False),
            "another Trainer of this process has taken the folder over",
        )
        second.fit(1, show=False)
        first.close()
        hold = [sys.executable, "-c", HOLD, str(tmp_path), "alone"]
        assert subprocess.run(hold, cwd=ROOT, capture_output=True).returncode != 0
    assert [record.loss for record in second.history] == losses(4)


def test_a_trainer_that_others_have_overtaken_is_refused(tmp_path):
    early = trainer(checkpoint_dir=str(tmp_path))
    trained(tmp_path, 1)
    refused(
        lambda: early.fit(1, show=False),
        "its newest checkpoint was none when this trainer was made, "
        "and is step_00000001.safetensors",
    )


def test_a_trainer_that_nobody_closes_gives_its_folder_back(tmp_path):
    folder = RunFolder(tmp_path)
    folder.take()
    del folder
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        RunFolder(tmp_path).take()


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
    assert not_finite({"whole": np.arange(3), "yes": np.array([True])}) == ""


def test_an_earlier_step_is_chosen_by_its_number(tmp_path, capsys):
    run = trained(tmp_path, 4)
    newest = checkpoint.latest(tmp_path)
    tensors, meta = checkpoint.load(newest)
    # as an older ttkit did
    checkpoint.save(
        tmp_path,
        4,
        tensors | {"model/position": np.full_like(tensors["model/position"], np.nan)},
        meta,
    )
    refused(
        lambda: trainer(checkpoint_dir=str(tmp_path)),
        f"{newest.name} holds numbers that are not finite, in model/position",
        "step=3",
        "--step 3",
    )
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


BAD = {
    "meta settings: field required": lambda meta: {
        key: value for key, value in meta.items() if key != "settings"
    },
    "meta settings.transformer_config: field required": lambda meta: (
        meta | {"settings": {"training_config": {}}}
    ),
    "meta settings: input should be": lambda meta: meta | {"settings": 3},
    "meta tokenizer: input should be a valid dictionary": lambda meta: meta | {"tokenizer": None},
    "meta step: input should be": lambda meta: meta | {"step": "seven"},
    "meta optimizer_steps: input should be": lambda meta: meta | {"optimizer_steps": -1},
    "Unknown tokenizer_type: word": lambda meta: meta | {"tokenizer": {"tokenizer_type": "word"}},
    "its tokenizer_type is None": lambda meta: (
        meta | {"settings": {"training_config": {}, "transformer_config": {}}}
    ),
}


@pytest.mark.parametrize("rule", BAD)
def test_a_signed_checkpoint_with_bad_meta_says_so(tmp_path, rule):
    trained(tmp_path, 1)
    rewritten(checkpoint.latest(tmp_path), BAD[rule])
    refused(lambda: trainer(checkpoint_dir=str(tmp_path)), rule)


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
