"""In every rank of `ttkit run`: end all ranks when one raises, make an interrupt of SIGUSR1.

This folder is first on their PYTHONPATH. mpirun passes on SIGUSR1 but not SIGINT.
Python's exit would wait in MPI_Finalize for ranks that wait for this one. `python -m mpi4py` solves
that too, but here the program is started unchanged. Imports nothing of ttkit: the program may not.
"""

import contextlib
import os
import signal
import sys

interrupted = False


def interrupt(number, frame):
    """Interrupt as Ctrl-C does."""
    global interrupted
    interrupted = True
    signal.raise_signal(signal.SIGINT)


def end_all_ranks(kind, error, trace):
    """Print Python's own message; where MPI is in use, end without MPI_Finalize.

    mpirun then stops the other ranks and reports which one it was. Not MPI_Abort, which prints ten
    lines of its own amid the traceback.
    """
    sys.__excepthook__(kind, error, trace)
    if issubclass(kind, KeyboardInterrupt):
        if interrupted:
            # A failure would make mpirun stop the ranks that are still saving, so this is none.
            raise SystemExit(0)
        return
    MPI = getattr(sys.modules.get("mpi4py"), "MPI", None)
    if MPI is None or not MPI.Is_initialized() or MPI.Is_finalized():
        return
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # It is closed or None.
            stream.flush()
    os._exit(1)


if __name__ == "sitecustomize":  # It may be imported as a part of ttkit.
    sys.excepthook = end_all_ranks
    signal.signal(signal.SIGUSR1, interrupt)
