"""Two dialects of ttnn: strict is ttnn 0.81.1, default also takes the older forms that
Tenstorrent's guide prints.
"""

from __future__ import annotations

import os
import sys
import warnings

_state = {"strict": os.environ.get("TTKIT_STRICT", "") not in ("", "0")}
_warned: set[str] = set()


class DialectWarning(UserWarning):
    """A form that the guide prints but that ttnn 0.81.1 would refuse."""


def strict(on: bool = True) -> None:
    """Choose the strict dialect (exactly ttnn 0.81.1), or with `on=False` the default one.

    `TTKIT_STRICT=1` in the environment does the same at start.

    Example:
        >>> strict(); is_strict()
        True
        >>> strict(False); is_strict()
        False
    """
    _state["strict"] = bool(on)


def is_strict() -> bool:
    """True in the strict dialect."""
    return _state["strict"]


def older_form(form: str, spelling: str) -> bool:
    """Say whether the older `form` may be taken here: no in strict; yes in default, with one
    warning a form.

    Args:
        form: what was written, for example `MeshShape(y=, x=)`.
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
    """How far up the stack the first line outside of ttkit is: the line that the warning is
    about.
    """
    here, level = os.path.dirname(__file__), 1
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(here):
        frame, level = frame.f_back, level + 1
    return level
