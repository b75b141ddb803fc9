"""Two dialects of ttnn: strict is ttnn 0.81.1, default also takes the older forms that Tenstorrent's guide prints."""

from __future__ import annotations

import os
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
    """Say whether the older `form` may be taken here: no in strict; yes in default, with one warning a form.

    Args:
        form: what was written, for example `MeshShape(y=, x=)`.
        spelling: how ttnn 0.81.1 spells it.
    """
    if _state["strict"]:
        return False
    if form not in _warned:
        _warned.add(form)
        warnings.warn(f"{form} is an older form that ttnn 0.81.1 does not take; strict spelling: {spelling}", DialectWarning, stacklevel=4)
    return True
