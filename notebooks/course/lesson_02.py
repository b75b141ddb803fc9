"""Lesson 02, distributing tensors: its exercises."""

import math
from collections.abc import Sequence

import numpy as np

from course.arrays import numbers, replicas, split
from ttkit import backend
from ttkit.lessons.exercises import Exercise
from ttkit.lessons.on_meshes import OnMeshes


# ---------------------------------------------------------------- 02.across
def _as_asked(tensor, mesh, x: np.ndarray) -> str:
    ttnn = backend.load()
    if tensor.dtype != ttnn.float32:
        return f"expected float32, got {tensor.dtype}"
    if tensor.layout != ttnn.TILE_LAYOUT:
        return f"expected TILE layout, got {tensor.layout}; use layout=ttnn.TILE_LAYOUT"
    return ""


Exercise(
    "02.across",
    asks="across(mesh, x)",
    reference=lambda mesh, x: np.split(x, mesh.shape[1], 0) * mesh.shape[0],
    cases=OnMeshes(
        [(2, 4), (4, 2), (2, 2)],
        # Each dimension can be sharded over each axis, so that code with any of the mistakes runs
        # and gets the sentence for its mistake.
        lambda rows, columns: [
            (numbers(64 * columns * rows, 96 * columns), (64 * rows, 96 * columns))
        ],
    ),
    mistakes={
        "the rows of x are cut over all {n} devices; each mesh row should hold all of x": (
            lambda mesh, x: split(mesh, x, 0)
        ),
        "you cut the columns of x (dimension 1); cut its rows": lambda mesh, x: (
            np.split(x, mesh.shape[1], 1) * mesh.shape[0]
        ),
        "the rows of x are cut over axis 0 of the mesh; cut them over axis 1": lambda mesh, x: (
            [part for part in np.split(x, mesh.shape[0], 0) for _ in range(mesh.shape[1])]
        ),
        "nothing is cut: every device holds all of x": replicas,
    },
    rules=_as_asked,
    praise="the rows of x are cut over the columns of the mesh; the mesh's rows hold replicas",
    hints=[
        "How many placements does a mesh with two axes need, and which axis runs down its rows?",
        "Along the first axis, down the rows of the mesh, replicate. What happens along the "
        "second, and to which dimension of x?",
        "ttnn.MeshMapperConfig([ttnn.PlacementReplicate(), ttnn.PlacementShard(0)])",
    ],
)


# ---------------------------------------------------------------- 02.bytes
Shape = Sequence[int]


def _up(size: float) -> int:
    """Return a size rounded up to a multiple of 32, the side of a tile."""
    return math.ceil(size / 32) * 32


def _shard(shape: Shape, devices: int, dim: int) -> list[int]:
    return [n // devices if d == dim else n for d, n in enumerate(shape)]


def _in_tiles(shape: Shape) -> int:
    """Return how many elements a tensor of a shape stores in tiles.

    Its last two dimensions are rounded up to whole tiles.
    """
    *front, height, width = shape
    return math.prod(front) * _up(height) * _up(width)


def _bytes(shape: Shape, devices: int, dim: int) -> int:
    return 2 * _in_tiles(_shard(shape, devices, dim))


Exercise(
    "02.bytes",
    asks="bytes_per_chip(shape, devices, dim)",
    reference=_bytes,
    cases=[
        ((256, 512), 8, 1),
        ((100, 200), 4, 0),
        ((8, 16), 8, 0),
        ((2, 64, 64), 2, 0),
        ((2, 40, 70), 2, 0),
        ((3, 33, 130), 2, 2),
    ],
    mistakes={
        "a chip stores whole tiles of 32 x 32, not elements": lambda shape, devices, dim: (
            2 * math.prod(_shard(shape, devices, dim))
        ),
        "bfloat16 takes 2 bytes, not 4": lambda *case: 2 * _bytes(*case),
        "that is the number of elements; each takes 2 bytes": lambda *case: _bytes(*case) // 2,
        "that is what all {devices} devices hold together; dimension {dim} is sharded": (
            lambda shape, devices, dim: 2 * _in_tiles(shape)
        ),
        "divide first: the shard is rounded up to tiles, not the whole tensor": (
            lambda shape, devices, dim: 2 * _in_tiles(shape) // devices
        ),
        "only the last two dimensions are rounded up to 32": lambda shape, devices, dim: (
            2 * math.prod(map(_up, _shard(shape, devices, dim)))
        ),
        "also multiply by the dimensions before the last two": lambda shape, devices, dim: (
            2 * _in_tiles(_shard(shape, devices, dim)[-2:])
        ),
    },
    praise="whole tiles are counted, not elements",
    hints=[
        "What is the shape of one chip's shard? Divide first.",
        "How many tiles does that shape need? Use math.ceil(n / 32) along each of the last two "
        "dimensions.",
        "A bfloat16 tile is 32 x 32 x 2 bytes; the other dimensions multiply the number of tiles.",
    ],
)
