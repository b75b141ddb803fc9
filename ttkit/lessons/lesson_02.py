"""Lesson 02, distributing tensors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ttkit import backend
from ttkit.lessons import difference, exercise, require
from ttkit.lessons.answers import (
    Answer,
    Run,
    Shape,
    asks,
    numbers,
    whole_number,
)
from ttkit.lessons.calls import how_cut, lean, put_on_mesh, watched_by


@exercise(
    "02.columns",
    "How many placements does a mesh with two axes need, and which axis runs down its rows?",
    "Replicate along the first axis, shard dimension 1 along the second.",
    "ttnn.MeshMapperConfig([ttnn.PlacementReplicate(), ttnn.PlacementShard(1)])",
)
@asks("columns(mesh, x)", (2, 4), (4, 2), (2, 2))
def _columns(columns: Answer, mesh: Any) -> str:
    ttnn = backend.load()
    down, across = mesh.shape
    # either dimension can be cut over either axis, so that a mistake is named
    x = numbers(16 * down, 24 * across * down)
    run = columns.on(mesh, (x, (len(x), x.shape[1] // across)))
    tensor = run.tensor()
    require(tensor.dtype == ttnn.float32, f"float32 is asked for, your tensor is {tensor.dtype}")
    tiles = f"tiles are asked for, your tensor is in {tensor.layout}: layout=ttnn.TILE_LAYOUT"
    require(tensor.layout == ttnn.TILE_LAYOUT, tiles)
    run.equals(np.split(x, across, 1) * down)
    return "columns of the tensor on columns of the mesh, every row of it a replica"


@exercise(
    "02.round_trip",
    "Which dimension is cut along the rows of the mesh, and which along its columns?",
    "Shard dimension 0 along axis 0 and dimension 1 along axis 1; a composer names the same.",
    "ttnn.MeshComposerConfig([0, 1]) with ttnn.create_mesh_composer, and ttkit.to_numpy",
)
@asks("round_trip(mesh, x)", (2, 4), (4, 2))
def _round_trip(round_trip: Answer, mesh: Any) -> str:
    down, across = mesh.shape
    n = down * across
    x = numbers(2 * n, 3 * n)
    x[-1, -1] = -0.0
    # rows of x over rows of the mesh, or over its columns
    blocks = [(2 * across, 3 * down), (2 * down, 3 * across)]
    with watched_by(_Unsigned()):
        run = round_trip.on(mesh, (x, *blocks))
    have = run.ok()
    is_array = isinstance(have, np.ndarray) and have.dtype.kind in "fiu"
    round_trip.must_give("a NumPy array of numbers", is_array, have)
    found = difference(x, have)
    require(not found, f"on {mesh!r} what comes back is not what went out: {found}")
    if backend.is_simulated():
        _went_through(run, x.shape, blocks)
        nothing = "what you give back is the x that went in: nothing came back from the mesh"
        require(not np.signbit(have[-1, -1]), nothing)
    return "what went out came back"


class _Unsigned:
    """Makes each -0.0 that comes from the mesh 0.0, which equals it: a copy of x has -0.0."""

    def before(self, name: str, args: Any, kwargs: Any) -> None:
        """Do nothing."""

    def after(self, name: str, args: Any, kwargs: Any, result: Any) -> None:
        """Take the sign from the zeros of an array that comes back."""
        if name == "to_numpy" and result.dtype.kind == "f":
            result[result == 0] = 0.0


def _went_through(run: Run, whole: Shape, blocks: list[tuple[int, int]]) -> None:
    """Check that the array went to the mesh in blocks and came back through a composer."""
    shapes = [list(tensor.shape) for tensor in put_on_mesh(run.calls)]
    never = "x was never put on the mesh: no ttkit.from_numpy with device=mesh among your calls"
    require(bool(shapes), never)
    in_blocks = any(lean(shape) in map(lean, blocks) for shape in shapes)
    asked = f"in blocks means {how_cut(whole, blocks[0])}"
    require(in_blocks, f"on {run.mesh!r} you cut {how_cut(whole, shapes[0])}; {asked}")
    back = [call for call in run.calls if call.operation == "to_numpy" and call.returned]
    require(bool(back), "nothing came back from the mesh: no ttkit.to_numpy among your calls")
    composed = any(lean(call.result.shape) == lean(whole) for call in back)
    require(composed, "no composer among your calls: the shards were joined by hand")


@exercise(
    "02.bytes",
    "Which shape has the shard of one chip? Divide first.",
    "How many tiles does that shape need? math.ceil(n / 32) along each of the last two dimensions.",
    "A bfloat16 tile is 32 x 32 x 2 bytes; the other dimensions multiply the tiles.",
)
@asks("bytes_per_chip(shape, devices, dim)")
def _bytes(bytes_per_chip: Answer) -> str:
    for shape, devices, dim in (
        ((256, 512), 8, 1),
        ((100, 200), 4, 0),
        ((8, 16), 8, 0),
        ((2, 64, 64), 2, 0),
        ((2, 40, 70), 2, 0),
        ((3, 33, 130), 2, 2),
    ):
        shard = list(shape)
        shard[dim] //= devices
        *front, height, width = shard
        tiles = math.prod(front) * math.ceil(height / 32) * math.ceil(width / 32)
        asked = f"bytes_per_chip({shape}, {devices}, {dim})"
        have = whole_number(bytes_per_chip(shape, devices, dim), asked)
        hint = _why(have, shape, devices, dim) or f"a shard of {shard} takes {tiles} tiles"
        require(have == tiles * 2048, f"{asked} should be {tiles * 2048:,}, is {have:,}: {hint}")
    return "tiles counted, not elements"


def _why(have: int, shape: Shape, devices: int, dim: int) -> str:
    """Return the mistake that gives so many bytes; "" for one that is not known."""
    shard = [n // devices if d == dim else n for d, n in enumerate(shape)]
    *front, height, width = shard
    matrices, up = math.prod(front), lambda n: -(-n // 32) * 32
    right = matrices * up(height) * up(width)
    rounded = [*shape[:-2], *map(up, shape[-2:])]
    whole = math.prod(rounded)
    rounded[dim] //= devices
    together = "that is what all devices hold together: "
    together += f"dimension {dim} is sharded, and one of {devices} shards is on a chip"
    mistakes = (
        (math.prod(shard), "a chip stores whole tiles of 32 x 32, not elements"),
        (right * 2, "bfloat16 takes 2 bytes, not 4"),
        (right / 2, "that is the number of elements; each takes 2 bytes"),
        (
            matrices * max(32, height) * max(32, width),
            "sizes above 32 are rounded up to a multiple of 32, too",
        ),
        (
            math.prod(rounded),
            "divide first: the shard is rounded up to tiles, not the whole tensor",
        ),
        (right * devices, together),
        (whole, together),
        (
            math.ceil(math.prod(shard) / 1024) * 1024,
            "rows and columns are rounded up one by one: a tile holds no values of the next rows",
        ),
        (math.prod(map(up, shard)), "only the last two dimensions are rounded up to 32"),
        (
            up(height) * up(width),
            f"the dimensions before the last two count, too: {matrices} matrices",
        ),
        (matrices * height * up(width), "both of the last two dimensions are rounded up"),
        (matrices * up(height) * width, "both of the last two dimensions are rounded up"),
    )
    return next((words for elements, words in mistakes if have == 2 * elements), "")
