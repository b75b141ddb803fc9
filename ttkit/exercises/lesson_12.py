"""Lesson 12, train a small GPT."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import numpy as np

from ttkit.exercises.answers import Answer, asks
from ttkit.lessons import CheckFailed, exercise, require, values_mean_something
from ttkit.train.config import DeviceConfig, Settings, TrainingConfig, TransformerConfig

SMALL = TransformerConfig(
    num_heads=2,
    embedding_dim=32,
    num_blocks=1,
    vocab_size=32,
    max_sequence_length=32,
    dropout_prob=0,
)
LESSONS = TransformerConfig(
    num_heads=4,
    embedding_dim=64,
    num_blocks=2,
    vocab_size=51,
    max_sequence_length=64,
    dropout_prob=0,
)
RATE, STEPS = 0.5, 3
MEMORY, TIME = 1 / 2, 1.3  # of what the given settings take


@contextmanager
def _mesh(device: DeviceConfig) -> Iterator[Any]:
    """The layout of a mesh that is open inside, in the AutoContext, where modules and
    `synchronize_gradients` look for it.
    """
    from ttkit.train import AutoContext
    from ttkit.train.context import open_layout

    context = AutoContext.get_instance()
    require(
        not context.is_device_open(), "the check opens a mesh of its own: trainer.close() first"
    )
    try:
        yield open_layout(Settings(device, TrainingConfig()))
    finally:
        context.close_device()


@exercise("12.budget")
@asks("smaller(settings)")
def _budget(smaller: Answer) -> str:
    from ttkit.errors import TTKitError
    from ttkit.train.plan import training_plan

    training = TrainingConfig(
        batch_size=16, max_steps=2, tokenizer_type="char", checkpoint_dir="", eval_every=0
    )
    given = Settings(DeviceConfig((1, 4), enable_ddp=True), training, transformer_config=LESSONS)
    found = smaller(given)
    require(
        isinstance(found, Settings),
        f"smaller(settings) should give Settings, gave a {type(found).__name__}: "
        "dataclasses.replace(settings, ...) makes them",
    )
    free = {"gradient_accumulation_steps", "device_config"}
    for section, before in asdict(given).items():
        after = asdict(found)[section]
        for key in before if section not in free else ():
            require(
                key in free or after[key] == before[key],
                f"{key} was {before[key]} and is {after[key]} now: "
                "only the mesh and the accumulation may change",
            )
    try:
        first, plan = training_plan(given), training_plan(found)
        memory, most = sum(plan.memory.values()), MEMORY * sum(first.memory.values())
        time_s, longest = plan.step_time_s, TIME * first.step_time_s
        how = f"mesh_shape {list(found.device_config.mesh_shape)}, accumulating {plan.passes}"
        require(memory <= most, f"{how}: {memory:,} bytes on each chip; the budget is {most:,.0f}")
        require(
            time_s <= longest,
            f"{how}: it fits, but a step takes {time_s * 1e6:.0f} us, modelled; "
            f"the budget is {longest * 1e6:.0f}",
        )
        one, other = _losses(given), _losses(found)
    except TTKitError as error:
        raise CheckFailed(f"that cannot be run: {error}") from None
    # another order of additions
    same = not values_mean_something() or np.allclose(one, other, 1e-4)
    require(same, f"the losses are {other}, with the given settings {one}")
    times = f"{time_s * 1e6:.0f} of {longest * 1e6:.0f} us modelled"
    return f"{how}: {memory:,} of {most:,.0f} bytes, {times}, the losses within 0.01 %"


def _losses(settings: Settings) -> list[float]:
    from ttkit.train import Trainer

    with _mesh(settings.device_config), Trainer(settings) as trainer:
        return [record.loss for record in trainer.fit(show=False)]


@exercise("12.loop")
@asks("step(model, optimizer, x, y)")
def _loop(step: Answer) -> str:
    tokens = (
        np.random.default_rng(12)
        .integers(0, SMALL.vocab_size, (STEPS, 2, 8, 1, 1, SMALL.max_sequence_length))
        .astype(np.uint32)
    )
    right, own, sums = (
        _weights(_right(*how), tokens, DeviceConfig((1, 1)))[0]
        for how in ((1, True), (1, False), (4, True))
    )
    found = _weights(step, tokens, DeviceConfig((1, 4), enable_ddp=True))
    if not values_mean_something():
        return "it runs (no kernel runs on a mock cluster, so that nothing else is seen)"
    start = found[0][0]
    for number in range(1, STEPS + 1):
        chips = [chip[number] for chip in found]
        for i, chip in enumerate(chips):
            apart = float(np.abs(chip - chips[0]).max())
            require(
                apart <= 1e-5,
                f"after step {number} replica {i} is another model than replica 0, "
                f"apart by {apart:.2g}: their gradients were not averaged",
            )
        require(
            not np.array_equal(chips[0], start),
            f"after step {number} no weight has changed: does the step end in optimizer.step()?",
        )
        if not _near(chips[0], right[number]):
            kinds = [
                (
                    own,
                    "it is right but for the gradients of earlier steps, which were added: "
                    "optimizer.zero_grad() is missing, or comes too late",
                ),
                (
                    sums,
                    "the gradient is 4 times too large: the sum over four replicas is not their "
                    "mean",
                ),
            ]
            why = next(
                (text for weights, text in kinds if _near(chips[0], weights[number])),
                "are all four calls there, once, in an order that makes sense?",
            )
            raise CheckFailed(f"after step {number} the weights are not those of one device: {why}")
    return f"four replicas, one model, that of one device after each of {STEPS} steps"


def _near(have: np.ndarray, want: np.ndarray) -> bool:
    return bool(np.allclose(have, want, 1e-3, 1e-4))


def _right(times: int, fresh: bool) -> Any:
    """A step on one device; with the gradient so many times, or without forgetting the last one."""

    def step(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
        if fresh:
            optimizer.zero_grad()
        loss = model.loss(model(x), y)
        (loss * times).backward()
        optimizer.step()
        return loss

    return step


def _weights(step: Any, tokens: np.ndarray, device: DeviceConfig) -> list[list[np.ndarray]]:
    """Of each chip, all weights as one row: before the first step and after each."""
    from ttkit import ttnn
    from ttkit.convert import to_numpy
    from ttkit.train import SGD, SGDConfig, create_model

    with _mesh(device) as layout:
        model = create_model(SMALL, layout)
        model.init_weights(12)
        parameters = model.parameters()
        optimizer = SGD(parameters, SGDConfig.make(lr=RATE))

        def look() -> list[np.ndarray]:
            shards = [
                ttnn.get_device_tensors(parameter.get_value()) for parameter in parameters.values()
            ]
            return [
                np.concatenate([to_numpy(shard).ravel() for shard in chip])
                for chip in zip(*shards, strict=True)
            ]

        seen = [look()]
        for x, y in tokens:
            step(model, optimizer, layout.tokens(x), layout.tokens(y))
            seen.append(look())
    return [list(chip) for chip in zip(*seen, strict=True)]
