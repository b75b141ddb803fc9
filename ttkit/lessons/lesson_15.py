"""Lesson 15, sharded data parallel: what a chip holds, and the exercises."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np

from ttkit import backend
from ttkit.convert import to_numpy
from ttkit.lessons import (
    device_difference,
    exercise,
    require,
    values_mean_something,
)
from ttkit.lessons.answers import Answer, asks, is_a, numbers
from ttkit.lessons.calls import bytes_by_collective, recorded
from ttkit.lessons.predicting import as_number
from ttkit.profiler import profile
from ttkit.train.config import (
    DeviceConfig,
    LayoutConfig,
    Settings,
    TrainingConfig,
    TransformerConfig,
)
from ttkit.train.parallel import MeshLayout
from ttkit.visualize.charts import MemoryBars as MemoryBars
from ttkit.visualize.charts import memory
from ttkit.words import counted


# ---------------------------------------------------------------- what a chip holds
def settings(zero: Literal[0, 1, 2, 3] = 0, micro_batches: int = 1) -> Settings:
    """Return the lesson's run: a small GPT on eight chips, data parallel, in float32 with AdamW.

    Args:
        zero: the stage.
        micro_batches: parts of the batch.
    """
    model = TransformerConfig(
        num_heads=4,
        embedding_dim=256,
        num_blocks=1,
        vocab_size=256,
        max_sequence_length=64,
        dropout_prob=0,
        bias=False,
    )
    training = TrainingConfig(
        batch_size=32,
        gradient_accumulation_steps=micro_batches,
        tokenizer_type="byte",
        checkpoint_dir="",
        eval_every=0,
    )
    device, layout = DeviceConfig((1, 8), enable_ddp=True), LayoutConfig(zero=zero)
    return Settings(device, training, transformer_config=model, layout=layout)


def held(trainer: Any) -> dict[str, dict[str, int]]:
    """Return what a step keeps on each chip, counted: {chip: {kind: bytes}}; train one step.

    Args:
        trainer: a new one.
    """

    def look() -> Any:
        return memory(trainer.layout.device).used

    start = look()
    trainer.forward(*trainer.batches.batch(0))  # makes the masks, which stay
    before = look()
    trainer.forward(*trainer.batches.batch(0)).backward()
    grads = look()
    trainer.step()
    trainer.optimizer.zero_grad()
    end, kinds = look(), ("weights", "gradients", "optimizer")
    sizes = ((start[i], grads[i] - before[i], end[i] - before[i]) for i in sorted(end))
    return {f"chip {i}": dict(zip(kinds, each)) for i, each in zip(sorted(end), sizes)}


# ---------------------------------------------------------------- 15.step
SHAPES = {1: (512, 256), 0: (256, 512)}  # of the weight, by the axis along which it is whole
BETA1, BETA2, RATE = 0.9, 0.99, 0.1


class _Adam:
    """The optimizer that an answer is given; it notes what it was called with."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, Any]] = []
        self.state: list[Any] = []

    def __call__(self, w: Any, grad: Any) -> Any:
        ttnn = backend.load()
        for each in (w, grad):
            rule = f"update(w, grad) takes two ttnn tensors; it was given a {type(each).__name__}"
            require(is_a(each, "tensor_topology"), rule)
        pair = f"update was given {list(w.shape)} of the weight and {list(grad.shape)}"
        alike = list(w.shape) == list(grad.shape)
        require(alike, f"{pair} of the gradient: cut both alike, along the same axis")
        self.seen.append((ttnn.clone(w), ttnn.clone(grad)))  # an answer may free its own
        m, v = self.state or (ttnn.zeros_like(w), ttnn.zeros_like(w))
        m = ttnn.add(ttnn.multiply(m, BETA1), ttnn.multiply(grad, 1 - BETA1))
        v = ttnn.add(ttnn.multiply(v, BETA2), ttnn.multiply(ttnn.square(grad), 1 - BETA2))
        self.state = [m, v]
        step = ttnn.multiply(m, ttnn.reciprocal(ttnn.add(ttnn.sqrt(v), 1e-3)))
        return ttnn.subtract(w, ttnn.multiply(step, RATE))


