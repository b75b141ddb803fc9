"""What the lessons share: comparisons, exercises with hints and feedback, cells that run again.

Feedback names the device, the index and the number. A check that a plausible wrong answer passes is
a defect; each check is tested with wrong answers.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import numpy as np

from ttkit import backend
from ttkit.convert import to_numpy
from ttkit.errors import TTKitError, fail
from ttkit.lessons import progress
from ttkit.lessons.predicting import Prediction as Prediction
from ttkit.lessons.predicting import predict as predict

MANY = 10_000  # what a generator of an answer may yield
NOT_REAL = "SUcmM"  # NumPy's kinds of text, complex numbers and times


class CheckFailed(AssertionError):
    """An answer is not right yet; the message names where."""

    def _render_traceback_(self) -> list[str]:
        """Return what Jupyter shows: the message alone, since the mistake is not in the kit."""
        return [f"not yet: {self}"]


class NotDone(NotImplementedError):
    """An exercise has not been started."""

    def _render_traceback_(self) -> list[str]:
        return [f"to do: {self}"]


# ---------------------------------------------------------------- comparisons
def _values(result: Any) -> np.ndarray:
    if hasattr(result, "detach"):
        return np.asarray(result.detach().float().cpu().numpy())
    return to_numpy(result) if hasattr(result, "tensor_topology") else np.asarray(result)


def values_mean_something() -> bool:
    """Return False on the real library's mock cluster, where no kernel runs: only shapes count."""
    return backend.is_simulated() or not os.environ.get("TT_METAL_MOCK_CLUSTER_DESC_PATH")


def said_by(error: BaseException) -> str:
    """Return the message of an error, cut to 600 characters."""
    try:
        text = str(error)
    except Exception:  # of the learner's own class
        return "(its message cannot be read)"
    return text if len(text) <= 600 else f"{text[:600]} ..."


def drawn(result: Any) -> Any:
    """Return what an answer gave, of a generator, map or zip a list of at most MANY values.

    Such a one would run, and fail, in the check.
    """
    return list(itertools.islice(result, MANY)) if isinstance(result, Iterator) else result


def difference(expected: Any, actual: Any, rtol: float = 1e-5, atol: float = 1e-6) -> str:
    """Return where two results differ first, in words; "" where they agree.

    Example:
        >>> difference(np.array([1.0, 2.0]), np.array([1.0, 3.0]))
        'element [1] should be 2, is 3 (1 of 2 elements differ)'
    """
    want, have = _values(expected), _values(actual)
    kind = f"real numbers are asked for, these are of type {have.dtype}"
    if have.dtype.kind in NOT_REAL:
        return kind
    if want.shape != have.shape:
        return f"the shape should be {list(want.shape)}, is {list(have.shape)}"
    if not values_mean_something():
        return ""
    try:
        both = want.astype(np.float64), have.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        return kind
    wrong = ~np.isclose(both[1], both[0], rtol, atol, equal_nan=True)
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


def factor_of(values: list[np.ndarray], tensor: Any) -> float | None:
    """Return the number that turns each device's matrix into what the tensor holds there.

    None where there is no such number, or it is 0.
    """
    have = np.array([to_numpy(shard) for shard in backend.load().get_device_tensors(tensor)])
    wanted = np.array(values)
    if have.size != wanted.size or have.shape[-2:] != wanted.shape[-2:]:
        return None
    factor = float(np.vdot(have, wanted) / np.vdot(wanted, wanted))
    scaled = factor * wanted
    atol = 1e-4 * float(np.abs(scaled).max())
    return factor if atol and np.allclose(have.reshape(scaled.shape), scaled, 1e-4, atol) else None


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
_HINTS: dict[str, tuple[str, ...]] = {}
_shown: dict[str, int] = {}  # hints that were given, by exercise


def exercise(name: str, *hints: str) -> Callable[[Check], Check]:
    """Register a check: a function (answer, mesh) that returns praise or raises `CheckFailed`.

    Args:
        name: the lesson and the exercise, as "02.rows".
        hints: what `hint` gives, one after the other: first a question, last nearly the answer.
    """

    def register(function: Check) -> Check:
        _CHECKS[name], _HINTS[name] = function, hints
        return function

    return register


