"""In every rank of `ttkit run`: end all ranks if one fails, and turn SIGUSR1 into an interrupt.

Python imports this file when it starts, because this folder is first on the ranks' PYTHONPATH.
mpirun passes SIGUSR1 on to the ranks, but not SIGINT. If one rank raises an exception or calls
sys.exit(1), the exit of Python would wait in MPI_Finalize for ranks that wait for this rank.
`python -m mpi4py` solves that, too, but here the command of the program stays unchanged. This file
imports nothing of ttkit, because the program may not import it either.
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
    """Print Python's own message; if MPI is in use, end the process without MPI_Finalize."""
    sys.__excepthook__(kind, error, trace)
    if not issubclass(kind, KeyboardInterrupt):
        end(1)
    elif interrupted:
        # With an exit code other than 0, mpirun would stop ranks that are still saving.
        raise SystemExit(0)


class Exit(SystemExit):
    """The exception of sys.exit, for which Python does not call excepthook.

    If the program has not caught it, it is deleted when no code of the program runs any more. A
    program that raises SystemExit itself is not noticed.
    """

    def __del__(self):
        if self.code and sys._getframe().f_back is None:
            # Python prints the code first if it is a message. As after an exception, the program's
            # own atexit functions do not run.
            atexit.register(end, self.code if isinstance(self.code, int) else 1)


def leave(status=None, /):
    """Raise SystemExit, as sys.exit does."""
    raise Exit(status)


def end(code):
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
    os._exit(code)


if __name__ == "sitecustomize":  # If it is imported as a module of ttkit, it changes nothing.
    sys.excepthook, sys.exit = end_all_ranks, leave
    signal.signal(signal.SIGUSR1, interrupt)
