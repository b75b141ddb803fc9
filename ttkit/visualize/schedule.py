"""Charts of pipeline schedules: a lane for each stage, modelled and measured on one axis."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ttkit.errors import TTKitError, fail
from ttkit.plans import Action, Schedule, Timetable
from ttkit.plans.schedule import KINDS
from ttkit.plans.timetable import Slot, timetable
from ttkit.visualize.chart import EMPTY, MANY, Chart, bars, entitle, fits, lanes, write
from ttkit.visualize.drawing import tone

FILL = {"F": tone(1), "B": tone(2), "I": tone(5), "W": tone(3)}
HATCH = {"F": "//", "B": "\\\\", "I": "---", "W": "xx"}  # of bars that have no room for words
COLUMNS = 100  # of a terminal, for the lanes
Measured = Iterable[tuple[int, Action | str, float, float]]


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
        real = f", measured {self.measured.bubble_fraction:.1%}" if self.measured else ""
        found = (
            "does not work"
            if self.problem
            else f"bubble {self.modelled.bubble_fraction:.1%} of the time{real}"
        )
        return f"{self.schedule.title} · {found}"

    @property
    def waiting(self) -> dict[int, Action]:
        """The actions at which stages stop."""
        pairs = enumerate(zip(self.modelled.slots, self.schedule.actions, strict=True))
        return {stage: row[len(slots)] for stage, (slots, row) in pairs if len(slots) < len(row)}

    @property
    def end_s(self) -> float:
        """Where the axis ends."""
        return max(self.modelled.time_s, self.measured.time_s if self.measured else 0)

    @property
    def rows(self) -> list[tuple[str, tuple[Slot, ...], str]]:
        """The lanes: name, what runs, and what stands beside it (bubble, memory, where it
        stops).
        """
        found, peaks = [], self.schedule.peak_activations()
        for stage in range(self.schedule.stages):
            for name, table in ((f"stage {stage}", self.modelled), ("measured", self.measured)):
                if table:
                    said = [] if self.problem else [f"bubble {table.bubbles[stage]:.1%}"]
                    if table is self.modelled:
                        said += [f"holds {peaks[stage]:.4g}"]
                        said += [f"waits at {self.waiting[stage]}"] if stage in self.waiting else []
                    found.append((name, table.slots[stage], ", ".join(said)))
        return found

    def __repr__(self) -> str:
        width = max(len(name) for name, _, _ in self.rows)
        lanes = [
            f"  {name:<{width}} |{self._row(slots)}| {said}" for name, slots, said in self.rows
        ]
        return "\n".join([self.title, *lanes] + [f"  {self.problem}"] * bool(self.problem))

    def _row(self, slots: tuple[Slot, ...]) -> str:
        """A lane in letters: in each column what the stage does in the middle of it; where
        columns are too few, # for work.
        """
        end, shortest = (
            self.end_s,
            min(filter(None, map(_lasts, itertools.chain(*self.modelled.slots))), default=0),
        )
        if not shortest:
            return ""
        units = end / shortest
        columns = min(COLUMNS, min(6, max(1, int(COLUMNS / units))) * round(units))
        middles = [(i + 0.5) * end / columns for i in range(columns)]
        text = ""
        for slot in slots:
            start, stop = (
                int(np.searchsorted(middles, time)) for time in (slot.start_s, slot.end_s)
            )
            name, room = str(slot.action), stop - max(start, len(text))
            bar = (
                "#" * room
                if units > COLUMNS
                else name.ljust(room, "-")
                if len(name) < room
                else slot.action.kind * room
            )
            text = text.ljust(start, ".") + bar
        return text.ljust(columns, ".")

    @property
    def height(self) -> float:
        """Of the figure, in inches."""
        return (
            1.2 + 0.36 * len(self.rows) + 0.16 * (len(self.problem) // 90 + 1) * bool(self.problem)
        )

    def draw(self, ax: Any) -> None:
        """Draw a lane for each stage, with its actions to scale; beside it, bubble and memory."""
        from matplotlib.ticker import EngFormatter

        names, slots, said = zip(*self.rows)
        kinds = [
            kind
            for kind in KINDS
            if any(action.kind == kind for row in self.schedule.actions for action in row)
        ]
        lines = {kind: self._text_lines(ax, kind) for kind in kinds}
        hatches = {kind: "" if lines[kind] else HATCH[kind] for kind in kinds}
        samples = {KINDS[kind]: (FILL[kind], hatches[kind]) for kind in kinds}
        entitle(
            ax,
            self.title + f"\n{self.problem}" * bool(self.problem),
            {**samples, "bubble": (EMPTY, "")},
        )
        lanes(ax, names, self.end_s or 1)
        for lane, (kind, chunk) in itertools.product(
            range(len(names)), itertools.product(kinds, range(self.schedule.chunks))
        ):
            same = [
                slot
                for slot in slots[lane]
                if (slot.action.kind, slot.action.chunk) == (kind, chunk)
            ]
            spans = [(slot.start_s, slot.end_s) for slot in same]
            bars(
                ax, lane, spans, shade(kind, chunk, self.schedule.chunks), hatches[kind], self._many
            )
            for slot in same if lines[kind] else []:
                write(ax, (slot.start_s + slot.end_s) / 2, lane, _text_of(slot.action, lines[kind]))
        right = ax.secondary_yaxis("right")
        right.set_yticks(range(len(names)), said)
        right.tick_params(length=0)
        right.spines["right"].set_visible(False)
        ax.set_xlabel("time" if self.unit else "time, a forward of a stage being 1")
        ax.xaxis.set_major_formatter(EngFormatter(unit=self.unit) if self.unit else "{x:g}")

    @property
    def _many(self) -> bool:
        return sum(len(slots) for _, slots, _ in self.rows) > MANY

    def _text_lines(self, ax: Any, kind: str) -> int:
        """In how many lines the text of each action of a kind fits into its bar; 0 where it does
        not.
        """
        slots = [slot for row in self.modelled.slots for slot in row if slot.action.kind == kind]
        shortest = min(map(_lasts, slots), default=0)
        layouts = () if self._many else (1, 2)
        return next(
            (
                n
                for n in layouts
                if all(
                    fits(ax, _text_of(slot.action, n), shortest, self.end_s or 1) for slot in slots
                )
            ),
            0,
        )


def schedule_picture(
    what: Schedule | Timetable, measured: Measured | None = None
) -> SchedulePicture:
    """The picture of a schedule, or of its times, with a run that was measured.

    Args:
        what: a timetable, whose times are seconds; or a schedule, timed by what its actions took in
        the measured run (the
            median of each kind on each stage), without one in forwards, a backward being twice as
            long.
        measured: (stage, action, start in s, end in s) of each action, by any clock that the stages
        share.

    Raises:
        TTKitError: a measured action that is none of the schedule's, or that ends before it starts.

    Example:
        >>> from ttkit.plans import one_f_one_b
        >>> schedule_picture(one_f_one_b(2, 4))
        1F1B: 2 stages, 4 micro-batches · bubble 20.0% of the time
          stage 0
          |F0----F1----............B0----------F2----B1----------F3----B2----------......B3----------|
          bubble 20.0%, holds 2 stage 1
          |......F0----B0----------F1----B1----------F2----B2----------F3----B3----------............|
          bubble 20.0%, holds 1
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
        return SchedulePicture(timetable(schedule, *_took(ran)), ran, "s", problem)
    return SchedulePicture(timetable(schedule), ran, "", problem)


