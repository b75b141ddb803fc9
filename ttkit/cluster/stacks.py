"""Find the user's line in a traceback that IPython formatted or a stack that faulthandler wrote."""

from __future__ import annotations

import functools
import os
import re
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

ANSI = re.compile(r"\x1b\[[0-9;]*m")
HEAD = re.compile(  # of a frame, as IPython writes it
    r"(?:Cell In\[\d+\], line (?P<line>\d+)|File (?P<file>.+?):(?P<number>\d+))"
    r"(?:, in (?P<function>[\w.<>]+).*)?$"
)
POINTER = re.compile(r"-+> \d+ (?!'Could not get source)(.*)")  # before the line of a frame
FRAME = re.compile(r'File "(.*?)", line (\d+) in (.*)')  # of faulthandler
# faulthandler writes other letters than ASCII as their numbers.
ESCAPE = re.compile(r"\\x([0-9a-f]{2})|\\u([0-9a-f]{4})|\\U([0-9a-f]{8})")
OUTERMOST = ("<module>", "_run_module_as_main")  # of `python -c` and `python -m`
CUT = "\n  ...\n"  # faulthandler writes 100 frames at most
TYPED = ("<stdin>", "<python-input-", "<doctest ")  # lines of the user that are in no file
INSTALLED = {"site-packages", "dist-packages"}


class Frame(NamedTuple):
    """One line of a stack."""

    file: str
    number: int
    function: str
    text: str


def raised_at(traceback: str, line_of: Callable[[str, int], str] = lambda file, number: "") -> str:
    """Return the user's innermost line in a traceback that an engine sent.

    Args:
        line_of: the text of a line of a file that the engine could not read: the notebook's cells.

    Example:
        >>> raised_at("Cell In[2], line 5\\n----> 5 1 / x\\n\\nZeroDivisionError: division by zero")
        'line 5: 1 / x'
    """
    frames: list[Frame] = []
    for line in ANSI.sub("", traceback).splitlines():
        if match := HEAD.match(line):
            # IPython writes ~ for the home folder; the engine's is ours.
            file = re.sub(r"^~(?=/)", lambda _: os.path.expanduser("~"), match["file"] or "")
            number = int(match["line"] or match["number"])
            frames.append(Frame(file, number, match["function"] or "", line_of(file, number)))
        elif frames and not frames[-1].text and (match := POINTER.match(line)):
            frames[-1] = frames[-1]._replace(text=match[1].strip())
    return users_line(frames[::-1])


def frames_of(said: str, line_of: Callable[[str, int], str]) -> list[Frame]:
    """Return the frames of one stack of faulthandler, innermost first; [] where it is not whole.

    Example:
        >>> said = '  File "/gr\\\\xf6\\\\xdfe/a.py", line 7 in <module>\\n'
        >>> frames_of(said, lambda file, number: "wait()")
        [Frame(file='/größe/a.py', number=7, function='<module>', text='wait()')]
    """
    found = FRAME.findall(said)
    if not found or not (found[-1][2] in OUTERMOST or said.endswith(CUT)):
        return []
    frames = [(_plain(file), int(number), _plain(function)) for file, number, function in found]
    return [Frame(*frame, line_of(*frame[:2])) for frame in frames]


def _plain(text: str) -> str:
    """A name that faulthandler wrote, in its own letters."""
    if os.path.exists(text):  # a folder may be named so
        return text
    return ESCAPE.sub(lambda match: chr(int(match[1] or match[2] or match[3], 16)), text)


def users_line(frames: Sequence[Frame]) -> str:
    """Describe the first frame, innermost first, that is not a library's; "" where all are."""
    for frame in frames:
        if not is_library(frame.file):
            inside = "" if frame.function in ("", "<module>") else f" of {frame.function}"
            return f"line {frame.number}{inside}" + (f": {frame.text}" if frame.text else "")
    return ""


def is_library(file: str) -> bool:
    """Whether code is not the user's: of ttkit itself, of the standard library, installed, frozen
    or compiled.

    A user's project may lie anywhere else: in a folder named ttkit, above or below an environment.

    Args:
        file: as the code names it; "" for a cell.

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
    for path in (Path(os.path.abspath(file)), Path(os.path.realpath(file))):
        if not INSTALLED.isdisjoint(path.parts) or not _folders().isdisjoint(path.parents):
            return True
    return False


@functools.cache
def _folders() -> frozenset[Path]:
    """The folders of ttkit itself and of the standard library."""
    named = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")]
    folders = [Path(__file__).parents[1], *map(Path, named)]
    return frozenset(each for folder in folders for each in (folder, folder.resolve()))
