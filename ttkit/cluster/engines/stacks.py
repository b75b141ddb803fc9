"""Where ranks are: the user's line in a traceback of IPython or a stack of faulthandler."""

from __future__ import annotations

import functools
import os
import re
import signal
import subprocess
import sysconfig
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ttkit.cluster.engines.engine import far_folder, stack_file
from ttkit.cluster.launch import ssh

Cluster = Any  # of engines.cluster, which imports this module
STACK_S = 1.0  # for a rank to write where it is
FAR_S = 10.0  # for a rank on another host
# The process and its file; the folder of Open MPI there, which only the process knows, comes before
# it: see engine.far_folder.
FAR_STACK = """kill -USR1 "$0" && sleep 0.3 && cat "$(tr '\\0' '\\n' < /proc/"$0"/environ |
sed -n 's/^PMIX_SERVER_TMPDIR=//p')/$1\""""

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


def frames_of(dump: str, line_of: Callable[[str, int], str]) -> list[Frame]:
    """Return the frames of one stack of faulthandler, innermost first; [] where it is not whole.

    Example:
        >>> dump = '  File "/gr\\\\xf6\\\\xdfe/a.py", line 7 in <module>\\n'
        >>> frames_of(dump, lambda file, number: "wait()")
        [Frame(file='/größe/a.py', number=7, function='<module>', text='wait()')]
    """
    found = FRAME.findall(dump)
    if not found or not (found[-1][2] in OUTERMOST or dump.endswith(CUT)):
        return []
    frames = [(_plain(file), int(number), _plain(function)) for file, number, function in found]
    return [Frame(*frame, line_of(*frame[:2])) for frame in frames]


def _plain(text: str) -> str:
    """Return a name that faulthandler wrote, in its own letters."""
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
    """Whether code is ttkit's own, the standard library's, installed, frozen or compiled.

    A user's project may be anywhere else: in a folder named ttkit, above or below an environment.

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
    """Return the folders of ttkit itself and of the standard library."""
    named = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")]
    folders = [Path(__file__).parents[2], *map(Path, named)]
    return frozenset(each for folder in folders for each in (folder, folder.resolve()))


def at_lines(places: Mapping[str, list[int]], verb: str) -> list[str]:
    """Describe which ranks are at which line.

    Example:
        >>> at_lines({"line 2: comm.Barrier()": [0, 1], "line 1: x = 0": [2]}, "were")
        ['ranks 0 and 1 were at line 2: comm.Barrier()', 'rank 2 was at line 1: x = 0']
    """
    verbs = [verb, {"were": "was", "are": "is"}[verb]]
    found = ((name_ranks(ranks), verbs[len(ranks) == 1], text) for text, ranks in places.items())
    return [f"{ranks} {verb} at {text}" for ranks, verb, text in found]


def places(cluster: Cluster, ranks: list[int]) -> dict[str, list[int]]:
    """Return where ranks are now: {"line 2: comm.Barrier()": [0, 1]}."""
    return users_lines(stacks(cluster, ranks))


def users_lines(stacks: Mapping[int, list[Frame]]) -> dict[str, list[int]]:
    """Return the ranks at each line of the user's."""
    found: dict[str, list[int]] = {}
    for rank, frames in stacks.items():
        found.setdefault(users_line(frames) or "no line of yours", []).append(rank)
    return found


def stacks(cluster: Cluster, ranks: list[int]) -> dict[int, list[Frame]]:
    """Return each rank's stack, innermost first; [] where it does not arrive.

    Works for ranks that wait inside MPI.
    """
    if not ranks or not cluster.folder:
        return {}
    files = {rank: stack_file(cluster.folder, rank) for rank in ranks if not cluster.hosts[rank]}
    sizes = {rank: file.stat().st_size for rank, file in files.items()}
    for rank in files:
        cluster.signal(rank, signal.SIGUSR1)
    found: dict[int, list[Frame]] = {rank: [] for rank in ranks}
    until = time.monotonic() + STACK_S
    while not all(found[rank] for rank in files) and time.monotonic() < until:
        time.sleep(0.02)
        for rank, file in files.items():
            with file.open() as text:
                text.seek(sizes[rank])
                found[rank] = frames_of(text.read(), cluster.line)
    far = [rank for rank in ranks if cluster.hosts[rank]]
    for rank, dump in zip(far, ssh.for_all(lambda rank: _far_stack(cluster, rank), far)):
        found[rank] = frames_of(dump.rpartition("(most recent call first)")[2], cluster.line)
    return found


def _far_stack(cluster: Cluster, rank: int) -> str:
    """Return the stack that a rank on another host writes; "" where the host does not answer."""
    file = stack_file("", rank)
    folder = far_folder(cluster.folder or Path(), rank)
    words = ["sh", "-c", FAR_STACK, str(cluster.pid(rank)), str(folder / file)]
    try:
        return ssh.call(ssh.command(cluster.hosts[rank], words), FAR_S).stdout
    except subprocess.TimeoutExpired:
        return ""


def name_ranks(ranks: list[int]) -> str:
    """Name some ranks in a sentence.

    Example:
        >>> name_ranks([2]), name_ranks([0, 1, 3])
        ('rank 2', 'ranks 0, 1 and 3')
    """
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"
