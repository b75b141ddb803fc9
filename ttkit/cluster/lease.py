"""No process of a cluster outlives the one that started it, however that one ends."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # of Linux's <sys/prctl.h>
LOOK_EVERY_S = 0.5


def die_with_parent() -> Callable[[], None] | None:
    """What to run in a child before its program starts, so that Linux kills it when the thread
    that started it ends.
    """
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None).prctl  # looked up here: nothing may be loaded between fork and exec
    return lambda: prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    """Whatever is started below this process and loses its own parent becomes its child, not
    init's (Linux only).
    """
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def hold() -> None:
    """End this process when its parent ends: at once on Linux, within a second elsewhere.

    Of an engine on another host the parent is Open MPI's daemon there. That one ends, and its ranks
    with it, when the connection to its mpirun does: at once when mpirun ends, by whatever signal,
    and 30 s after the network between them is gone (ACROSS_HOSTS in `command`).

    The thread asks for the parent's number, which changes when the parent ends, not whether that
    process is there: a killed parent whose own parent does not wait for it is there for ever."""
    parent = os.getppid()
    protect = die_with_parent()
    if protect:
        protect()
    if os.getppid() != parent:  # it ended before the line above
        os._exit(1)
    threading.Thread(target=_watch, args=(parent,), name="lease", daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_EVERY_S)
    os.kill(os.getpid(), signal.SIGKILL)
