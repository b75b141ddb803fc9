"""Lesson 01, mesh devices."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from ttkit.hardware import SYSTEMS, System
from ttkit.lessons import CheckFailed, as_number, exercise, require
from ttkit.lessons.answers import Answer, asks, is_a


@exercise("01.second_row")
@asks("second_row(mesh)", (2, 4), (4, 2))
def _second_row(second_row: Answer, mesh: Any) -> str:
    rows, columns = mesh.shape
    require(rows > 1, f"{mesh!r} has no second row: open one with two rows or more")
    wanted = mesh.get_device_ids()[columns : 2 * columns]
    row = second_row.on(mesh).ok()
    require(
        is_a(row, "get_device_ids"),
        f"second_row(mesh) should give a mesh, gave a {type(row).__name__}",
    )
    for place, (want, have) in enumerate(zip(wanted, row.get_device_ids(), strict=False)):
        require(
            want == have,
            f"on {mesh!r} place {place} of the second row is device {want}, "
            f"your mesh has device {have} there",
        )
    require(
        tuple(row.shape) == (1, columns),
        f"the row has shape (1, {columns}), yours has {tuple(row.shape)}",
    )
    return "the second row, in order"


@exercise("01.pairs")
@asks("pairs(mesh)", (2, 4), (4, 2))
def _pairs(pairs: Answer, mesh: Any) -> str:
    ids, columns = mesh.get_device_ids(), tuple(mesh.shape)[1]
    found = pairs.on(mesh).ok()
    require(
        isinstance(found, (list, tuple)),
        f"pairs(mesh) should give a list of meshes, gave a {type(found).__name__}",
    )
    require(
        len(found) == len(ids) // 2,
        f"on {mesh!r} there are {len(ids) // 2} pairs, you made {len(found)}",
    )
    for i, pair in enumerate(found):
        row, column = divmod(i, columns)
        wanted = [ids[2 * row * columns + column], ids[(2 * row + 1) * columns + column]]
        require(
            is_a(pair, "get_device_ids"),
            f"pair {i} should be a mesh of two chips, is a {type(pair).__name__}",
        )
        require(
            pair.get_device_ids() == wanted,
            f"on {mesh!r} pair {i} should hold devices {wanted}, holds {pair.get_device_ids()}",
        )
    return "each chip with the one below it"


class _Silent(System):
    """A system that does not tell its cables, so that the exercise stays one."""

    def linked(self, *devices: Any) -> Any:
        raise CheckFailed(
            "the system would tell you, but then it is no exercise: "
            "find the neighbours from ids, shape and wraps"
        )

    links = linked


def _rectangle(rows: int, columns: int, wraps: tuple[bool, bool]) -> System:
    """Ids in no order, so that neither an id's value nor the size of an axis tells where a chip
    stands.
    """
    size = rows * columns
    ids = tuple(
        tuple((7 * (r * columns + c) + 3) % size for c in range(columns)) for r in range(rows)
    )
    return System(
        f"{rows} x {columns} system with wraps={wraps}", SYSTEMS["galaxy"].chip, ids, 1, wraps
    )


@exercise("01.neighbours")
@asks("neighbours(system, device)")
def _neighbours(neighbours: Answer) -> str:
    own = [_rectangle(3, 5, wraps) for wraps in ((True, False), (False, True))]
    for system in (SYSTEMS["t3000"], SYSTEMS["galaxy"], *own, SYSTEMS["galaxy_torus"]):
        silent = _Silent(**{f.name: getattr(system, f.name) for f in fields(system)})
        for device in system.coordinate_of:
            found = neighbours(silent, device)
            try:
                listed = list(found)
            except TypeError:
                raise CheckFailed(
                    f"a list or set of device ids is asked for, yours gave {found!r}"
                ) from None
            strange = [other for other in listed if as_number(other) not in system.coordinate_of]
            require(
                not strange,
                f"on {system.name}, there is no device {strange[0]!r}; device ids are asked for"
                if strange
                else "",
            )
            have = {int(other) for other in listed}
            wanted = {b if a == device else a for a, b in system.links() if device in (a, b)}
            require(
                device not in have,
                f"on {system.name}, your answer names device {device} as a neighbour of itself",
            )
            for other in sorted(wanted - have):
                raise CheckFailed(
                    f"on {system.name}, device {device} is cabled to device {other}: "
                    "your answer misses it"
                )
            for other in sorted(have - wanted):
                raise CheckFailed(
                    f"on {system.name}, no cable joins device {device} and device {other}"
                )
    return "no cable missing, none invented, wrap-around included"
