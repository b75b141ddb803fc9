"""Errors in one form: what was asked, the rule with its numbers, what to try.

This module also has the two dialects. The strict one is ttnn 0.81.1, which refuses the older forms
of the guide. The default one accepts these forms with a warning.
"""

import os
import sys
import warnings
from collections.abc import Iterable
from types import FrameType
from typing import Any, NoReturn


class Plain:
    """A base class of exceptions that Jupyter shows in short: the message, and the lines of the
    notebook or script in the traceback, without the frames of ttkit.
    """

    def _render_traceback_(self: Any) -> list[str]:
        import linecache  # This import comes late, so that `import ttkit` is fast.
        import traceback

        shown = [f"{type(self).__name__}: {self}"]
        for frame, number in traceback.walk_tb(self.__traceback__):
            if frame.f_globals.get("__name__") == "__main__":
                name = frame.f_code.co_filename
                file = os.path.basename(name) if os.path.exists(name) else "your cell"
                text = linecache.getline(name, number).strip()
                # IPython replaces a magic command by a line that begins like this.
                if not text.startswith("get_ipython().run_"):
                    shown.append(f"  in line {number} of {file}" + (f": {text}" if text else ""))
        return shown


class Interrupted(Plain, KeyboardInterrupt):
    """The KeyboardInterrupt of the notebook's stop button.

    Jupyter shows one sentence and the learner's own line.
    """


Interrupted.__name__ = "KeyboardInterrupt"


class TTKitError(Plain, RuntimeError):
    """An error of ttkit or of the simulated ttnn; it is a RuntimeError, as ttnn's errors are.

    Example:
        >>> try:
        ...     fail("open a 3x3 mesh", "it needs 9 devices, but only 8 are there", "open 2x4")
        ... except RuntimeError as error:
        ...     print(error)
        open a 3x3 mesh: it needs 9 devices, but only 8 are there
          try: open 2x4
    """

    asked = rule = cure = ""  # `fail` sets them.


class OutOfMemoryError(TTKitError):
    """A chip's DRAM has no room for what the call needs."""


class CollectiveMismatch(TTKitError):
    """Ranks that must make the same call made different calls, or one of them made no call."""


def _plain(kind: type[Exception]) -> type[Exception]:
    """Return a subclass of `kind` and Plain with the same name; unpickling gives a `kind` again."""
    return type(kind.__name__, (Plain, kind), {"__reduce__": lambda self: (kind, self.args)})


PLAIN: dict[type[Exception], type[Exception]] = {
    kind: _plain(kind) for kind in (TypeError, ValueError, IndexError)
}
ERRORS: tuple[type[Exception], ...] = TTKitError, *PLAIN.values()


def fail(asked: object, rule: str, cure: str = "", kind: type[Exception] = TTKitError) -> NoReturn:
    """Raise an error with the message "asked: rule", and "try: cure" in a second line.

    Args:
        asked: the call, with shapes and mesh; None if the guard of an operation adds it.
        rule: what must hold, with the numbers that broke it; in ttnn's own words if it has some.
        cure: what to try; "" if there is nothing to add.
        kind: the exception class.
    """
    text = rule + (f"\n  try: {cure}" if cure else "")
    error = PLAIN.get(kind, kind)(text if asked is None else f"{asked}: {text}")
    vars(error).update(asked=asked, rule=rule, cure=cure)
    raise error from None  # The cause is hidden: if it is NumPy's, the rule has its message.


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


def nearest(name: object, known: Iterable[str], form: str = "{}") -> str:
    """Return the known name closest to `name`, put into `form`; "" if no name is close.

    Example:
        >>> nearest("mesh_idd", ["rank", "mesh_id"]), nearest("x", ["rank"])
        ('mesh_id', '')
    """
    import difflib  # This import comes late, so that `import ttkit` is fast.

    close = difflib.get_close_matches(str(name), list(known), 1)
    return form.format(*close) if close else ""


_state = {"strict": os.environ.get("TTKIT_STRICT", "") not in ("", "0")}
_warned: set[str] = set()


class DialectWarning(UserWarning):
    """The call has a form that the guide uses and ttnn 0.81.1 refuses."""


def strict(on: bool = True) -> None:
    """Choose the strict dialect, which is ttnn 0.81.1, or with `on=False` the default dialect.

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
        warn(
            f"{form} is an older form that ttnn 0.81.1 does not take; strict spelling: {spelling}",
            DialectWarning,
        )
    return True


def users_frame() -> tuple[FrameType, int]:
    """Return the first frame outside ttkit, NumPy and contextlib, and its level.

    The caller of this function has level 1, as for `stacklevel` of `warnings.warn`.
    """
    frame, level = sys._getframe(1), 1
    # NumPy's `errstate`, or its base class in contextlib, has frames between an operation and the
    # caller of the operation.
    ours = ("ttkit", "numpy", "contextlib")
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in ours:
        frame, level = frame.f_back, level + 1
    return frame, level


def warn(message: str, kind: type[Warning] = UserWarning) -> None:
    """Issue a warning that points to the user's line."""
    warnings.warn(message, kind, stacklevel=users_frame()[1])
