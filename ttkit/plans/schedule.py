"""A pipeline schedule as data: which stage does what in which order with which micro-batch.

A model is cut into stages, a batch into micro-batches. A stage does one action at a time, in the
order of its list, and waits for what the action needs: activations from the stage before, gradients
from the stage after. Everything else reads this one object: it is checked, timed, drawn, graded and
executed."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ttkit.errors import check_counts, fail
from ttkit.lazy import drawn_by
from ttkit.plans.actions import Action, Each, Message, Place, Task
from ttkit.plans.timetable import Timetable, check_actions, check_memory, timetable
from ttkit.words import counted

# By how many micro-batches an action changes the activations that its stage holds.
_HOLDS = {"F": 1, "B": -1, "I": 0, "W": -1}


@dataclass(frozen=True)
class Schedule:
    """What each stage of a pipeline does, in order.

    The stages have the parts of the model in turn: with `chunks` > 1, chunk c of stage s is part
    c * stages + s.

    Args:
        name: for pictures and messages.
        stages, micro_batches: how many.
        actions: for each stage its actions in order; a text as "F0 F1 B0 B1" will do.
        chunks: parts of the model on each stage.

    Raises:
        TTKitError: a number below 1, not one list a stage, a text that is no action.

    Example:
        >>> mine = Schedule("mine", 2, 2, ["F0 F1 B0 B1", "F0 B0 F1 B1"])
        >>> mine.validate().peak_activations()
        (2.0, 1.0)
        >>> mine.timeline(forward_s=1, backward_s=2).time_s
        9
    """

    name: str
    stages: int
    micro_batches: int
    actions: tuple[tuple[Action, ...], ...]
    chunks: int = 1

    def __post_init__(self) -> None:
        check_counts(
            f"a schedule {self.name!r}",
            stages=self.stages,
            micro_batches=self.micro_batches,
            chunks=self.chunks,
        )
        if not isinstance(self.actions, Sequence) or len(self.actions) != self.stages:
            rule = f"actions are {counted(self.stages, 'list')}, one for each stage"
            fail(repr(self), f"{rule}, this is {self.actions!r}", 'actions=["F0 B0", ...]')
        rows = tuple(tuple(map(Action.read, _words(row))) for row in self.actions)
        object.__setattr__(self, "actions", rows)

    @property
    def title(self) -> str:
        """Its name and how big it is."""
        chunks = f", {self.chunks} chunks a stage" if self.chunks > 1 else ""
        return (
            f"{self.name}: {counted(self.stages, 'stage')}, "
            f"{counted(self.micro_batches, 'micro-batch')}{chunks}"
        )

    def __repr__(self) -> str:
        return f"Schedule({self.title})"

    _repr_html_ = drawn_by("lanes.schedule.schedule_picture")

    # ------------------------------------------------------------ what goes where
    def tasks(self, stage: int) -> tuple[Task, ...]:
        """Return a stage's actions in order, each with what to receive before it and what to send
        after it.

        A stage that waits for each receive, and not after a send, never hangs in a schedule that
        validates. Messages may have to wait at their destination: for each source,
        and for activations and gradients apart, they are taken in the order in which they were sent
        in all schedules of `ttkit.plans.pipelines`.

        Example:
            >>> from ttkit.plans import one_f_one_b
            >>> for action, receive, send in one_f_one_b(2, 1).tasks(1):
            ...     print(action, receive and receive.what, send and send.what)
            F0 activations None
            B0 None gradients
        """
        return self._tasks[stage]

    @functools.cached_property
    def _tasks(self) -> tuple[tuple[Task, ...], ...]:
        return tuple(
            tuple(self._task(stage, action) for action in row)
            for stage, row in enumerate(self.actions)
        )

    def _task(self, stage: int, action: Action) -> Task:
        here, last = action.chunk * self.stages + stage, self.chunks * self.stages - 1

        def message(what: str, source: int, destination: int) -> Message | None:
            """From one part of the model to another, by their numbers."""
            if (
                action.kind == "W"
                or min(source, destination) < 0
                or max(source, destination) > last
            ):
                return None
            ends = (
                Place(part % self.stages, part // self.stages) for part in (source, destination)
            )
            return Message(what, action.micro_batch, *ends)

        if action.kind == "F":
            what, before, after = "activations", here - 1, here + 1
        else:
            what, before, after = "gradients", here + 1, here - 1
        return Task(action, message(what, before, here), message(what, here, after))

    # ------------------------------------------------------------ checked, timed, counted
    def validate(self, memory_limit: Each | None = None) -> Schedule:
        """Return this schedule if it can run and does the work of a training step.

        Args:
            memory_limit: of how many micro-batches a stage may hold activations; one number, or one
                for each stage.

        Raises:
            TTKitError: an action that is missing, comes twice, is not of this pipeline or comes
                before one that it needs; stages that wait for each other; more memory than the
                limit. The message names the stage and the action.
        """
        if self._runs and memory_limit is not None:
            check_memory(self, memory_limit)
        return self

    @functools.cached_property
    def _runs(self) -> bool:
        """True, or an error; a schedule never changes, so once is enough."""
        check_actions(self)
        return True

    def timeline(self, forward_s: Each = 1, backward_s: Each = 2) -> Timetable:
        """Return when each action starts and ends, if a stage does one at a time and starts each
        as soon as its inputs are there.

        The defaults count in forwards, a backward being twice as long. Each part of a backward that
        is split takes half of it.

        Args:
            forward_s, backward_s: seconds for a micro-batch through a stage, all its chunks
                together.

        Raises:
            TTKitError: as `validate`; a time that is negative, or not one a stage.

        Example:
            >>> from ttkit.plans import gpipe, one_f_one_b, zb_h1
            >>> [schedule(4, 8).timeline().time_s for schedule in (gpipe, one_f_one_b, zb_h1)]
            [33, 33, 27.0]
        """
        return timetable(self.validate(), forward_s, backward_s)

    def peak_activations(self) -> tuple[float, ...]:
        """Return the most that each stage holds at once, in activations of micro-batches.

        A forward leaves activations on its stage. A backward frees them; where it is split, W does.

        Example:
            >>> from ttkit.plans import gpipe, one_f_one_b
            >>> gpipe(4, 8).peak_activations(), one_f_one_b(4, 8).peak_activations()
            ((8.0, 8.0, 8.0, 8.0), (4.0, 3.0, 2.0, 1.0))
        """
        return tuple(max(held, default=0.0) for held in self.held())

    def held(self) -> list[list[float]]:
        """Return what each stage holds after each of its actions, in the same units."""
        counts = ([_HOLDS[action.kind] for action in row] for row in self.actions)
        return [[total / self.chunks for total in itertools.accumulate(row)] for row in counts]


def _words(row: str | Iterable[Action | str]) -> Iterable[Action | str]:
    return row.split() if isinstance(row, str) else row
