"""Pictures of messages between ranks: when each was sent and arrived, and who waits for whom."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from ttkit.visualize.drawing import ALARM, BAD, INK, Drawing, Figure, Point, size_text, tone

WIDTH = 640  # of a drawing, at most
LEFT, TOP, ROW = 64, 34, 44
COLUMN = (20, 120)  # the width of a step, at least and at most
NARROW = 34  # of a step: then only every fifth has its number
LABELLED = 5  # ranks: with more, only the hover has the bytes of a message
WAITING = 190  # px for the words about a rank that waits
RADIUS, BOX_W, BOX_H = 96, 96, 40  # of the ranks that wait


def draw_exchange(run: Any) -> Iterator[Figure]:
    """Draw when each message is sent and arrives; below it, who waits for whom."""
    yield Figure(run.title, [_space_time(run)], _notes(run), text=repr(run))
    if run.waits:
        yield draw_waits(run)


def _notes(run: Any) -> list[str]:
    sizes = sorted({message.nbytes for message in run.messages})
    notes = []
    if sizes:
        each = size_text(sizes[0]) if len(sizes) == 1 else f"up to {size_text(sizes[-1])}"
        notes.append(
            f"Each arrow is a message of {each}: a dot where it is sent, a square where it "
            "arrives. A column is a step, not a time."
        )
    return notes


def _space_time(run: Any) -> Drawing:
    room = WIDTH - LEFT - 16 - (WAITING if run.waits else 0)
    step_w = max(COLUMN[0], min(COLUMN[1], room / max(run.steps, 1)))
    end = LEFT + step_w * run.steps
    width = max(end + (WAITING if run.waits else 0) + 16, 320)
    bottom = TOP + ROW * run.ranks
    draw = Drawing(width, bottom + 2, run.title)
    rows = [TOP + ROW * rank + ROW / 2 for rank in range(run.ranks)]

    for step in range(run.steps + 1):
        x = LEFT + step_w * step
        draw.line((x, TOP), (x, bottom), colour="var(--frame)", width=1, dash="3 4")
        if step and (step_w >= NARROW or step % 5 == 0):
            word = f"step {step}" if step_w > 48 else str(step)
            draw.words(x - step_w / 2, TOP - 10, word, size=11, colour="var(--soft)")
    for rank, y in enumerate(rows):
        draw.words(LEFT - 12, y + 4, f"rank {rank}", size=12, anchor="end", bold=True)
        draw.line((LEFT, y), (end, y), colour="var(--edge)", width=1.2)
    for wait in run.waits:
        _wait(draw, wait, LEFT + step_w * wait.since, end, rows[wait.rank])
    # the longest first: short arrows and their words lie above them
    for message in sorted(run.messages, key=lambda m: -abs(m.receiver - m.sender)):
        start = (LEFT + step_w * message.sent + 4, rows[message.sender])
        stop = (LEFT + step_w * message.step - 5, rows[message.receiver])
        _message(draw, message, start, stop, run.ranks <= LABELLED and step_w > 56)
    return draw


def _message(draw: Drawing, message: Any, start: Point, stop: Point, labelled: bool) -> None:
    size = size_text(message.nbytes)
    carries = f"{message.text}, {size}" if message.text else size
    hover = f"step {message.step}: rank {message.sender} to rank {message.receiver}, {carries}"
    draw.arrow(start, stop, width=1.8, colour="var(--link)", head=9)
    draw.add("circle", cx=start[0], cy=start[1], r=4.5, fill=tone(message.sender), stroke="#1c2430")
    draw.box(stop[0] - 1, stop[1] - 4.5, 9, 9, fill=tone(message.sender), edge="#1c2430", round=1)
    if labelled:
        # near its sender, away from the words of short arrows
        part = 0.34 if abs(message.receiver - message.sender) == 1 else 0.14
        x, y = (a + (b - a) * part for a, b in zip(start, stop))
        draw.words(x + 4, y + 1, message.text or size, size=11, halo=True, anchor="start")
    _under_the_mouse(draw, start, stop, hover)


def _under_the_mouse(draw: Drawing, start: Point, stop: Point, hover: str) -> None:
    """Lay an unseen line over an arrow, wider than it."""
    (x1, y1), (x2, y2) = start, stop
    look: dict[str, Any] = {"stroke": "transparent", "stroke_width": 12}
    draw.add("line", hover=hover, x1=x1, y1=y1, x2=x2, y2=y2, **look)


def _wait(draw: Drawing, wait: Any, since: float, end: float, y: float) -> None:
    words = str(wait).partition(" to ")[0].partition(f"rank {wait.rank} ")[2]
    right = end + WAITING - 6
    draw.box(since + 3, y - 13, right - since - 3, 26, fill=ALARM, edge=BAD, round=4, dash="4 3")
    x = max(since + 10, end + 8)
    draw.words(x, y + 4, words, size=11, colour=INK, anchor="start")
    look: dict[str, Any] = {"fill": "transparent", "x": since + 3, "y": y - 13, "height": 26}
    draw.add("rect", hover=_sentence(wait), width=right - since - 3, **look)


def _sentence(wait: Any) -> str:
    return f"{wait}{f', at {wait.line}' if wait.line else ''}"


def draw_waits(run: Any) -> Figure:
    """Draw an arrow from each rank that waits to the rank that it waits for."""
    waits = {wait.rank: wait for wait in run.waits}
    radius = max(RADIUS, run.ranks * 20)
    width, height = 3 * radius + BOX_W + 8, 2 * radius * 0.62 + BOX_H + 24
    draw = Drawing(width, height, "who waits for whom")
    centres = []
    for rank in range(run.ranks):
        angle = 2 * math.pi * rank / run.ranks - math.pi / 2
        dx, dy = radius * 1.5 * math.cos(angle), radius * 0.62 * math.sin(angle)
        centres.append((width / 2 + dx, height / 2 + dy))
    for rank, wait in waits.items():
        if wait.peer not in range(run.ranks):
            continue
        here, there = centres[rank], centres[wait.peer]
        start, stop = _rim(here, there), _rim(there, here)
        draw.arrow(start, stop, colour=BAD, width=2.4, head=11)
        _under_the_mouse(draw, start, stop, _sentence(wait))
    for rank, (x, y) in enumerate(centres):
        wait = waits.get(rank)
        look: dict[str, Any] = {"fill": ALARM, "edge": BAD} if wait else {"fill": "var(--chip)"}
        draw.box(x - BOX_W / 2, y - BOX_H / 2, BOX_W, BOX_H, dash="4 3" if wait else "", **look)
        ink = INK if wait else "var(--ink)"
        draw.words(x, y - 2, f"rank {rank}", size=12, bold=True, colour=ink)
        state = f"in {wait.call}" if wait else "is done"
        draw.words(x, y + 13, state, size=11, colour=ink)
    return Figure(_title(run), [draw], run.waiting)


def _title(run: Any) -> str:
    if run.cycle:
        return "Who waits for whom: the arrows form a cycle, so nobody can go on"
    return "Who waits for whom"


def _rim(inside: Point, towards: Point) -> Point:
    """Return where the way from a box's centre to another point leaves the box."""
    (x, y), dx, dy = inside, towards[0] - inside[0], towards[1] - inside[1]
    part = min((BOX_W / 2 + 4) / (abs(dx) or 1e-9), (BOX_H / 2 + 4) / (abs(dy) or 1e-9))
    return x + dx * part, y + dy * part
