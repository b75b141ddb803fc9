"""What the lessons share: predictions before a run, comparisons with one device, exercises with
feedback.

Feedback names the thing: the device, the index, the number. A check that a plausible wrong answer
passes is a defect, and each check is tested with wrong answers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from importlib import import_module
from numbers import Real
from pkgutil import iter_modules
from typing import Any

import numpy as np

from ttkit import backend
from ttkit.convert import to_numpy
from ttkit.errors import TTKitError, fail
from ttkit.words import counted


class CheckFailed(AssertionError):
    """An answer is not right yet; the message says where."""

    def _render_traceback_(self) -> list[str]:
        """In Jupyter, the message alone: the learner's mistake is not in the kit's code."""
        return [f"not yet: {self}"]


class NotDone(NotImplementedError):
    """An exercise that has not been started."""

    def _render_traceback_(self) -> list[str]:
        return [f"to do: {self}"]


def todo(what: str) -> Any:
    """The stub of an exercise: says what to write.

    Raises:
        NotDone: always.
    """
    raise NotDone(what)


def as_number(value: Any) -> int | float | None:
    """Any finite real number, NumPy's included, as an int where it is whole, else as a float;

    None for anything else.

    Example:
        >>> as_number(np.int64(3)), as_number(384.0), as_number(0.5), as_number(True), as_number("4")
        (3, 384, 0.5, None, None)
    """
    kinds: Any = Real
    if isinstance(value, bool) or not isinstance(value, kinds) or not math.isfinite(value):
        return None
    return int(value) if value == int(value) else float(value)


def _shown(value: Any) -> str:
    """A number with its thousands marked, anything else as it prints."""
    number = as_number(value)
    return (
        str(value)
        if number is None
        else f"{number:,}"
        if isinstance(number, int)
        else f"{number:,.6g}"
    )


def _verdict(guess: int | float | str, actual: Any) -> str:
    fact = as_number(actual)
    if isinstance(guess, str) or fact is None:
        return "right" if str(guess) == str(actual) else "not it"
    if guess == fact:
        return "right"
    if guess > 0 and fact > 0 and max(guess, fact) >= 2 * min(guess, fact):
        return (
            f"{max(guess, fact) / min(guess, fact):.3g} times too "
            f"{'large' if guess > fact else 'small'}"
        )
    return f"off by {_shown(abs(guess - fact))}"


class Prediction:
    """What was guessed before a run; `reveal` puts the facts beside it."""

    def __init__(self, guesses: dict[str, int | float | str]):
        self.guesses = guesses

    def reveal(self, **actual: Any) -> None:
        """Print guess and fact of each name, and by how much they differ; of a guess that is
        text, whether it is right.

        Raises:
            TTKitError: something was not predicted.
        """
        for name in actual:
            if name not in self.guesses:
                fail(
                    f"reveal({name}=...)",
                    f"that was not predicted, {', '.join(self.guesses) or 'nothing'} was",
                    f"predict({name}=...) first",
                )
        width = max(map(len, actual), default=0)
        for name, fact in actual.items():
            guess = self.guesses[name]
            print(
                f"{name:<{width}}  you said {_shown(guess)}  it is {_shown(fact)}  "
                f"{_verdict(guess, fact)}"
            )


def predict(**guesses: Any) -> Prediction:
    """Write down numbers before the run that shows them; a name, such as a device's id, as text.

    Raises:
        NotDone: something else than a finite number or a word was given.

    Example:
        >>> predict(bytes_each=1024).reveal(bytes_each=4096)
        bytes_each  you said 1,024  it is 4,096  4 times too small
        >>> predict(device="4").reveal(device=7)
        device  you said 4  it is 7  not it
    """
    written: dict[str, int | float | str] = {}
    for name, value in guesses.items():
        guess = value.strip(" ?.") if isinstance(value, str) else as_number(value)
        if guess is None or guess == "":
            raise NotDone(f"replace {name}={value!r} by a number")
        written[name] = guess
    return Prediction(written)


def _values(result: Any) -> np.ndarray:
    if isinstance(result, np.ndarray):
        return result
    if hasattr(result, "detach"):
        return np.asarray(result.detach().float().cpu().numpy())
    return to_numpy(result) if hasattr(result, "tensor_topology") else np.asarray(result)


def values_mean_something() -> bool:
    """False on the real library's mock cluster, where no kernel runs and only shapes are real."""
    import os

    return backend.is_simulated() or not os.environ.get("TT_METAL_MOCK_CLUSTER_DESC_PATH")


