"""Errors in one form: what was asked, the rule with its numbers, what to try.

And the two dialects: strict is ttnn 0.81.1, which refuses what the default one warns about, the
guide's older forms.
"""

import os
import sys
import warnings
from collections.abc import Iterable
from types import FrameType
from typing import Any, NoReturn


class Plain:
    """A part of an exception: Jupyter shows its message, and the lines of the notebook or script
    that it went through, without the kit's frames.
    """

    def _render_traceback_(self: Any) -> list[str]:
        import linecache  # It is imported late, so that `import ttkit` stays light.
        import traceback

        shown = [f"{type(self).__name__}: {self}"]
        for frame, number in traceback.walk_tb(self.__traceback__):
            if frame.f_globals.get("__name__") == "__main__":
                name = frame.f_code.co_filename
                file = os.path.basename(name) if os.path.exists(name) else "your cell"
                text = linecache.getline(name, number).strip()
                # IPython turns a magic into such lines.
                if not text.startswith("get_ipython().run_"):
                    shown.append(f"  in line {number} of {file}" + (f": {text}" if text else ""))
        return shown


class Interrupted(Plain, KeyboardInterrupt):
    """The notebook's stop button. Jupyter shows one sentence and the learner's own line."""


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

    asked = rule = cure = ""  # `fail` sets them.


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
    vars(error).update(asked=asked, rule=rule, cure=cure)
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


def nearest(name: object, known: Iterable[str], form: str = "{}") -> str:
    """Return the known name closest to `name`, in a sentence; "" when none is close.

    Example:
        >>> nearest("mesh_idd", ["rank", "mesh_id"]), nearest("x", ["rank"])
        ('mesh_id', '')
    """
    import difflib  # It is imported late, so that `import ttkit` stays light.

    close = difflib.get_close_matches(str(name), list(known), 1)
    return form.format(*close) if close else ""


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
        warn(
            f"{form} is an older form that ttnn 0.81.1 does not take; strict spelling: {spelling}",
            DialectWarning,
        )
    return True


def users_frame() -> tuple[FrameType, int]:
    """Return the first frame outside ttkit, and how many there are from the caller's to it."""
    frame, level = sys._getframe(1), 1
    # NumPy's `errstate`, or its base in contextlib, stands between an operation and its caller.
    ours = ("ttkit", "numpy", "contextlib")
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in ours:
        frame, level = frame.f_back, level + 1
    return frame, level


def warn(message: str, kind: type[Warning] = UserWarning) -> None:
    """Warn about the user's line."""
    warnings.warn(message, kind, stacklevel=users_frame()[1])
