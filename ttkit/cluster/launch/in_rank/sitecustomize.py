"""In every rank of `ttkit run`: end all ranks when one raises, turn SIGUSR1 into an interrupt.

This folder is first on their PYTHONPATH. mpirun passes on SIGUSR1 but not SIGINT.
Python's exit would wait in MPI_Finalize for ranks that wait for this one. `python -m mpi4py` solves
that too, but here the program is started unchanged. This file imports nothing of ttkit, because
the program may not import it either.
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

    mpirun then stops the other ranks and reports which one failed. MPI_Abort would print ten lines
    of its own amid the traceback.
    """
    sys.__excepthook__(kind, error, trace)
    if issubclass(kind, KeyboardInterrupt):
        if interrupted:
            # After a failure mpirun would stop ranks that are still saving, so the exit code is 0.
            raise SystemExit(0)
        return
    MPI = getattr(sys.modules.get("mpi4py"), "MPI", None)
    if MPI is None or not MPI.Is_initialized() or MPI.Is_finalized():
        return
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # It is closed or None.
            stream.flush()
    os._exit(1)


if __name__ == "sitecustomize":  # As a module of ttkit it changes nothing.
    sys.excepthook = end_all_ranks
    signal.signal(signal.SIGUSR1, interrupt)
