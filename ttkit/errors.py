"""Errors in one form: what was asked, the rule with its numbers, what to try.

And the two dialects: strict is ttnn 0.81.1, which refuses what the default one warns about, the
guide's older forms.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterable
from types import TracebackType
from typing import NoReturn


def learners_lines(trace: TracebackType | None) -> list[tuple[str, str]]:
    """Return the lines of the notebook or script that an error went through, outermost first.

    Each is (place, text).

    Example:
        >>> try:
        ...     1 / 0
        ... except ZeroDivisionError as error:
        ...     learners_lines(error.__traceback__)  # no line of a notebook
        []
    """
    import linecache  # It is imported late, so that `import ttkit` stays light.
    import traceback

    lines = []
    for frame, number in traceback.walk_tb(trace):
        if frame.f_globals.get("__name__") == "__main__":
            name = frame.f_code.co_filename
            place = (
                f"line {number} of "
                f"{os.path.basename(name) if os.path.exists(name) else 'your cell'}"
            )
            text = linecache.getline(name, number).strip()
            if not text.startswith("get_ipython().run_"):  # IPython turns a magic into such lines.
                lines.append((place, text))
    return lines


def shown_plainly(error: BaseException) -> list[str]:
    """Return the message of an error and the learner's own lines, without the kit's frames."""
    shown = [f"{type(error).__name__}: {error}"]
    for place, text in learners_lines(error.__traceback__):
        shown.append(f"  in {place}" + (f": {text}" if text else ""))
    return shown


class Plain(Exception):
    """An exception that Jupyter shows as its message and the learner's own lines."""

    def _render_traceback_(self) -> list[str]:
        return shown_plainly(self)


class Interrupted(KeyboardInterrupt):
    """The notebook's stop button. Jupyter shows one sentence and the learner's own line."""

    def _render_traceback_(self) -> list[str]:
        return shown_plainly(self)


Interrupted.__name__ = "KeyboardInterrupt"


class TTKitError(Plain, RuntimeError):
    """An error of the kit or of the simulated ttnn; a RuntimeError, which ttnn raises too.

    Example:
        >>> try:
        ...     fail("open a 3x3 mesh", "it needs 9 devices, but only 8 are there", "open 2x4")
        ... except RuntimeError as error:
        ...     print(error)
        open a 3x3 mesh: it needs 9 devices, but only 8 are there
          try: open 2x4
    """

    rule = cure = ""  # `fail` sets both.


class OutOfMemoryError(TTKitError):
    """A chip's DRAM cannot hold what was asked."""


class CollectiveMismatch(TTKitError):
    """Ranks that must make the same call made different ones, or one made none."""


def _plain(kind: type[Exception]) -> type[Exception]:
    """Return a subclass of the same name: Jupyter shows it plainly, pickle restores `kind`."""
    return type(kind.__name__, (Plain, kind), {"__reduce__": lambda self: (kind, self.args)})


PLAIN: dict[type[Exception], type[Exception]] = {
    kind: _plain(kind) for kind in (TypeError, ValueError, IndexError)
}


def fail(asked: object, rule: str, cure: str = "", kind: type[Exception] = TTKitError) -> NoReturn:
    """Raise an error with the message "asked: rule", and "try: cure" in a second line.

    Args:
        asked: the call, with shapes and mesh; None where the guard of an operation names it.
        rule: what must hold, with the numbers that broke it, in ttnn's own words where it has some.
        cure: what to try; "" where there is nothing to add.
        kind: the exception class.
    """
    text = rule + (f"\n  try: {cure}" if cure else "")
    error = PLAIN.get(kind, kind)(text if asked is None else f"{asked}: {text}")
    vars(error).update(ours=True, names_no_call=asked is None, rule=rule, cure=cure)
    raise error from None  # The rule already has NumPy's message.


def check_counts(asked: object, **counts: int) -> None:
    """Fail unless all numbers are at least 1.

    Example:
        >>> check_counts("a mesh", rows=2, columns=0)
        Traceback (most recent call last):
        ttkit.errors.TTKitError: a mesh: columns=0 must be a whole number of at least 1
    """
    for name, value in counts.items():
        if value < 1:
            fail(asked, f"{name}={value!r} must be a whole number of at least 1")


def nearest(name: object, known: Iterable[str]) -> str:
    """Return the known name closest to `name`, or "" when none is close.

    Example:
        >>> nearest("mesh_idd", ["rank", "mesh_id"]), nearest("x", ["rank"])
        ('mesh_id', '')
    """
    import difflib  # It is imported late, so that `import ttkit` stays light.

    return next(iter(difflib.get_close_matches(str(name)[:60], list(known), 1)), "")


_state = {"strict": os.environ.get("TTKIT_STRICT", "") not in ("", "0")}
_warned: set[str] = set()


class DialectWarning(UserWarning):
    """The call has a form that the guide prints and ttnn 0.81.1 refuses."""


def strict(on: bool = True) -> None:
    """Choose the strict dialect, which is ttnn 0.81.1, or with `on=False` the default one.

    `TTKIT_STRICT=1` in the environment chooses it at start.

    Example:
        >>> strict(); is_strict()
        True
        >>> strict(False); is_strict()
        False
    """
    _state["strict"] = bool(on)


def is_strict() -> bool:
    """Return whether the dialect is strict."""
    return _state["strict"]


def older_form(form: str, spelling: str) -> bool:
    """Return whether the dialect accepts an older form; warn once for each form that it accepts.

    Args:
        form: the form, for example `MeshShape(y=, x=)`.
        spelling: how ttnn 0.81.1 spells it.
    """
    if _state["strict"]:
        return False
    if form not in _warned:
        _warned.add(form)
        message = (
            f"{form} is an older form that ttnn 0.81.1 does not take; strict spelling: {spelling}"
        )
        warnings.warn(message, DialectWarning, stacklevel=_levels_to_the_user())
    return True


def _levels_to_the_user() -> int:
    """Return the stack level of the first line outside ttkit, which the warning is about."""
    here, level = os.path.dirname(__file__), 1
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(here):
        frame, level = frame.f_back, level + 1
    return level
