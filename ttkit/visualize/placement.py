"""Which part of a tensor each chip holds: the data that pictures of tensors are made from.

Reads public attributes only, so it takes the real library's objects as well as the simulator's.
"""

from __future__ import annotations

import colorsys
import itertools
import math
from dataclasses import dataclass
from typing import Any

from ttkit import backend

Coordinate = tuple[int, ...]
Ranges = tuple[tuple[int, int], ...]
READ_AT_MOST = 1 << 28  # bytes of values that are compared to tell copies from partial results


@dataclass(frozen=True)
class Cell:
    """One place of a mesh in a picture.

    Args:
        coordinate: row and column.
        device: the device id; None on the host.
        ranges: (start, end) in each dimension of the whole tensor; None where no shard is.
        group: chips of one group hold the same slice; None where no shard is.
        shape: the shard's shape; None where no shard is.
    """

    coordinate: Coordinate
    device: int | None = None
    ranges: Ranges | None = None
    group: int | None = None
    shape: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Placed:
    """A tensor over a mesh: the whole shape and one cell for each place.

    `unequal` are the groups whose chips should hold copies of one slice but hold different values:
    partial results."""

    mesh_shape: Coordinate
    whole: tuple[int, ...]
    cells: tuple[Cell, ...]
    groups: int
    unequal: frozenset[int] = frozenset()

    def slice_text(self, cell: Cell) -> str:
        """A cell's slice as Python would write it, a colon where a dimension is whole."""
        return slice_text(cell.ranges or (), self.whole)


def slice_text(ranges: Ranges, whole: tuple[int, ...]) -> str:
    """A slice as Python would write it.

    Example:
        >>> slice_text(((0, 8), (16, 32)), (8, 64))
        '[:, 16:32]'
    """
    return f"[{', '.join(':' if (a, b) == (0, n) else f'{a}:{b}' for (a, b), n in zip(ranges, whole))}]"


def colour(group: int, groups: int) -> str:
    """The background of a group as #rrggbb: hues evenly spaced, as in ttnn's tables."""
    red, green, blue = colorsys.hsv_to_rgb(group / groups, 0.48, 0.80)
    return f"#{int(red * 255):02x}{int(green * 255):02x}{int(blue * 255):02x}"


def grid_of(shape: Coordinate) -> tuple[int, int]:
    """A mesh shape as rows and columns."""
    return (1, shape[0]) if len(shape) == 1 else (math.prod(shape[:-1]), shape[-1])


def filled(distribution: Coordinate, mesh: Coordinate) -> list[Coordinate]:
    """Mesh places in the order in which a distribution fills them: its corner where it fits,
    else row by row.
    """
    if len(distribution) == len(mesh) and all(
        d <= m for d, m in zip(distribution, mesh, strict=True)
    ):
        return list(itertools.product(*map(range, distribution)))
    return list(itertools.islice(itertools.product(*map(range, mesh)), math.prod(distribution)))


def mesh_shape_of(tensor: Any) -> Coordinate:
    """The shape of the mesh that a tensor lies on or, on the host, was cut for."""
    mesh = tensor.device()
    return tuple(mesh.shape if mesh is not None else tensor.host_buffer().shape())


def ids_at(mesh: Any) -> dict[Coordinate, int | None]:
    """The device id at each place of a mesh in row-major order;

    None where another rank drives the chip.
    """
    coordinate, view, ids = (
        backend.load().MeshCoordinate,
        mesh.get_view(),
        iter(mesh.get_device_ids()),
    )
    places = itertools.product(*map(range, mesh.shape))
    return {
        place: next(ids) if view.is_local(coordinate(list(place))) else None for place in places
    }


def shards_of(tensor: Any) -> int:
    """How many shards a tensor has, on all ranks.

    The real library is asked for them; the simulator need not gather them first.
    """
    return (
        len(tensor.grid.covers)
        if hasattr(tensor, "grid")
        else len(backend.load().get_device_tensors(tensor))
    )


def covered(tensor: Any) -> list[Coordinate]:
    """The places that really hold a shard, in order; the topology may name more."""
    if tensor.device() is not None:
        return [tuple(c) for c in tensor.device_coords()]
    coords, shards = list(tensor.tensor_topology().mesh_coords()), shards_of(tensor)
    if hasattr(tensor, "grid"):
        return list(tensor.grid.covers)
    buffer = tensor.host_buffer()
    here = [c for c in coords if len(tuple(c)) == len(tuple(buffer.shape())) and buffer.is_local(c)]
    return [tuple(c) for c in (here if len(here) == shards else coords[:shards])]


def placed(tensor: Any) -> Placed:
    """Where a tensor's shards lie and which part of the whole each one is, by its placements.

    Unlike the printed table this counts a negative dimension from the end, and follows offsets and
    any number of axes."""
    topology, mesh = tensor.tensor_topology(), tensor.device()
    mesh_shape, shape = mesh_shape_of(tensor), tuple(tensor.shape)
    distribution = tuple(topology.distribution_shape())
    everywhere = list(itertools.product(*map(range, mesh_shape)))
    ids = ids_at(mesh) if mesh is not None else {}

    axes: list[list[int]] = [[] for _ in shape]  # of the distribution, for each dimension
    for axis, placement in enumerate(topology.placements()):
        dim = getattr(placement, "dim", None)
        if dim is not None and -len(shape) <= dim < len(shape):
            axes[dim].append(axis)
    whole = tuple(n * math.prod(distribution[a] for a in along) for n, along in zip(shape, axes))

    places, parts = covered(tensor), list(itertools.product(*map(range, distribution)))
    part_at = dict(
        zip(places if len(places) == len(parts) else filled(distribution, mesh_shape), parts)
    )
    groups: dict[Ranges, int] = {}
    found: dict[Coordinate, Cell] = {}
    for place in places:
        ranges = _ranges(part_at.get(place), distribution, axes, shape)
        found[place] = Cell(
            place, ids.get(place), ranges, groups.setdefault(ranges, len(groups)), shape
        )
    cells = tuple(found.get(c) or Cell(c, ids.get(c)) for c in everywhere)
    return Placed(
        mesh_shape, whole, cells, len(groups), _unequal(tensor, [found[p].group for p in places])
    )


def _ranges(
    part: Coordinate | None, distribution: Coordinate, axes: list[list[int]], shape: Coordinate
) -> Ranges:
    ranges = []
    for size, along in zip(shape, axes):
        at = 0
        for axis in along:
            at = at * distribution[axis] + (part[axis] if part is not None else 0)
        ranges.append((at * size, (at + 1) * size))
    return tuple(ranges)


def _unequal(tensor: Any, groups: list[int | None]) -> frozenset[int]:
    """Groups of which two shards differ.

    Only the simulator is asked: on a card this would read back the whole tensor.
    """
    if not hasattr(tensor, "shards") or len(set(groups)) == len(groups):
        return frozenset()
    import numpy as np

    first: dict[int | None, Any] = {}
    different, read = set(), 0
    local = set(tensor.grid.coords)
    for group, shard in zip(
        (g for g, c in zip(groups, tensor.grid.covers, strict=True) if c in local), tensor.shards()
    ):
        other = first.setdefault(group, shard)
        if (
            group is None
            or group in different
            or other.__array_interface__["data"] == shard.__array_interface__["data"]
        ):
            continue
        read += shard.nbytes
        if read <= READ_AT_MOST and not np.array_equal(
            other, shard, equal_nan=shard.dtype.kind == "f"
        ):
            different.add(group)
    return frozenset(different)
