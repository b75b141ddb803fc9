"""Files: what is wrong in one, and files written whole or not at all."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ttkit.errors import fail


@dataclass(frozen=True)
class Finding:
    """One error or warning about a file.

    Args:
        severity: "error" where the real tools refuse the file, "warning" where they let it pass.
        path: the file.
        line: counted from 1; 0 where the whole file is meant.
        message: the rule that is broken, in the real tools' words where they have some.
        cure: what to do.
        column: counted from 1; 0 where it is not known.

    Example:
        >>> unknown = "unknown field 'chanels'"
        >>> print(Finding("warning", "mgd.textproto", 3, unknown, "write channels"))
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


def write_whole(path: str | os.PathLike[str], text: str | bytes, asked: object) -> Path:
    """Write a file and return its path; readers see the old file or the new one, never half.

    Args:
        asked: the call, for the message.

    Raises:
        TTKitError: the file cannot be written; what was there before is unchanged.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_whole(Path(folder, "a.txt"), "all of it", "an example").read_text()
        'all of it'
    """
    target = Path(path)
    try:
        # A rename is one step only within a file system, so the new file is in the same folder.
        beside = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            beside.write_bytes(text.encode("utf-8") if isinstance(text, str) else text)
            os.replace(beside, target)
        finally:
            beside.unlink(missing_ok=True)
    except (OSError, ValueError) as error:  # ValueError: the path ends in no name
        fail(
            asked,
            f"the file cannot be written: {getattr(error, 'strerror', None) or error}",
            "a file name in a folder that is there",
        )
    return target
