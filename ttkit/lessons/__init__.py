"""What the lessons share: predictions before a run, comparisons, and exercises with feedback.

Feedback names the device, the index and the number. A check that a plausible wrong answer passes is
a defect; each check is tested with wrong answers.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from importlib import import_module
from numbers import Real
from pkgutil import iter_modules
from typing import Any

import numpy as np

from ttkit import backend
from ttkit.convert import to_numpy
from ttkit.errors import fail


class CheckFailed(AssertionError):
    """An answer is not right yet; the message names where."""

    def _render_traceback_(self) -> list[str]:
        """Return what Jupyter shows: the message alone, since the mistake is not in the kit."""
        return [f"not yet: {self}"]


class NotDone(NotImplementedError):
    """An exercise has not been started."""

    def _render_traceback_(self) -> list[str]:
        return [f"to do: {self}"]


def todo(what: str) -> Any:
    """Stand in for the code of an exercise; `what` is what to write.

    Raises:
        NotDone: always.
    """
    raise NotDone(what)


# ---------------------------------------------------------------- predictions
def as_number(value: Any) -> int | float | None:
    """Return a finite real number as an int where it is whole, else as a float.

    Return None for anything else.

    Example:
        >>> [as_number(value) for value in (np.int64(3), 384.0, 0.5, True, "4")]
        [3, 384, 0.5, None, None]
    """
    kinds: Any = Real
    if isinstance(value, bool) or not isinstance(value, kinds) or not math.isfinite(value):
        return None
    return int(value) if value == int(value) else float(value)


def _shown(value: Any) -> str:
    """Return a number with its thousands marked, anything else as it prints."""
    number = as_number(value)
    if number is None:
        return str(value)
    return f"{number:,}" if isinstance(number, int) else f"{number:,.6g}"


def _verdict(guess: int | float | str, actual: Any) -> str:
    fact = as_number(actual)
    if isinstance(guess, str) or fact is None:
        return "right" if str(guess) == str(actual) else "not it"
    if guess == fact:
        return "right"
    larger, smaller = max(guess, fact), min(guess, fact)
    if smaller > 0 and larger >= 2 * smaller:
        return f"{larger / smaller:.3g} times too {'large' if guess > fact else 'small'}"
    return f"off by {_shown(larger - smaller)}"


class Prediction:
    """Numbers or words written down before a run; `reveal` prints the facts beside them."""

    def __init__(self, guesses: dict[str, int | float | str]):
        self.guesses = guesses

    def reveal(self, **actual: Any) -> None:
        """Print guess and fact of each name, and by how much they differ.

        Raises:
            TTKitError: something was not predicted.
        """
        for name in actual:
            if name not in self.guesses:
                rule = f"that was not predicted, {', '.join(self.guesses) or 'nothing'} was"
                fail(f"reveal({name}=...)", rule, f"predict({name}=...) first")
        width = max(map(len, actual), default=0)
        for name, fact in actual.items():
            guess = self.guesses[name]
            verdict = _verdict(guess, fact)
            print(f"{name:<{width}}  you said {_shown(guess)}  it is {_shown(fact)}  {verdict}")


def predict(**guesses: Any) -> Prediction:
    """Write down numbers before the run that shows them; a name, such as a device's id, as text.

    Raises:
        NotDone: a guess is neither a finite number nor a word.

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


# ---------------------------------------------------------------- comparisons
def _values(result: Any) -> np.ndarray:
    if hasattr(result, "detach"):
        return np.asarray(result.detach().float().cpu().numpy())
    return to_numpy(result) if hasattr(result, "tensor_topology") else np.asarray(result)


def values_mean_something() -> bool:
    """Return False on the real library's mock cluster, where no kernel runs: only shapes count."""
    return backend.is_simulated() or not os.environ.get("TT_METAL_MOCK_CLUSTER_DESC_PATH")


def difference(expected: Any, actual: Any, rtol: float = 1e-5, atol: float = 1e-6) -> str:
    """Return where two results differ first, in words; "" where they agree.

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
    """Return which device of a mesh first differs from `expected`, in words; "" where none does.

    Args:
        expected: one array for every device, or a list with one array a device, in row-major order.
        tensor: a ttnn tensor on a mesh.
    """
    shards = backend.load().get_device_tensors(tensor)
    wanted = expected if isinstance(expected, list) else [expected] * len(shards)
    if len(wanted) != len(shards):
        return f"{len(wanted)} devices should hold a shard, {len(shards)} do"
    ids = tensor.device().get_device_ids()
    columns = list(tensor.device().shape)[-1]
    for place, (want, shard) in enumerate(zip(wanted, shards, strict=True)):
        if found := difference(want, shard, rtol, atol):
            return f"device {ids[place]} at {divmod(place, columns)}: {found}"
    return ""


def same(
    expected: Any,
    actual: Any,
    what: str = "the parallel result equals the one-device result",
    rtol: float = 1e-5,
    atol: float = 1e-6,
) -> None:
    """Print that two results agree, or raise with the first place where they differ.

    On the real library's mock cluster it compares the shapes alone, and prints that.

    Raises:
        CheckFailed: the shape or an element differs.

    Example:
        >>> same(np.ones(2), np.ones(2), "both are ones")
        yes: both are ones
    """
    if found := difference(expected, actual, rtol, atol):
        raise CheckFailed(f"{what}? No: {found}")
    mock = "" if values_mean_something() else " (shape only: no kernel runs on a mock cluster)"
    print(f"yes: {what}{mock}")


# ---------------------------------------------------------------- exercises
Check = Callable[[Any, Any], str]
_CHECKS: dict[str, Check] = {}


def exercise(name: str) -> Callable[[Check], Check]:
    """Register a check: a function (answer, mesh) that returns praise or raises `CheckFailed`."""

    def register(function: Check) -> Check:
        _CHECKS[name] = function
        return function

    return register


def exercises() -> dict[str, Check]:
    """Return the check of every exercise, by its name."""
    for module in iter_modules(__path__):
        if module.name.startswith("lesson_"):  # it registers its checks
            import_module(f"{__name__}.{module.name}")
    return _CHECKS


def check(name: str, answer: Any, mesh: Any = None) -> None:
    """Check the answer to an exercise; print what is right about it, or raise with what is wrong.

    Args:
        name: the exercise, as "02.rows".
        answer: the function or value that the learner wrote.
        mesh: the open mesh to try it on, for a card; the simulator opens meshes of several shapes.
            For exercises that run on ranks, the cluster.

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
    """Raise `CheckFailed(message)` unless `fine`."""
    if not fine:
        raise CheckFailed(message)
