"""Lesson 01, mesh devices."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from ttkit.hardware import SYSTEMS, System
from ttkit.lessons import CheckFailed, exercise, require
from ttkit.lessons.answers import Answer, asks, is_a
from ttkit.lessons.predicting import as_number


@exercise("01.second_row")
@asks("second_row(mesh)", (2, 4), (4, 2))
def _second_row(second_row: Answer, mesh: Any) -> str:
    rows, columns = mesh.shape
    require(rows > 1, f"{mesh!r} has no second row: open one with two rows or more")
    wanted = mesh.get_device_ids()[columns : 2 * columns]
    row = second_row.on(mesh).ok()
    second_row.must_give("a mesh", is_a(row, "get_device_ids"), row)
    have, shape = row.get_device_ids(), tuple(row.shape)
    rule = f"on {mesh!r} the second row is devices {wanted}"
    require(have == wanted, f"{rule}, your mesh has devices {have}")
    require(shape == (1, columns), f"the row has shape (1, {columns}), yours has {shape}")
    return "the second row, in order"


@exercise("01.pairs")
@asks("pairs(mesh)", (2, 4), (4, 2))
def _pairs(pairs: Answer, mesh: Any) -> str:
    ids = np.reshape(mesh.get_device_ids(), tuple(mesh.shape))
    wanted = [pair.tolist() for rows in zip(ids[::2], ids[1::2]) for pair in np.transpose(rows)]
    found = pairs.on(mesh).ok()
    pairs.must_give("a list of meshes", isinstance(found, (list, tuple)), found)
    several = f"on {mesh!r} there are {len(wanted)} pairs, you made {len(found)}"
    require(len(found) == len(wanted), several)
    for i, (pair, want) in enumerate(zip(found, wanted, strict=True)):
        kind = f"pair {i} should be a mesh of two chips, is a {type(pair).__name__}"
        require(is_a(pair, "get_device_ids"), kind)
        have = pair.get_device_ids()
        require(have == want, f"on {mesh!r} pair {i} should hold devices {want}, holds {have}")
    return "each chip with the one below it"


class _Silent(System):
    """A system that does not answer which chips are linked, since that is the exercise."""

    def linked(self, *devices: Any) -> Any:
        raise CheckFailed(
            "the system knows the answer, but then it is no exercise: "
            "find the neighbours from ids, shape and wraps"
        )

    links = linked


def _rectangle(rows: int, columns: int, wraps: tuple[bool, bool]) -> System:
    """Return a system whose ids show neither a chip's place nor an axis' size."""
    ids = (7 * np.arange(rows * columns) + 3) % (rows * columns)
    table = tuple(map(tuple, ids.reshape(rows, columns).tolist()))
    name = f"{rows} x {columns} system with wraps={wraps}"
    return System(name, SYSTEMS["galaxy"].chip, table, 1, wraps)


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
            on = f"on {system.name}"
            for other in listed:
                known = as_number(other) in system.coordinate_of
                require(known, f"{on}, there is no device {other!r}; device ids are asked for")
            have = {int(other) for other in listed}
            wanted = {b if a == device else a for a, b in system.links() if device in (a, b)}
            itself = f"{on}, your answer names device {device} as a neighbour of itself"
            require(device not in have, itself)
            for other in sorted(wanted - have):
                linked = f"{on}, device {device} is cabled to device {other}"
                raise CheckFailed(f"{linked}: your answer misses it")
            for other in sorted(have - wanted):
                raise CheckFailed(f"{on}, no cable joins device {device} and device {other}")
    return "no cable missing, none invented, wrap-around included"
