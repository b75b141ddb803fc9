"""An exception that ends one rank ends all, at once:

Python's exit would wait in MPI_Finalize for ranks that wait for this one. And SIGUSR1 interrupts,
as Ctrl-C does: of the two, mpirun passes on only that one.

The first is what `python -m mpi4py` is for, but for a program that is started as it is. Imports
nothing of ttkit: the program may never do so."""

import importlib.machinery
import importlib.util
import os
import signal
import sys

interrupted = False


def interrupt(number, frame):
    """Do what Ctrl-C does."""
    global interrupted
    interrupted = True
    signal.raise_signal(signal.SIGINT)


def end_the_world(kind, error, trace):
    """Python's own message, then an end without MPI_Finalize where MPI is in use: mpirun stops
    the other ranks and says which one it was.

    Not MPI_Abort, which does the same with ten lines of its own amid the traceback.
    """
    sys.__excepthook__(kind, error, trace)
    if issubclass(kind, KeyboardInterrupt):
        if interrupted:
            # not a failure: at the first one mpirun would stop the ranks that are still saving
            raise SystemExit(0)
        return
    MPI = getattr(sys.modules.get("mpi4py"), "MPI", None)
    if MPI is None or not MPI.Is_initialized() or MPI.Is_finalized():
        return
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):  # closed, or there is none
            pass
    os._exit(1)


def run_the_one_behind():
    """Run the sitecustomize that Python would have found without this one."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize")
    if spec is not None and spec.loader is not None:
        module = sys.modules["sitecustomize"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


if __name__ == "sitecustomize":  # not where somebody looks at it as a part of ttkit
    sys.excepthook = end_the_world
    signal.signal(signal.SIGUSR1, interrupt)
    run_the_one_behind()
