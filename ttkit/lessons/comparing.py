"""Comparisons of a result with the expected one, in words that name device, index and number."""

import os
from textwrap import fill

import numpy as np

from ttkit import backend
from ttkit.backend import plain_values
from ttkit.lessons.predicting import as_number, brief, shown

LINE = 100  # Jupyter breaks longer lines at its page's edge, even inside words.


class CheckFailed(AssertionError):
    """An answer is not right yet; the message says where."""

    def _render_traceback_(self) -> list[str]:
        """Return what Jupyter shows: only the message, because the mistake is not in ttkit."""
        return [in_lines(f"not yet: {self}")]


def in_lines(text: str) -> str:
    """Return a text whose long lines are broken between words."""
    return "\n".join(fill(line, LINE, break_long_words=False) for line in text.split("\n"))


def values_mean_something() -> bool:
    """Return False on the real library's mock cluster: no kernel runs there, so its values mean
    nothing and only shapes are compared."""
    return backend.is_simulated() or not os.environ.get("TT_METAL_MOCK_CLUSTER_DESC_PATH")


def difference(expected, actual, rtol: float = 1e-5, atol: float = 1e-6) -> str:
    """Return where two results differ first, in words; "" where they agree.

    Example:
        >>> difference(np.array([1.0, 2.0]), np.array([1.0, 3.0]))
        'element [1] should be 2, but is 3 (1 of 2 elements differ)'
    """
    want = plain_values(expected)
    have = plain_values(actual)
    if want.shape != have.shape:
        return f"the shape should be {list(want.shape)}, but is {list(have.shape)}"
    if not values_mean_something():
        return ""
    wrong = ~np.isclose(have.astype(float), want.astype(float), rtol, atol, equal_nan=True)
    if not wrong.any():
        return ""
    index = tuple(map(int, np.argwhere(wrong)[0]))
    # Four digits of a fraction are the same on every CPU; more digits are needed to show a smaller
    # difference.
    whole = want[index] == np.round(want[index]) and have[index] == np.round(have[index])
    digits = (9, 17) if whole else (4, 9, 17)
    pairs = [(f"{want[index]:.{n}g}", f"{have[index]:.{n}g}") for n in digits]
    one, other = next((pair for pair in pairs if pair[0] != pair[1]), pairs[0])
    count = f"{int(wrong.sum())} of {wrong.size} elements differ"
    return f"element {list(index)} should be {one}, but is {other} ({count})"


def device_difference(expected, tensor, rtol: float = 1e-5, atol: float = 1e-6) -> str:
    """Return which device of a mesh first differs from `expected`, in words; "" where none does.

    Args:
        expected: one array that all devices should have, or a list with one array for each device,
            in row-major order.
        tensor: a ttnn tensor on a mesh.
    """
    shards = backend.load().get_device_tensors(tensor)
    wanted = expected if isinstance(expected, list) else [expected] * len(shards)
    if len(wanted) != len(shards):
        return f"{len(wanted)} devices should hold a shard, but {len(shards)} do"
    ids = tensor.device().get_device_ids()
    columns = list(tensor.device().shape)[-1]
    for place, (want, shard) in enumerate(zip(wanted, shards)):
        if found := difference(want, shard, rtol, atol):
            return f"device {ids[place]} at {divmod(place, columns)}: {found}"
    return ""


def answer_difference(expected, actual, rtol: float = 1e-5) -> str:
    """Return where an answer differs from the expected one, in words; "" where it does not.

    An element of an array may differ by `rtol` times the sum of itself and the largest element, and
    a fraction by `rtol` times itself. Everything else must be equal.

    Example:
        >>> answer_difference(2048, 1024), answer_difference([1, 2], (1, 2))
        ('should be 2,048, but is 1,024', '')
        >>> answer_difference({"a": 0.5}, {"a": 0.25})
        "should be {'a': 0.5}, but is {'a': 0.25}"
    """
    if actual is None and expected is not None:
        return "returned nothing: does it end with `return`?"
    if isinstance(expected, np.ndarray):
        if not (hasattr(actual, "__array__") or isinstance(actual, (list, tuple, float, int))):
            return f"should be an array, but is a {type(actual).__name__}"
        return difference(expected, actual, rtol, rtol * float(np.abs(expected).max(initial=0)))
    if (number := as_number(expected)) is not None:
        have = as_number(actual)
        if have is None:
            return f"should be a number, but is {brief(actual)}"
        exact = isinstance(number, int)
        near = have == number if exact else bool(np.isclose(have, number, rtol, 0))
        return "" if near else f"should be {shown(number)}, but is {shown(have)}"
    if isinstance(expected, (list, tuple)):
        if not isinstance(actual, (list, tuple)):
            return f"should be a list of {len(expected)}, but is {brief(actual)}"
        if len(actual) != len(expected):
            return f"should have {len(expected)} items, but has {len(actual)}"
        pairs = enumerate(zip(expected, actual))
        found = ((i, answer_difference(want, have, rtol)) for i, (want, have) in pairs)
        return next((f"item {i} {words}" for i, words in found if words), "")
    return "" if expected == actual else f"should be {brief(expected)}, but is {brief(actual)}"


def same(
    expected,
    actual,
    what: str = "the parallel result equals the one-device result",
    rtol: float = 1e-5,
    atol: float = 1e-6,
) -> None:
    """Print that two results agree, or raise with the first place where they differ.

    On the real library's mock cluster only the shapes are compared; the printed line reports this.

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
