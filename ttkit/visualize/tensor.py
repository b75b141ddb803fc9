"""Pictures of tensors over a mesh, and of one placement with its code.

`draw_tensor` shows which part of the whole tensor each chip holds. It reads public attributes only,
so it draws tensors of the real library and of the simulator. `placement` shows the shard of each
chip, its bytes and its padding."""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from textwrap import wrap
from typing import Any, NamedTuple

from ttkit import backend
from ttkit.errors import TTKitError
from ttkit.hardware.systems import system_named
from ttkit.visualize.cells import Box, Cell, Cells, Coordinate
from ttkit.visualize.drawing import INK, Drawing, Figure, Rectangle, on_page, tone
from ttkit.visualize.mesh import chips_of, grid_of, ids_at
from ttkit.words import counted, grouped

MAP = 34  # The small map has the area of a square whose sides have this many px.
# Ranges give the (start, end) of a shard in each dimension of the global tensor.
Ranges = tuple[tuple[int, int], ...]


# ---------------------------------------------------------------- where the shards lie
class Place(NamedTuple):
    """One coordinate of a mesh, and the slice of a tensor that its chip holds.

    Args:
        device: the device id; None on the host, and for a chip of another rank.
        ranges: the slice of the global tensor; None if there is no shard.
        group: a number for the slice; chips that hold the same slice have the same number. It is
            -1 if there is no shard.
    """

    coordinate: Coordinate
    device: int | None = None
    ranges: Ranges | None = None
    group: int = -1


class Placed(NamedTuple):
    """A tensor over a mesh: the shape of the whole tensor, and a cell for each coordinate.

    Args:
        mesh_shape: the shape of the mesh.
        whole: the shape of the global tensor.
        cells: one for each coordinate of the mesh, in row-major order.
        unequal: groups whose chips should hold replicas of one slice but hold different values, as
            with partial results.
    """

    mesh_shape: Coordinate
    whole: tuple[int, ...]
    cells: tuple[Place, ...]
    unequal: frozenset[int] = frozenset()


def slice_text(ranges: Ranges, whole: Iterable[int]) -> str:
    """Return a slice as Python would write it.

    Example:
        >>> slice_text(((0, 8), (16, 32)), (8, 64))
        '[:, 16:32]'
    """
    parts = (":" if (a, b) == (0, n) else f"{a}:{b}" for (a, b), n in zip(ranges, whole))
    return f"[{', '.join(parts)}]"


def covered(tensor) -> list[Coordinate]:
    """Return the coordinates that hold a shard, in order; the topology may name more of them."""
    if tensor.device() is not None:
        return list(map(tuple, tensor.device_coords()))
    buffer = tensor.host_buffer()
    coords = list(tensor.tensor_topology().mesh_coords())
    shards = len(backend.load().get_device_tensors(tensor))
    axes = len(tuple(buffer.shape()))
    here = [c for c in coords if len(tuple(c)) == axes and buffer.is_local(c)]
    return list(map(tuple, here if len(here) == shards else coords[:shards]))


def placed(tensor) -> Placed:
    """Return where a tensor's shards lie and which part of the whole each one is.

    Unlike ttnn's own table, the result counts a negative dimension from the end. It is also right
    for tensors at an offset in the mesh, and for any number of mesh axes.
    """
    topology = tensor.tensor_topology()
    mesh = tensor.device()
    over = tensor.host_buffer().shape() if mesh is None else mesh.shape
    shape = tuple(tensor.shape)
    distributed = topology.distribution_shape()
    mesh_shape = tuple(over)
    distribution = tuple(distributed)
    # `axes[d]` lists the axes of the distribution that shard dimension d.
    axes: list[list[int]] = [[] for _ in shape]
    for axis, placement in enumerate(topology.placements()):
        dim = getattr(placement, "dim", None)
        if dim is not None and -len(shape) <= dim < len(shape):
            axes[dim].append(axis)
    whole = tuple(n * math.prod(distribution[a] for a in along) for n, along in zip(shape, axes))

    places = covered(tensor)
    parts = list(itertools.product(*map(range, distribution)))
    known = places
    if len(places) != len(parts):
        every = backend.load().compute_distribution_to_mesh_mapping(distributed, over)
        known = list(map(tuple, every))
    part_at = dict(zip(known, parts))
    ranges_at: dict[Coordinate, Ranges] = {}
    for place in places:
        part = part_at.get(place, (0,) * len(distribution))
        ranges = []
        for size, along in zip(shape, axes):
            at = 0
            for axis in along:
                at = at * distribution[axis] + part[axis]
            ranges.append((at * size, (at + 1) * size))
        ranges_at[place] = tuple(ranges)
    groups = {ranges: i for i, ranges in enumerate(dict.fromkeys(ranges_at.values()))}
    ids = ids_at(mesh) if mesh is not None else {}
    cells = []
    for place in itertools.product(*map(range, mesh_shape)):
        held = ranges_at.get(place)
        cells.append(Place(place, ids.get(place), held, -1 if held is None else groups[held]))
    differ = unequal(tensor, [groups[ranges_at[place]] for place in places])
    return Placed(mesh_shape, whole, tuple(cells), differ)


