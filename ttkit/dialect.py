"""Two dialects of ttnn: strict is ttnn 0.81.1; default also takes the guide's older forms."""

from __future__ import annotations

import os
import sys
import warnings

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
