"""Lesson 12: its pictures, and its exercises with right and with wrong answers."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from answers import both
from machine import close_all

import ttkit
from course.lesson_12 import (
    GIVEN,
    SMALL,
    changed,
    copy_alone,
    interrupt_at,
    new_folder,
    next_logits,
    next_probs,
)
from ttkit import lessons, ttnn
from ttkit.train import AutoContext, Trainer, read_settings, synchronize_gradients
from ttkit.train.config.settings import DeviceConfig, Settings, TrainingConfig
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


def loss_of_the_new_weights(model, optimizer, x, y):
    in_order(model, optimizer, x, y)
    return model.loss(model(x), y)


def in_order(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = model.loss(model(x), y)
    loss.backward()
    synchronize_gradients(model.parameters())
    optimizer.step()
    return loss


def cleared_at_the_end(model, optimizer, x, y):
    loss = model.loss(model(x), y)
    loss.backward()
    synchronize_gradients(model.parameters())
    optimizer.step()
    optimizer.zero_grad()
    return loss


def without_return(*given):
    in_order(*given)


def averaged_twice(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = model.loss(model(x), y)
    loss.backward()
    synchronize_gradients(model.parameters())
    synchronize_gradients(model.parameters())
    optimizer.step()
    return loss


def in_buckets(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = model.loss(model(x), y)
    loss.backward()
    average_gradients(model.parameters(), bucket_mb=25)
    optimizer.step()
    return float(np.mean([ttkit.to_numpy(t) for t in ttnn.get_device_tensors(loss.get_value())]))


def without_zero_grad(model, optimizer, x, y):
    model.loss(model(x), y).backward()
    synchronize_gradients(model.parameters())
    optimizer.step()


def without_the_mean(model, optimizer, x, y):
    optimizer.zero_grad()
    model.loss(model(x), y).backward()
    optimizer.step()


def with_the_sum(model, optimizer, x, y):
    optimizer.zero_grad()
    (model.loss(model(x), y) * 4).backward()
    synchronize_gradients(model.parameters())
    optimizer.step()


def cleared_before_the_step(model, optimizer, x, y):
    model.loss(model(x), y).backward()
    synchronize_gradients(model.parameters())
    optimizer.zero_grad()
    optimizer.step()


def cleared_before_the_mean(model, optimizer, x, y):
    model.loss(model(x), y).backward()
    optimizer.zero_grad()
    synchronize_gradients(model.parameters())
    optimizer.step()


def averaged_on_the_host(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = model.loss(model(x), y)
    loss.backward()
    for parameter in model.parameters().values():
        grad = parameter.get_grad()
        shards = [ttkit.to_numpy(shard) for shard in ttnn.get_device_tensors(grad)]
        mapper = ttnn.ReplicateTensorToMesh(grad.device())
        how = {"device": grad.device(), "layout": grad.layout, "mesh_mapper": mapper}
        parameter.set_grad(ttkit.from_numpy(np.mean(shards, 0), **how))
    optimizer.step()
    return loss


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


def divided_again(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = model.loss(model(x), y)
    (loss * 0.25).backward()
    synchronize_gradients(model.parameters())
    optimizer.step()
    return loss


def two_steps(model, optimizer, x, y):
    loss = in_order(model, optimizer, x, y)
    optimizer.step()
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
        "12.budget": (
            [
                on((2, 2), 4, tp=True),
                lambda settings: changed(
                    settings, mesh_shape=(2, 2), enable_tp=True, gradient_accumulation_steps=4
                ),
            ],
            {
                "mesh_shape [1, 4], accumulating 4: ": on((1, 4), 4),
                "bytes on each chip; the budget is": on((2, 2), 1, tp=True),
                "mesh_shape [2, 2], accumulating 8: it fits, but a step takes": on(
                    (2, 2), 8, tp=True
                ),
                "batch_size was 16 and is 4 now": on((1, 4), 1, batch_size=4),
                "that cannot be run: ": on((4, 4), 1, tp=True),
                "4x2 is opened as the transpose": on((4, 2), 2, tp=True),
            },
        ),
        "12.loop": (
            [in_order, by_hand, lambda *given: np.float32(in_buckets(*given)), cleared_at_the_end],
            {
                "with SGD after step 2 the weights are not those of one device: it is right but": (
                    without_zero_grad
                ),
                "after step 1 replica 1 is another model than replica 0": without_the_mean,
                "zero_grad() between backward() and it?": cleared_before_the_step,
                "4 times too large": with_the_sum,
                "4 times too small: synchronize_gradients divides by four": divided_again,
                "does backward() or optimizer.step() run twice": two_steps,
                "gave nothing back: does it end in `return`": without_return,
                "the loss that it gives is 3.49, not 3.61": loss_of_the_new_weights,
                "are enough: is synchronize_gradients called twice": averaged_twice,
                "only 0 bytes went over links": averaged_on_the_host,
                "with AdamW after step 1": weights_averaged,
                "take the mean of gradients before optimizer.step()": weights_averaged,
            },
        ),
    }
)


def test_gradients_that_were_cleared_before_their_mean_are_named():
    with pytest.raises(RuntimeError, match=r"zero_grad\(\) before that: later it forgets"):
        lessons.check("12.loop", cleared_before_the_mean)


def test_temperature_spreads_the_chances_and_nothing_is_lost():
    scores = {"a": 2.0, "b": 1.0, "\n": 0.0, "c": -1.0}
    by_hand = np.exp(np.array([2.0, 1.0, 0.0, -1.0]) / 2)
    by_hand = 100 * by_hand / by_hand.sum()
    rows = next_probs(scores, 2.0, most=3).rows
    assert list(rows) == ["'a'", "'b'", "'\\n'", "all others"]
    assert [size for (size,) in rows.values()] == [round(each) for each in by_hand]
    first = [next_probs(scores, t).rows["'a'"][0] for t in (0.1, 1.0, 10.0)]
    assert first[0] == 100 > first[1] > first[2]


def test_the_scores_are_those_that_sample_draws_from():
    training = TrainingConfig(tokenizer_type="char", checkpoint_dir="", batch_size=4)
    small = Settings(DeviceConfig((1, 2), enable_ddp=True), training, transformer_config=SMALL)
    with Trainer(small) as trainer:
        scores = next_logits(trainer, "The f")
        best = max(scores, key=scores.get)
        assert trainer.sample("The f", 1, temperature=0) == "The f" + best
    assert len(scores) == trainer.tokenizer.vocab_size


def test_an_open_mesh_is_named():
    AutoContext.get_instance().open_device([1, 2])
    try:
        with pytest.raises(lessons.CheckFailed, match=r"trainer.close\(\) first"):
            lessons.check("12.loop", in_order)
    finally:
        AutoContext.get_instance().close_device()


def test_a_changed_key_is_found_in_its_section_and_the_others_stay():
    before = Settings()
    after = changed(before, mesh_shape=(2, 2), enable_tp=True, bucket_mb=25, batch_size=8)
    assert after.device_config == DeviceConfig((2, 2), enable_tp=True)
    assert after.layout == replace(before.layout, bucket_mb=25)
    assert after.training_config == replace(before.training_config, batch_size=8)
    assert after.transformer_config == before.transformer_config and changed(before) == before
    with pytest.raises(RuntimeError, match="did you mean 'batch_size'"):
        changed(before, bach_size=8)


def test_the_lessons_folder_is_new_each_time_and_has_the_configuration(monkeypatch):
    monkeypatch.chdir(".")  # back here at the end
    new_folder()
    first = Path.cwd()
    assert [path.name for path in first.iterdir()] == ["gpt.yaml"]
    assert read_settings("gpt.yaml").transformer_config == GIVEN.transformer_config
    new_folder()
    assert Path.cwd() != first and not first.exists()


def test_a_copy_lies_alone(tmp_path):
    (tmp_path / "file").write_text("new")
    (tmp_path / "to").mkdir()
    (tmp_path / "to" / "old").touch()
    for _ in range(2):
        copy_alone(tmp_path / "file", tmp_path / "to")
        assert [path.name for path in (tmp_path / "to").iterdir()] == ["file"]


def test_a_run_is_interrupted_at_its_step_only():
    on_step = interrupt_at(2)
    on_step(SimpleNamespace(step=1))
    with pytest.raises(KeyboardInterrupt):
        on_step(SimpleNamespace(step=2))