@exercise(
    "15.step",
    "Which part of the mean gradient can this chip own, if the all-reduce stops half way?",
    "reduce_scatter adds the gradients and gives each chip a part. Which part of w belongs to it?",
    "ttnn.mesh_partition cuts w in the same way and sends nothing. The mean is the sum divided by "
    "w.device().shape[axis].",
    "reduce_scatter, multiply, mesh_partition, update, all_gather: all along cluster_axis=axis.",
)
@asks("zero1_step(w, grad, axis, update)", (1, 8), (2, 4), fabric=True)
def _step(zero1_step: Answer, mesh: Any) -> str:
    ttnn, places = backend.load(), tuple(mesh.shape)
    axis = 1 if places[0] == 1 else 0
    n, rows = places[axis], [1 if a == axis else size for a, size in enumerate(places)]
    layout = MeshLayout(mesh, 1 - axis, places[1 - axis], axis, n)
    grads = numbers(2, *places, *SHAPES[axis]) / 8  # another one on each chip
    w = wanted = layout.place(numbers(*rows, *SHAPES[axis]), tp_dim=1 - axis)
    yours, plain = _Adam(), _Adam()
    for number, grad in enumerate(grads, 1):
        given, before = layout.place(grad, tp_dim=1 - axis, ddp_dim=axis), _arrays(w)
        where = f"on {mesh!r} along axis {axis}, step {number}"
        wanted = plain(wanted, layout.place(grad.mean(axis, keepdims=True), tp_dim=1 - axis))
        with _traffic() as allowed:
            ttnn.all_reduce(given, cluster_axis=axis)
        with _traffic() as sent, recorded() as calls:
            w = zero1_step(w, given, axis, yours)
        zero1_step.must_give("a ttnn tensor", is_a(w, "tensor_topology"), w)
        require(w.is_allocated(), f"{where}: the weight that came back was deallocated")
        read = ", ".join(dict.fromkeys(call.operation for call in calls if call.kind == "read"))
        require(not read, f"{where}: {read} went through the host; the chips can do all of it")
        times = len(yours.seen) - number + 1
        require(times == 1, f"{where}: update was called {counted(times, 'time')}, not once")
        _check_update(where, axis, yours.seen[-1], before, grad)
        part, whole = list(w.shape), list(before[0].shape)
        why = "no chip has it whole; an all_gather is missing"
        if w.volume() >= before[0].size:
            many = w.volume() > before[0].size
            why = f"more than all of it; gather along axis {axis}" if many else "reshape it"
        require(part == whole, f"{where}: you give {part} of the weight {whole} back: {why}")
        wrong = device_difference(_arrays(wanted), w, 1e-3, 1e-4)
        old = wrong and not device_difference(before, w)
        require(not old, f"{where}: that is the old weight; return the one that update gives")
        require(not wrong, f"{where}: the new weight is not one device's: {wrong}")
        names, total, most = ", ".join(sent), sum(sent.values()), sum(allowed.values())
        budget = f"the budget is {most:,}, what one all_reduce of the gradient sends"
        over = f"{where}: it is right, but {names} sent {total:,} bytes; {budget}"
        require(total <= most, over)
    moments = f"{8 * yours.seen[-1][0].volume():,} bytes of moments on a chip, 1/{n} of all"
    return f"one device's weights, an all-reduce's bytes, {moments}"


@contextmanager
def _traffic() -> Iterator[dict[str, int]]:
    """Count the bytes that the block's collectives send over links, by name."""
    found: dict[str, int] = {}
    if not backend.is_simulated():
        yield found
        return
    with profile() as seen:
        yield found
    found |= bytes_by_collective(seen.records)


def _arrays(tensor: Any) -> list[np.ndarray]:
    return [to_numpy(shard) for shard in backend.load().get_device_tensors(tensor)]


