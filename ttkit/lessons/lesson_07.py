"""Lesson 07, tensor parallel."""

from __future__ import annotations

from typing import Any

import numpy as np

from ttkit.lessons import exercise, require
from ttkit.lessons.answers import Answer, Run, asks, numbers, row_of
from ttkit.lessons.lesson_03 import PARTIAL


def _one_sum(run: Run) -> None:
    """Check that one collective led to the tensor: an all_reduce, or its two halves."""
    run.summed()
    sent = run.sent(run.led)
    fine = not run.calls or sent in (["all_reduce"], ["reduce_scatter", "all_gather"])
    require(fine, f"it is right, but you called {', '.join(sent)}; one all_reduce is enough")


@exercise("07.swiglu")
@asks("swiglu(mesh, x, gate, up, down)", (1, 4), (1, 3), fabric=True)
def _swiglu(swiglu: Answer, mesh: Any) -> str:
    n = row_of(mesh)
    x, gate = numbers(64, 32), numbers(32, 32 * n) / 8
    up, down = gate[::-1], numbers(32 * n, 96) / 8
    run = swiglu.on(mesh, (x, x.shape), (gate, (32, 32)), (up, (32, 32)), (down, (32, 96)))

    def part(gate: np.ndarray, up: np.ndarray, down: np.ndarray) -> np.ndarray:
        turned = x @ gate
        return (turned / (1 + np.exp(-turned)) * (x @ up)) @ down

    cuts = zip(np.split(gate, n, 1), np.split(up, n, 1), np.split(down, n), strict=True)
    run.differs(([part(*cut) for cut in cuts], PARTIAL), rtol=1e-3)
    run.equals([part(gate, up, down)] * n, 1e-3)
    _one_sum(run)
    run.multiplied((x.shape, (32, 32)), (x.shape, (32, 32)), ((64, 32), (32, 96)))
    return f"three matrices, one sum; {run.given()}"


@exercise("07.backward")
@asks("backward(mesh, dy, w)", (1, 4), (1, 3), fabric=True)
def _backward(backward: Answer, mesh: Any) -> str:
    n = row_of(mesh)
    dy, w = numbers(64, 32 * n), numbers(96, 32 * n)
    run = backward.on(mesh, (dy, (64, 32)), (w, (96, 32)))
    parts = [a @ b.T for a, b in zip(np.split(dy, n, 1), np.split(w, n, 1), strict=True)]
    run.differs((parts, PARTIAL), rtol=1e-3)
    run.equals([dy @ w.T] * n, 1e-4)
    _one_sum(run)
    run.multiplied(((64, 32), (96, 32)))
    return f"the gradient of x on each of {n} devices; {run.given()}"
