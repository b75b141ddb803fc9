"""Pictures of pipeline schedules: a lane for each stage, a bar for each action, and on the same axis what was measured."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypedDict

import numpy as np

from ttkit.errors import TTKitError, fail
from ttkit.plans import Action, Schedule, Timetable
from ttkit.plans.schedule import KINDS
from ttkit.plans.timetable import Slot, timetable
from ttkit.visualize.drawing import ALARM, BAD, INK, Drawing, tone, width_of, wrap
from ttkit.visualize.mesh import alarm_height, draw_alarm
from ttkit.visualize.timeline import ticks
from ttkit.words import PREFIXES

FILL = {"F": tone(1), "B": tone(2), "I": tone(5), "W": tone(3)}
LEFT, NARROW, WIDE, RIGHT = 84, 760, 1500, 132  # widths: the stages' names, time (from, to), the figures beside each lane
TOP, BAR, MEASURED, GAP = 86, 24, 16, 9  # heights: above the lanes, a bar, a measured bar, between stages
NUMBER = 10
COLUMNS = 100  # of a terminal, for the lanes
Measured = Iterable[tuple[int, Action | str, float, float]]


@dataclass(frozen=True)
class SchedulePicture:
    """What a picture of a schedule shows.

    Args:
        modelled: when each action would run; of a schedule that does not work, as far as it comes.
        measured: when each did run, from 0 on.
        unit: of the times: "s", or "" where they are counted in forwards.
        problem: why it does not work.
    """

    modelled: Timetable
    measured: Timetable | None = None
    unit: str = "s"
    problem: str = ""

    @property
    def schedule(self) -> Schedule:
        """Whose picture it is."""
        return self.modelled.schedule

    @property
    def title(self) -> str:
        """Name, size and bubble."""
        real = f", measured {self.measured.bubble_fraction:.1%}" if self.measured else ""
        found = "does not work" if self.problem else f"bubble {self.modelled.bubble_fraction:.1%} of the time{real}"
        return f"{self.schedule.title} · {found}"

    @property
    def waiting(self) -> dict[int, Action]:
        """The actions at which stages stop for ever."""
        pairs = enumerate(zip(self.modelled.slots, self.schedule.actions, strict=True))
        return {stage: row[len(slots)] for stage, (slots, row) in pairs if len(slots) < len(row)}

    @property
    def end_s(self) -> float:
        """Where the axis ends."""
        return max(self.modelled.time_s, self.measured.time_s if self.measured else 0)

    def figures(self, table: Timetable, stage: int) -> tuple[str, str]:
        """What stands beside a lane: the part of the time that is bubble, and the most micro-batches held."""
        peak = "" if table is self.measured else f"{self._peaks[stage]:.4g}"
        return "" if self.problem else f"{table.bubbles[stage]:.1%}", peak

    @functools.cached_property
    def _peaks(self) -> tuple[float, ...]:
        return self.schedule.peak_activations()

    def __repr__(self) -> str:
        tables = {"stage": self.modelled} | ({"measured": self.measured} if self.measured else {})
        width = max(len(f"stage {self.schedule.stages - 1}"), len("measured") * (len(tables) - 1))
        lines = [self.title]
        for stage in range(self.schedule.stages):
            for name, table in tables.items():
                bubble, peak = self.figures(table, stage)
                said = [f"bubble {bubble:>5}"] * bool(bubble) + [f"holds {peak}"] * bool(peak)
                said += [f"waits at {self.waiting.get(stage)}"] * (stage in self.waiting)
                label = f"stage {stage}" if name == "stage" else name
                lines.append(f"  {label:<{width}} |{self._row(table.slots[stage])}| {', '.join(said)}")
        return "\n".join(lines + [f"  {self.problem}"] * bool(self.problem))

    @functools.cached_property
    def shortest_s(self) -> float:
        """The time of the shortest action that takes any."""
        return min((slot.end_s - slot.start_s for row in self.modelled.slots for slot in row if slot.end_s > slot.start_s), default=0)

    def _row(self, slots: tuple[Slot, ...]) -> str:
        """A lane in letters: in each column what the stage does in the middle of it; where columns are too few, # for work."""
        end, shortest = self.end_s, self.shortest_s
        if not shortest:
            return ""
        units = end / shortest
        columns = min(COLUMNS, min(6, max(1, int(COLUMNS / units))) * round(units))
        middles = [(i + 0.5) * end / columns for i in range(columns)]
        text = ""
        for slot in slots:
            start, stop = (int(np.searchsorted(middles, time)) for time in (slot.start_s, slot.end_s))
            name, room = str(slot.action), stop - max(start, len(text))
            bar = "#" * room if units > COLUMNS else name.ljust(room, "-") if len(name) < room else slot.action.kind * room
            text = text.ljust(start, ".") + bar
        return text.ljust(columns, ".")

    def _repr_html_(self) -> str:
        return draw_schedule(self).html()