def _check_update(
    where: str, axis: int, given: tuple[Any, Any], before: list[np.ndarray], grad: np.ndarray
) -> None:
    """Check that the optimizer got each chip's part of the weight and of the mean gradient."""
    (w, part), places = given, grad.shape[:2]
    n, others = places[axis], places[1 - axis]
    shape, whole = list(w.shape), list(before[0].shape)
    reshaped = sum(a != b for a, b in zip(shape, whole)) > 1 or len(shape) != len(whole)
    keeps = f"it keeps {8 * w.volume():,} bytes of moments on each chip"
    all_of_it = f"update was given the whole weight {shape}: {keeps}, the budget is 1/{n} of that"
    cuts = before[0].size // w.volume()
    require(cuts > 1, f"{where}: {all_of_it}")
    dim = next((d for d, size in enumerate(whole) if size != shape[d] and not reshaped), 0)
    why = f"; that is axis {1 - axis}, axis {axis} has {n} chips" if cuts == others else ""
    require(cuts == n, f"{where}: update was given {shape} of {whole}, a part of {cuts}{why}")
    if not values_mean_something():
        return

    def parts(values: np.ndarray) -> list[np.ndarray]:
        each = np.broadcast_to(values, grad.shape)
        each = each.reshape(*places, -1) if reshaped else each
        cut = np.split(each, n, axis=2 if reshaped else dim)
        return [cut[at[axis]][at].reshape(shape) for at in np.ndindex(*places)]

    mean, other = grad.mean(axis, keepdims=True), grad.mean(1 - axis, keepdims=True)
    elsewhere = f"the gradients were summed along axis {1 - axis}, over chips with other weights"
    for wrong, values in (
        (f"it is the sum of {n} gradients, {n} times their mean", mean * n),
        ("it is each chip's own: nothing was summed", grad),
        (f"it is {n} times too small: divided twice", mean / n),
        ("it is the weight; the order is update(w, grad)", np.reshape(before, grad.shape)),
        *(
            (f"the sum is divided by {k}; along axis {axis} are {n} chips", mean * n / k)
            for k in {others, n * others} - {1, n}
        ),
        *((elsewhere, other * times) for times in (1, others, others / n) if others > 1),
    ):
        found = device_difference(parts(values), part, 1e-4, 1e-5)
        require(bool(found), f"{where}: the gradient that update was given: {wrong}")
    found = device_difference(parts(mean), part, 1e-4, 1e-5)
    require(not found, f"{where}: the gradient that update was given: {found}")
    found = device_difference(parts(np.reshape(before, grad.shape)), w)
    parted = "the part of the weight that update was given is not the gradient's"
    require(not found, f"{where}: {parted}: {found}")


# ---------------------------------------------------------------- 15.smallest
BYTES = {"float32": (4, 4, 8), "bfloat16": (2, 2, 12)}  # of weight, gradient, AdamW's state
CASES = (  # parameters, groups, parts, precision, bytes of room
    (7_500_000_000, 64, 1, "bfloat16", 32e9),
    (7_500_000_000, 64, 1, "bfloat16", 16e9),
    (8_030_261_248, 4, 8, "float32", 10e9),
    (8_030_261_248, 4, 8, "float32", 11e9),
    (1_100_000_000, 8, 1, "float32", 12e9),
    (1_000_000_000, 8, 1, "float32", 16e9),  # 16 bytes each: stage 0 fits exactly
    (1_100_000_000, 8, 1, "bfloat16", 7e9),
    (70_000_000_000, 4, 8, "bfloat16", 12e9),
    (70_000_000_000, 8, 32, "bfloat16", 1e9),
    (1_000_000_000, 1, 8, "bfloat16", 1.5e9),
)


@exercise(
    "15.smallest",
    "What does tensor parallelism do to the weights, gradients and moments of a chip?",
    "bytes_each(stage, n, precision) is for one parameter. Which number of chips is n?",
    "for stage in range(4): does parameters / parts * bytes_each(stage, groups, precision) fit?",
)
@asks("smallest(parameters, groups, parts, precision, room)")
def _smallest(smallest: Answer) -> str:
    for parameters, groups, parts, precision, room in CASES:
        kinds, sizes = BYTES[precision], []
        for stage in range(4):
            cuts = [groups if stage >= at else 1 for at in (3, 2, 1)]
            sizes.append(parameters / parts * sum(k / cut for k, cut in zip(kinds, cuts)))
        wanted = next((stage for stage, size in enumerate(sizes) if size <= room), None)
        what = (
            f"{parameters / 1e9:.3g}e9 parameters, {precision}, {groups} groups x {parts} parts, "
            f"chips with {room / 1e9:.3g} GB"
        )
        given = smallest(parameters, groups, parts, precision, room)
        found = as_number(given)
        if given is None:
            fits = f"stage {wanted} takes {sizes[wanted or 0] / 1e9:.2f} GB, which fits"
            require(wanted is None, f"{what}: you found none, but {fits}")
            continue
        asked = f"{what}: a stage from 0 to 3, or None, is asked for; it gave {given!r}"
        require(found in range(4), asked)
        found = int(found or 0)
        takes = f"{what}: stage {found} takes {sizes[found] / 1e9:.2f} GB on a chip"
        none = "; no stage fits, so the answer is None" if wanted is None else ""
        require(sizes[found] <= room, f"{takes}, which does not fit{none}")
        less = f"but so does stage {wanted}, {sizes[wanted or 0] / 1e9:.2f} GB, which cuts less"
        require(found == wanted, f"{takes}, which fits, {less}")
    return f"the smallest stage in {len(CASES)} cases"
