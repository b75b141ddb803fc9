"""Lesson 08, hybrid parallel: lesson 07's MLP on any mesh, a picture of a layout, exercises."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from ttkit import backend
from ttkit.errors import TTKitError
from ttkit.lessons import exercise, factor_of, require, values_mean_something
from ttkit.lessons.answers import Answer, asks, numbers
from ttkit.visualize.charts import Stacks

HEADROOM = 0.1  # of a chip's DRAM stays free
ERROR = 0.1  # of modelled speeds: shapes that are no further apart are equally good


CONTROLS: dict[str, Any] = {  # of `layout_pictures`
    "mesh": {"8 x 1": (8, 1), "4 x 2": (4, 2), "2 x 4": (2, 4), "1 x 8": (1, 8)},
    "batch": [8, 16, 32],
    "precision": ["float32", "bfloat16"],
    "zero": [0, 1, 2, 3],
    "recompute": False,
}


# ---------------------------------------------------------------- what the lesson measures
def falcon_backward(x: np.ndarray) -> dict[str, Any]:
    """Return both weights of lesson 07's MLP after one forward and backward, with gradients.

    They are cut over the mesh that is open in the `AutoContext`, and the same on every mesh.

    Args:
        x: the samples, [batch, 1, tokens, 128]; data groups share them.
    """
    from ttkit.train import Tensor, ops
    from ttkit.train.context import current_layout
    from ttkit.train.modules import ColumnParallelLinear, RowParallelLinear

    up = ColumnParallelLinear(128, 512, has_bias=False)
    down = RowParallelLinear(512, 128, has_bias=False)
    for layer in (up, down):
        layer.init_weights(42)
    placed = current_layout().place(x, dtype=backend.load().float32, ddp_dim=0)
    output = down(ops.gelu(up(Tensor(placed))))
    ops.mean(output * output).backward()
    return {"up": up.weight, "down": down.weight}


def on_links(profile: Any, chips: Iterable[int] | None = None) -> int:
    """Return the bytes that a profile's calls send over links; of calls among `chips` only."""
    inside = [r for r in profile.records if chips is None or set(r.chips) <= set(chips)]
    return sum(r.bytes_on_links for r in inside)


# ---------------------------------------------------------------- the picture of a layout
def planned(model: Any, layout: Any, batch: int, system: str = "t3000") -> Any:
    """Return the planner's candidate for a layout, whether it fits or not.

    Args:
        model: a `TransformerConfig`.
        layout: a `ttkit.train.layout.Layout`.
        batch: sequences of a step, of all groups together.
        system: the machine.

    Raises:
        TTKitError: the layout does not cut this model and batch evenly.
    """
    from ttkit.hardware.systems import system_named
    from ttkit.layouts.places import Machine, Place, place_of
    from ttkit.layouts.search import evaluate
    from ttkit.layouts.step import Job
    from ttkit.train.config import TrainingConfig

    layout.check(model, batch, model.max_sequence_length)
    machine = Machine(system_named(system), headroom=-99, overlap=True)
    place = place_of(machine.system, layout, (1, 1), may_hang=True)
    assert isinstance(place, Place), place
    job = Job(replace(model, experimental=None), batch, model.max_sequence_length, TrainingConfig())
    return evaluate(job, layout, place, machine)


def layout_pictures(
    model: Any,
    mesh: tuple[int, int],
    batch: int,
    precision: str = "float32",
    zero: int = 0,
    recompute: bool = False,
    system: str = "t3000",
) -> list[Stacks]:
    """Return what a chip holds by kind beside what it has, and the times of a step, modelled.

    Example:
        >>> from ttkit.train.config import TransformerConfig
        >>> gpt = TransformerConfig(num_heads=8, embedding_dim=256, dropout_prob=0.0)
        >>> memory, step = layout_pictures(gpt, (2, 4), 8)
        >>> memory.title.split(":")[0]
        'DP2 TP4'
    """
    from ttkit.hardware.systems import system_named
    from ttkit.train.layout import Layout

    dp, tp = mesh
    sizes: dict[str, Any] = {"zero": zero, "recompute": recompute, "precision": precision}
    layout, chip = Layout(dp, tp, **sizes), system_named(system).chip
    found = planned(model, layout, batch, system)
    part = found.memory.total / chip.dram_bytes
    rows: dict[str, tuple[float, ...]] = {}
    rows |= {kind: (size / 1e9, 0, 0) for kind, size in found.memory._asdict().items()}
    rows["all"] = (found.memory.total / 1e9, 0, 0)
    room = chip.dram_bytes / 1e9
    rows["a chip has"] = (0, room * (1 - HEADROOM), room * HEADROOM)
    fits = "fits" if part <= 1 - HEADROOM else "too tight" if part <= 1 else "does not fit"
    title = f"{layout}: {part:.0%} of a chip's memory, {fits}"
    memory = Stacks(title, rows, ("held", "to use", "headroom"), ("headroom",), "GB, modelled")
    times, ms = found.times, 1e3
    sent = times.communication + times.hidden
    work = (times.products + times.optimizer) * ms
    step = {
        "sending after it": (work, sent * ms),
        "sending beside it": (work, times.communication * ms),
    }
    rate, after = found.tokens_per_s, times.total / (times.total + times.hidden)
    title = f"a step: {rate * after:,.0f} tokens/s; sending beside computing: {rate:,.0f}"
    title += f", MFU {found.mfu:.0%}"
    parts = ("computing", "exposed communication")
    return [memory, Stacks(title, step, parts, (parts[1],), "ms, modelled")]


