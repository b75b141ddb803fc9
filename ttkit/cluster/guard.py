"""The process that sees to it that no rank outlives its launch:

`python guard.py PID_OF_MPIRUN ITS_FOLDER`, with a pipe from the launcher as input.

mpirun stops its ranks when it is asked to, but not when it is killed, and not always when its
launcher is killed (in two of twelve tries they stayed). So this process notes every second who is
below mpirun. A word in the pipe says that all ended well. The pipe's end without a word says that
the launcher stops or is gone, and the same holds when mpirun goes without a word: then mpirun is
asked to stop, and what it leaves behind on this host is killed.

It imports nothing but the standard library, so that it starts fast and works whatever the ranks do
to their environment."""

import contextlib
import os
import re
import select
import shutil
import signal
import sys
import time

LOOK_S = 1.0  # how often it notes who is below mpirun
GRACE_S = 6.0  # how long mpirun may take to stop its ranks; measured: 0.3 s
LEFT_S = 0.5  # how long the ranks of an mpirun that is gone may take to end by themselves

# process id -> when it started, since a number can be given to another process
Family = dict[int, str]


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the state on; [] when there is no such process, or only its
    entry waits to be read.
    """
    try:
        with open(f"/proc/{pid}/stat", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return []
    return [] if fields[0] in "ZX" else fields


def started(pid: int) -> str:
    """When a process started; "" when it is gone."""
    fields = _stat(pid)
    return fields[19] if fields else ""


def below(pid: int) -> Family:
    """All processes below one; {} where there is no /proc."""
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return {}
    parents = {each: int(fields[1]) for each in pids if (fields := _stat(each))}
    found: Family = {}
    wave = {pid}
    while wave:
        wave = {child for child, parent in parents.items() if parent in wave and child not in found}
        found |= {child: started(child) for child in wave}
    return found


def of_job(pid: int) -> Family:
    """Processes that an mpirun of Open MPI 5 has started here, also when it is gone: their
    environment names their job by its process id.
    """
    found: Family = {}
    name = re.compile(rb"(?:^|\0)PMIX_NAMESPACE=prterun-[^\0]*-%d@" % pid)
    for each in os.listdir("/proc") if os.path.isdir("/proc") else ():
        with contextlib.suppress(OSError, ValueError):
            with open(f"/proc/{int(each)}/environ", "rb") as file:
                if name.search(file.read()):
                    found[int(each)] = started(int(each))
    return found


def alive(family: Family) -> Family:
    """Those of a family that still run."""
    return {pid: since for pid, since in family.items() if since and started(pid) == since}


def said(seconds: float) -> str | None:
    """What the launcher said within some seconds: "" when the pipe has ended, None when nothing."""
    ready, _, _ = select.select([0], [], [], seconds)
    return os.read(0, 16).decode() if ready else None


def watch(pid: int) -> None:
    """Wait for the launcher's word, and without it stop everybody."""
    mpirun = {pid: started(pid)}
    family: Family = {}
    while (word := said(LOOK_S)) is None and alive(mpirun):
        family |= below(pid)
    if word is None:
        # mpirun is gone: the launcher sees that too, and says so if all is well
        word = said(LOOK_S)
    if word:
        return
    family |= below(pid)
    stop(mpirun, signal.SIGTERM, GRACE_S)
    family |= of_job(pid)
    stop(family, None, LEFT_S)
    stop(family | mpirun, signal.SIGKILL, LEFT_S)


def stop(family: Family, number: int | None, seconds: float) -> None:
    """Send a signal to those that still run, and wait until they have ended, at most some
    seconds.
    """
    for pid in alive(family) if number is not None else ():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)  # type: ignore[arg-type]
    until = time.monotonic() + seconds
    while alive(family) and time.monotonic() < until:
        time.sleep(0.02)


if __name__ == "__main__":
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    watch(int(sys.argv[1]))
    shutil.rmtree(sys.argv[2], ignore_errors=True)  # nobody else does where mpirun was killed
