"""Describe calls, and raise errors about their arguments with ttkit's form of message."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn

from ttkit.errors import OutOfMemoryError, TTKitError, fail
from ttkit.sim.tensor import Layout


def keywords_of(other) -> Callable:
    """Return a decorator for a function that passes its keywords on to `other`. The signature of
    the decorated function shows the keyword-only parameters of `other`."""

    def shown(function):
        own, theirs = (
            inspect.signature(inspect.unwrap(f)).parameters.values() for f in (function, other)
        )
        kept = [p for p in own if p.kind is not p.VAR_KEYWORD]
        kept += [p for p in theirs if p.kind is p.KEYWORD_ONLY]
        function.__signature__ = inspect.Signature(kept)
        return function

    return shown


def translate(error, asked: describe) -> None:
    """Add the call to the message of an error that `fail` raised. Raise an error of ttkit in place
    of any other error, which no check has foreseen."""
    if hasattr(error, "asked"):
        if error.asked is None:
            error.asked = asked
            error.args = (f"{asked}: {error}",)
    elif isinstance(error, MemoryError):
        rule = f"Out of Memory: the host has no room for the result ({error})"
        fail(asked, rule, "a smaller shape", OutOfMemoryError)
    elif isinstance(error, (ValueError, ArithmeticError, IndexError)):
        # NumPy counts the axes of the mesh, too, so its shapes and axes would confuse.
        shapes = "broadcast|reshape|array of dimension|along dimension|did not match|core dimension"
        clash = re.search(shapes, str(error))
        words = re.sub(r" for axis \d+", "", str(error))
        what = "the shapes do not fit together" if clash else words
        cure = "look at the shapes, which are those on a chip"
        cure += "; shard the operands alike" if clash else ""
        fail(asked, f"Invalid arguments to {asked.name}: {what}", cure)
    else:
        rule = f"incompatible function arguments: {error}"
        fail(asked, rule, f"help(ttnn.{asked.name})", TypeError)


def refuse(rule: str, cure: str = "", kind: type[Exception] = TTKitError) -> NoReturn:
    """Raise an error inside an operation or a checked function. The guard around the function adds
    the call to the message (see `translate`)."""
    fail(None, rule, cure, kind)


class describe(NamedTuple):
    """A call in one line, which shows tensors by shape, dtype and mesh. The line is made only when
    a message needs it."""

    name: str
    args: tuple = ()
    kwargs: Mapping[str, Any] = {}

    def __str__(self) -> str:
        shown = [self.show(value) for value in self.args if self.is_shown(value)]
        shown += [f"{k}={self.show(v)}" for k, v in self.kwargs.items() if self.is_shown(v)]
        return f"{self.name}({', '.join(shown)})"

    @staticmethod
    def is_shown(value) -> bool:
        """Return False for layouts, meshes, mappers and None. If they matter, the rule in the
        message names them."""
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
