"""What the lessons share: predictions before a run, comparisons with one device, exercises with feedback.

Feedback names the thing: the device, the index, the number. A check that a plausible wrong answer passes is a defect,
and each check is tested with wrong answers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ttkit import backend
from ttkit.convert import to_numpy
from ttkit.errors import TTKitError


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


class Prediction:
    """Numbers guessed before a run; `reveal` puts the real ones beside them."""

    def __init__(self, guesses: dict[str, float]):
        self.guesses = guesses

    def reveal(self, **actual: float) -> None:
        """Print guess and fact of each number, and by how much they differ.

        Raises:
            KeyError: a number was not predicted.
        """
        width = max(map(len, actual))
        for name, fact in actual.items():
            guess = self.guesses[name]
            if guess == fact:
                verdict = "right"
            elif guess and fact and max(guess, fact) >= 2 * min(guess, fact):
                verdict = f"{max(guess, fact) / min(guess, fact):.3g} times too {'many' if guess > fact else 'few'}"
            else:
                verdict = f"off by {abs(guess - fact):,}"
            print(f"{name:<{width}}  you said {guess:,}  it is {fact:,}  {verdict}")


def predict(**guesses: float) -> Prediction:
    """Write down numbers before the run that shows them.

    Example:
        >>> guess = predict(bytes_each=1024)
        >>> guess.reveal(bytes_each=4096)
        bytes_each  you said 1,024  it is 4,096  4 times too few
    """
    for name, value in guesses.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise NotDone(f"replace {name}={value!r} by a number")
    return Prediction(guesses)


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
    wrong = ~np.isclose(have.astype(np.float64), want.astype(np.float64), rtol, atol, equal_nan=True)
    if not wrong.any():
        return ""
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"element {list(index)} should be {want[index]:.6g}, is {have[index]:.6g} ({int(wrong.sum())} of {wrong.size} elements differ)"


def device_difference(expected: Any, tensor: Any, rtol: float = 1e-5, atol: float = 1e-6) -> str:
    """Which device of a mesh first holds something other than `expected`, in words; nothing where all agree.

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


def same(expected: Any, actual: Any, what: str = "the parallel result equals the one-device result", rtol: float = 1e-5, atol: float = 1e-6) -> None:
    """Say that two results agree, or raise with the first place where they do not.

    On the real library's mock cluster values mean nothing: there it compares the shapes and says so.

    Raises:
        CheckFailed: the shape or an element differs.

    Example:
        >>> same(np.ones(2), np.ones(2), "both are ones")
        yes: both are ones
    """
    found = difference(expected, actual, rtol, atol)
    if found:
        raise CheckFailed(f"{what}? No: {found}")
    print(f"yes: {what}" + ("" if values_mean_something() else " (shape only: no kernel runs on a mock cluster)"))


EXERCISES: dict[str, Callable[[Any, Any], str]] = {}


Check = Callable[[Any, Any], str]


def exercise(name: str) -> Callable[[Check], Check]:
    """Enter a check: a function of the answer and the learner's mesh that raises `CheckFailed`, or praises."""

    def enter(function: Check) -> Check:
        EXERCISES[name] = function
        return function

    return enter


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
    from ttkit import exercises  # noqa: F401  (fills EXERCISES)

    if name not in EXERCISES:
        raise CheckFailed(f"there is no exercise {name!r}; there are {', '.join(sorted(EXERCISES))}")
    if answer is None or answer is Ellipsis:
        raise NotDone(f"exercise {name} has no answer yet")
    print(f"exercise {name}: {EXERCISES[name](answer, mesh)}")


def require(fine: bool, message: str) -> None:
    """Raise `CheckFailed(message)` unless `fine`; what checks are written with."""
    if not fine:
        raise CheckFailed(message)


def check_plan(plan: Any, goal: str, *, max_steps: int | None = None, max_bytes_per_link: int | None = None, max_extra_bytes: int | None = None) -> None:
    """Grade a plan: that it does what `goal` names, on real cables, within a budget; print what it achieved.

    Args:
        plan: a `ttkit.plans.Plan`.
        goal: the collective that it must be, as "all_gather".
        max_steps: how many steps it may take.
        max_bytes_per_link: how many bytes may go from a chip to a neighbour, over all cables between them.
        max_extra_bytes: how much memory a chip may need beside its own shard.

    Raises:
        CheckFailed: it does something else, goes wrong (the message names chip, chunk and step), or passes a budget.

    Example:
        >>> from ttkit.plans import all_gather, topology
        >>> check_plan(all_gather(topology("t3000"), 1024, axis=1), goal="all_gather", max_steps=3)
        yes: all_gather in 3 steps, at most 3,072 bytes from a chip to a neighbour, 3,072 bytes of extra memory
    """
    from ttkit.plans import Plan

    require(isinstance(plan, Plan), f"a ttkit.plans.Plan is asked for, this is a {type(plan).__name__}")
    require(plan.collective == goal, f"the plan is for {plan.collective}, asked is {goal}")
    try:
        plan.validate()
    except TTKitError as wrong:
        raise CheckFailed(str(wrong)) from None
    pair, busiest = max(plan.bytes_per_link.items(), key=lambda item: item[1], default=((None, None), 0))
    extra = plan.peak_extra_bytes
    if max_steps is not None and len(plan.steps) > max_steps:
        raise CheckFailed(f"it is right, but takes {len(plan.steps)} steps; the budget is {max_steps}")
    if max_bytes_per_link is not None and busiest > max_bytes_per_link:
        raise CheckFailed(f"it is right, but chip {pair[0]} sends {busiest:,} bytes to chip {pair[1]}; the budget is {max_bytes_per_link:,}")
    if max_extra_bytes is not None and extra > max_extra_bytes:
        raise CheckFailed(f"it is right, but a chip holds {extra:,} bytes beside its shard; the budget is {max_extra_bytes:,}")
    print(f"yes: {goal} in {len(plan.steps)} steps, at most {busiest:,} bytes from a chip to a neighbour, {extra:,} bytes of extra memory")
