"""Lesson 17, train a small GPT: its folder, and its exercises."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from course.common import changed, small_gpt
from ttkit import backend
from ttkit.backend import to_numpy
from ttkit.errors import TTKitError
from ttkit.lessons import CheckFailed, progress
from ttkit.lessons.exercises import Exercise, Run
from ttkit.lessons.folder import course
from ttkit.train import SGD, AdamW, AdamWConfig, AutoContext, SGDConfig, create_model, training_plan
from ttkit.train.config.settings import Settings
from ttkit.train.context import open_layout

_temporary = TemporaryDirectory()  # This folder is deleted when the kernel stops.


def lesson_folder(fresh: bool = False) -> None:
    """Change to the lesson's folder, and copy the lesson's configuration into it as gpt.yaml.

    A learner's checkpoints stay in the folder until a call with `fresh`. If no file keeps a
    learner's progress, each call makes an empty temporary folder.
    """
    kept = progress.file()
    folder = Path(kept.parent if kept else _temporary.name, "lesson_17")
    if fresh or not kept:
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(course() / "configs/training/small_gpt.yaml", folder / "gpt.yaml")
    os.chdir(folder)


# ---------------------------------------------------------------- 17.budget
GIVEN = small_gpt(
    mesh_shape=(1, 4),
    enable_ddp=True,
    batch_size=16,
    num_blocks=2,
    vocab_size=51,
    max_sequence_length=64,
    tokenizer_type="char",
)
MEMORY, TIME = 1 / 2, 3.5  # An answer may take these fractions of what the given settings take.


def _takes(settings: Settings) -> tuple[int, float]:
    """Return what settings take: (bytes on a chip, microseconds of a step)."""
    plan = training_plan(settings)
    return sum(plan.memory.values()), 1e6 * plan.step_time_s


def _over(found: Settings, given: Settings) -> str:
    """Return the rule that an answer's settings break, or ""."""
    same = replace(found, device_config=given.device_config)
    parts = given.training_config.gradient_accumulation_steps
    if changed(same, gradient_accumulation_steps=parts) != given:
        return "only the mesh and the accumulation may change, but another key has changed"
    largest, longest = _takes(given)
    try:
        nbytes, step_us = _takes(found)
    except TTKitError as error:
        return f"that cannot be run: {error}"
    if nbytes > MEMORY * largest:
        return f"{nbytes:,} bytes on each chip; the budget is {MEMORY * largest:,.0f}"
    if step_us > TIME * longest:
        slow = f"it fits, but a step takes {step_us:.0f} µs, modelled"
        return f"{slow}; the budget is {TIME * longest:.0f}"
    return ""


def _figures(found: Settings, given: Settings) -> str:
    (nbytes, step_us), (largest, longest) = _takes(found), _takes(given)
    times = f"{step_us:.0f} of {TIME * longest:.0f} µs modelled"
    return f"{nbytes:,} of {MEMORY * largest:,.0f} bytes, {times}"


Exercise(
    "17.budget",
    asks="smaller(settings)",
    cases=[(GIVEN,)],
    rules=_over,
    praise=_figures,
    hints=[
        "Which two kinds of memory are largest in the plan? What makes each of them smaller?",
        "Accumulating makes the activations smaller. What remains is weights, gradients and the "
        "optimizer's state: which kind of parallelism (lesson 10) cuts them?",
        "Four chips as 2 x 2: data parallel over the rows, tensor parallel over the columns.",
        "changed(settings, mesh_shape=(2, 2), enable_tp=True), and accumulate over 4.",
    ],
)


# ---------------------------------------------------------------- 17.loop
ONE = small_gpt(num_heads=2, embedding_dim=32, vocab_size=32)
REPLICAS = changed(ONE, mesh_shape=(1, 4), enable_ddp=True)
STEPS = 3
TOKENS = np.random.default_rng(12).integers(0, 32, (STEPS, 2, 8, 1, 1, 32)).astype(np.uint32)
OPTIMIZERS: dict[str, Callable] = {
    "SGD": lambda parameters: SGD(parameters, SGDConfig.make(lr=0.5)),
    # A step of AdamW is not proportional to the gradient, so it shows other mistakes than SGD does.
    "AdamW": lambda parameters: AdamW(parameters, AdamWConfig.make(lr=0.05, epsilon=0.01)),
}


