"""Pictures of messages between ranks: when each was sent and arrived, and who waits for whom."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ttkit.plans.messages import ANY
from ttkit.visualize.cells import Cell, Cells, Grid
from ttkit.visualize.drawing import ALARM, BAD, Figure, size_text
from ttkit.visualize.lanes import Arrow, Bar, Lane, Look, draw_lanes

LABELLED = 6  # With more steps, there is no room for the bytes.
LOOKS = {"waits": Look("waits forever", ALARM, 6)}


def draw_exchange(run: Any) -> Iterator[Figure]:
    """Draw when each message is sent and arrives; below it, who waits for whom."""
    waits = {wait.rank: wait for wait in run.waits}
    end = run.steps + (1 if waits else 0)
    lanes = []
    for rank in range(run.ranks):
        lane = Lane(f"rank {rank}", [])
        if wait := waits.get(rank):
            peer = "any rank" if wait.peer == ANY else f"rank {wait.peer}"
            lane = replace(lane, bars=[Bar(wait.since, end, "waits")], about=f"waits for {peer}")
        lanes.append(lane)
    arrows = []
    # The longest come first: short arrows and their words lie above them.
    for message in sorted(run.messages, key=lambda m: -abs(m.receiver - m.sender)):
        text = (message.text or size_text(message.nbytes)) if run.steps <= LABELLED else ""
        at = (message.sender, message.sent, message.receiver, message.step)
        arrows.append(Arrow(*at, text))
    notes = []
    if sizes := sorted({message.nbytes for message in run.messages}):
        each = size_text(sizes[0]) if len(sizes) == 1 else f"up to {size_text(sizes[-1])}"
        notes = [f"Each arrow is a message of {each}, with a dot where it is sent."]
    drawing = draw_lanes(lanes, LOOKS, end, title=repr(run), idle="",
                         axis="steps; a step is not a time", arrows=arrows)  # fmt: skip
    yield Figure(run.title, [drawing], notes, text=repr(run))
    if waits:
        yield _waits(run, waits)


def _waits(run: Any, waits: dict[int, Any]) -> Figure:
    """Draw an arrow from each rank that waits to the rank that it waits for."""
    title = "Who waits for whom"
    if run.cycle:
        title += ": the arrows form a cycle, so nobody can go on"
    ranks = tuple(range(run.ranks))
    pairs = tuple((min(w.rank, w.peer), max(w.rank, w.peer)) for w in run.waits if w.peer in ranks)
    # More than three ranks are drawn as a ring: half of them on the way back.
    fold = (run.ranks + 1) // 2 if run.ranks > 3 else 0
    cells = []
    for rank in ranks:
        if rank in waits:
            state = f"in {waits[rank].call}"
            cells.append(Cell(f"rank {rank}", [state], ALARM, dashed=True))
        else:
            cells.append(Cell(f"rank {rank}", ["is done"]))
    grid = Grid(title, (1, run.ranks), ranks, pairs, 0, fold=fold)
    drawing = Cells(grid, cells, frame="", gap=(40, 36))
    for rank, wait in waits.items():
        if wait.peer in ranks:
            drawing.arrow(*drawing.course(rank, wait.peer), colour=BAD)
    return Figure(title, [drawing], run.waiting)