def _ran(schedule: Schedule, measured: Measured) -> Timetable:
    """What was measured, as a timetable that begins at 0."""
    rows: list[list[Slot]] = [[] for _ in range(schedule.stages)]
    for stage, entry, start, end in measured:
        action = Action.read(entry) if isinstance(entry, str) else entry
        if stage not in range(schedule.stages) or action not in schedule.actions[stage]:
            fail(
                f"a measured action {action} on stage {stage}",
                f"it is none of {schedule!r}",
                "(stage, action, start_s, end_s) of this schedule",
            )
        if not end >= start:
            fail(
                f"a measured action {action} on stage {stage}",
                f"it ends at {end} s, before its start at {start} s",
            )
        rows[stage].append(Slot(action, start, end))
    zero = min((slot.start_s for row in rows for slot in row), default=0)
    sorted_rows = (sorted(row, key=lambda slot: slot.start_s) for row in rows)
    return Timetable(
        schedule,
        tuple(
            tuple(Slot(a, start - zero, end - zero) for a, start, end in row) for row in sorted_rows
        ),
    )


def _took(ran: Timetable) -> tuple[list[float], list[float], list[float]]:
    """The medians of a run, one a stage: of forwards, of whole backwards, and of weight
    gradients.
    """
    found: tuple[list[float], list[float], list[float]] = ([], [], [])
    for row in ran.slots:
        spent = {kind: [_lasts(slot) for slot in row if slot.action.kind == kind] for kind in KINDS}
        f, b, i, w = (
            float(np.median(times)) * ran.schedule.chunks if times else 0.0
            for times in spent.values()
        )
        for times, time in zip(found, (f, i + w if spent["I"] else b, w), strict=True):
            times.append(time)
    return found


def _lasts(slot: Slot) -> float:
    return slot.end_s - slot.start_s


def shade(kind: str, chunk: int, chunks: int) -> tuple[float, ...]:
    """The fill of a bar: one colour a kind, lighter for later chunks."""
    light = 0.6 * chunk / max(chunks - 1, 1)
    return tuple(int(FILL[kind][i : i + 2], 16) / 255 * (1 - light) + light for i in (1, 3, 5))


def _text_of(action: Action, lines: int) -> str:
    """An action's letter and number on one line or on two."""
    number = str(action.micro_batch)
    return str(action) if lines == 1 else f"{str(action).removesuffix(number)}\n{number}"
