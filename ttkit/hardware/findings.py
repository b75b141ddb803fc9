"""What a check of files found: where, how bad, and the cure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong or doubtful in a file.

    Args:
        severity: "error" where the real tools refuse the file, "warning" where they let it pass.
        path: the file.
        line: counted from 1; 0 where the whole file is meant.
        message: the rule that is broken, in the real tools' words where they have some.
        cure: what to do.
        column: counted from 1; 0 where it is not known.

    Example:
        >>> print(Finding("warning", "mgd.textproto", 3, "unknown field 'chanels'", "write channels"))
        mgd.textproto:3: warning: unknown field 'chanels'
          try: write channels
    """

    severity: str
    path: str
    line: int
    message: str
    cure: str = ""
    column: int = 0

    @property
    def place(self) -> str:
        """File, line and column, as editors make links of."""
        return ":".join([self.path, *(str(n) for n in (self.line, self.column) if n)])

    def __str__(self) -> str:
        return f"{self.place}: {self.severity}: {self.message}" + (
            f"\n  try: {self.cure}" if self.cure else ""
        )


def nearest(name: object, known: Iterable[str]) -> str:
    """The known name that an unknown one is most like, or "" when none is near.

    Example:
        >>> nearest("mesh_idd", ["rank", "mesh_id"]), nearest("x", ["rank"])
        ('mesh_id', '')
    """
    return next(iter(difflib.get_close_matches(str(name)[:60], list(known), 1)), "")
