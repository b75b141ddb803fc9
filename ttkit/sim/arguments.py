"""Arguments at the door: classes are checked against annotations, and whatever goes wrong inside is said in the kit's form."""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import numpy as np

from ttkit.errors import OutOfMemoryError, TTKitError, fail

F = TypeVar("F", bound=Callable[..., Any])
Classes = tuple[type, ...]
# What else may stand for a class of an annotation.
STANDS_FOR: dict[type, Classes] = {int: (int, np.integer), float: (int, float, np.number), bool: (bool, int, np.bool_)}


class describe:
    """A call in one line, tensors by shape, dtype and mesh; written out only when an error message needs it."""

    __slots__ = ("args", "kwargs", "name")

    def __init__(self, name: str, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None):
        self.name, self.args, self.kwargs = name, args, kwargs or {}

    def __str__(self) -> str:
        shown = [self.show(a) for a in self.args] + [f"{k}={self.show(v)}" for k, v in self.kwargs.items()]
        return f"{self.name}({', '.join(shown)})"

    @staticmethod
    def show(value: Any) -> str:
        """A value in a few words."""
        if hasattr(value, "shard_shape"):
            where = f" on {'x'.join(map(str, value.mesh.shape))}" if value.mesh is not None else " on host"
            return f"{list(value.shard_shape)} {value.dtype.name}{where}"
        if isinstance(value, np.ndarray):
            return f"array {list(value.shape)} {value.dtype}"
        text = repr(value)
        return text if len(text) <= 40 else text[:37] + "..."


def _classes(function: Callable[..., Any]) -> dict[str, Classes]:
    """The classes that each parameter takes, in order; `object` where the annotation says no more than that.

    Example:
        >>> def double(times: int, name: str | None, rest: list[int]): ...
        >>> _classes(double)
        {'times': (<class 'int'>, <class 'numpy.integer'>), 'name': (<class 'str'>, <class 'NoneType'>), 'rest': (<class 'object'>,)}
    """
    hints = typing.get_type_hints(function)
    found: dict[str, Classes] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        hint = hints.get(name, object)
        members = typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)
        plain = all(isinstance(m, type) and m is not Any and typing.get_origin(m) is None for m in members)
        plain = plain and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        found[name] = sum((STANDS_FOR.get(m, (m,)) for m in members), ()) if plain else (object,)
    return found


def _refuse(function: Callable[..., Any], asked: describe, parameter: str, value: object) -> NoReturn:
    wanted = function.__annotations__[parameter]
    wanted = wanted if isinstance(wanted, str) else inspect.formatannotation(wanted)
    rule = f"incompatible function arguments: {parameter}={describe.show(value)} is a {type(value).__name__}, not {wanted}"
    cure = "ttnn.from_torch(...) it first" if wanted == "Tensor" else f"help(ttnn.{asked.name})"
    fail(asked, rule, cure, TypeError)


noted: list[Any] = []  # tapes that want to see calls which manage meshes; see `ttkit.sim.dispatch.watchers` for operations

_inside = [False]


def told(watchers: list[Any], inside: list[bool], name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function and tell the watchers before and after; `inside` keeps what it calls itself from them."""
    for watcher in watchers:
        watcher.before(name, args, kwargs)
    inside[0] = True
    try:
        result = function(*args, **kwargs)
    finally:
        inside[0] = False
    for watcher in watchers:
        watcher.after(name, args, kwargs, result)
    return result


def checked(name: str, *, note: bool = False, computes: bool = True) -> Callable[[F], F]:
    """Refuse arguments whose class does not fit the annotations of a function, before it runs.

    An error that no check of ours foresaw is turned into an error of the kit that names the call.

    Args:
        name: the function in messages.
        note: let tapes see the calls.
        computes: keep NumPy silent about what a card does without a word, such as dividing by zero; takes a microsecond.
    """

    def enter(function: F) -> F:
        classes: list[dict[str, Classes]] = []  # filled at the first call: reading annotations takes 50 microseconds

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if not classes:
                classes.append(_classes(function))
            expected = classes[0]
            for (parameter, wanted), value in zip(expected.items(), args, strict=False):
                if not isinstance(value, wanted):
                    _refuse(function, describe(name, args, kwargs), parameter, value)
            for parameter, value in kwargs.items():
                if parameter in expected and not isinstance(value, expected[parameter]):
                    _refuse(function, describe(name, args, kwargs), parameter, value)
            try:
                if not computes:
                    return function(*args, **kwargs)
                with np.errstate(all="ignore"):
                    return told(noted, _inside, name, function, args, kwargs) if note and noted and not _inside[0] else function(*args, **kwargs)
            except TTKitError:
                raise
            except MemoryError as error:
                fail(describe(name, args, kwargs), f"Out of Memory: the host cannot hold the result ({error})", "a smaller shape", OutOfMemoryError)
            except (ValueError, ArithmeticError) as error:
                fail(describe(name, args, kwargs), f"Invalid arguments to {name}: {error}", "see the shapes above")
            except (TypeError, AttributeError, LookupError) as error:
                if getattr(error, "ours", False) or error.__traceback__.tb_next is None:  # type: ignore[union-attr]
                    raise  # `fail`'s own, or Python's about the names of the arguments
                fail(describe(name, args, kwargs), f"incompatible function arguments: {error}", f"help(ttnn.{name})", TypeError)

        return call  # type: ignore[return-value]

    return enter
