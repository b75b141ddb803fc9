"""Files written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from ttkit.errors import fail


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
        # in the same folder: a rename is one step only within a file system
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