# ---------------------------------------------------------------- 08.gradient


@exercise(
    "08.gradient",
    "Along which axis of the mesh is x cut? w? And y, which has rows and columns of both?",
    "ttnn.MeshMapperConfig([for axis 0, for axis 1]) takes a placement for each axis: x has "
    "PlacementShard(0) and PlacementReplicate().",
    "The gradient of w is 2/N xᵀ(xw - y). N counts all elements of y, not those of a device. "
    "Which devices hold other samples of the same columns?",
    "One ttnn.all_reduce with cluster_axis=0 of ttnn.matmul(x, error, transpose_a=True); then "
    "multiply by 2 / y.size.",
)
@asks("hybrid_gradient(mesh, x, w, y)", (2, 4), (4, 2), (2, 3), fabric=True)
def _gradient(hybrid_gradient: Answer, mesh: Any) -> str:
    groups, parts = mesh.shape
    # rows of a group, features, columns of a part: not the same on each mesh
    rows, width, out = 32 * (groups + parts - 4), 32 * (parts + 1), 16 * groups
    x, w = numbers(rows * groups, width), numbers(width, out * parts)
    y, errors = numbers(rows * groups, out * parts), ((rows, width), (rows, out))
    run = hybrid_gradient.on(mesh, (x, (rows, width)), (w, (width, out)), (y, (rows, out)))
    columns = np.split(2 / y.size * x.T @ (x @ w - y), parts, axis=1)
    if values_mean_something():
        samples = zip(np.split(x, groups), np.split(y, groups), strict=True)
        of_group = [np.split(a.T @ (a @ w - b), parts, axis=1) for a, b in samples]
        product = np.split(2 / y.size * x.T @ (x @ w), parts, axis=1)
        mistakes: tuple[tuple[Any, str], ...] = (
            (product * groups, "y is missing: the error is x @ w - y"),
            (
                [part for own in of_group for part in own],
                "each device has the gradient of its own group: the sum over groups is missing",
            ),
            (
                [sum(own) for own in of_group for _ in range(parts)],
                "the sum went along axis 1, over devices with different columns of w; "
                "groups with different samples lie along axis 0",
            ),
            (
                [sum(columns)] * groups * parts,
                "the sum went along both axes: along axis 1 devices have different columns, "
                "which do not belong in one sum",
            ),
        )
        for values, message in mistakes:
            require(factor_of(values, run.tensor()) is None, f"on {mesh!r} {message}")
        factor = factor_of(columns * groups, run.tensor()) or 1.0
        sign = "it has the wrong sign: the error is x @ w - y, not y - x @ w"
        require(factor > 0, f"on {mesh!r} {sign}")
        size = "too large" if factor > 1 else "too small"
        require(
            abs(factor - 1) <= 1e-3,
            f"on {mesh!r} it is {max(factor, 1 / factor):.3g} times {size}: "
            f"the loss is a mean over all {y.size} elements of y; "
            f"a device has {y.size // groups // parts} of them",
        )
    run.equals(columns * groups, 1e-4)
    run.summed()
    sent = sorted(run.sent())
    one = sent in ([], ["all_reduce"], ["all_gather", "reduce_scatter"])  # [] on a card
    require(one, f"on {mesh!r} one sum is enough, but you called {', '.join(sent)}")
    apart = sum(call.kind == "product" for call in run.led) > 2  # xᵀ(xw) - xᵀy, (xᵀx)w - xᵀy
    more = [((rows, width), (width, width))] * apart
    run.multiplied(((rows, width), (width, out)), errors, *more)
    return f"{parts} parts of one gradient, each on {groups} devices; {run.given()}"