def schedule_picture(what: Schedule | Timetable, measured: Measured | None = None) -> SchedulePicture:
    """The picture of a schedule, or of its times, with a run that was measured.

    Args:
        what: a timetable, whose times are seconds; or a schedule, timed by what its actions took in the measured run (the
            median of each kind on each stage), without one in forwards, a backward being twice as long.
        measured: (stage, action, start in s, end in s) of each action, by any clock that the stages share.

    Raises:
        TTKitError: a measured action that is none of the schedule's, or that ends before it starts.

    Example:
        >>> from ttkit.plans import one_f_one_b
        >>> schedule_picture(one_f_one_b(2, 4))
        1F1B: 2 stages, 4 micro-batches · bubble 20.0% of the time
          stage 0 |F0----F1----............B0----------F2----B1----------F3----B2----------......B3----------| bubble 20.0%, holds 2
          stage 1 |......F0----B0----------F1----B1----------F2----B2----------F3----B3----------............| bubble 20.0%, holds 1
    """
    schedule = what.schedule if isinstance(what, Timetable) else what
    ran = None if measured is None else _ran(schedule, measured)
    if isinstance(what, Timetable):
        return SchedulePicture(what, ran)
    problem = ""
    try:
        schedule.validate()
    except TTKitError as wrong:
        problem = str(wrong).split("\n")[0].replace(f" of {schedule!r}", "", 1)
    if ran and ran.time_s:
        return SchedulePicture(timetable(schedule, **_took(ran)), ran, "s", problem)
    return SchedulePicture(timetable(schedule), ran, "", problem)


def _ran(schedule: Schedule, measured: Measured) -> Timetable:
    """What was measured, as a timetable that begins at 0."""
    rows: list[list[Slot]] = [[] for _ in range(schedule.stages)]
    for stage, entry, start, end in measured:
        action = Action.read(entry) if isinstance(entry, str) else entry
        if stage not in range(schedule.stages) or action not in schedule.actions[stage]:
            fail(f"a measured action {action} on stage {stage}", f"it is none of {schedule!r}", "(stage, action, start_s, end_s) of this schedule")
        if not end >= start:
            fail(f"a measured action {action} on stage {stage}", f"it ends at {end} s, before its start at {start} s")
        rows[stage].append(Slot(action, start, end))
    zero = min((slot.start_s for row in rows for slot in row), default=0)
    sorted_rows = (sorted(row, key=lambda slot: slot.start_s) for row in rows)
    return Timetable(schedule, tuple(tuple(Slot(a, start - zero, end - zero) for a, start, end in row) for row in sorted_rows))


class Times(TypedDict):
    """What `Schedule.timeline` takes, one a stage."""

    forward_s: list[float]
    backward_s: list[float]
    weight_s: list[float]


def _took(ran: Timetable) -> Times:
    """The medians of a run."""
    found = Times(forward_s=[], backward_s=[], weight_s=[])
    for row in ran.slots:
        spent = {kind: [slot.end_s - slot.start_s for slot in row if slot.action.kind == kind] for kind in KINDS}
        f, b, i, w = (float(np.median(times)) * ran.schedule.chunks if times else 0.0 for times in spent.values())
        found["forward_s"].append(f)
        found["backward_s"].append(i + w if spent["I"] else b)
        found["weight_s"].append(w)
    return found