def unequal(tensor, groups: Sequence) -> frozenset:
    """Return the groups in which two shards have different values.

    Shards are compared on the simulator only: on a card the comparison would read back the whole
    tensor, so the result is empty there.

    Args:
        groups: the group of each shard.
    """
    if not hasattr(tensor, "shards") or len(set(groups)) == len(groups):
        return frozenset()
    import numpy as np

    first: dict[Any, Any] = {}
    different = set()
    local = set(tensor.grid.coords)
    here = (g for g, c in zip(groups, tensor.grid.covers) if c in local)
    for group, shard in zip(here, tensor.shards()):
        other = first.setdefault(group, shard)
        at = other.__array_interface__["data"]
        same = at == shard.__array_interface__["data"] or group in different
        if not same and not np.array_equal(other, shard, equal_nan=True):
            different.add(group)
    return frozenset(different)


# ---------------------------------------------------------------- drawn
def draw_tensor(tensor) -> Figure:
    """Draw a tensor over its mesh. Chips with the same slice have the same colour.

    A small map in each chip shows where its slice lies in the whole tensor.
    """
    kind = f"{tensor.dtype.name} · {tensor.layout.name}"
    if not tensor.is_allocated():
        return Figure(f"tensor with shards {list(tensor.shape)} · {kind} · deallocated", [])
    picture = placed(tensor)
    mesh = tensor.device()
    where, frame = ("in host memory", "host memory") if mesh is None else ("on device", "host")
    shards = f" in shards of {list(tensor.shape)}" if len(picture.cells) > 1 else ""
    title = f"tensor {list(picture.whole)}{shards} · {kind} · {where}"
    devices = tuple(range(len(picture.cells))) if mesh is None else chips_of(mesh)
    grid = grid_of(title, picture.mesh_shape, devices, getattr(mesh, "system", None))
    wide = grid.drawn[1] <= 4  # In narrow chips the device id has its own line.
    *_, high, across = 1, 1, *(picture.whole[d] or 1 for d in mapped(picture))
    aspect = min(max(across / high, 0.4), 2.5) ** 0.5
    size = MAP * aspect, MAP / aspect
    cells = []
    for label, place in zip(grid.labels, picture.cells):
        lines = ["no shard"]
        fill = "var(--empty)"
        held = Box()
        if place.ranges is not None:
            text = slice_text(place.ranges, picture.whole)
            fill = tone(place.group)
            lines = wrap(text, 20 if wide else 11, max_lines=3, break_long_words=False)
            part = map_of(picture, place.ranges)
            differs = place.group in picture.unequal
            held = Box(fill="#3d4a5c", part=part, hatched=differs)
        name = label
        if mesh is not None:
            chip = "other rank" if place.device is None else f"device {place.device}"
            if wide:
                name = f"{label} {chip}"
            else:
                lines = [chip, *lines]
        cells.append(Cell(name, lines, fill, place.device is None, [held], box=size))
    return Figure(title, [Cells(grid, cells, frame=frame)], _notes(tensor, picture))


def mapped(picture: Placed) -> tuple[int, ...]:
    """Return the two dimensions that the small maps show.

    These are the first two that are cut. If fewer are cut, the last of the others are added.

    Example:
        >>> held = [((i, i + 1), (0, 1), (0, 32), (0, 64)) for i in range(4)]
        >>> cells = tuple(Place((0, i), i, ranges, i) for i, ranges in enumerate(held))
        >>> mapped(Placed((1, 4), (4, 1, 32, 64), cells))
        (0, 3)
    """
    dims = range(len(picture.whole))
    held = [cell.ranges for cell in picture.cells if cell.ranges]
    cut = [d for d in dims if any(ranges[d] != (0, picture.whole[d]) for ranges in held)]
    others = [d for d in reversed(dims) if d not in cut]
    return tuple(sorted([*cut, *others][:2]))


