"""A picture of one placement: the shard of each chip, its bytes, its padding, and the code."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from ttkit.errors import TTKitError, fail
from ttkit.hardware.systems import system_named
from ttkit.visualize.drawing import INK, Drawing, Figure, on_page, tone, width_of
from ttkit.visualize.mesh import MeshDrawing, picture_of
from ttkit.visualize.tensor import Placed, map_of, placed, slice_text
from ttkit.words import counted

DTYPES = ("float32", "bfloat16", "bfloat8_b", "bfloat4_b", "uint32", "int32", "uint16", "uint8")
REPLICATE = "replicate"
LAYOUTS = ("TILE", "ROW_MAJOR")
NAME, SIZE, PART, STEP = 12, 11.5, 10, 13  # sizes of words, and from line to line
MAP = 20  # side of the small map in a chip
TILE = 32  # rows and columns of a tile
WIDE, TALL, LARGEST = 360, 260, 40  # at most so large: a shard, and one tile
FINEST = 4  # tiles that are smaller are drawn without their edges
LEAST = 3  # px of values that are seen
SOFT = "var(--soft)"
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
        padding: which part of these bytes holds no value, from 0 to 1.
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
    """Return the picture of a tensor on a simulated mesh, or of ttnn's words that refuse it.

    The mesh is opened beside those in use: your mesh, system and fabric stay as they are.

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
        made = _made(system, mesh_shape, shape, dtype, layout, axis_0, axis_1)
    except TTKitError as error:
        refused = f"{title}: refused"
        return Placement(refused, [], (), f"{refused}\n  {error}", str(error), code=code)
    return _drawn(title, code, made)


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


# ---------------------------------------------------------------- made by the simulator
@dataclass(frozen=True)
class _Made:
    """What the simulator made: where the shards lie, and one chip's shard.

    Args:
        matrix: rows and columns of a shard; `stored` is what they are rounded up to.
        matrices: how many of them a shard has, in its dimensions before the last two.
    """

    system: Any
    devices: tuple[int, ...]
    picture: Placed
    matrix: tuple[int, int]
    stored: tuple[int, int]
    matrices: int
    nbytes: int
    tiled: bool


def _made(
    system: str,
    mesh_shape: Sequence[int],
    shape: Sequence[int],
    dtype: str,
    layout: str,
    *axes: int | str,
) -> _Made:
    """Place zeros of this shape on a mesh that nobody else sees, and read what came of it."""
    import numpy as np

    from ttkit.sim import ttnn as simulated
    from ttkit.sim.mesh.opening import beside

    ttnn: Any = simulated  # also where the program itself runs on cards
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
        (nbytes,) = (n for n in mesh.used.values() if n)
        (*front, rows, columns), (*_, high, wide) = (
            (1, 1, *each) for each in (tensor.shape, tensor.padded_shape)
        )
        sizes = (rows, columns), (high, wide), math.prod(front)
        tiled = tensor.layout == ttnn.TILE_LAYOUT
        return _Made(mesh.system, mesh.chips, placed(tensor), *sizes, nbytes, tiled)


# ---------------------------------------------------------------- drawn
def _drawn(title: str, code: str, made: _Made) -> Placement:
    title += f": {made.nbytes:,} bytes on each chip"
    whole, chips = made.picture.whole, len(made.devices)
    stored = made.matrices * math.prod(made.stored)
    values = made.matrices * math.prod(made.matrix)
    padding = 1 - values / stored
    one = " x ".join(map(str, made.matrix))
    if made.tiled:
        tiles = stored // TILE**2
        how = f"a shard of {one} is stored as {' x '.join(map(str, made.stored))}: "
        how += f"{counted(tiles, 'tile')} of {made.nbytes // tiles:,} bytes, "
        how += f"{padding:.0%} is padding"
    else:
        how = f"a shard of {one} is stored row by row: {values:,} elements, no padding"
    if made.matrices > 1:
        how += f" ({made.matrices} such matrices on each chip)"
    times = chips * stored / math.prod(whole)
    notes = [
        f"{how[0].upper()}{how[1:]}. The simulator counted these {made.nbytes:,} bytes.",
        f"All {chips} chips together store {chips * made.nbytes:,} bytes, {times:.3g} times what "
        "the values of one whole tensor need. One colour: the same slice.",
    ]
    held: dict[str, list[int]] = {}
    for device, cell in zip(made.devices, made.picture.cells):
        held.setdefault(slice_text(cell.ranges or (), whole), []).append(device)
    lines = [
        f"{part} on device{'s' * (len(ids) > 1)} {', '.join(map(str, ids))}"
        for part, ids in held.items()
    ]
    text = "\n  ".join([title, *lines, how])
    chips_drawn = _chips(made)
    if chips_drawn.picture.fold:
        fold = chips_drawn.picture.fold
        notes.append(f"The line of chips is folded: {fold} there, {fold} back.")
    drawings = [chips_drawn, _shard(made, padding)]
    return Placement(title, drawings, notes, text, code=code, nbytes=made.nbytes, padding=padding)