def difference(expected: Any, actual: Any, rtol: float = 1e-5, atol: float = 1e-6) -> str:
    """Where two results differ first, in words; nothing where they agree.

    Example:
        >>> difference(np.array([1.0, 2.0]), np.array([1.0, 3.0]))
        'element [1] should be 2, is 3 (1 of 2 elements differ)'
    """
    want, have = _values(expected), _values(actual)
    if want.shape != have.shape:
        return f"the shape should be {list(want.shape)}, is {list(have.shape)}"
    if not values_mean_something():
        return ""
    wrong = ~np.isclose(
        have.astype(np.float64), want.astype(np.float64), rtol, atol, equal_nan=True
    )
    if not wrong.any():
        return ""
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    # Four digits of a fraction are the same on every CPU. A smaller difference needs more.
    whole = want[index] == np.round(want[index]) and have[index] == np.round(have[index])
    digits = (9, 17) if whole else (4, 9, 17)
    pairs = [(f"{want[index]:.{n}g}", f"{have[index]:.{n}g}") for n in digits]
    one, other = next((pair for pair in pairs if pair[0] != pair[1]), pairs[0])
    count = f"{int(wrong.sum())} of {wrong.size} elements differ"
    return f"element {list(index)} should be {one}, is {other} ({count})"


def device_difference(expected: Any, tensor: Any, rtol: float = 1e-5, atol: float = 1e-6) -> str:
    """Which device of a mesh first holds something other than `expected`, in words; nothing
    where all agree.

    Args:
        expected: one array for every device, or a list with one array a device, in row-major order.
        tensor: a ttnn tensor on a mesh.
    """
    ttnn = backend.load()
    shards = ttnn.get_device_tensors(tensor)
    wanted = expected if isinstance(expected, list) else [expected] * len(shards)
    if len(wanted) != len(shards):
        return f"{len(wanted)} devices should hold a shard, {len(shards)} do"
    ids = tensor.device().get_device_ids()
    columns = list(tensor.device().shape)[-1]
    for place, (want, shard) in enumerate(zip(wanted, shards, strict=True)):
        found = difference(want, shard, rtol, atol)
        if found:
            return f"device {ids[place]} at {divmod(place, columns)}: {found}"
    return ""


def same(
    expected: Any,
    actual: Any,
    what: str = "the parallel result equals the one-device result",
    rtol: float = 1e-5,
    atol: float = 1e-6,
) -> None:
    """Say that two results agree, or raise with the first place where they do not.

    On the real library's mock cluster values mean nothing: there it compares the shapes and says
    so.

    Raises:
        CheckFailed: the shape or an element differs.

    Example:
        >>> same(np.ones(2), np.ones(2), "both are ones")
        yes: both are ones
    """
    found = difference(expected, actual, rtol, atol)
    if found:
        raise CheckFailed(f"{what}? No: {found}")
    print(
        f"yes: {what}"
        + ("" if values_mean_something() else " (shape only: no kernel runs on a mock cluster)")
    )


Check = Callable[[Any, Any], str]
EXERCISES: dict[str, Check] = {}


def exercise(name: str) -> Callable[[Check], Check]:
    """Enter a check: a function of the answer and the learner's mesh that raises `CheckFailed`,
    or praises.
    """

    def enter(function: Check) -> Check:
        EXERCISES[name] = function
        return function

    return enter


def exercises() -> dict[str, Check]:
    """The check of every exercise, by its name; each lesson's module enters its own."""
    for module in iter_modules(__path__):
        if module.name.startswith("lesson_"):
            import_module(f"{__name__}.{module.name}")
    return EXERCISES


def check(name: str, answer: Any, mesh: Any = None) -> None:
    """Check the answer to an exercise, print what was right about it, or raise with what is wrong.

    Args:
        name: the exercise, as "02.rows".
        answer: the function or value that the learner wrote.
        mesh: the open mesh to try it on; the simulator tries other shapes too.

    Raises:
        CheckFailed: the answer is not right; the message names the device, index or number.
        NotDone: the exercise has not been started.
    """
    known = exercises()
    if name not in known:
        raise CheckFailed(f"there is no exercise {name!r}; there are {', '.join(sorted(known))}")
    if answer is None or answer is Ellipsis:
        raise NotDone(f"exercise {name} has no answer yet")
    print(f"exercise {name}: {known[name](answer, mesh)}")


def require(fine: bool, message: str) -> None:
    """Raise `CheckFailed(message)` unless `fine`; what checks are written with."""
    if not fine:
        raise CheckFailed(message)