def map_of(picture: Placed, ranges: Ranges) -> Rectangle:
    """Return a chip's slice in the two dimensions of `mapped`, as a rectangle.

    The whole tensor is the square from (0, 0) to (1, 1).
    """
    spans = [(ranges[d], picture.whole[d] or 1) for d in mapped(picture)]
    spans = [((0, 1), 1)] * (2 - len(spans)) + spans
    (top, bottom), (left, right) = ((a / n, b / n) for (a, b), n in spans)
    return left, top, right - left, bottom - top


def _notes(tensor, picture: Placed) -> list[str]:
    """Return notes on how the tensor is placed and what the colours mean."""
    if len(picture.cells) == 1:
        return []
    topology = tensor.tensor_topology()
    over = tuple(topology.distribution_shape())
    dims = [getattr(placement, "dim", None) for placement in topology.placements()]
    kinds = ["replicated" if dim is None else f"dim {dim} is sharded" for dim in dims]
    if len(over) == len(picture.mesh_shape):
        axes = enumerate(zip(over, kinds))
        how = ", ".join(f"mesh axis {axis} ({n}): {kind}" for axis, (n, kind) in axes)
    else:
        how = f"{'x'.join(map(str, over))} chips in row order: {', '.join(kinds)}"
    notes = [f"Placement, as ttnn records it: {how}. One colour: the same slice."]
    shown = mapped(picture)
    last = len(picture.whole) - 2
    if any(d < last for d in shown):
        notes.append(
            f"The small maps show dimension {shown[0]} downwards, {shown[1]} to the right."
        )
    if picture.unequal:
        notes.append(
            "Hatched: recorded as replicas of one slice, but the values differ from chip to chip, "
            "as those of partial results do."
        )
    return notes


# ---------------------------------------------------------------- one placement
REPLICATE = "replicate"
TILE = 32  # A tile has 32 rows and 32 columns.
# A shard takes at most WIDE x TALL px, and a side of a tile takes at most LARGEST px.
WIDE, TALL, LARGEST = 360, 180, 40
FINEST = 4  # Tiles whose sides have fewer px than this are drawn without edges.
PRE = (
    "background:var(--chip);border-radius:6px;color:var(--ink);font:12px monospace;margin:4px 0;"
    "max-width:800px;padding:6px 9px;white-space:pre-wrap"
)


@dataclass(frozen=True, repr=False)
class Placement(Figure):
    """A picture of a tensor on a mesh, with the code that places it.

    Args:
        code: the lines of Python that place the array `x`.
        nbytes: the bytes that each chip stores; 0 if ttnn refuses the placement.
    """

    code: str = ""
    nbytes: int = 0

    def _repr_html_(self) -> str:
        return super()._repr_html_() + on_page(f'<pre style="{PRE}">{escape(self.code)}</pre>')


def placement(
    system: str = "t3000",
    mesh_shape: Sequence[int] = (2, 4),
    shape: Sequence[int] = (256, 512),
    axis_0: int | str = REPLICATE,
    axis_1: int | str = REPLICATE,
) -> Placement:
    """Return the picture of a bfloat16 tensor in tiles on a simulated mesh, or of the error if ttnn
    refuses the placement.

    The mesh is separate from open meshes: your mesh, system and fabric stay as they are.

    Args:
        system: a name of `ttkit.hardware.SYSTEMS`.
        mesh_shape: rows and columns of the mesh.
        shape: the shape of the whole tensor.
        axis_0, axis_1: the dimension that is sharded along this mesh axis, or "replicate".

    Example:
        >>> picture = placement("t3000", (1, 4), (40, 64), axis_1=1)
        >>> picture
        a tensor [40, 64] in bfloat16 on a 1x4 mesh of t3000: 4,096 bytes on each chip
          [:, 0:16] on device 4
          [:, 16:32] on device 0
          [:, 32:48] on device 2
          [:, 48:64] on device 6
          a shard of 40 x 16 is stored as 64 x 32: 2 tiles of 2,048 bytes, 69% padding
        >>> picture.nbytes
        4096
    """
    import numpy as np

    from ttkit.sim import ttnn  # The picture uses the simulator even where the program uses cards.
    from ttkit.sim.mesh.opening import beside

    size = "x".join(map(str, mesh_shape))
    title = f"a tensor {list(shape)} in bfloat16 on a {size} mesh of {system}"
    placements = [
        ttnn.PlacementReplicate() if dim == REPLICATE else ttnn.PlacementShard(dim)
        for dim in (axis_0, axis_1)
    ]
    code = (
        f"# x is a NumPy array of shape {list(shape)}\n"
        f"mesh = ttnn.open_mesh_device(ttnn.MeshShape({', '.join(map(str, mesh_shape))}))\n"
        f"placements = [{', '.join(f'ttnn.{each!r}' for each in placements)}]\n"
        "mapper = ttnn.create_mesh_mapper(mesh, ttnn.MeshMapperConfig(placements))\n"
        "tensor = ttkit.from_numpy(\n"
        "    x, dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT,\n"
        "    device=mesh, mesh_mapper=mapper,\n"
        ")"
    )
    try:
        with beside(system_named(system), tuple(mesh_shape)) as mesh:
            tensor = ttnn.from_torch(
                np.zeros(tuple(shape), np.float32),
                dtype=ttnn.bfloat16,
                layout=ttnn.TILE_LAYOUT,
                device=mesh,
                mesh_mapper=ttnn.create_mesh_mapper(mesh, ttnn.MeshMapperConfig(placements)),
            )
            return _drawn(title, code, mesh, tensor)
    except TTKitError as error:
        refused = f"{title}: refused"
        return Placement(refused, [], (), f"{refused}\n  {error}", str(error), code=code)


