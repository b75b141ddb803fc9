"""Which part of a tensor each chip holds: the data that tables and pictures are made from.

Reads public attributes only, so it takes the real library's objects as well as the simulator's.
"""

from __future__ import annotations

import colorsys
import itertools
import math
from dataclasses import dataclass
from typing import Any

Coordinate = tuple[int, ...]


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
    ranges: tuple[tuple[int, int], ...] | None = None
    group: int | None = None
    shape: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Placed:
    """A tensor over a mesh: the whole shape and one cell for each place."""

    mesh_shape: Coordinate
    whole: tuple[int, ...]
    cells: tuple[Cell, ...]
    groups: int

    def slice_text(self, cell: Cell) -> str:
        """A cell's slice as Python would write it, a colon where a dimension is whole."""
        parts = [":" if (a, b) == (0, n) else f"{a}:{b}" for (a, b), n in zip(cell.ranges or (), self.whole, strict=True)]
        return f"[{', '.join(parts)}]"


def grid_of(shape: Coordinate) -> tuple[int, int]:
    """A mesh shape as rows and columns."""
    return (1, shape[0]) if len(shape) == 1 else (math.prod(shape[:-1]), shape[-1])


def placed(tensor: Any) -> Placed:
    """Where a tensor's shards lie, by its topology."""
    topology = tensor.tensor_topology()
    mesh = tensor.device()
    mesh_shape = tuple(mesh.shape) if mesh is not None else tuple(tensor.host_buffer().shape())
    distribution, shape = tuple(topology.distribution_shape()), tuple(tensor.shape)
    coords = [tuple(c) for c in topology.mesh_coords()]
    ids = dict(zip(itertools.product(*map(range, mesh_shape)), mesh.get_device_ids(), strict=False)) if mesh is not None else {}
    shards = len(tensor.device_coords()) if mesh is not None and hasattr(tensor, "device_coords") else len(coords)

    axis_of: dict[int, int] = {}
    for axis, placement in enumerate(topology.placements()):
        if getattr(placement, "dim", None) is not None:
            axis_of.setdefault(placement.dim, axis)
    whole = list(shape)
    for dim, axis in axis_of.items():
        if -len(whole) <= dim < len(whole):
            whole[dim] *= distribution[axis]

    place = dict(zip(_filled(distribution, mesh_shape), itertools.product(*map(range, distribution)), strict=False))
    groups: dict[tuple[tuple[int, int], ...], int] = {}
    by_coordinate = {}
    for index, coordinate in enumerate(coords):
        part = place.get(coordinate, coordinate)
        ranges = []
        for dim, size in enumerate(shape):
            axis = axis_of.get(dim, -1)
            at = part[axis] if 0 <= axis < len(part) and part[axis] < distribution[axis] else 0
            ranges.append((at * size, (at + 1) * size))
        key = tuple(ranges)
        group = groups.setdefault(key, len(groups))
        has = index < shards
        by_coordinate[coordinate] = Cell(coordinate, ids.get(coordinate), key if has else None, group, shape if has else None)
    cells = tuple(by_coordinate.get(c, Cell(c, ids.get(c))) for c in itertools.product(*map(range, mesh_shape)))
    return Placed(mesh_shape, tuple(whole), cells, len(groups))


def _filled(distribution: Coordinate, mesh: Coordinate) -> list[Coordinate]:
    """Mesh places in the order in which a distribution fills them: its corner where it fits, else row by row."""
    if len(distribution) == len(mesh) and all(d <= m for d, m in zip(distribution, mesh, strict=True)):
        return list(itertools.product(*map(range, distribution)))
    return list(itertools.islice(itertools.product(*map(range, mesh)), math.prod(distribution)))


def colour(group: int, groups: int, saturation: float = 0.48, value: float = 0.80) -> str:
    """The colour of a group, as #rrggbb: evenly spaced hues; the defaults are those of ttnn's tables."""
    red, green, blue = colorsys.hsv_to_rgb(group / groups, saturation, value)
    return f"#{int(red * 255):02x}{int(green * 255):02x}{int(blue * 255):02x}"
