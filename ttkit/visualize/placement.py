"""A picture of one placement: the shard of each chip, its bytes, its padding, and the code."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from ttkit.errors import TTKitError, fail
from ttkit.hardware.systems import system_named
from ttkit.visualize.drawing import Drawing, Figure, on_page, tone, width_of
from ttkit.visualize.tensor import draw_tensor, placed, slice_text
from ttkit.words import counted

DTYPES = ("float32", "bfloat16", "bfloat8_b", "bfloat4_b", "uint32", "int32", "uint16", "uint8")
REPLICATE = "replicate"
LAYOUTS = ("TILE", "ROW_MAJOR")
TILE = 32  # A tile has 32 rows and 32 columns.
WIDE, TALL, LARGEST = 360, 260, 40  # A shard takes at most WIDE x TALL px, a tile LARGEST.
FINEST = 4  # Tiles of fewer px are drawn without their edges.
PRE = (
    "background:var(--chip);border-radius:6px;color:var(--ink);font-size:12px;margin:4px 0;"
    "max-width:800px;padding:6px 9px;white-space:pre-wrap"
)


@dataclass(frozen=True, repr=False)
class Placement(Figure):
    """A picture of a tensor on a mesh, with the code that places it.

    Args:
        code: lines of Python; `x` is the array.
        nbytes: what each chip stores; 0 where the placement is refused.
        padding: the fraction of these bytes that holds no value.
    """

    code: str = ""
    nbytes: int = 0
    padding: float = 0.0

    def _repr_html_(self) -> str:
        code = on_page(f'<pre style="{PRE}">{escape(self.code)}</pre>')
        return super()._repr_html_() + code


def placement(
    system: str = "t3000",
    mesh_shape: Sequence[int] = (2, 4),
    shape: Sequence[int] = (256, 512),
    dtype: str = "bfloat16",
    layout: str = "TILE",
    axis_0: int | str = REPLICATE,
    axis_1: int | str = REPLICATE,
) -> Placement:
    """Return the picture of a tensor on a simulated mesh, or of ttnn's error if it refuses the
    placement.

    The mesh is separate from those in use: your mesh, system and fabric stay as they are.

    Args:
        system: a name of `ttkit.hardware.SYSTEMS`.
        mesh_shape: rows and columns of the mesh.
        shape: of the whole tensor.
        dtype, layout: as ttnn names them: "bfloat16", "TILE".
        axis_0, axis_1: the dimension that is sharded along this mesh axis, or "replicate".

    Example:
        >>> picture = placement("t3000", (1, 4), (40, 64), axis_1=1)
        >>> picture
        a tensor [40, 64] in bfloat16 on a 1x4 mesh of t3000: 4,096 bytes on each chip
          [:, 0:16] on device 4
          [:, 16:32] on device 0
          [:, 32:48] on device 2
          [:, 48:64] on device 6
          a shard of 40 x 16 is stored as 64 x 32: 2 tiles of 2,048 bytes, 69% is padding
        >>> picture.nbytes
        4096
    """
    for given, known in ((dtype, DTYPES), (layout, LAYOUTS)):
        if given not in known:
            fail(f"placement({given!r})", "ttnn has no such name here", f"one of {known}")
    size = "x".join(map(str, mesh_shape))
    title = f"a tensor {list(shape)} in {dtype} on a {size} mesh of {system}"
    code = code_of(mesh_shape, shape, dtype, layout, (axis_0, axis_1))
    try:
        return _placed(title, code, system, mesh_shape, shape, dtype, layout, axis_0, axis_1)
    except TTKitError as error:
        refused = f"{title}: refused"
        return Placement(refused, [], (), f"{refused}\n  {error}", str(error), code=code)


def code_of(
    mesh_shape: Sequence[int],
    shape: Sequence[int],
    dtype: str,
    layout: str,
    axes: Sequence[int | str],
) -> str:
    """Return the lines of Python that place an array `x` like this.

    Example:
        >>> print(code_of((2, 4), (8, 16), "bfloat16", "TILE", ("replicate", 1)))
        # x is a NumPy array of shape [8, 16]
        mesh = ttnn.open_mesh_device(ttnn.MeshShape(2, 4))
        placements = [ttnn.PlacementReplicate(), ttnn.PlacementShard(1)]
        mapper = ttnn.create_mesh_mapper(mesh, ttnn.MeshMapperConfig(placements))
        tensor = ttkit.from_numpy(
            x, dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT,
            device=mesh, mesh_mapper=mapper,
        )
    """
    kinds = [
        "PlacementReplicate()" if dim == REPLICATE else f"PlacementShard({dim})" for dim in axes
    ]
    return "\n".join(
        [
            f"# x is a NumPy array of shape {list(shape)}",
            f"mesh = ttnn.open_mesh_device(ttnn.MeshShape({', '.join(map(str, mesh_shape))}))",
            f"placements = [{', '.join(f'ttnn.{kind}' for kind in kinds)}]",
            "mapper = ttnn.create_mesh_mapper(mesh, ttnn.MeshMapperConfig(placements))",
            "tensor = ttkit.from_numpy(",
            f"    x, dtype=ttnn.{dtype}, layout=ttnn.{layout}_LAYOUT,",
            "    device=mesh, mesh_mapper=mapper,",
            ")",
        ]
    )


def _placed(
    title: str,
    code: str,
    system: str,
    mesh_shape: Sequence[int],
    shape: Sequence[int],
    dtype: str,
    layout: str,
    *axes: int | str,
) -> Placement:
    """Place zeros of this shape on a private simulated mesh, and draw the result."""
    import numpy as np

    from ttkit.sim import ttnn as simulated
    from ttkit.sim.mesh.opening import beside

    ttnn: Any = simulated  # The picture uses the simulator even where the program runs on cards.
    replicate, shard = ttnn.PlacementReplicate, ttnn.PlacementShard
    kinds = [replicate() if dim == REPLICATE else shard(dim) for dim in axes]
    with beside(system_named(system), tuple(mesh_shape)) as mesh:
        mapper = ttnn.create_mesh_mapper(mesh, ttnn.MeshMapperConfig(kinds))
        tensor = ttnn.from_torch(
            np.zeros(tuple(shape), np.float32),
            dtype=getattr(ttnn, dtype),
            layout=getattr(ttnn, f"{layout}_LAYOUT"),
            device=mesh,
            mesh_mapper=mapper,
        )
        return _drawn(title, code, mesh, tensor)


def _drawn(title: str, code: str, mesh: Any, tensor: Any) -> Placement:
    (nbytes,) = (n for n in mesh.used.values() if n)
    title += f": {nbytes:,} bytes on each chip"
    picture, chips = placed(tensor), len(mesh.chips)
    whole, tiled = picture.whole, tensor.layout.name == "TILE"
    (*front, rows, columns), (*_, high, wide) = (
        (1, 1, *each) for each in (tensor.shape, tensor.padded_shape)
    )
    matrices = math.prod(front)
    stored, values = matrices * high * wide, matrices * rows * columns
    padding = 1 - values / stored
    one = f"{rows} x {columns}"
    if tiled:
        tiles = stored // TILE**2
        how = f"a shard of {one} is stored as {high} x {wide}: "
        how += f"{counted(tiles, 'tile')} of {nbytes // tiles:,} bytes, "
        how += f"{padding:.0%} is padding"
    else:
        how = f"a shard of {one} is stored row by row: {values:,} elements, no padding"
    if matrices > 1:
        how += f" ({matrices} such matrices on each chip)"
    times = chips * stored / math.prod(whole)
    notes = [
        f"{how[0].upper()}{how[1:]}. The simulator counted these {nbytes:,} bytes.",
        f"All {chips} chips together store {chips * nbytes:,} bytes, {times:.3g} times what "
        "the values of one whole tensor need. One colour: the same slice.",
    ]
    held: dict[str, list[int]] = {}
    for device, place in zip(mesh.chips, picture.cells):
        held.setdefault(slice_text(place.ranges or (), whole), []).append(device)
    lines = [
        f"{part} on {'device' if len(ids) == 1 else 'devices'} {', '.join(map(str, ids))}"
        for part, ids in held.items()
    ]
    text = "\n  ".join([title, *lines, how])
    (slices,) = draw_tensor(tensor).drawings
    slices.title = "which slice each chip holds"
    drawings = [slices, _shard((rows, columns), (high, wide), tiled, padding)]
    return Placement(title, drawings, notes, text, code=code, nbytes=nbytes, padding=padding)


def _shard(
    matrix: tuple[int, int], stored: tuple[int, int], tiled: bool, padding: float
) -> Drawing:
    """Draw the matrix of one shard in its tiles: the values in colour, the padding hatched."""
    (rows, columns), (high, wide) = matrix, stored
    scale = min(LARGEST / TILE, WIDE / wide, TALL / high)
    w, h, right, below = (max(n * scale, 3) for n in (wide, high, columns, rows))
    title = f"the shard of one chip: {rows} x {columns}"
    if tiled:
        title += f" in {high // TILE} x {wide // TILE} tiles"
    drawing = Drawing(max(w + 4, 250), h + 48, title)
    drawing.box(2, 2, w, h, fill="var(--empty)", edge="none", round=0)
    drawing.box(2, 2, right, below, fill=tone(0), edge="none", round=0)
    padded = [(2 + right, 2, w - right, h), (2, 2 + below, right, h - below)]
    drawing.hatch(padded, colour="var(--soft)")
    tile = TILE * scale
    if tiled and tile >= FINEST:
        across, down = (range(n // TILE) for n in (wide, high))
        tiles = [(2 + x * tile, 2 + y * tile, tile, tile) for x in across for y in down]
        drawing.blocks(tiles, edge="var(--soft)")
    drawing.blocks([(2, 2, w, h)], edge="var(--ink)", width=1.5)
    words = f"padding: {padding:.0%}" if tiled else "padding: none, no tiles"
    x, y = 2.0, h + 14
    for fill, text in ((tone(0), f"values: {1 - padding:.0%}"), ("var(--empty)", words)):
        drawing.box(x, y, 14, 14, fill=fill, round=2)
        drawing.words(x + 20, y + 11, text, anchor="start")
        if fill != tone(0):
            drawing.hatch([(x, y, 14, 14)], colour="var(--soft)")
        x += 34 + width_of(text, 12)
    return drawing