def _chips(made: _Made) -> MeshDrawing:
    """Draw the mesh: in each chip its id, a small map of what it holds, and the slice in words."""
    whole = made.picture.whole
    title = "which slice each chip holds: dimension 0, then 1"
    title += "".join(f", {d}" for d in range(2, len(whole)))
    chips = picture_of(title, made.picture.mesh_shape, made.devices, made.system).folded(4)
    held = [
        ["all" if (a, b) == (0, n) else f"{a}:{b}" for (a, b), n in zip(cell.ranges or (), whole)]
        for cell in made.picture.cells
    ]
    words = max(width_of(part, PART) for parts in held for part in ["", *parts])
    height = 24 + max(MAP, STEP * len(whole)) + 6
    drawing = MeshDrawing(chips, max(74, MAP + 11 + words), height, "", gap=(9, 20))
    drawn = zip(made.picture.cells, made.devices, held, drawing.corners)
    for cell, device, parts, (x, y) in drawn:
        ranges, at = cell.ranges or (), f"device {device} at {cell.coordinate}"
        hover = f"{at}: {slice_text(ranges, whole)}, {made.nbytes:,} bytes"
        look: dict[str, Any] = {"fill": tone(cell.group or 0), "stroke": "var(--edge)", "rx": 6}
        drawing.add("rect", hover=hover, x=x, y=y, width=drawing.w, height=height, **look)
        name = f"device {device}"
        drawing.words(x + drawing.w / 2, y + 15, name, size=NAME, colour=INK, bold=True)
        if ranges:
            map_of(drawing, made.picture, ranges, x + 4, y + 23, MAP)
        drawing.words(x + MAP + 8, y + 31, parts, size=PART, colour=INK, anchor="start", step=STEP)
    return drawing


def _shard(made: _Made, padding: float) -> Drawing:
    """Draw the matrix of one shard in its tiles: the values in colour, the padding hatched."""
    (rows, columns), (high, wide) = made.matrix, made.stored
    scale = min(LARGEST / TILE, WIDE / wide, TALL / high)
    w, h = wide * scale, high * scale
    right, below = (max(n * scale, LEAST * (n > 0)) for n in (columns, rows))
    title = f"the shard of one chip: {rows} x {columns}"
    if made.tiled:
        title += f" in {high // TILE} x {wide // TILE} tiles"
    drawing = Drawing(max(w + 4, 230), h + 48, title)
    hover = f"padding: stored as {high} x {wide}, {padding:.0%} holds no value"
    drawing.add("rect", hover=hover, x=2, y=2, width=w, height=h, fill="var(--empty)")
    drawing.hatch([(2 + right, 2, w - right, h), (2, 2 + below, right, h - below)], colour=SOFT)
    hover = f"values: {rows} x {columns}"
    drawing.add("rect", hover=hover, x=2, y=2, width=right, height=below, fill=tone(0))
    tile = TILE * scale
    # edges are dark on the values, and of the theme's colour on the padding
    for wide_to, high_to, ink in ((w, h, SOFT), (right, below, INK)):
        if made.tiled and tile >= FINEST:
            steps = [i * tile for i in range(1, max(wide, high) // TILE)]
            across = [(2, 2 + at, wide_to, 0) for at in steps if at < high_to]
            down = [(2 + at, 2, 0, high_to) for at in steps if at < wide_to]
            drawing.blocks([*across, *down], edge=ink)
    drawing.blocks([(2, 2, w, h)], edge="var(--ink)", width=1.5)
    y = h + 14
    drawing.box(2, y, 14, 14, fill=tone(0), round=2)
    words = f"values: {1 - padding:.0%}"
    drawing.words(22, y + 11, words, size=SIZE, anchor="start")
    x = 36 + width_of(words, SIZE)
    drawing.box(x, y, 14, 14, fill="var(--empty)", round=2)
    drawing.hatch([(x, y, 14, 14)], colour=SOFT)
    label = f"padding: {padding:.0%}" if made.tiled else "padding: none, no tiles"
    drawing.words(x + 20, y + 11, label, size=SIZE, anchor="start")
    return drawing
