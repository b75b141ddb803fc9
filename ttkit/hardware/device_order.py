"""The chips of a machine that a mesh gets when it is opened."""

import math
from collections.abc import Iterator

from ttkit.errors import fail
from ttkit.hardware.systems import Coordinate, System


def line_coordinates(shape: Coordinate, start: Coordinate, length: int) -> Iterator[Coordinate]:
    """Yield the places of a line of chips in a grid.

    The line goes around the rim of the grid from `start`. If the rim is too short or `start` is not
    on it, the line goes back and forth over all rows. After the last place the line continues at
    the first one, which need not be its neighbour.
    """
    rows, columns = shape
    grid = [[(r, c) for c in range(columns)] for r in range(rows)]
    rim = [place for row in grid for place in row]
    if min(shape) > 1:
        inner = grid[1:-1]
        rim = (
            grid[0] + [row[-1] for row in inner] + grid[-1][::-1] + [row[0] for row in inner[::-1]]
        )
    if length > len(rim) or start not in rim:
        rim = [place for r, row in enumerate(grid) for place in (row[::-1] if r % 2 else row)]
    first = rim.index(start)  # type: ignore[arg-type]
    return (rim[(first + i) % len(rim)] for i in range(length))


def device_order(
    system: System, shape: Coordinate, start: Coordinate, asked: object
) -> Iterator[Coordinate]:
    """Yield the place in the system of each chip of a mesh of `shape`, in row-major order.

    A mesh of one row or one column goes around the rim. Another shape takes the rectangle at
    `start` if it fits there; otherwise it is transposed, and begins at (0, 0).

    Raises:
        TTKitError: the shape has more devices than the system, no devices, or another number of
            dimensions, or it does not fit at `start`.

    Example:
        >>> from ttkit.hardware import SYSTEMS
        >>> list(device_order(SYSTEMS["t3000"], (4, 2), (0, 0), "open 4x2"))[:4]
        [(0, 0), (1, 0), (0, 1), (1, 1)]
    """
    size = math.prod(shape)
    whole = f"MeshShape({list(system.shape)})"
    wanted = f"MeshShape({list(shape)})"
    corner = f"MeshCoordinate({list(start)})"
    if size == 0:
        fail(
            asked,
            f"Requested mesh shape {wanted} has zero devices (mesh_size=0). "
            "MeshShape must have at least one device.",
        )
    if size > system.num_devices:
        fail(
            asked,
            f"Requested mesh shape {wanted} requires {size} devices, but only "
            f"{system.num_devices} devices are available in the system mesh {whole}.",
            "a smaller shape, or another system: ttkit.use_system(...)",
        )
    if len(shape) != len(system.shape):
        fail(
            asked,
            f"Requested mesh shape dimensions mismatch: {wanted} must have {len(system.shape)} "
            f"dimensions, as the system mesh {whole}",
        )
    if max(shape) == size:
        if any(o >= n for o, n in zip(start, system.shape)):
            fail(asked, f"Offset {corner} is out of bounds for the system mesh shape {whole}")
        yield from line_coordinates(system.shape, start, size)  # type: ignore[arg-type]
        return
    rows, columns = shape
    height, width = system.shape
    top, left = start
    if top + rows <= height and left + columns <= width:
        yield from ((top + r, left + c) for r in range(rows) for c in range(columns))
    elif top + columns <= height and left + rows <= width:
        # The real library checks the offset and then ignores it, so this function does the same.
        yield from ((c, r) for r in range(rows) for c in range(columns))
    else:
        fail(
            asked,
            f"Requested mesh is too big and is not rotatable: {wanted} and SystemMesh {whole}, "
            f"offset {corner}",
            "an offset of (0, 0), or a smaller shape",
        )


def device_ids(
    system: System, shape: Coordinate, corner: Coordinate, asked: object
) -> tuple[int, ...]:
    """Return the ids of the chips that a mesh opens, in row-major order; see `device_order`."""
    return tuple(system.ids[r][c] for r, c in device_order(system, shape, corner, asked))


def transposed_warning(dims: Coordinate, shape: Coordinate) -> str:
    """Return a warning if a shape fits on a mesh of `dims` only when it is transposed, else "".

    A line opens along the rim of a machine, so a transposed line needs no warning.

    Example:
        >>> transposed_warning((8, 4), (4, 8)).split(":")[0], transposed_warning((8, 4), (8, 4))
        ('4x8 is opened as the transpose of the 8x4', '')
    """
    asked, whole = ("x".join(map(str, size)) for size in (shape, dims))
    fits, turned = (all(n <= m for n, m in zip(shape, size)) for size in (dims, dims[::-1]))
    rule = f"{asked} is opened as the transpose of the {whole}"
    may = "a collective along an axis may find no route and hang"
    return f"{rule}: {may}" if turned and not fits and 1 not in shape else ""
