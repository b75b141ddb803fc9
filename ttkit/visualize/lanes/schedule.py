"""Pictures of pipeline schedules: a lane for each stage, modelled and measured on one axis."""

import itertools
import math
from dataclasses import dataclass

import numpy as np

from ttkit.errors import TTKitError
from ttkit.plans import Action, Schedule, Timetable
from ttkit.plans.schedule import KINDS, Slot, timetable
from ttkit.visualize.drawing import ROLES, Figure
from ttkit.visualize.lanes import Bar, Lane, Lanes, Look

# Each kind has a colour, and the gap between the lines of its hatching in px.
GAPS = {"F": 0, "B": 6, "I": 12, "W": 4}
LOOKS = {kind: Look(name, ROLES[name], GAPS[kind]) for kind, name in KINDS.items()}
SECONDS = 8.0  # A schedule that moves takes so long from one end of its axis to the other.
COLUMNS = 100  # Lanes take this many columns of a terminal.
Row = tuple[str, tuple[Slot, ...], str]


@dataclass(frozen=True, repr=False)
class SchedulePicture:
    """When each stage of a schedule does what, as a picture in a notebook.

    Args:
        modelled: when each action would run; for a schedule that deadlocks, until it stops.
        measured: when each did run, from 0 on.
        unit: that of the times: "s", or "" where they are counted in forwards.
        problem: why it does not work.
        until: where the axis ends, if not when the last stage does.
        moving: time runs along the axis, and a dot follows the first micro-batch.
    """

    modelled: Timetable
    measured: Timetable | None = None
    unit: str = "s"
    problem: str = ""
    until: float = 0.0
    moving: bool = False

    @property
    def schedule(self) -> Schedule:
        """The schedule that is drawn."""
        return self.modelled.schedule

    @property
    def title(self) -> str:
        """Name, size and bubble."""
        if self.problem:
            return f"{self.schedule.title} · does not work"
        real = f", measured {self.measured.bubble_fraction:.1%}" if self.measured else ""
        bubble = self.modelled.bubble_fraction
        return f"{self.schedule.title} · bubble {bubble:.1%} of the time{real}"

    @property
    def end_s(self) -> float:
        """When the last stage ends."""
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
        axis = max(self.end_s, self.until)
        units = axis / shortest
        columns = min(COLUMNS, min(6, max(1, int(COLUMNS / units))) * round(units))
        text = ""
        for action, *span in slots:
            start, stop = (math.ceil(time / axis * columns - 0.5) for time in span)
            name, room = str(action), stop - max(start, len(text))
            if units > COLUMNS:
                bar = "#" * room
            else:
                bar = name.ljust(room, "-") if len(name) < room else action.kind * room
            text = text.ljust(start, ".") + bar
        return text.ljust(round(self.end_s / axis * columns), ".")

    def figure(self, touchable: bool = False) -> Figure:
        """Return what a notebook shows.

        Args:
            touchable: each action can be dragged, and is reported as its stage and name: "0 F1".
        """
        chunks, lanes = self.schedule.chunks, []

        def bar(stage: int, action: Action, start: float = 0, end: float = 0) -> Bar:
            fill = shade(action.kind, action.chunk, chunks)
            drag = f"{stage} {action}" if touchable else ""
            trace = str(action.micro_batch)
            return Bar(start, end, action.kind, str(action), fill, drag, trace)

        for number, (name, slots, about) in enumerate(self.rows):
            stage = number // 2 if self.measured else number
            late = () if name == "measured" else self.schedule.actions[stage][len(slots) :]
            never = [bar(stage, action) for action in late]
            lanes.append(Lane(name, [bar(stage, *slot) for slot in slots], about, never))
        axis = "time" if self.unit else "time, in forwards of one stage"
        axis += "; paler: a later chunk of its stage" if chunks > 1 else ""
        drawing = Lanes(lanes, LOOKS, self.end_s, title=repr(self), idle="bubble: waits",
                        axis=axis, unit=self.unit, until=self.until,
                        seconds=SECONDS * self.moving)  # fmt: skip
        return Figure(self.title, [drawing], text=repr(self), alarm=self.problem)

    def _repr_html_(self) -> str:
        return self.figure()._repr_html_()


def shade(kind: str, chunk: int, chunks: int) -> str:
    """Return the fill of an action: one colour for each kind, lighter for later chunks."""
    light, fill = 0.6 * chunk / max(chunks - 1, 1), LOOKS[kind].fill
    parts = (int(fill[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(part + (255 - part) * light):02x}" for part in parts)


def schedule_picture(
    what: Schedule | Timetable, measured: Timetable | None = None
) -> SchedulePicture:
    """Return the picture of a schedule, or of its times, with a run that was measured.

    Args:
        what: a timetable, whose times are seconds; or a schedule. A schedule's actions take the
            median time of their kind on their stage in the measured run; without one, a forward
            takes 1 and a backward 2.
        measured: as the `timetable()` of a pipeline's trainer returns it.

    Example:
        >>> from ttkit.plans import one_f_one_b
        >>> schedule_picture(one_f_one_b(2, 1))
        1F1B: 2 stages, 1 micro-batch · bubble 50.0% of the time
          stage 0 |F0----..................B0----------| bubble 50.0%, holds 1
          stage 1 |......F0----B0----------............| bubble 50.0%, holds 1
    """
    if isinstance(what, Timetable):
        return SchedulePicture(what, measured)
    schedule = what
    problem = ""
    try:
        schedule.validate()
    except TTKitError as wrong:
        problem = str(wrong).split("\n")[0].replace(f" of {schedule!r}", "", 1)
    if measured and measured.time_s:
        modelled = timetable(schedule, *_medians(measured))
        return SchedulePicture(modelled, measured, "s", problem)
    return SchedulePicture(timetable(schedule), measured, "", problem)


def _medians(ran: Timetable) -> tuple[list[float], list[float], list[float]]:
    """Return the medians of a run, one a stage: forwards, whole backwards, weight gradients."""

    def of(row: tuple[Slot, ...], kind: str) -> float:
        times = [slot.end_s - slot.start_s for slot in row if slot.action.kind == kind]
        return float(np.median(times)) * ran.schedule.chunks if times else 0.0

    forward, backward, input_only, weight = (
        [of(row, kind) for row in ran.slots] for kind in "FBIW"
    )
    whole = [i + w if i else b for b, i, w in zip(backward, input_only, weight)]
    return forward, whole, weight
