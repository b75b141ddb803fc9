"""A plan moved with real arrays."""

from __future__ import annotations

import operator
from collections.abc import Sequence

import numpy as np

from ttkit.errors import fail
from ttkit.plans.plan import REDUCES, Plan

Array = np.ndarray


def run(plan: Plan, shards: Sequence[Array], dim: int) -> list[Array]:
    """What every chip has after the last step; see `Plan.run`."""
    chips, arrays = plan.topology.chips, [np.asarray(s) for s in shards]
    asked = f"{plan!r}.run of {len(arrays)} shards, dim={dim}"
    if len(arrays) != len(chips):
        fail(
            asked,
            f"the mesh has {len(chips)} chips, so there must be {len(chips)} shards, "
            "in the order of the mesh",
        )
    shape = arrays[0].shape
    odd = next((i for i, a in enumerate(arrays) if a.shape != shape), None)
    if odd is not None:
        fail(
            asked,
            f"shards must have one shape: chip {chips[0]} has {list(shape)}, "
            f"chip {chips[odd]} has {list(arrays[odd].shape)}",
        )
    if not -len(shape) <= dim < len(shape):
        fail(
            asked,
            f"shards of shape {list(shape)} have no dimension {dim}",
            f"a dim from {-len(shape)} to {len(shape) - 1}",
        )
    if plan.collective in ("reduce_scatter", "all_to_all") and shape[dim] % plan.group_size:
        fail(
            asked,
            f"{plan.group_size} chips do not divide {shape[dim]}, the size of dimension {dim}",
            "another dim, or pad first",
        )
    data = dict(zip(chips, arrays, strict=True))
    cut = {chip: _pieces(plan, array, dim) for chip, array in data.items()}
    held = plan.before(lambda chip, c: cut[chip][_within(plan, chip, c)])
    for _ in plan._play(held, operator.add):
        pass
    return [_joined(plan, chip, held[chip], data[chip], dim) for chip in chips]


def _pieces(plan: Plan, array: Array, dim: int) -> list[Array]:
    """A shard as flat chunks, in the order of their numbers."""
    if plan.collective == "all_reduce":  # the sum has the shard's shape, so any cut will do
        parts = np.array_split(array.ravel(), plan.parts)
    else:
        parts = np.split(array, plan.parts, dim)
    return [piece for part in parts for piece in np.array_split(part.ravel(), plan.pieces)]


def _within(plan: Plan, chip: int, c: int) -> int:
    """Which of its own pieces a chip holds as chunk `c` at the start."""
    whole, piece = divmod(c, plan.pieces)
    if plan.collective == "all_to_all":
        return whole % plan.parts * plan.pieces + piece
    if plan.collective in REDUCES:
        return plan.seat[plan.topology.chips[whole]][1] * plan.pieces + piece
    return piece


def _joined(plan: Plan, chip: int, held: dict[int, Array], own: Array, dim: int) -> Array:
    goal = plan.goal(chip)
    if not goal:
        return own.copy()
    flat = np.concatenate([held[c] for c in goal])
    if plan.collective in ("all_reduce", "broadcast", "point_to_point"):
        return flat.reshape(own.shape)
    part = list(own.shape)
    part[dim] //= 1 if plan.collective == "all_gather" else plan.group_size
    if plan.collective == "reduce_scatter":
        return flat.reshape(part)
    return np.concatenate(list(flat.reshape([plan.group_size, *part])), dim)
