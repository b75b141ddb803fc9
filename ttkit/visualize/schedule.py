"""Charts of pipeline schedules: a lane for each stage, modelled and measured on one axis."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ttkit.errors import TTKitError, fail
from ttkit.plans import Action, Schedule, Timetable
from ttkit.plans.actions import KINDS
from ttkit.plans.timetable import Slot, timetable
from ttkit.visualize.chart import Chart, Span, bars, entitle, fitting, lanes, write
from ttkit.visualize.drawing import Figure
from ttkit.visualize.stages import Touch, shade, stage_lanes

HATCH = {"F": "//", "B": "\\\\", "I": "---", "W": "xx"}  # of bars that have no room for words
COLUMNS = 100  # of a terminal, for the lanes
Measured = Iterable[tuple[int, Action | str, float, float]]
Row = tuple[str, tuple[Slot, ...], str]


@dataclass(frozen=True, repr=False)
class SchedulePicture(Chart):
    """When each stage of a schedule does what, and its chart.

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
    def title(self) -> str:  # type: ignore[override]
        """Name, size and bubble."""
        if self.problem:
            return f"{self.schedule.title} · does not work"
        real = f", measured {self.measured.bubble_fraction:.1%}" if self.measured else ""
        bubble = self.modelled.bubble_fraction
        return f"{self.schedule.title} · bubble {bubble:.1%} of the time{real}"

    @property
    def end_s(self) -> float:
        """Where the axis ends."""
        return max(self.modelled.time_s, self.measured.time_s if self.measured else 0)

    @property
    def rows(self) -> list[Row]:
        """The lanes: name, what runs, and bubble, memory or where the stage stops."""
        found: list[Row] = []
        for stage, held in enumerate(self.schedule.peak_activations()):
            for name, table in ((f"stage {stage}", self.modelled), ("measured", self.measured)):
                if table is None:
                    continue
                slots, actions = table.slots[stage], self.schedule.actions[stage]
                about = [] if self.problem else [f"bubble {table.bubbles[stage]:.1%}"]
                if table is self.modelled:
                    about.append(f"holds {held:.4g}")
                    if len(slots) < len(actions):
                        about.append(f"waits at {actions[len(slots)]}")
                found.append((name, slots, ", ".join(about)))
        return found

    def __repr__(self) -> str:
        width = max(len(name) for name, _, _ in self.rows)
        lines = [
            f"{name:<{width}} |{self._row(slots)}| {about}" for name, slots, about in self.rows
        ]
        problem = [self.problem] if self.problem else []
        return "\n  ".join([self.title, *lines, *problem])

    def _row(self, slots: tuple[Slot, ...]) -> str:
        """Return a lane in letters: in each column what the stage does in the middle of it.

        Where columns are too few, # stands for work."""
        modelled = itertools.chain(*self.modelled.slots)
        shortest = min((slot.end_s - slot.start_s for slot in modelled), default=0)
        if not shortest:
            return ""
        units = self.end_s / shortest
        columns = min(COLUMNS, min(6, max(1, int(COLUMNS / units))) * round(units))
        text = ""
        for action, *span in slots:
            start, stop = (math.ceil(time / self.end_s * columns - 0.5) for time in span)
            name, room = str(action), stop - max(start, len(text))
            if units > COLUMNS:
                bar = "#" * room
            else:
                bar = name.ljust(room, "-") if len(name) < room else action.kind * room
            text = text.ljust(start, ".") + bar
        return text.ljust(columns, ".")

    def figure(self, touch: Touch | None = None) -> Figure:
        """Return what a notebook shows.

        Args:
            touch: attributes of the box of an action on a stage, for a `touchable` page.
        """
        waiting = []
        for stage, row in enumerate(self.schedule.actions):
            waiting.append(row[len(self.modelled.slots[stage]) :])
            waiting += [()] if self.measured else []
        drawing = stage_lanes(
            self.rows,
            self.end_s,
            title=repr(self),
            unit=self.unit,
            chunks=self.schedule.chunks,
            waiting=waiting,
            touch=touch,
        )
        return Figure(self.title, [drawing], alarm=self.problem)

    def _repr_html_(self) -> str:
        return self.figure()._repr_html_()

    @property
    def height(self) -> float:
        """Of the figure, in inches."""
        problem = 0.16 * (len(self.problem) // 90 + 1) * bool(self.problem)
        return 1.2 + 0.36 * len(self.rows) + problem

    def draw(self, ax: Any) -> None:
        """Draw a lane for each stage, with its actions to scale; beside it, bubble and memory."""
        from matplotlib.ticker import EngFormatter

        names, slots, about = zip(*self.rows)
        lanes(ax, names, self.end_s or 1, "bubble")
        groups: dict[tuple[int, str, int], list[tuple[Span, str]]] = {}
        hatches = dict.fromkeys(KINDS, "")
        for lane, row in enumerate(slots):
            for action, *span in row:
                text = fitting(ax, span, _texts(action))
                groups.setdefault((lane, action.kind, action.chunk), []).append((span, text))
                if not text:
                    hatches[action.kind] = HATCH[action.kind]
        for (lane, kind, chunk), named in groups.items():
            fill = shade(kind, chunk, self.schedule.chunks)
            spans = [span for span, _ in named]
            bars(ax, lane, spans, KINDS[kind], fill, hatches[kind])
            for span, text in named if not hatches[kind] else ():
                write(ax, lane, span, text)
        entitle(ax, f"{self.title}\n{self.problem}".rstrip())
        right = ax.secondary_yaxis("right")
        right.set_yticks(range(len(names)), about)
        right.tick_params(length=0)
        right.spines["right"].set_visible(False)
        ax.set_xlabel("time" if self.unit else "time, a forward of a stage being 1")
        ax.xaxis.set_major_formatter(EngFormatter(unit=self.unit) if self.unit else "{x:g}")


def _texts(action: Action) -> tuple[str, str]:
    """Return an action's letter and number on one line, and on two."""
    text, number = str(action), str(action.micro_batch)
    return text, text.removesuffix(number) + f"\n{number}"


def schedule_picture(
    what: Schedule | Timetable, measured: Measured | None = None
) -> SchedulePicture:
    """Return the picture of a schedule, or of its times, with a run that was measured.

    Args:
        what: a timetable, whose times are seconds; or a schedule, timed by what its actions took in
            the measured run (the median of each kind on each stage), without one in forwards, a
            backward being twice as long.
        measured: (stage, action, start in s, end in s) of each action, by any clock that the stages
            share.

    Raises:
        TTKitError: a measured action that is none of the schedule's, or that ends before it starts.

    Example:
        >>> from ttkit.plans import one_f_one_b
        >>> schedule_picture(one_f_one_b(2, 1))
        1F1B: 2 stages, 1 micro-batch · bubble 50.0% of the time
          stage 0 |F0----..................B0----------| bubble 50.0%, holds 1
          stage 1 |......F0----B0----------............| bubble 50.0%, holds 1
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
        return SchedulePicture(timetable(schedule, *_medians(ran)), ran, "s", problem)
    return SchedulePicture(timetable(schedule), ran, "", problem)


def _ran(schedule: Schedule, measured: Measured) -> Timetable:
    """Return what was measured, as a timetable that begins at 0."""
    rows: list[list[Slot]] = [[] for _ in range(schedule.stages)]
    for stage, entry, start, end in measured:
        action = Action.read(entry) if isinstance(entry, str) else entry
        asked = f"a measured action {action} on stage {stage}"
        if stage not in range(schedule.stages) or action not in schedule.actions[stage]:
            cure = "(stage, action, start_s, end_s) of this schedule"
            fail(asked, f"it is none of {schedule!r}", cure)
        if not end >= start:
            fail(asked, f"it ends at {end} s, before its start at {start} s")
        rows[stage].append(Slot(action, start, end))
    zero = min((slot.start_s for row in rows for slot in row), default=0)
    slots = []
    for row in rows:
        moved = (Slot(action, start - zero, end - zero) for action, start, end in row)
        slots.append(tuple(sorted(moved, key=lambda slot: slot.start_s)))
    return Timetable(schedule, tuple(slots))


def _medians(ran: Timetable) -> tuple[list[float], list[float], list[float]]:
    """Return the medians of a run, one a stage: forwards, whole backwards, weight gradients."""
    found: tuple[list[float], list[float], list[float]] = ([], [], [])
    for row in ran.slots:
        took: dict[str, float] = {}
        for kind in KINDS:
            times = [slot.end_s - slot.start_s for slot in row if slot.action.kind == kind]
            took[kind] = float(np.median(times)) * ran.schedule.chunks if times else 0.0
        backward = took["I"] + took["W"] if took["I"] else took["B"]
        for times, time in zip(found, (took["F"], backward, took["W"])):
            times.append(time)
    return found
