"""A pipeline schedule that one changes by hand, and sees the bubble or the deadlock at once."""

from __future__ import annotations

from dataclasses import replace

from ttkit.errors import fail
from ttkit.plans import Action, Schedule
from ttkit.visualize.drawing import Figure
from ttkit.visualize.lanes.schedule import schedule_picture
from ttkit.visualize.widgets import Touched

KEYS = "Drag a box onto another of its stage; or Tab to a box, then the left and right arrow keys."


class ScheduleEditor(Touched):
    """A schedule whose actions one moves; it displays as its picture.

    Args:
        schedule: to begin with.
        room: how many micro-batches' activations fit on a stage; 0 for any number.

    Example:
        >>> editor = ScheduleEditor(Schedule("mine", 2, 2, ["F0 F1 B0 B1", "F0 B0 F1 B1"]))
        >>> f"{editor.bubble:.3f}", f"{editor.move(0, 'B0', 1).bubble:.3f}"
        ('0.333', '0.500')
        >>> editor.schedule.actions[0]
        (F0, B0, F1, B1)
    """

    hint = "Run this cell to drag the schedule's actions."

    def __init__(self, schedule: Schedule, room: int = 0):
        self.schedule, self.room, self.message = schedule, room, ""

    def move(self, stage: int, action: Action | str, place: int) -> ScheduleEditor:
        """Put an action of a stage in another place of its list, from 0; return the editor.

        Raises:
            TTKitError: there is no such stage, action or place.
        """
        asked = f"move({stage!r}, {str(action)!r}, {place!r})"
        row = list(self.schedule.actions[stage])
        moved = Action.read(action) if isinstance(action, str) else action
        if moved not in row:
            fail(asked, f"stage {stage} does {', '.join(map(str, row))}")
        if place not in range(len(row)):
            fail(asked, f"the places of stage {stage} are 0 to {len(row) - 1}")
        before, old = self.bubble, row.index(moved)
        row.insert(place, row.pop(old))
        rows = [*self.schedule.actions]
        rows[stage] = tuple(row)
        self.schedule = replace(self.schedule, actions=tuple(rows))
        self.message = f"{moved} of stage {stage} moved from place {old} to {place}: "
        self.message += f"{_state(before)} before, {_state(self.bubble)} now."
        return self

    @property
    def bubble(self) -> float | None:
        """The part of the time in which stages wait; None while the schedule does not work."""
        works = not schedule_picture(self.schedule).problem
        return self.schedule.timeline().bubble_fraction if works else None

    @property
    def problem(self) -> str:
        """Why it does not work, or which stage holds too much; "" where all is well."""
        if problem := schedule_picture(self.schedule).problem:
            return problem
        room, held = self.room, enumerate(self.schedule.peak_activations())
        full = [f"stage {stage} holds {n:.4g}" for stage, n in held if room and n > room]
        return f"{', '.join(full)}; there is room for {room}" if full else ""

    # ------------------------------------------------------------ shown and touched
    def figure(self) -> Figure:
        """Return its picture; each box can be dragged where the page is `touchable`."""
        found = schedule_picture(self.schedule).figure(touchable=True)
        notes = [note for note in (self.message, KEYS) if note]
        return Figure(found.title, found.drawings, notes, repr(self), self.problem)

    def act(self, text: str) -> str:
        """Do what a reader did, as `touchable` reports it; return the page.

        Args:
            text: "0 B1>0 F3" of a drag, "0 B1 left" or "0 B1 right" of a key.
        """
        source, _, target = text.partition(">")
        stage, name, *way = source.split()
        row = [str(action) for action in self.schedule.actions[int(stage)]]
        if target:
            there, on = target.split()
            place = row.index(on) if there == stage else None
        else:
            place = row.index(name) + (1 if way == ["right"] else -1)
        if place is None:
            self.message = f"{name} stays on stage {stage}: drag it onto a box of its own stage."
        elif place in range(len(row)):
            self.move(int(stage), name, place)
        return self.page()

    def page(self) -> str:
        """Return its picture as HTML."""
        return self.figure()._repr_html_()

    def __repr__(self) -> str:
        text = repr(schedule_picture(self.schedule))
        return "\n  ".join([text, *([self.problem] if self.problem not in text else [])])


def _state(bubble: float | None) -> str:
    return "it does not run" if bubble is None else f"bubble {bubble:.1%}"
