"""The training loop: the same on every mesh, the same after a resume, and nothing lost whatever
happens.
"""

import json
import os
import pathlib
import signal
import types

import numpy as np
import psutil
import pytest
from train.runs import latest, refused
from train.tiny import DEVICES, TEXT, TRAINING, losses, tiny, trainer, weights

from ttkit.errors import OutOfMemoryError
from ttkit.train import AutoContext, DistributedConfig, Trainer
from ttkit.train.config.settings import DeviceConfig, SchedulerConfig
from ttkit.train.model.modules import Parameter
from ttkit.train.run import checkpoint

ROOT = pathlib.Path(__file__).resolve().parents[2]
PARALLEL = [name for name in DEVICES if name != "one"]


def logged(folder):
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


# ------------------------------------------------------------ the same on every mesh
VARIANTS = {
    "AdamW, in parts, with validation": {"gradient_accumulation_steps": 2, "eval_every": 2},
    "Llama, SGD, clipped": {
        "model": {"model_type": "llama"},
        "optimizer": {"type": "SGD", "lr": 0.3, "momentum": 0.9},
        "use_clip_grad_norm": True,
        "clip_grad_norm_max_norm": 0.5,
    },
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_losses_are_those_of_one_chip(variant):
    found = {}
    for form in DEVICES:
        with trainer(form, **VARIANTS[variant]) as run:
            records = run.fit(4, show=False)
            found[form] = np.array(
                [(record.loss, record.validation_loss or 0) for record in records]
            )
    assert found["one"][-1, 0] < found["one"][0, 0]
    for form in PARALLEL:
        np.testing.assert_allclose(found[form], found["one"], rtol=1e-5, err_msg=form)


def test_the_learning_rate_follows_the_schedule():
    schedule = SchedulerConfig(max_lr=0.4, min_lr=0.1, warmup_steps=4, hold_steps=2)
    with trainer(
        scheduler=schedule, scheduler_type="warmup_linear", optimizer={"type": "SGD"}, max_steps=10
    ) as run:
        records = run.fit(show=False)
    np.testing.assert_allclose(
        [r.lr for r in records], [0.1, 0.2, 0.3, 0.4, 0.4, 0.4, 0.4, 0.325, 0.25, 0.175]
    )


def test_bfloat16_learns_what_float32_learns():
    full = np.array(losses(10, learning_rate=3e-3))
    narrow = np.array(losses(10, learning_rate=3e-3, precision="bfloat16"))
    assert full[-1] < full[0] - 0.5
    np.testing.assert_allclose(narrow, full, rtol=0.02)  # a bfloat16 has 8 bits: 0.4 %
    np.testing.assert_allclose(
        losses(5, "DP2xTP2", learning_rate=3e-3, precision="bfloat16"), full[:5], rtol=0.02
    )


def test_validation_is_the_mean_over_the_text_that_is_held_out():
    with trainer(eval_every=2, validation_batch_size=4, model={"dropout_prob": 0.3}) as run:
        records = run.fit(5, show=False)
        assert [record.step for record in records if record.validation_loss is not None] == [
            2,
            4,
            5,
        ]
        # no dropout in it, and nothing is learned from it
        assert run.validate() == records[-1].validation_loss
        run.step()
        assert run.model.training
        held_out = run.validation.dataset.ids
        assert np.array_equal(held_out, run.tokenizer.encode(TEXT)[-held_out.size :])


# ------------------------------------------------------------ resuming
EXACT = {
    "one": {"model": {"dropout_prob": 0.1}, "gradient_accumulation_steps": 2},
    "DP2xTP2": {},
    "bfloat16": {"precision": "bfloat16"},
}


@pytest.mark.parametrize("form", EXACT)
def test_a_resume_is_exact_on_the_same_mesh(form, tmp_path):
    options = {"form": form if form in DEVICES else "TP4", "eval_every": 3, **EXACT[form]}
    with trainer(**options) as run:
        run.fit(6, show=False)
        whole, end = run.history, weights(run)
    for _ in range(3):
        with trainer(checkpoint_dir=str(tmp_path), **options) as run:
            run.fit(2, show=False)
            history, now = run.history, weights(run)
    assert [(r.step, r.loss, r.lr) for r in history] == [(r.step, r.loss, r.lr) for r in whole]
    assert history[2].validation_loss == whole[2].validation_loss
    np.testing.assert_equal(now, end)


def test_a_resume_on_other_meshes(tmp_path, capsys):
    whole = losses(8)
    for form in ("DP2xTP2", "one", "TP4", "DP4"):
        with trainer(form, checkpoint_dir=str(tmp_path)) as run:
            run.fit(2, show=False)
    assert "Resuming from step 6" in capsys.readouterr().out
    np.testing.assert_allclose([record.loss for record in run.history], whole, rtol=1e-5)
    assert [line["step"] for line in logged(tmp_path)] == list(range(1, 9))


def test_the_log_has_each_step_once(tmp_path):
    options = {"checkpoint_dir": str(tmp_path), "model_save_interval": 2, "eval_every": 2}
    with trainer(**options) as run:
        run.fit(4, show=False)
    first = logged(tmp_path)
    assert [line["step"] for line in first] == [1, 2, 3, 4]
    assert [bool(line["validation_loss"]) for line in first] == [False, True, False, True]
    # as after kill -9 between two checkpoints: the log is ahead of them
    latest(tmp_path).unlink()
    with open(tmp_path / "log.jsonl", "a") as file:
        file.write('{"step": 5, "lo')
    with trainer(**options) as run:
        assert run.steps == 2
        run.fit(3, show=False)
    again = logged(tmp_path)
    assert [line["step"] for line in again] == [1, 2, 3, 4, 5]
    assert [line["loss"] for line in again[:4]] == [line["loss"] for line in first]


# ------------------------------------------------------------ interrupted
def test_ctrl_c_saves_after_the_step(tmp_path, capsys):
    def stop(record):
        if record.step == 2:
            os.kill(os.getpid(), signal.SIGINT)

    with trainer(checkpoint_dir=str(tmp_path)) as run:
        assert len(run.fit(6, show=False, on_step=stop)) == 2
        path = latest(tmp_path)
        assert (
            f"Stopped after step 2. Saved {path}; the same call resumes from there."
            in capsys.readouterr().out
        )
        run.fit(2, show=False)
    assert [record.loss for record in run.history] == losses(4)
    with trainer() as run:
        run.fit(3, show=False, on_step=stop)
    assert "checkpoint_dir is empty, so nothing was saved" in capsys.readouterr().out


def test_the_second_ctrl_c_interrupts_at_once(tmp_path):
    def stop(record):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with trainer(checkpoint_dir=str(tmp_path)) as run, pytest.raises(KeyboardInterrupt):
        run.fit(6, show=False, on_step=stop)
    assert signal.getsignal(signal.SIGINT) is before and not checkpoint.checkpoints(tmp_path)


def test_a_damaged_checkpoint_is_refused_and_an_earlier_one_goes_on(tmp_path):
    options = {"checkpoint_dir": str(tmp_path), "model_save_interval": 2}
    with trainer(**options) as run:
        run.fit(4, show=False)
    newest = latest(tmp_path)
    newest.write_bytes(newest.read_bytes()[:-100])
    refused(lambda: trainer(**options), newest.name, "it was cut short", "Trainer(..., step=N)")
    assert not AutoContext.get_instance().is_device_open()  # the next trainer may open another mesh
    with trainer(**options, step=2) as run:
        assert run.steps == 2


def test_checkpoints_of_others(tmp_path):
    with trainer(checkpoint_dir=str(tmp_path / "ours")) as run:
        run.fit(1, show=False)

    def ours(**model):
        return lambda: trainer(checkpoint_dir=str(tmp_path / "ours"), model=model)

    refused(ours(num_heads=2), "num_heads is 4, the configuration says 2")
    refused(ours(embedding_dim=64), "embedding_dim is 32, the configuration says 64")
    refused(ours(model_type="llama"), "model_type is gpt2, the configuration says llama")
    refused(
        ours(max_sequence_length=32),
        "parameter position: values of shape [1, 1, 16, 32] for [1, 1, 32, 32]",
    )
    with ours(dropout_prob=0.5)() as run:
        assert run.steps == 1
    refused(
        lambda: trainer(checkpoint_dir=str(tmp_path / "ours"), optimizer={"type": "SGD"}),
        "exp_avg",
        "SGD",
    )


def test_a_model_that_the_host_cannot_hold_is_refused_before_anything_is_allocated(monkeypatch):
    monkeypatch.setattr(Parameter, "draw", lambda *args: pytest.fail("it was allocated"))
    refused(
        lambda: trainer(model={"embedding_dim": 10**5}),
        "embedding_dim 100,000",
        "must hold 642 GB of weights, gradients and optimizer state",
        "ttkit train --plan",
        kind=OutOfMemoryError,
    )
    monkeypatch.setattr(psutil, "virtual_memory", lambda: types.SimpleNamespace(available=100_000))
    refused(
        trainer,
        "embedding_dim 32",
        "this host has 100 kB free and must hold ",
        kind=OutOfMemoryError,
    )


def test_a_loss_that_is_no_number_leaves_the_weights(tmp_path):
    with trainer(
        checkpoint_dir=str(tmp_path), optimizer={"type": "SGD", "lr": 1e30}, model_save_interval=1
    ) as run:
        with np.errstate(all="ignore"):
            output = refused(
                lambda: run.fit(20, show=False), "the loss is ", "a smaller learning rate"
            )
        assert output.startswith(f"step {run.steps + 1}: ") and len(run.history) == run.steps
        before = weights(run)
        with np.errstate(all="ignore"):
            refused(run.step, f"step {run.steps + 1}")
        assert all(
            np.array_equal(before[name], after, equal_nan=True)
            for name, after in weights(run).items()
        )
        assert checkpoint.load(latest(tmp_path))[1]["step"] == run.steps


def test_batches_that_do_not_divide():
    options = {"batch_size": 12, "gradient_accumulation_steps": 2}
    refused(
        lambda: trainer("DP4", **options),
        "batch_size 12 is not divisible by 2 gradient_accumulation_steps x 1 ranks x 4 replicas "
        "= 8: 12 % 8 = 4",
        "batch_size 8 or 16",
    )
    refused(lambda: trainer("TP4", model={"num_heads": 2}), "num_heads", "devices = 4")


def test_texts_that_are_not_there(tmp_path):
    refused(
        lambda: Trainer(tiny(data_path=str(tmp_path / "none.txt"))), "text not found", "none.txt"
    )
    refused(lambda: trainer(text="short"), "a longer text")
    (tmp_path / "some.txt").write_text(TEXT)
    with Trainer(tiny(data_path=str(tmp_path / "some.txt"))) as run, trainer() as other:
        assert run.text == other.text


def test_a_mesh_that_is_open_for_something_else():
    context = AutoContext.get_instance()
    context.open_device([1, 4])
    refused(
        lambda: trainer("DP2xTP2"),
        "the open device is a (1, 4) mesh, the configuration's mesh_shape is (2, 2)",
    )
    assert context.is_device_open()  # it was not the trainer that opened it
    context.initialize_parallelism_context(DistributedConfig(enable_ddp=True))
    assert trainer("TP4").layout.tp == 4 and context.get_parallelism_context().get_tp_size() == 4
    with trainer(DeviceConfig((1, 4))) as run:
        assert run.layout.tp == run.layout.dp == 1


def test_the_end_of_a_run():
    with trainer(max_steps=3) as run:
        assert [record.step for record in run.fit(show=False)] == [1, 2, 3]
        assert run.fit(show=False) == []
        assert [record.step for record in run.fit(1, show=False)] == [4]  # more when asked for
    assert TRAINING.checkpoint_dir == "" and run.run_folder is None
    refused(run.save, "checkpoint_dir is empty")