SHAPES = {  # in which a machine can be opened
    "t3000": [(2, 4), (8, 1), (4, 2), (1, 8)],
    "quietbox_bh": [(4, 1), (2, 2), (1, 4)],
}
RUNS = (  # embedding, blocks, heads, precision, machine, how blocks run
    (768, 40, 48, "bfloat16", "t3000", "default"),  # in float32 nothing fits
    (2048, 22, 16, "float32", "t3000", "memory_efficient"),  # the fastest leaves too little free
    (768, 24, 12, "float32", "t3000", "default"),  # eight chips cannot share twelve heads
    (2560, 32, 32, "float32", "t3000", "memory_efficient"),
    (1280, 22, 20, "float32", "t3000", "default"),  # fits, but leaves too little free
    (1536, 24, 16, "float32", "quietbox_bh", "default"),  # too large for chips of 12 GB
)


@exercise(
    "08.choose",
    "Which shapes may you not even ask for? Which of the others fit, with headroom?",
    "training_plan(replace(settings, device_config=on(shape)), system) plans one shape. "
    "Where it raises ttkit.TTKitError, go on with the next one.",
    "Keep plan.tokens_per_s of each shape for which fits(plan); return the shape with the most, "
    "or None where there is none.",
)
@asks("choose(settings, shapes, system)")
def _choose(choose: Answer) -> str:
    from ttkit.train import training_plan
    from ttkit.train.config import DeviceConfig, Settings, TrainingConfig, TransformerConfig

    found = []
    for width, blocks, heads, precision, system, runner in RUNS:
        name = f"a GPT {width} wide, {blocks} blocks, {heads} heads, {precision} on {system}"
        model = TransformerConfig(
            num_heads=heads,
            embedding_dim=width,
            num_blocks=blocks,
            vocab_size=50257,
            max_sequence_length=1024,
            dropout_prob=0,
            runner_type=runner,  # type: ignore[arg-type]
        )
        training = TrainingConfig(batch_size=8, precision=precision)  # type: ignore[arg-type]
        settings = Settings(training_config=training, transformer_config=model)
        shapes, plans = SHAPES[system], {}
        for shape in shapes:
            device = DeviceConfig(shape, enable_ddp=shape[0] > 1, enable_tp=shape[1] > 1)
            try:
                plans[shape] = training_plan(replace(settings, device_config=device), system)
            except TTKitError:
                continue  # heads that do not divide
        taken = {
            shape: sum(plan.memory.values()) / plan.system.chip.dram_bytes
            for shape, plan in plans.items()
        }
        fitting = {
            shape: plan.tokens_per_s
            for shape, plan in plans.items()
            if taken[shape] <= 1 - HEADROOM
        }
        best = max(fitting, key=lambda shape: fitting[shape], default=None)
        answer = choose(settings, list(shapes), system)
        if answer is None:
            require(best is None, f"{name}: you found no shape, but {best} fits")
            found.append("none")
            continue
        several = isinstance(answer, Iterable) and not isinstance(answer, str)
        mine = tuple(answer) if several else answer
        given = repr(answer)[:60]
        kind = f"choose should give a shape such as {shapes[0]}, or None; it gave {given}"
        require(isinstance(mine, tuple), kind)
        require(mine in shapes, f"{name}: {given} is not among the shapes {shapes}")
        divide = f"{heads} heads do not divide among {mine[1]} chips"
        require(mine in plans, f"{name}: {mine} is refused: {divide}")
        room = plans[mine].system.chip.dram_bytes / 1e9
        takes = f"{taken[mine] * room:.2f} GB of {room:.2f} GB on each chip"
        none = "" if best else "; no shape does, so the answer is None"
        require(taken[mine] <= 1, f"{name}: {mine} does not fit, {takes}{none}")
        tight = f"{takes}, so less than {HEADROOM:.0%} stays free{none}"
        require(mine in fitting, f"{name}: {mine} has no headroom, {tight}")
        faster = fitting[best] / fitting[mine]  # type: ignore[index]
        another = f"but another shape that fits is {faster:.2f} times as fast"
        require(faster <= 1 + ERROR, f"{name}: {mine} fits, {takes}, {another}")
        found.append("x".join(f"{size:g}" for size in mine))
    rule = f"none that does is more than {ERROR:.0%} faster"
    return f"{', '.join(found)}: each fits with headroom, and {rule}"
