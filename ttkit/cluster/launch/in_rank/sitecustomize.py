"""In every rank of `ttkit run`: end all ranks if one fails, and turn SIGUSR1 into an interrupt.

Python imports this file when it starts, because this folder is first on the ranks' PYTHONPATH.
mpirun passes SIGUSR1 on to the ranks, but not SIGINT. If one rank raises an exception or calls
`sys.exit(1)`, Python would wait in MPI_Finalize for ranks that wait for this rank. `python -m
mpi4py` solves that, too, but here the command of the program stays unchanged. This file imports
nothing of ttkit, because the program may be one that does not use ttkit.
"""

import atexit
import contextlib
import os
import signal
import sys

interrupted = False


def interrupt(number, frame):
    """Raise a KeyboardInterrupt, as Ctrl-C does."""
    global interrupted
    interrupted = True
    signal.raise_signal(signal.SIGINT)


def end_all_ranks(kind, error, trace):
    """Print Python's own message, then end the process as `end` does.

    A KeyboardInterrupt only prints the message; if SIGUSR1 caused it, the exit code is 0.
    """
    sys.__excepthook__(kind, error, trace)
    if issubclass(kind, KeyboardInterrupt):
        if interrupted:
            # With an exit code other than 0, mpirun would stop ranks that are still saving.
            raise SystemExit(0)
        return
    end(1)


def exit(status=None):
    """Exit as `sys.exit` does; after a failure, end the process as `end` does.

    This is so even if the program catches the SystemExit and goes on: at its end, the process still
    ends with the status of the failure.
    """
    if status:
        atexit.register(end, status if isinstance(status, int) else 1)
    raise SystemExit(status)


def end(status):
    """If MPI is in use, end the process without MPI_Finalize.

    mpirun then stops the other ranks and reports which one failed. MPI_Abort would print ten lines
    of its own inside the traceback.
    """
    MPI = getattr(sys.modules.get("mpi4py"), "MPI", None)
    if MPI is None or not MPI.Is_initialized() or MPI.Is_finalized():
        return
    for stream in (sys.stdout, sys.stderr):
        # The stream may be closed or None.
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.flush()
    os._exit(status)


if __name__ == "sitecustomize":  # If it is imported as a module of ttkit, it changes nothing.
    sys.excepthook = end_all_ranks
    sys.exit = exit
    signal.signal(signal.SIGUSR1, interrupt)
