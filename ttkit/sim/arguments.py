"""Check arguments: the classes that a parameter takes, and messages in the kit's form."""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from ttkit.errors import OutOfMemoryError, TTKitError, fail
from ttkit.sim.tensor import Layout

Classes = tuple[type, ...]
# An argument may have any of these classes where the annotation names the first.
STANDS_FOR: dict[type, Classes] = {
    int: (int, np.integer),
    float: (int, float, np.number),
    bool: (bool, int, np.bool_),
}


def with_hints(signature: inspect.Signature, hints: frozenset[str]) -> inspect.Signature:
    """Return a signature that also has these keywords, each None by default."""
    parameters = list(signature.parameters.values())
    rest = [parameters.pop()] if parameters[-1].kind is inspect.Parameter.VAR_KEYWORD else []
    extra = [
        inspect.Parameter(h, inspect.Parameter.KEYWORD_ONLY, default=None) for h in sorted(hints)
    ]
    return signature.replace(parameters=parameters + extra + rest)


def keywords_of(other) -> Callable:
    """Show the keywords of `other` in the signature of a function that hands them on."""

    def shown(function):
        own, theirs = (inspect.signature(f).parameters.values() for f in (function, other))
        kept = [p for p in own if p.kind is not p.VAR_KEYWORD]
        kept += [p for p in theirs if p.kind is p.KEYWORD_ONLY]
        function.__signature__ = inspect.Signature(kept)
        return function

    return shown


def translate(error, asked: describe) -> None:
    """Let an error of `fail` name the call; raise one of the kit for what no check foresaw."""
    if hasattr(error, "asked"):
        if error.asked is None:
            error.asked, error.args = asked, (f"{asked}: {error}",)
    elif isinstance(error, MemoryError):
        rule = f"Out of Memory: the host has no room for the result ({error})"
        fail(asked, rule, "a smaller shape", OutOfMemoryError)
    elif isinstance(error, (ValueError, ArithmeticError, IndexError)):
        fail(asked, f"Invalid arguments to {asked.name}: {error}", "see the shapes above")
    else:
        rule = f"incompatible function arguments: {error}"
        fail(asked, rule, f"help(ttnn.{asked.name})", TypeError)


@functools.cache  # A function is looked at when it is first called.
def classes_of(function: Callable) -> dict[str, Classes]:
    """Return the classes that each parameter takes, in order; `object` where it may be anything.

    Example:
        >>> def double(times: int, name: str | None, rest: list[int]): ...
        >>> classes_of(double)["name"], classes_of(double)["rest"]
        ((<class 'str'>, <class 'NoneType'>), (<class 'object'>,))
    """
    hints = typing.get_type_hints(function)
    found: dict[str, Classes] = {}
    for name in inspect.signature(function).parameters:
        hint = hints.get(name, object)
        union = typing.get_origin(hint) in (types.UnionType, typing.Union)
        members = typing.get_args(hint) if union else (hint,)
        kinds = (isinstance(m, type) and m is not Any for m in members)
        plain = all(kinds) and not any(map(typing.get_origin, members))
        found[name] = sum((STANDS_FOR.get(m, (m,)) for m in members), ()) if plain else (object,)
    return found


def check_classes(function: Callable, asked: describe) -> None:
    """Raise a TypeError for an argument of another class than its annotation names.

    It names the parameter, what was given and what it takes.
    """
    takes = classes_of(function)
    for parameter, value in [*zip(takes, asked.args, strict=False), *asked.kwargs.items()]:
        if isinstance(value, takes.get(parameter, object)):
            continue
        wanted = function.__annotations__[parameter]
        shown = f"{parameter}={describe.show(value)}"
        rule = f"incompatible function arguments: {shown} is a {type(value).__name__}, not {wanted}"
        cure = "ttnn.from_torch(...) it first" if wanted == "Tensor" else f"help(ttnn.{asked.name})"
        fail(asked, rule, cure, TypeError)


def refuse(rule: str, cure: str = "", kind: type[Exception] = TTKitError) -> NoReturn:
    """Fail inside an operation or a checked function; the guard names the call."""
    fail(None, rule, cure, kind)


def check(broken: object, rule: str, cure: str = "") -> None:
    """Refuse where a rule of an operation is broken."""
    if broken:
        refuse(rule, cure)


class describe:
    """A call in one line, tensors by shape, dtype and mesh; formatted when a message needs it."""

    __slots__ = ("args", "kwargs", "name")

    def __init__(self, name: str, args: tuple = (), kwargs: dict[str, Any] | None = None):
        self.name, self.args, self.kwargs = name, args, kwargs or {}

    def __str__(self) -> str:
        shown = [self.show(value) for value in self.args if self.is_shown(value)]
        shown += [f"{k}={self.show(v)}" for k, v in self.kwargs.items() if self.is_shown(v)]
        return f"{self.name}({', '.join(shown)})"

    @staticmethod
    def is_shown(value) -> bool:
        """Return False for layouts, meshes, mappers, None: the rule names what matters of them."""
        left_out = value is None or hasattr(value, "check_open") or hasattr(value, "config")
        return not (left_out or isinstance(value, Layout))

    @staticmethod
    def show(value) -> str:
        """Return a value in a few words."""
        if hasattr(value, "shard_shape"):
            mesh = value.mesh
            where = " on host" if mesh is None else f" on {'x'.join(map(str, mesh.shape))}"
            return f"{list(value.shard_shape)} {value.dtype.name}{where}"
        if hasattr(value, "dtype"):
            return f"{list(value.shape)} {str(value.dtype).removeprefix('torch.')}"
        if type(value) in (list, tuple) and value and hasattr(value[0], "shard_shape"):
            return f"[{', '.join(map(describe.show, value))}]"
        text = repr(value)
        return text if len(text) <= 80 else text[:77] + "..."
