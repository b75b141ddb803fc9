"""Lesson 11, hybrid parallel: its exercises."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from course.arrays import numbers
from course.common import small_gpt
from ttkit.errors import TTKitError
from ttkit.lessons.exercises import Exercise
from ttkit.lessons.on_meshes import Budget, OnMeshes
from ttkit.train import training_plan
from ttkit.train.config.settings import DeviceConfig, Settings

HEADROOM = 0.1  # This fraction of a chip's DRAM must stay free.
# Modelled speeds have this relative error, so two shapes whose speeds differ by no more than this
# are equally good.
ERROR = 0.12


# ---------------------------------------------------------------- 11.gradient
def _of_groups(mesh, x: np.ndarray, w: np.ndarray, y: np.ndarray) -> list[list[np.ndarray]]:
    """Return for each data-parallel replica the gradient of its samples, one part a device."""
    groups, parts = mesh.shape
    samples = zip(np.split(x, groups), np.split(y, groups))
    return [np.split(2 / y.size * a.T @ (a @ w - b), parts, 1) for a, b in samples]


def _times(factor: Callable[[Any], float]) -> Callable[..., list[np.ndarray]]:
    """Return a reference: on each device `factor(mesh)` times its part of the gradient."""
    return lambda mesh, *given: (
        list(factor(mesh) * np.sum(_of_groups(mesh, *given), axis=0)) * mesh.shape[0]
    )


def _sizes(groups: int, parts: int) -> list:
    # No two meshes have the same number of features. The rows of a data-parallel replica and the
    # columns of a tensor-parallel rank are also not the same on all meshes.
    rows, width, out = 32 * (groups + parts - 4), 32 * (parts + 1), 16 * groups
    arrays = [(rows * groups, width), (width, out * parts), (rows * groups, out * parts)]
    shards = [(rows, width), (width, out), (rows, out)]
    return [(numbers(*shape), shard) for shape, shard in zip(arrays, shards)]


_right = _times(lambda mesh: 1)

Exercise(
    "11.gradient",
    asks="hybrid_gradient(mesh, x, w, y)",
    reference=_right,
    cases=OnMeshes([(2, 4), (4, 2), (2, 3)], _sizes, fabric=True),
    mistakes={
        "y is missing: the error is x @ w - y": lambda mesh, x, w, y: _right(mesh, x, w, 0 * y),
        "it has the wrong sign: the error is x @ w - y, not y - x @ w": _times(lambda mesh: -1),
        "each device has the gradient of its own replica: the sum over replicas is missing": (
            lambda *given: [part for own in _of_groups(*given) for part in own]
        ),
        "the sum went along axis 1, over devices with different columns of w; replicas with "
        "different samples lie along axis 0": lambda *given: [
            sum(own) for own in _of_groups(*given) for _ in own
        ],
        "it is {n} times too large: the loss is a mean over all elements of y, not over those of "
        "a device": _times(lambda mesh: mesh.get_num_devices()),
        "it is {mesh.shape[0]} times too large: the mean is over the samples of all replicas": (
            _times(lambda mesh: mesh.shape[0])
        ),
    },
    budget=Budget(sends=1),
    rtol=1e-4,
    praise="{mesh.shape[1]} shards of one gradient, each on {mesh.shape[0]} devices",
    hints=[
        "Which mesh axis cuts x, and which cuts w? Which axes cut the rows and the columns of y?",
        "ttnn.MeshMapperConfig([for axis 0, for axis 1]) takes a placement for each axis: x has "
        "PlacementShard(0) and PlacementReplicate().",
        "The gradient of w is 2/N xᵀ(xw - y). N counts all elements of y, not those of a device. "
        "Which devices hold different samples of the same columns?",
        "Call ttnn.all_reduce with cluster_axis=0 on ttnn.matmul(x, error, transpose_a=True), then "
        "multiply by 2 / y.size.",
    ],
)


# ---------------------------------------------------------------- 11.choose
Shape = tuple[int, int]
SHAPES = {  # These are the meshes on all chips of each machine.
    "t3000": [(2, 4), (8, 1), (4, 2), (1, 8)],
    "quietbox_bh": [(4, 1), (2, 2), (1, 4)],
}
RUNS: Any = (
    # Each row has the width of the embedding, the number of blocks and of heads, the precision, the
    # machine, and the runner type.
    # In the next row all shapes fit; in float32 the shape (1, 8) would not.
    (768, 40, 48, "bfloat16", "t3000", "default"),
    # The fastest shape, (4, 2), fits but leaves too little memory free.
    (2048, 22, 16, "float32", "t3000", "memory_efficient"),
    (768, 24, 12, "float32", "t3000", "default"),  # Eight chips cannot share twelve heads.
    (2560, 32, 32, "float32", "t3000", "memory_efficient"),
    # The model needs more than 12 GB on each chip.
    (1536, 24, 16, "float32", "quietbox_bh", "default"),
)


def _cases() -> Iterable[tuple[Settings, list[Shape], str]]:
    for width, blocks, heads, precision, system, runner in RUNS:
        yield (
            small_gpt(
                embedding_dim=width,
                num_blocks=blocks,
                num_heads=heads,
                vocab_size=50257,
                max_sequence_length=1024,
                precision=precision,
                runner_type=runner,
            ),
            SHAPES[system],
            system,
        )


def _plans(settings: Settings, shapes: Sequence[Shape], system: str) -> dict[Shape, Any]:
    """Return the plan of each shape that `training_plan` accepts."""
    plans = {}
    for shape in shapes:
        device = DeviceConfig(shape, enable_ddp=shape[0] > 1, enable_tp=shape[1] > 1)
        try:
            plans[shape] = training_plan(replace(settings, device_config=device), system)
        except TTKitError:
            continue
    return plans


def _taken(plan) -> float:
    """Return the fraction of a chip's DRAM that a plan takes."""
    return float(sum(plan.memory.values()) / plan.system.chip.dram_bytes)


