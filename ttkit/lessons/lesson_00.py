"""Lesson 00, start here."""

from __future__ import annotations

from typing import Any

from ttkit.lessons import exercise, require
from ttkit.lessons.answers import Answer, asks, numbers, whole_number


@exercise("00.double")
@asks("double(mesh, x)", (2, 4), (1, 3))
def _double(double: Answer, mesh: Any) -> str:
    n = mesh.get_num_devices()
    x = numbers(2 * n, 3 * n)
    run = double.on(mesh, (x, (2, 3 * n)))
    run.equals(list(2 * x.reshape(n, 2, -1)))
    run.computed("the doubling")
    return "every device doubled its own rows"


@exercise("00.share")
def _share(answer: Any, mesh: Any) -> str:
    have = whole_number(answer, "the number of elements")
    hints = {
        48 * 64: ": that is the whole tensor; eight devices share it",
        48: ": that is how many rows the whole tensor has",
        48 // 8: ": that is how many rows a chip holds; each row has 64 elements",
        48 * 64 // 4: ": that would be right for four devices; there are eight",
        48 * 64 // 8 * 4: ": those are the bytes in float32; elements are asked for",
    }
    wrong = f"48 x 64 elements over 8 devices are not {have:,} each{hints.get(have, '')}"
    require(have == 48 * 64 // 8, wrong)
    return f"{have} elements on each device"