# ---------------------------------------------------------------- drawn
def shade(kind: str, chunk: int, chunks: int) -> str:
    """The fill of a bar, as #rrggbb: one colour a kind, darker for the first chunk and lighter for the last."""
    if chunks == 1:
        return FILL[kind]
    part = chunk / (chunks - 1)
    towards, amount = (0, 0.14 * (1 - 2 * part)) if part < 0.5 else (255, 0.55 * (2 * part - 1))
    parts = (int(FILL[kind][i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(old + (towards - old) * amount):02x}" for old in parts)


def draw_schedule(picture: SchedulePicture) -> Drawing:
    """A lane for each stage, bars to scale with the numbers of their micro-batches; beside it, bubble and memory."""
    stages, tables = picture.schedule.stages, [picture.modelled, *([picture.measured] if picture.measured else [])]
    step = BAR + GAP + (MEASURED + 2) * (len(tables) - 1)
    plot, scale = _scale(picture)
    widest = width_of(str(picture.schedule.micro_batches - 1), NUMBER)
    every = next((n for n in (1, 4, 8) if n * picture.shortest_s * scale >= widest + 1), 16)  # which bars have room for a number
    bottom = TOP + step * stages
    warning = wrap(picture.problem, plot + LEFT + RIGHT - 20, 11, 6) if picture.problem else []
    drawing = Drawing(LEFT + plot + RIGHT, bottom + 46 + alarm_height(warning), picture.title, repr(picture))
    drawing.words(3, 16, picture.title, size=13, anchor="start", bold=True)
    _legend(drawing, picture, every)
    _axis(drawing, picture, plot, scale, bottom)
    for words, right in (("bubble", 62), ("holds", RIGHT - 10)):
        drawing.words(LEFT + plot + right, TOP - 10, words, size=11, anchor="end", colour="var(--soft)")
    for stage in range(stages):
        y: float = TOP + step * stage
        for table in tables:
            name, height = (f"stage {stage}", BAR) if table is picture.modelled else ("measured", MEASURED)
            drawing.words(LEFT - 10, y + height / 2 + 4, name, size=11, anchor="end")
            drawing.box(LEFT, y, plot, height, fill="var(--empty)", edge="none", round=0)
            _bars(drawing, picture, table.slots[stage], (y, height, scale), every)
            for words, right in zip(picture.figures(table, stage), (62, RIGHT - 10), strict=True):
                drawing.words(LEFT + plot + right, y + height / 2 + 4, words, size=11, anchor="end")
            y += height + 2
    for stage, action in picture.waiting.items():
        x = LEFT + (picture.modelled.slots[stage][-1].end_s if picture.modelled.slots[stage] else 0) * scale + 3
        text = f"waits at {action}"
        drawing.box(x, TOP + step * stage + 3, width_of(text, NUMBER, bold=True) + 8, BAR - 6, fill=ALARM, edge=BAD, round=3)
        drawing.words(x + 4, TOP + step * stage + BAR / 2 + 3.5, text, size=NUMBER, colour=INK, anchor="start", bold=True)
    draw_alarm(drawing, bottom + 44, warning)
    return drawing


def _scale(picture: SchedulePicture) -> tuple[float, float]:
    """How wide the lanes are, and how much of that a unit of time takes: room for the numbers in all bars if it can be."""
    need = width_of(str(picture.schedule.micro_batches - 1), NUMBER) + 3
    plot = float(min(WIDE, max(NARROW, round(need * picture.end_s / picture.shortest_s)))) if picture.shortest_s else NARROW
    room = max((width_of(f"waits at {action}", NUMBER, bold=True) + 14 for action in picture.waiting.values()), default=0)
    return plot, (plot - room) / picture.end_s if picture.end_s else 0.0


def _bars(drawing: Drawing, picture: SchedulePicture, slots: tuple[Slot, ...], at: tuple[float, float, float], every: int) -> None:
    """The bars of a lane, one shape for each fill, and numbers where they do not run into each other."""
    y, height, scale = at
    fills: dict[str, list[tuple[float, float, float, float]]] = {}
    numbers, marks, taken = [], [], float(LEFT)
    for action, start, end in slots:
        box = (LEFT + start * scale, y, (end - start) * scale, height)
        fills.setdefault(shade(action.kind, action.chunk, picture.schedule.chunks), []).append(box)
        text, middle = str(action.micro_batch), box[0] + box[2] / 2
        half = width_of(text, NUMBER) / 2
        if action.micro_batch % every == 0 and (box[2] > 2 * half or every > 1) and middle - half >= taken:
            numbers.append((middle, text))
            marks.append((middle - 0.75, y, 1.5, 4.0))
            taken = middle + half + (1 if every == 1 else 4)
    for fill, boxes in fills.items():
        drawing.blocks(boxes, fill=fill, edge="var(--page)", width=1)
    if every > 1:  # a number may be wider than its bar, which is told by a mark
        drawing.blocks(marks, fill=INK)
    for middle, text in numbers:
        drawing.words(middle, y + height / 2 + 3.5, text, size=NUMBER, colour=INK)


def _legend(drawing: Drawing, picture: SchedulePicture, every: int) -> None:
    kinds = [kind for kind in KINDS if any(action.kind == kind for row in picture.schedule.actions for action in row)]
    chunks = picture.schedule.chunks
    entries = [(KINDS[kind], [shade(kind, chunk, chunks) for chunk in range(chunks)]) for kind in kinds]
    x: float = LEFT
    for text, fills in [*entries, ("bubble", ["var(--empty)"])]:
        for fill in fills:
            drawing.box(x, 28, 14, 14, fill=fill, edge="none", round=2)
            x += 15
        text += f", chunks 0 to {chunks - 1}" if len(fills) > 1 else ""
        drawing.words(x + 5, 39, text, size=11, anchor="start", colour="var(--soft)")
        x += 5 + width_of(text, 11) + 20
    which = "in a bar" if every == 1 else f"in a bar with a mark, every {every}th"
    note = f"{which}: the number of its micro-batch; bubble: the part of the time without work; holds: activations of so many micro-batches at most"
    drawing.words(LEFT, 57, note, size=10, anchor="start", colour="var(--soft)")


def _axis(drawing: Drawing, picture: SchedulePicture, plot: float, scale: float, bottom: float) -> None:
    if not picture.end_s:
        return
    end = plot / scale
    size, prefix = next((pair for pair in PREFIXES if end >= pair[0] or pair == PREFIXES[-1]), (1, "")) if picture.unit else (1, "")
    for tick in ticks(end / size):
        x = LEFT + tick * size * scale
        drawing.line(x, TOP - 6, x, bottom, colour="var(--frame)", width=1)
        drawing.words(x, bottom + 14, f"{tick:.6g}", size=11, colour="var(--soft)")
    drawing.words(LEFT + plot / 2, bottom + 34, f"time in {prefix}s" if picture.unit else "time, a forward of a stage being 1", size=11, colour="var(--soft)")