def _unfit(answer, settings: Settings, shapes: Sequence[Shape], system: str) -> str:
    """Return what is wrong with the shape that an answer chose for a training, or ""."""
    plans = _plans(settings, shapes, system)
    speeds = {s: p.tokens_per_s for s, p in plans.items() if _taken(p) <= 1 - HEADROOM}
    best = max(speeds, key=lambda shape: speeds[shape], default=None)
    model: Any = settings.transformer_config
    name = f"a GPT {model.embedding_dim} wide on {system}: {answer}"
    if answer is None:
        return f"{name}, but {best} fits" if best else ""
    mine = tuple(answer)
    if mine not in plans:
        return f"{name} is refused: {model.num_heads} heads cannot be divided by {mine[1]}"
    if mine not in speeds:
        none = "" if best else "; no shape fits, so the answer is None"
        return f"{name} takes {_taken(plans[mine]):.0%} of a chip's memory{none}"
    if best and speeds[best] > (1 + ERROR) * speeds[mine]:
        faster = speeds[best] / speeds[mine]
        return f"{name} fits, but another shape that fits is {faster:.2f} times as fast"
    return ""


Exercise(
    "11.choose",
    asks="choose(settings, shapes, system)",
    cases=[*_cases()],
    rules=_unfit,
    praise=f"each shape fits with headroom, and no other that fits is more than {ERROR:.0%} faster",
    hints=[
        "Which shapes does training_plan refuse? Which of the others fit, with headroom?",
        "training_plan(replace(settings, device_config=on(shape)), system) plans one shape. "
        "If it raises ttkit.TTKitError, go on to the next one.",
        "Keep plan.tokens_per_s of each shape for which fits(plan) is true; return the shape "
        "with the most, or None if there is none.",
    ],
)
