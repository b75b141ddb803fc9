"""What stages of a pipeline and chips in a collective do: actions, messages, transfers, steps."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ttkit.errors import fail

KINDS = {"F": "forward", "B": "backward", "I": "input gradient", "W": "weight gradient"}
_WRITTEN = re.compile(r"(\d{,9})([FBIW])(\d{1,9})")
# One number for all stages, or one for each.
Each = float | Sequence[float]


class Action(NamedTuple):
    """One thing that a stage does with one micro-batch.

    It is written as kind and micro-batch, F3, with the chunk in front from the second one on: 1F3.

    Args:
        kind: "F" forward, "B" the whole backward; or that in two parts, "I" the gradient of the
            input, which the stage before waits for, and "W" the gradients of the weights, which no
            stage waits for.
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
    def read(cls, text: str | Action) -> Action:
        """Return the action that a text as "1F3" or "F3" names; "0F3" is the same as "F3".

        Raises:
            TTKitError: it names none.
        """
        if isinstance(text, Action):
            return text
        found = _WRITTEN.fullmatch(str(text))
        if not found:
            rule = (
                f"an action is a chunk's number, one of {', '.join(KINDS)}, "
                "and a micro-batch's number"
            )
            fail(f"the action {text!r}", rule, "'F3', or '1F3' for the second chunk of a stage")
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
    """What one action makes and another waits for.

    "activations" go to the next part of the model, "gradients" to the one before.
    """

    what: str
    micro_batch: int
    source: Place
    destination: Place


class Task(NamedTuple):
    """An action with the message to receive before it and the one to send after it, or None.

    A forward that receives nothing takes its input from the data, one that sends nothing computes
    the loss."""

    action: Action
    receive: Message | None
    send: Message | None


def each(schedule: Any, name: str, value: Each) -> tuple[float, ...]:
    """Return one number for each stage, from such or from one for all."""
    numbers = (int, float, np.number)
    values = (value,) * schedule.stages if isinstance(value, numbers) else tuple(value)
    if len(values) != schedule.stages or min(values) < 0:
        rule = f"it must be a number of at least 0, or {schedule.stages} of them"
        fail(f"{name}={value!r} for {schedule!r}", f"{rule}, one for each stage")
    return values


# ---------------------------------------------------------------- steps of a collective
@dataclass(frozen=True, slots=True)
class Transfer:
    """One message over one cable.

    Args:
        source, destination: device ids of two chips that are cabled.
        chunk: the number of a chunk, or several that travel as one message.
        bytes: size of the message; a plan fills it in where it is left out.
        reduce: the destination adds what arrives to what it holds; else it keeps what arrives.
    """

    source: int
    destination: int
    chunk: int | tuple[int, ...]
    bytes: int | None = None
    reduce: bool = False

    @property
    def chunks(self) -> tuple[int, ...]:
        """The chunks of the message."""
        return tuple(self.chunk) if isinstance(self.chunk, (tuple, list)) else (self.chunk,)


@dataclass(frozen=True, slots=True)
class Step:
    """Transfers that happen at the same time; each reads what its source held before the step."""

    transfers: tuple[Transfer, ...]

    def __iter__(self) -> Iterator[Transfer]:
        return iter(self.transfers)

    def __len__(self) -> int:
        return len(self.transfers)
