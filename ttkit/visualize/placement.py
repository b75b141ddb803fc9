"""A picture of one placement: the shard of each chip, its bytes, its padding, and the code."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from ttkit.errors import TTKitError
from ttkit.hardware.systems import system_named
from ttkit.visualize.drawing import Drawing, Figure, on_page, tone
from ttkit.visualize.tensor import draw_tensor, placed, slice_text
from ttkit.words import counted

REPLICATE = "replicate"
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
    import numpy as np

    from ttkit.sim import ttnn as simulated
    from ttkit.sim.mesh.opening import beside

    size = "x".join(map(str, mesh_shape))
    title = f"a tensor {list(shape)} in {dtype} on a {size} mesh of {system}"
    kinds = [
        "PlacementReplicate()" if dim == REPLICATE else f"PlacementShard({dim})"
        for dim in (axis_0, axis_1)
    ]
    code = "\n".join(
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
    ttnn: Any = simulated  # The picture uses the simulator even where the program runs on cards.
    try:
        with beside(system_named(system), tuple(mesh_shape)) as mesh:
            replicate, shard = ttnn.PlacementReplicate, ttnn.PlacementShard
            placements = [replicate() if d == REPLICATE else shard(d) for d in (axis_0, axis_1)]
            tensor = ttnn.from_torch(
                np.zeros(tuple(shape), np.float32),
                dtype=getattr(ttnn, dtype),
                layout=getattr(ttnn, f"{layout}_LAYOUT"),
                device=mesh,
                mesh_mapper=ttnn.create_mesh_mapper(mesh, ttnn.MeshMapperConfig(placements)),
            )
            return _drawn(title, code, mesh, tensor)
    except TTKitError as error:
        refused = f"{title}: refused"
        return Placement(refused, [], (), f"{refused}\n  {error}", str(error), code=code)


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
    drawings = [slices, _shard((rows, columns), (high, wide), tiled)]
    return Placement(title, drawings, notes, text, code=code, nbytes=nbytes, padding=padding)


def _shard(matrix: tuple[int, int], stored: tuple[int, int], tiled: bool) -> Drawing:
    """Draw the matrix of one shard in its tiles: the values in colour, the padding hatched."""
    (rows, columns), (high, wide) = matrix, stored
    scale = min(LARGEST / TILE, WIDE / wide, TALL / high)
    w, h, right, below = (max(n * scale, 3) for n in (wide, high, columns, rows))
    title = f"the shard of one chip: {rows} x {columns}"
    title += f" in {high // TILE} x {wide // TILE} tiles" if tiled else ""
    drawing = Drawing(w + 4, h + 4, title)
    for area, fill in (((w, h), "var(--empty)"), ((right, below), tone(0))):
        drawing.box((2, 2, *area), rx=0, fill=fill, stroke="none")
    padded = [(2 + right, 2, w - right, h), (2, 2 + below, right, h - below)]
    drawing.hatch(padded, colour="var(--soft)")
    tile = TILE * scale
    if tiled and tile >= FINEST:
        across, down = (range(n // TILE) for n in (wide, high))
        tiles = [(2 + x * tile, 2 + y * tile, tile, tile) for x in across for y in down]
        drawing.blocks(tiles, stroke="var(--soft)")
    drawing.blocks([(2, 2, w, h)], stroke="var(--ink)", stroke_width=1.5)
    return drawing
