"""Pictures of pipeline schedules and of their runs: a lane for each stage."""

import itertools
import math
from dataclasses import dataclass

import numpy as np

from ttkit.errors import TTKitError
from ttkit.plans import Action, Schedule, Timetable
from ttkit.plans.schedule import KINDS, Slot, timetable
from ttkit.visualize.drawing import BAD, ROLES, Figure
from ttkit.visualize.lanes import Bar, Lane, Lanes, Look

# Each kind of action has a colour and a hatching. A gap is the distance in px between the lines of
# the hatching; with a gap of 0 there is no hatching.
GAPS = {"F": 0, "B": 6, "I": 12, "W": 4}
LOOKS = {kind: Look(name, ROLES[name], GAPS[kind]) for kind, name in KINDS.items()}
SECONDS = 8.0  # A moving picture shows its whole axis of time in this many seconds.
COLUMNS = 100  # On a terminal a lane is at most this many characters wide.
Row = tuple[str, tuple[Slot, ...], str]


@dataclass(frozen=True, repr=False)
class SchedulePicture:
    """A picture of what each stage of a schedule does over time.

    Args:
        table: the times of the actions, modelled or measured; for a schedule that deadlocks, only
            of the actions before the deadlock.
        unit: the unit of the times: "s", or "" if they are counted in forwards.
        problem: the reason why the schedule does not work, or "".
        until: the time at which the axis ends, if that is later than the last action.
        moving: whether time runs along the axis; a dot then follows the first micro-batch.
        room: how many micro-batches' activations fit on a stage; 0 for any number.
    """

    table: Timetable
    unit: str = "s"
    problem: str = ""
    until: float = 0.0
    moving: bool = False
    room: int = 0

    @property
    def schedule(self) -> Schedule:
        """The schedule that is drawn."""
        return self.table.schedule

    @property
    def title(self) -> str:
        """The name, the size and the bubble of the schedule."""
        if self.problem:
            return f"{self.schedule.title} · does not work"
        return f"{self.schedule.title} · bubble {self.table.bubble_fraction:.1%} of the time"

    @property
    def end_s(self) -> float:
        """The time at which the last action ends."""
        return self.table.time_s

    @property
    def rows(self) -> list[Row]:
        """The lanes: the name, the slots, and a text about the stage.

        The text gives the bubble if stages differ in it, the peak activations, and the action at
        which a deadlock stops the stage.
        """
        found: list[Row] = []
        bubbles = self.table.bubbles
        # If it works and all stages wait for the same time, the title has the bubble.
        in_title = self.problem or np.ptp(bubbles) < 1e-3
        for stage, held in enumerate(self.schedule.peak_activations()):
            slots = self.table.slots[stage]
            actions = self.schedule.actions[stage]
            about = [] if in_title else [f"bubble {bubbles[stage]:.1%}"]
            about.append(f"holds {held:.4g}" + (f" of {self.room}" if self.room else ""))
            if len(slots) < len(actions):
                about.append(f"waits at {actions[len(slots)]}")
            found.append((f"stage {stage}", slots, ", ".join(about)))
        return found

    def __repr__(self) -> str:
        width = max(len(name) for name, _, _ in self.rows)
        lines = [
            f"{name:<{width}} |{self._row(slots)}| {about}" for name, slots, about in self.rows
        ]
        if self.problem:
            lines.append(self.problem)
        return "\n  ".join([self.title, *lines])

    def _row(self, slots: tuple[Slot, ...]) -> str:
        """Return a lane as text, in which each character stands for an equal share of the time.

        A character shows what the stage does in the middle of that share. If the actions do not fit
        into `COLUMNS` characters, # stands for work.
        """
        every = itertools.chain(*self.table.slots)
        shortest = min((slot.end_s - slot.start_s for slot in every), default=0)
        if not shortest:
            return ""
        axis = max(self.end_s, self.until)
        units = axis / shortest
        columns = min(COLUMNS, min(6, max(1, int(COLUMNS / units))) * round(units))
        text = ""
        for action, *span in slots:
            start, stop = (math.ceil(time / axis * columns - 0.5) for time in span)
            name = str(action)
            room = stop - max(start, len(text))
            if units > COLUMNS:
                bar = "#" * room
            else:
                bar = name.ljust(room, "-") if len(name) < room else action.kind * room
            text = text.ljust(start, ".") + bar
        return text.ljust(round(self.end_s / axis * columns), ".")

    def figure(self, touchable: bool = False) -> Figure:
        """Return the figure that a notebook shows.

        Args:
            touchable: whether a reader can drag the actions; the page reports an action by its
                stage and name: "0 F1".
        """
        chunks, lanes = self.schedule.chunks, []

        def bar(stage: int, action: Action, start: float = 0, end: float = 0) -> Bar:
            fill = shade(action.kind, action.chunk, chunks)
            drag = f"{stage} {action}" if touchable else ""
            return Bar(start, end, action.kind, str(action), fill, drag, str(action.micro_batch))

        held = self.schedule.peak_activations()
        for stage, (name, slots, about) in enumerate(self.rows):
            never = [bar(stage, action) for action in self.schedule.actions[stage][len(slots) :]]
            colour = BAD if 0 < self.room < held[stage] else "var(--soft)"
            lanes.append(Lane(name, [bar(stage, *s) for s in slots], about, never, colour))
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
    light = 0.6 * chunk / max(chunks - 1, 1)
    fill = LOOKS[kind].fill
    parts = bytes.fromhex(fill[1:])
    return f"#{bytes(round(part + (255 - part) * light) for part in parts).hex()}"


def schedule_picture(what: Schedule | Timetable) -> SchedulePicture:
    """Return the picture of a schedule, or of a timetable.

    Args:
        what: a timetable, modelled or of a run, whose times are seconds; or a schedule, in which a
            forward takes 1 and a backward 2.

    Example:
        >>> from ttkit.plans import one_f_one_b
        >>> schedule_picture(one_f_one_b(2, 1))
        1F1B: 2 stages, 1 micro-batch · bubble 50.0% of the time
          stage 0 |F0----..................B0----------| holds 1
          stage 1 |......F0----B0----------............| holds 1
    """
    if isinstance(what, Timetable):
        return SchedulePicture(what)
    problem = ""
    try:
        what.validate()
    except TTKitError as wrong:
        problem = str(wrong).split("\n")[0].replace(f" of {what!r}", "", 1)
    return SchedulePicture(timetable(what), "", problem)
