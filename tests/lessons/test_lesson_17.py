"""Lesson 17: its exercises with right and with wrong answers."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from answers import both
from machine import close_all

import ttkit
from course.common import changed
from course.lesson_17 import GIVEN, lesson_folder
from ttkit import lessons, ttnn
from ttkit.train import AutoContext, read_settings, synchronize_gradients
from ttkit.train.config.settings import DeviceConfig
from ttkit.train.parallel.data_parallel import average_gradients


@pytest.fixture(autouse=True)
def as_in_a_lesson():
    ttkit.strict()
    ttkit.use_system("t3000")
    yield
    left_open = AutoContext.get_instance().is_device_open()
    close_all()
    ttkit.strict(False)
    ttkit.use_system(None)
    assert not left_open


def on(mesh_shape, parts, ddp=True, tp=False, **training):
    def smaller(settings):
        device = DeviceConfig(mesh_shape, enable_ddp=ddp, enable_tp=tp)
        return replace(
            settings,
            device_config=device,
            training_config=replace(
                settings.training_config, gradient_accumulation_steps=parts, **training
            ),
        )

    return smaller


def doing(words, times=1):
    """A training step that calls these in order, with `times` the loss."""

    def step(model, optimizer, x, y):
        loss = model.loss(model(x), y)
        calls = {
            "zero": optimizer.zero_grad,
            "backward": (loss * times).backward,
            "mean": lambda: synchronize_gradients(model.parameters()),
            "step": optimizer.step,
        }
        for word in words.split():
            calls[word]()
        return loss

    return step


in_order, cleared_at_the_end = doing("zero backward mean step"), doing("backward mean step zero")
cleared_before_the_mean = doing("backward zero mean step")


def in_buckets(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = model.loss(model(x), y)
    loss.backward()
    average_gradients(model.parameters(), bucket_mb=25)
    optimizer.step()
    return float(np.mean([ttkit.to_numpy(t) for t in ttnn.get_device_tensors(loss.get_value())]))


def weights_averaged(model, optimizer, x, y):
    """As right as the mean of gradients, where a step is proportional to its gradient."""
    optimizer.zero_grad()
    loss = model.loss(model(x), y)
    loss.backward()
    optimizer.step()
    for parameter in model.parameters().values():
        total = ttnn.all_reduce(parameter.get_value(), cluster_axis=1)
        parameter.set_value(ttnn.multiply(total, 1 / 4))
    return loss


def by_hand(model, optimizer, x, y):
    """The mean of each gradient with an all-reduce, and zero_grad last."""
    loss = model.loss(model(x), y)
    loss.backward()
    for parameter in model.parameters().values():
        total = ttnn.all_reduce(parameter.get_grad(), cluster_axis=1)
        parameter.set_grad(ttnn.multiply(total, 1 / 4))
    optimizer.step()
    optimizer.zero_grad()
    return loss


test_a_right_answer_passes, test_a_wrong_answer_is_told_where = both(
    {
        "17.budget": (
            [
                on((2, 2), 4, tp=True),
                lambda settings: changed(
                    settings, mesh_shape=(2, 2), enable_tp=True, gradient_accumulation_steps=4
                ),
            ],
            {
                "3,952,896 bytes on each chip": on((1, 4), 4),
                "bytes on each chip; the budget is": on((2, 2), 1, tp=True),
                "it fits, but a step takes": on((2, 2), 8, tp=True),
                "only the mesh and the accumulation may change": on((1, 4), 1, batch_size=4),
                "that cannot be run: ": on((4, 4), 1, tp=True),
            },
        ),
        "17.loop": (
            [in_order, by_hand, lambda *given: np.float32(in_buckets(*given)), cleared_at_the_end],
            {
                "the gradients of earlier steps were added: optimizer.zero_grad() is missing": (
                    doing("backward mean step")
                ),
                "the replicas are different models": doing("zero backward step"),
                "is zero_grad() between backward() and optimizer.step()?": (
                    doing("backward mean zero step")
                ),
                "4 times too large": doing("zero backward mean step", 4),
                "4 times too small: synchronize_gradients already divides by four": (
                    doing("zero backward mean step", 1 / 4)
                ),
                "does backward() or optimizer.step() run twice": doing(
                    "zero backward mean step step"
                ),
                "with AdamW, the weights, as [step, replica, number]: element [0, 0": weights_averaged,
            },
        ),
    }
)


def test_gradients_that_were_cleared_before_their_mean_are_named():
    with pytest.raises(RuntimeError, match=r"or zero_grad\(\) came after it"):
        lessons.check("17.loop", cleared_before_the_mean)


def test_an_open_mesh_is_named():
    AutoContext.get_instance().open_device([1, 2])
    try:
        with pytest.raises(lessons.CheckFailed, match=r"trainer.close\(\) first"):
            lessons.check("17.loop", in_order)
    finally:
        AutoContext.get_instance().close_device()


def test_where_nobody_learns_the_folder_is_fresh_each_time(monkeypatch):
    monkeypatch.setenv("TTKIT_LEARNER", "")
    monkeypatch.chdir(".")  # back here at the end
    lesson_folder()
    assert read_settings("gpt.yaml").transformer_config == GIVEN.transformer_config
    Path("checkpoints").mkdir()
    lesson_folder()
    assert [path.name for path in Path.cwd().iterdir()] == ["gpt.yaml"]


def test_a_learners_checkpoints_stay_until_a_fresh_folder_is_asked_for(monkeypatch, tmp_path):
    monkeypatch.setenv("TTKIT_LEARNER", str(tmp_path / "lessons.json"))
    monkeypatch.chdir(".")
    lesson_folder()
    Path("checkpoints").mkdir()
    lesson_folder()
    assert Path("checkpoints").is_dir() and Path.cwd().parent == tmp_path
    lesson_folder(fresh=True)
    assert [path.name for path in Path.cwd().iterdir()] == ["gpt.yaml"]
