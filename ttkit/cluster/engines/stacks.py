"""Find the user's line: in a traceback that an engine sent, or the line that a rank runs now."""

import functools
import linecache
import os
import re
import sys
import sysconfig
import threading
import traceback
from pathlib import Path
from typing import NamedTuple

# This matches a frame of a traceback as Python writes it.
FRAME = re.compile(r'File "(.*?)", line (\d+)(?:, in (.*))?\n(?: {4}(.*))?')
# Code that the user typed is in no file; the name of its "file" begins with one of these.
TYPED = ("<stdin>", "<python-input-", "<ipython-input-", "<doctest ")
INSTALLED = {"site-packages", "dist-packages"}


class Frame(NamedTuple):
    """One line of a stack; the text is "" if the process cannot read the file."""

    file: str
    number: int
    function: str
    text: str = ""

    def __str__(self) -> str:
        inside = "" if self.function in ("", "<module>") else f" of {self.function}"
        # A rank cannot read the cells of the notebook, so the notebook finds the text here.
        text = self.text or linecache.getline(self.file, self.number).strip()
        return f"line {self.number}{inside}" + (f": {text}" if text else "")


def raised_at(traceback: str) -> str:
    """Return the user's innermost line in a traceback that an engine sent; "" without one.

    Example:
        >>> raised_at('  File "/a.py", line 5, in <module>\\n    1 / x\\nZeroDivisionError: ...')
        'line 5: 1 / x'
    """
    for file, number, function, text in reversed(FRAME.findall(traceback)):
        if not is_library(file):
            return str(Frame(file, int(number), function, text.strip()))
    return ""


def running_line() -> Frame | None:
    """Return the user's line that the main thread of this process runs, or None if there is none.

    This also works while that thread waits inside MPI, since mpi4py calls MPI without Python's
    lock.
    """
    innermost = sys._current_frames()[threading.main_thread().ident or 0]
    for frame, number in traceback.walk_stack(innermost):
        file = frame.f_code.co_filename
        if not is_library(file):
            text = linecache.getline(file, number).strip()
            return Frame(file, number, frame.f_code.co_name, text)
    return None


@functools.cache
def is_library(file: str) -> bool:
    """Return whether code is ttkit's own, the standard library's, installed, frozen or compiled.

    A user's project may be in any other folder: in one named ttkit, or above or below an
    environment.

    Args:
        file: the file name in the code object; "" for a cell.

    Example:
        >>> [is_library(file) for file in (os.__file__, "<frozen runpy>", __file__)]
        [True, True, True]
        >>> [is_library(file) for file in ("/home/me/ttkit/examples/a.py", "<stdin>", "")]
        [False, False, False]
    """
    if not file or file.startswith(TYPED):
        return False
    if not os.path.isabs(file) and not os.path.exists(file):
        return True
    standard = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))
    own = {os.path.realpath(folder) for folder in (str(Path(__file__).parents[2]), *standard)}
    path = Path(os.path.realpath(file))
    return not INSTALLED.isdisjoint(path.parts) or not own.isdisjoint(map(str, path.parents))