def exercises() -> dict[str, Check]:
    """Return the check of every exercise, by its name."""
    for module in iter_modules(__path__):
        if module.name.startswith("lesson_"):  # it registers its checks
            import_module(f"{__name__}.{module.name}")
    return _CHECKS


def _known(name: str) -> Check:
    known = exercises()
    if not isinstance(name, str) or name not in known:
        rule = f"there are {', '.join(sorted(known))}"
        fail(f"exercise {name!r}", "there is no such exercise", rule)
    return known[name]


def hint(name: str) -> None:
    """Print the next hint for an exercise; each call gives one more.

    Raises:
        TTKitError: there is no such exercise.
    """
    _known(name)
    hints, given = _HINTS[name], _shown.get(name, 0)
    if given < len(hints):
        print(f"hint {given + 1} of {len(hints)}: {hints[given]}")
        _shown[name] = given + 1
    else:
        print(f"{name} has no more hints. The solution is in the folded cell below the exercise.")


def check(name: str, answer: Any, mesh: Any = None) -> None:
    """Check your answer to an exercise; print what is right about it, or raise with what is wrong.

    Args:
        name: the exercise, as "02.rows".
        answer: the function or value that you wrote.
        mesh: the open mesh to try it on, for a card; the simulator opens meshes of several shapes.
            For exercises that run on ranks, the cluster.

    Raises:
        CheckFailed: the answer is not right; the message names the device, index or number.
        NotDone: the exercise has not been started; the message says how to get a hint.
        TTKitError: there is no such exercise.
    """
    judge = _known(name)
    try:
        if answer is None or answer is Ellipsis:
            raise NotDone
        praise = judge(answer, mesh)
    except NotDone:
        raise NotDone(f'exercise {name}. A hint: lessons.hint("{name}")') from None
    except CheckFailed:
        progress.keep("exercises", name, "tried")
        raise
    except Exception as error:  # of what is asked for, the answer gave something else
        progress.keep("exercises", name, "tried")
        if isinstance(error, TTKitError):  # this says what to try
            raise CheckFailed(said_by(error)) from None
        what = f"it stopped with {type(error).__name__}: {said_by(error)}"
        cure = "compare what your answer gives with what the exercise asks for"
        raise CheckFailed(f"the check cannot read your answer: {what}\n  try: {cure}") from error
    progress.keep("exercises", name, progress.PASSED)
    print(f"exercise {name}: {praise}")


def solution(name: str, answer: Any, mesh: Any = None) -> None:
    """Check the course's own solution as `check` does; your progress stays as it is."""
    print(f"solution of {name}: {_known(name)(answer, mesh)}")


def todo() -> Any:
    """Stand in for the code of an exercise.

    Raises:
        NotDone: always; `check` then says how to get a hint.
    """
    raise NotDone("replace lessons.todo() by your code")


def require(fine: bool, message: str) -> None:
    """Raise `CheckFailed(message)` unless `fine`."""
    if not fine:
        raise CheckFailed(message)


# ---------------------------------------------------------------- cells that can run again
def tidy() -> None:
    """Close every mesh, context, cluster and fabric that an earlier cell left open.

    Each section of a lesson begins so: its cells can be run again, in any order.

    Example:
        >>> from ttkit import ttnn
        >>> mesh = ttnn.open_mesh_device(ttnn.MeshShape(2, 4))
        >>> tidy()
        >>> mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, 8))  # the chips are free again
        >>> tidy()
    """
    ttnn = backend.load()
    if "ttkit.train.context" in sys.modules:
        sys.modules["ttkit.train.context"].AutoContext.get_instance().close_device()
    if "ttkit.cluster.engines.cluster" in sys.modules:
        for cluster in _named(sys.modules["ttkit.cluster.engines.cluster"].Cluster):
            cluster.stop()
    for mesh in _open_meshes():
        ttnn.close_mesh_device(mesh)
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)


def _open_meshes() -> list[Any]:
    """Return the open meshes, those that were opened last first."""
    if backend.is_simulated():
        from ttkit.sim.mesh import opened_meshes

        return opened_meshes[::-1]
    return _named(backend.load().MeshDevice)


def _named(kind: type) -> list[Any]:
    """Return the objects of a type that have a name in the notebook."""
    return [thing for thing in vars(sys.modules["__main__"]).values() if isinstance(thing, kind)]
