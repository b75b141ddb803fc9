"""A pipeline schedule as data: which stage does what in which order with which micro-batch.

A model is cut into stages, a batch into micro-batches. A stage does one action at a time, in the
order of its list, and waits for what the action needs: activations from the stage before, gradients
from the stage after. Everything else reads this one object: it is checked, timed, drawn, graded and
executed."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ttkit.errors import fail
from ttkit.words import counted

if TYPE_CHECKING:
    from ttkit.plans.timetable import Timetable

KINDS = {"F": "forward", "B": "backward", "I": "input gradient", "W": "weight gradient"}
_WRITTEN = re.compile(r"(\d*)([FBIW])(\d+)")
Each = float | Sequence[float]  # one number for all stages, or one for each


class Action(NamedTuple):
    """One thing that a stage does with one micro-batch; written as kind and micro-batch, F3, and
    with the chunk in front from the second one on: 1F3.

    Args:
        kind: "F" forward, "B" the whole backward; or that in two parts, "I" the gradient of the
        input, which the stage
            before waits for, and "W" the gradients of the weights, which nobody waits for.
        micro_batch: its number, from 0.
        chunk: which of the stage's parts of the model, from 0.

    Example:
        >>> Action("F", 3), Action.read("B0"), Action.read("1W2")
        (F3, B0, 1W2)
    """

    kind: str
    micro_batch: int
    chunk: int = 0

    @classmethod
    def read(cls, text: str) -> Action:
        """The action that a text as "1F3" or "F3" names; "0F3" is the same as "F3".

        Raises:
            TTKitError: it names none.
        """
        found = _WRITTEN.fullmatch(text)
        if not found:
            fail(
                f"the action {text!r}",
                f"an action is a chunk's number, one of {', '.join(KINDS)}, "
                "and a micro-batch's number",
                "'F3', or '1F3' for the second chunk of a stage",
            )
        chunk, kind, micro_batch = found.groups()
        return cls(kind, int(micro_batch), int(chunk or 0))

    @property
    def after(self) -> Action | None:
        """What the same stage must have done before it."""
        return None if self.kind == "F" else self._replace(kind="I" if self.kind == "W" else "F")

    def __repr__(self) -> str:
        return f"{self.chunk or ''}{self.kind}{self.micro_batch}"


class Place(NamedTuple):
    """Where a part of the model is: the stage, and which of its chunks."""

    stage: int
    chunk: int


class Message(NamedTuple):
    """What one action makes and another waits for: "activations" go to the next part of the
    model, "gradients" to the one before.
    """

    what: str
    micro_batch: int
    source: Place
    destination: Place


class Task(NamedTuple):
    """An action with the message to receive before it and the one to send after it;

    None where there is none.

    A forward that receives nothing takes its input from the data, one that sends nothing computes
    the loss."""

    action: Action
    receive: Message | None
    send: Message | None


@dataclass(frozen=True)
class Schedule:
    """What each stage of a pipeline does, in order; built by the functions of
    `ttkit.plans.pipelines`, or written by hand.

    The parts of the model are dealt out in turn: with `chunks` > 1, chunk c of stage s is part c *
    stages + s.

    Args:
        name: for pictures and messages.
        stages, micro_batches: how many.
        actions: for each stage its actions in order; a text as "F0 F1 B0 B1" will do.
        chunks: parts of the model on each stage.

    Raises:
        TTKitError: a number below 1, not one list a stage, something that is no action.

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
        given: Any = self.actions
        rows = None if isinstance(given, str) or not isinstance(given, Iterable) else list(given)
        if (
            rows is None
            or len(rows) != self.stages
            or not all(isinstance(row, Iterable) for row in rows)
        ):
            have = (
                repr(self.actions)
                if rows is None
                else f"{len(rows)} of them"
                if len(rows) != self.stages
                else repr(rows)
            )
            fail(
                repr(self),
                f"actions are {counted(self.stages, 'list')}, one for each stage, this is {have}",
                'actions=["F0 B0", ...]',
            )
        object.__setattr__(
            self, "actions", tuple(tuple(self._read(stage, row)) for stage, row in enumerate(rows))
        )

    def _read(self, stage: int, row: Iterable[Action | str]) -> Iterator[Action]:
        for entry in row.split() if isinstance(row, str) else row:
            action = Action.read(entry) if isinstance(entry, str) else entry
            if not isinstance(action, Action) or action.kind not in KINDS:
                fail(
                    f"stage {stage} of {self!r}",
                    f"{action!r} is no action",
                    'Action("F", 0), or "F0"',
                )
            yield action

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

    def _repr_html_(self) -> str:
        from ttkit.visualize.schedule import schedule_picture

        return schedule_picture(self)._repr_html_()

    # ------------------------------------------------------------ what goes where
    def tasks(self, stage: int) -> tuple[Task, ...]:
        """A stage's actions in order, each with what to receive before it and what to send after
        it.

        A stage that waits for each receive, and goes on at once after each send, never hangs in a
        schedule that validates. Messages may have to wait at their destination: for each source,
        and for activations and gradients apart, they are taken in the order in which they were sent
        in all schedules of `ttkit.plans.pipelines`.

        Raises:
            TTKitError: no such stage.

        Example:
            >>> from ttkit.plans import one_f_one_b
            >>> for task in one_f_one_b(2, 1).tasks(1):
            ...     print(task.action, "receives", task.receive and task.receive.what, "and sends", task.send and task.send.what)
            F0 receives activations and sends None
            B0 receives None and sends gradients
        """
        if stage not in range(self.stages):
            fail(
                f"stage {stage!r} of {self!r}",
                f"the stages have the numbers 0 to {self.stages - 1}",
            )
        return self._tasks[stage]

    @functools.cached_property
    def _tasks(self) -> tuple[tuple[Task, ...], ...]:
        return tuple(
            tuple(Task(action, *self._messages(stage, action)) for action in row)
            for stage, row in enumerate(self.actions)
        )

    def _messages(self, stage: int, action: Action) -> tuple[Message | None, Message | None]:
        if action.kind == "W":
            return None, None
        here, last = action.chunk * self.stages + stage, self.chunks * self.stages - 1
        if action.kind == "F":
            return self._message("activations", action, here - 1, here), self._message(
                "activations", action, here, here + 1
            ) if here < last else None
        return self._message(
            "gradients", action, here + 1, here
        ) if here < last else None, self._message("gradients", action, here, here - 1)

    def _message(self, what: str, action: Action, source: int, destination: int) -> Message | None:
        """From one part of the model to another, by their numbers; None before the first part."""
        if min(source, destination) < 0:
            return None
        ends = (Place(part % self.stages, part // self.stages) for part in (source, destination))
        return Message(what, action.micro_batch, *ends)

    # ------------------------------------------------------------ checked, timed, counted
    def validate(
        self,
        memory_limit: Each | None = None,
        activation_bytes: Each = 1,
        kept_for_weights: Each | None = None,
    ) -> Schedule:
        """This schedule, if it can run and does the work of a training step.

        Args:
            memory_limit: what a stage may hold at most, in micro-batches, or in bytes where
            `activation_bytes` is given;
                one number, or one for each stage.
            activation_bytes, kept_for_weights: as for `peak_activations`.

        Raises:
            TTKitError: an action that is missing, comes twice, is not of this pipeline or comes
            before one that it needs;
                stages that wait for each other; more memory than the limit. The message names the
                stage and the action.
        """
        from ttkit.plans.check_schedule import check_memory

        if self._runs and memory_limit is not None:
            check_memory(self, memory_limit, activation_bytes, kept_for_weights)
        return self

    @functools.cached_property
    def _runs(self) -> bool:
        """True, or an error; a schedule never changes, so once is enough."""
        from ttkit.plans.check_schedule import check_actions

        check_actions(self)
        return True

    def timeline(
        self,
        forward_s: Each = 1,
        backward_s: Each = 2,
        weight_s: Each | None = None,
        transfer_s: float = 0,
    ) -> Timetable:
        """When each action starts and ends, if a stage does one at a time and starts each as
        soon as its inputs are there.

        The defaults count in forwards, a backward being twice as long.

        Args:
            forward_s, backward_s: seconds for a micro-batch through a stage, all its chunks
            together. weight_s: how much of the backward is the weight gradients' part, W; by
            default half of it. transfer_s: seconds from the end of an action to the moment when
            another stage has what it sends; sending keeps
                no stage from its next action. `ttkit.plans.cost.hop_time_s(link, nbytes)` gives it
                for bytes over a link.

        Raises:
            TTKitError: as `validate`; a time that is negative, not one a stage, or longer for W
            than for the whole backward.

        Example:
            >>> from ttkit.plans import gpipe, one_f_one_b, topology, zb_h1
            >>> from ttkit.plans.cost import hop_time_s
            >>> [schedule(4, 8).timeline().time_s for schedule in (gpipe, one_f_one_b, zb_h1)]
            [33, 33, 27.0]
            >>> late = one_f_one_b(4, 8).timeline(0.01, 0.02, transfer_s=hop_time_s(topology("t3000").link, 1 << 20))
            >>> round(late.time_s, 4), round(late.bubble_fraction, 3)
            (0.3314, 0.276)
        """
        from ttkit.plans.timetable import timetable

        return timetable(self.validate(), forward_s, backward_s, weight_s, transfer_s)

    def peak_activations(
        self, activation_bytes: Each = 1, kept_for_weights: Each | None = None
    ) -> tuple[float, ...]:
        """The most that each stage holds at once, in micro-batches; in bytes where the bytes of
        a micro-batch are given.

        A forward leaves activations on its stage. A backward frees them; where it is split, I
        leaves what W still needs.

        Args:
            activation_bytes: what a micro-batch leaves on a stage, all its chunks together.
            kept_for_weights: how much of that W needs; by default all of it.

        Raises:
            TTKitError: not one number a stage.

        Example:
            >>> from ttkit.plans import gpipe, one_f_one_b
            >>> gpipe(4, 8).peak_activations(), one_f_one_b(4, 8).peak_activations(activation_bytes=1 << 20)
            ((8.0, 8.0, 8.0, 8.0), (4194304.0, 3145728.0, 2097152.0, 1048576.0))
        """
        return tuple(
            max(held, default=0.0) for held in self.held(activation_bytes, kept_for_weights)
        )

    def held(
        self, activation_bytes: Each = 1, kept_for_weights: Each | None = None
    ) -> list[list[float]]:
        """What each stage holds after each of its actions, in the same units."""
        whole = each(self, "activation_bytes", activation_bytes)
        kept = (
            whole if kept_for_weights is None else each(self, "kept_for_weights", kept_for_weights)
        )
        if any(part > all_of_it for part, all_of_it in zip(kept, whole, strict=True)):
            fail(
                f"kept_for_weights={kept_for_weights!r} for {self!r}",
                f"it is a part of activation_bytes={activation_bytes!r}, so it cannot be more",
            )
        found = []
        for row, all_of_it, rest in zip(self.actions, whole, kept, strict=True):
            changes = {"F": all_of_it, "B": -all_of_it, "I": rest - all_of_it, "W": -rest}
            total: float = 0
            found.append([(total := total + changes[action.kind]) / self.chunks for action in row])
        return found


def check_counts(asked: str, **counts: int) -> None:
    """Raise unless all are whole numbers of at least 1."""
    for name, value in counts.items():
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
            fail(asked, f"{name}={value!r} must be a whole number of at least 1")


def each(schedule: Schedule, name: str, value: Each) -> tuple[float, ...]:
    """One number for each stage, from such or from one for all."""
    numbers = (int, float, np.number)
    values = (
        (value,) * schedule.stages
        if isinstance(value, numbers)
        else tuple(value)
        if isinstance(value, Iterable)
        else ()
    )
    if len(values) != schedule.stages or not all(
        isinstance(v, numbers) and math.isfinite(v) and v >= 0 for v in values
    ):
        fail(
            f"{name}={value!r} for {schedule!r}",
            f"it must be a number of at least 0, or {schedule.stages} of them, one for each stage",
        )
    return values