def check_plan(
    plan: Any,
    goal: str,
    *,
    max_steps: int | None = None,
    max_bytes_per_link: int | None = None,
    max_extra_bytes: int | None = None,
) -> None:
    """Grade a plan: that it does what `goal` names, on real cables, within a budget; print what
    it achieved.

    Args:
        plan: a `ttkit.plans.Plan`.
        goal: the collective that it must be, as "all_gather".
        max_steps: how many steps it may take.
        max_bytes_per_link: how many bytes may go from a chip to a neighbour, over all cables
        between them. max_extra_bytes: how much memory a chip may need beside its own shard.

    Raises:
        CheckFailed: it does something else, goes wrong (the message names chip, chunk and step), or
        passes a budget.

    Example:
        >>> from ttkit.plans import all_gather, topology
        >>> check_plan(all_gather(topology("t3000"), 1024, axis=1), goal="all_gather", max_steps=3)
        yes: all_gather in 3 steps, at most 3,072 bytes from a chip to a neighbour, 3,072 bytes of extra memory
    """
    from ttkit.plans import Plan

    require(
        isinstance(plan, Plan), f"a ttkit.plans.Plan is asked for, this is a {type(plan).__name__}"
    )
    require(plan.collective == goal, f"the plan is for {plan.collective}, asked is {goal}")
    try:
        plan.validate()
    except TTKitError as wrong:
        raise CheckFailed(str(wrong)) from None
    pair, busiest = max(
        plan.bytes_per_link.items(), key=lambda item: item[1], default=((None, None), 0)
    )
    extra = plan.peak_extra_bytes
    if max_steps is not None and len(plan.steps) > max_steps:
        raise CheckFailed(
            f"it is right, but takes {counted(len(plan.steps), 'step')}; the budget is {max_steps}"
        )
    if max_bytes_per_link is not None and busiest > max_bytes_per_link:
        raise CheckFailed(
            f"it is right, but chip {pair[0]} sends {busiest:,} bytes to chip {pair[1]}; "
            f"the budget is {max_bytes_per_link:,}"
        )
    if max_extra_bytes is not None and extra > max_extra_bytes:
        raise CheckFailed(
            f"it is right, but a chip holds {extra:,} bytes beside its shard; "
            f"the budget is {max_extra_bytes:,}"
        )
    print(
        f"yes: {goal} in {counted(len(plan.steps), 'step')}, at most {busiest:,} bytes from a "
        f"chip to a neighbour, {extra:,} bytes of extra memory"
    )


def check_schedule(
    learners: Any,
    stages: int,
    micro_batches: int,
    *,
    memory: Any = None,
    bubble: float | None = None,
    chunks: int = 1,
) -> None:
    """Grade a pipeline schedule: that it does a training step's work, within a memory and a
    bubble; print what it achieved.

    Args:
        learners: a `ttkit.plans.Schedule`, or for each stage a text such as "F0 F1 B0 B1"; or a
        function of the two numbers that
            returns one or the other.
        stages, micro_batches, chunks: for which pipeline it must be.
        memory: the activations of how many micro-batches each stage has room for; one number, or
        one for each stage. bubble: which part of the time may be bubble, 0 to 1, if a backward
        takes twice as long as a forward.

    Raises:
        CheckFailed: it is for another pipeline, cannot run (the message names stage and action), or
        passes a budget. NotDone: the function has no result yet.

    Example:
        >>> check_schedule(["F0 F1 B0 F2 B1 B2", "F0 B0 F1 B1 F2 B2"], 2, 3, memory=2, bubble=0.25)
        yes: 2 stages, 3 micro-batches, bubble 25.0% of the time, at most the activations of 2 micro-batches on a stage
    """
    from ttkit.plans import Schedule

    if callable(learners):
        learners = learners(stages, micro_batches)
    if learners is None or learners is Ellipsis:
        raise NotDone(
            f"a schedule of {counted(stages, 'stage')} and {counted(micro_batches, 'micro-batch')}"
        )
    try:
        schedule = (
            learners
            if isinstance(learners, Schedule)
            else Schedule("yours", stages, micro_batches, learners, chunks)
        )
        for what, asked in (
            ("stages", stages),
            ("micro_batches", micro_batches),
            ("chunks", chunks),
        ):
            has = getattr(schedule, what)
            require(has == asked, f"the schedule is for {what}={has}, asked is {what}={asked}")
        schedule.validate()
        timeline, peaks = schedule.timeline(), schedule.peak_activations()
        schedule.validate(memory_limit=memory)
    except TTKitError as wrong:
        raise CheckFailed(str(wrong)) from None
    if bubble is not None and timeline.bubble_fraction > bubble + 1e-9:
        waits = [
            (b.start_s - a.end_s, -stage, b.action)
            for stage, row in enumerate(timeline.slots)
            for a, b in itertools.pairwise(row)
        ]
        length, stage, action = max(waits, key=lambda wait: wait[:2])
        found = f"{timeline.bubble_fraction:.1%} of the time is bubble; at most {bubble:.1%} may be"
        raise CheckFailed(
            f"it is right, but {found}. The longest wait: stage {-stage}, "
            f"{length:.4g} forwards long, before {action}"
        )
    size = f"{counted(stages, 'stage')}, {counted(micro_batches, 'micro-batch')}" + (
        f", {chunks} chunks a stage" if chunks > 1 else ""
    )
    held = counted(float(max(peaks)), "micro-batch")
    print(
        f"yes: {size}, bubble {timeline.bubble_fraction:.1%} of the time, "
        f"at most the activations of {held} on a stage"
    )
