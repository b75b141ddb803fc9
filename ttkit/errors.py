"""Errors in one form: what was asked, the rule with its numbers, what to try."""

from __future__ import annotations

from typing import NoReturn


class TTKitError(RuntimeError):
    """An error of the kit or of the simulated ttnn; a RuntimeError, because that is what ttnn raises.

    Example:
        >>> try:
        ...     fail("open a 3x3 mesh", "it needs 9 devices, but only 8 are there", "open 2x4")
        ... except RuntimeError as error:
        ...     print(error)
        open a 3x3 mesh: it needs 9 devices, but only 8 are there
          try: open 2x4
    """


class OutOfMemoryError(TTKitError):
    """A chip's DRAM cannot hold what was asked."""


def fail(asked: object, rule: str, cure: str = "", kind: type[Exception] = TTKitError) -> NoReturn:
    """Raise `kind` with a message of the one form that the kit uses.

    Args:
        asked: the call, with shapes and mesh; anything that prints as one.
        rule: what must hold, with the numbers that broke it; holds ttnn's own phrase where ttnn has one.
        cure: what to try; left out where there is nothing to add.
        kind: the exception class.
    """
    error = kind(f"{asked}: {rule}" + (f"\n  try: {cure}" if cure else ""))
    error.ours = True  # type: ignore[attr-defined]
    raise error from None  # what NumPy said is in the rule