def _drawn(title: str, code: str, mesh, tensor) -> Placement:
    (nbytes,) = (n for n in mesh.used.values() if n)
    title += f": {nbytes:,} bytes on each chip"
    picture = placed(tensor)
    chips = len(mesh.chips)
    whole = picture.whole
    stored = math.prod(tensor.padded_shape)
    one, in_memory = (" x ".join(map(str, each)) for each in (tensor.shape, tensor.padded_shape))
    tiles = stored // TILE**2
    how = (
        f"a shard of {one} is stored as {in_memory}: {counted(tiles, 'tile')} of "
        f"{nbytes // tiles:,} bytes, {1 - math.prod(tensor.shape) / stored:.0%} padding"
    )
    notes = [
        f"{how[0].upper()}{how[1:]}. The simulator counted these {nbytes:,} bytes.",
        f"All {chips} chips together store {chips * nbytes:,} bytes, "
        f"{chips * stored / math.prod(whole):.3g} times what the values of one whole tensor need. "
        "One colour: the same slice.",
    ]
    held = grouped(picture.cells, lambda place: slice_text(place.ranges or (), whole))
    lines = []
    for part, places in held.items():
        ids = ", ".join(str(place.device) for place in places)
        lines.append(f"{part} on {'device' if len(places) == 1 else 'devices'} {ids}")
    text = "\n  ".join([title, *lines, how])
    (slices,) = draw_tensor(tensor).drawings
    slices.title = "which slice each chip holds"
    matrix, in_tiles = ((1, *each)[-2:] for each in (tensor.shape, tensor.padded_shape))
    drawings = [slices, _shard(matrix, in_tiles)]
    return Placement(title, drawings, notes, text, code=code, nbytes=nbytes)


def _shard(matrix: tuple[int, int], stored: tuple[int, int]) -> Drawing:
    """Draw one shard as a matrix, with its values coloured and its padding hatched.

    Args:
        matrix: the rows and columns of the values.
        stored: the rows and columns in memory, with the padding.
    """
    rows, columns = matrix
    high, wide = stored
    scale = min(LARGEST / TILE, WIDE / wide, TALL / high)
    w, h, right, below = (max(n * scale, 3) for n in (wide, high, columns, rows))
    drawing = Drawing(w + 4, h + 4, f"one shard: {high // TILE} x {wide // TILE} tiles")
    for area, fill in (((w, h), "var(--empty)"), ((right, below), tone(0))):
        drawing.box((2, 2, *area), rx=0, fill=fill, stroke="none")
    padded = [(2 + right, 2, w - right, h), (2, 2 + below, right, h - below)]
    drawing.hatch(padded, colour="var(--soft)")
    tile = TILE * scale
    if tile >= FINEST:
        across, down = (range(n // TILE) for n in (wide, high))
        tiles = [(2 + x * tile, 2 + y * tile, tile, tile) for x in across for y in down]
        drawing.blocks(tiles, stroke=INK, stroke_width=0.5)
    drawing.blocks([(2, 2, w, h)], stroke="var(--ink)", stroke_width=1.5)
    return drawing