@contextmanager
def _mesh(settings: Settings) -> Iterator:
    """Open a mesh in the AutoContext, where `synchronize_gradients` finds it; yield its layout."""
    context = AutoContext.get_instance()
    if context.is_device_open():
        raise CheckFailed("the check opens a mesh of its own: call trainer.close() first")
    try:
        yield open_layout(settings)
    finally:
        context.close_device()


def _trained(step, optimizer: str, settings: Settings = REPLICAS) -> np.ndarray:
    """Return the weights of each replica after each step, [steps, 4, weights]."""
    after = []
    with _mesh(settings) as layout:
        model = create_model(ONE.transformer_config, layout)
        model.init_weights(12)
        parameters = model.parameters()
        changes = OPTIMIZERS[optimizer](parameters)
        for x, y in TOKENS:
            step(model, changes, layout.tokens(x), layout.tokens(y))
            after.append(np.hstack([_flat(each.get_value()) for each in parameters.values()]))
    weights = np.array(after)
    return np.broadcast_to(weights, (STEPS, 4, weights.shape[-1]))


def _flat(tensor) -> np.ndarray:
    """Return the numbers of a tensor, with one row for each shard."""
    return np.vstack([to_numpy(each).ravel() for each in backend.load().get_device_tensors(tensor)])


class _Loops:
    """The runs of an answer: three steps on four replicas, with each optimizer."""

    def runs(self, answer, asks: str, mesh) -> Iterator[Run]:
        """Yield the run of each optimizer."""
        for name in OPTIMIZERS:
            where = f"with {name}, the weights, as [step, replica, number]:"
            yield Run((name,), _trained(answer, name), where)


def _step(times: float = 1, *, clears: bool = True, moves: bool = True):
    """Return a training step, in which mistakes can be made.

    Args:
        times: a factor for the gradient.
        clears: whether the step calls `optimizer.zero_grad()`.
        moves: whether the step calls `optimizer.step()`.
    """

    def step(model, optimizer, x, y):
        if clears:
            optimizer.zero_grad()
        loss = model.loss(model(x), y)
        (loss * times).backward()
        if moves:
            optimizer.step()
        return loss

    return step


def _on_one(times: float = 1, **calls: bool) -> Callable[[str], np.ndarray]:
    """Return a reference: the weights on one device after each such `_step`."""
    return lambda optimizer: _trained(_step(times, **calls), optimizer, ONE)


Exercise(
    "17.loop",
    asks="step(model, optimizer, x, y)",
    reference=_on_one(),
    cases=_Loops(),
    mistakes={
        "no weight has changed: is optimizer.step() missing, or is zero_grad() between "
        "backward() and optimizer.step()?": _on_one(moves=False),
        "the gradients of earlier steps were added: optimizer.zero_grad() is missing, or comes too "
        "late": _on_one(clears=False),
        "the gradients of earlier steps were added, and those of the replicas were not averaged": (
            lambda optimizer: _trained(_step(clears=False), optimizer)
        ),
        "the replicas are different models: their gradients were not averaged": (
            lambda optimizer: _trained(_step(), optimizer)
        ),
        "the gradient is 4 times too large: the sum over four replicas is not their mean": (
            _on_one(4)
        ),
        "the gradient is 4 times too small: synchronize_gradients already divides by four": (
            _on_one(1 / 4)
        ),
        "each step goes twice as far: does backward() or optimizer.step() run twice?": _on_one(2),
    },
    rtol=1e-3,
    praise="after each of 3 steps the four replicas equal the one-device model",
    hints=[
        "What happens to the gradients of step 1 when step 2 calls backward()?",
        "Each replica has the gradient of its own windows. Which call of lesson 08 takes their "
        "mean?",
        "optimizer.zero_grad() comes before backward(); "
        "synchronize_gradients(model.parameters()) between backward() and optimizer.step().",
    ],
)
