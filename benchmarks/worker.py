"""One worker: `python worker.py <peer> <row>` sets the row up and then runs one repetition each
time that it is told to.

It reads lines of JSON on standard input and answers with lines of JSON on standard output. A peer's
module in `workers/` has a dict ROWS: row name -> function of a `Bench`. `{"run": n}` times n calls
one by one and answers their median."""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

STARTED = time.perf_counter()
BLOCK = 1 << 17  # elements that are compared at a time


def status_mib(field: str, process: int | str = "self", file: str = "status") -> float | None:
    """A field of /proc/<process>/status in MiB (VmRSS: now, VmHWM: the peak);

    None where there is no /proc.
    """
    try:
        with open(f"/proc/{process}/{file}") as lines:
            return next(
                int(line.split()[1]) / 1024 for line in lines if line.startswith(field + ":")
            )
    except OSError:
        return None


def shared_mib() -> float:
    """How much of this process's memory now is other processes' share of pages that it has in
    common with them.
    """
    resident, share = (status_mib(field, file="smaps_rollup") for field in ("Rss", "Pss"))
    return resident - share if resident is not None and share is not None else 0.0


def reset_peak() -> bool:
    """Let VmHWM start again from what is resident now."""
    gc.collect()
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
        return True
    except OSError:
        return False


def peak_mib() -> float:
    """The process's peak resident memory since its start."""
    scale = 1024 * 1024 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / scale


def blas_kernels() -> str:
    """The kernels that NumPy's OpenBLAS runs on this processor, such as "SkylakeX"."""
    try:
        with open("/proc/self/maps") as file:
            path = next(line.split()[-1] for line in file if "openblas" in line.lower())
    except (OSError, StopIteration):
        return "unknown"
    library = ctypes.CDLL(path)
    for name in (
        "scipy_openblas_get_corename64_",
        "openblas_get_corename64_",
        "openblas_get_corename",
    ):
        if hasattr(library, name):
            function = getattr(library, name)
            function.restype = ctypes.c_char_p
            return function().decode()
    return "unknown"


class Bench:
    """What a row's function gets: it marks where its own memory begins, and serves a step."""

    def __init__(self) -> None:
        self.channel = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)  # what libraries print must not get between the answers
        self.base: float | None = None
        self.peak = 0.0
        self.fair = False  # VmHWM can be set back

    def answer(self, **values: Any) -> None:
        print(json.dumps(values), file=self.channel, flush=True)

    def mark(self) -> None:
        """Memory from here on is the row's; what is resident now (interpreter, libraries,
        sources) is not.
        """
        reset_peak()
        self.base = status_mib("VmRSS")

    def serve(
        self, step: Callable[[], Any], read: Callable[[Any], Any] | None = None, **more: Any
    ) -> None:
        """Answer requests until told to stop, then end the process.

        Args:
            step: one repetition; returns when the result is there.
            read: turns a step's result into one NumPy array, for comparison between the workers.
        """
        began = time.perf_counter()
        result = step()
        first = time.perf_counter() - began
        sample = None if read is None else describe(read(result))
        self.peak = peak_mib()
        del result
        self.fair = reset_peak()
        self.answer(ready=True, first=first, sample=sample, versions=versions(), **more)
        for line in sys.stdin:
            request = json.loads(line)
            if "run" not in request:
                break
            self.answer(seconds=statistics.median(self.times(step, request["run"])))
        self.answer(**self.memory())
        self.channel.close()
        os._exit(0)  # no time for tearing down thread pools

    def times(self, step: Callable[[], Any], calls: int) -> list[float]:
        """Each call's time."""
        times = []
        for _ in range(calls):
            began = time.perf_counter()
            result = step()
            times.append(time.perf_counter() - began)
            del result
        return times

    def memory(self) -> dict[str, float | None]:
        """The process's peak, and what the row added since `mark`."""
        top = status_mib("VmHWM")
        added = top - self.base if self.fair and top is not None and self.base is not None else None
        return {"peak_mib": max(self.peak, peak_mib(), top or 0), "added_mib": added}

    def report(self, **values: Any) -> None:
        """The only answer of a row whose repetitions are processes of their own."""
        self.answer(peak_mib=peak_mib(), versions=versions(), **values)
        self.channel.close()
        os._exit(0)


def describe(array: Any) -> dict[str, Any]:
    """Shape, some values and the mean square of a result: enough to see whether two workers did
    the same.
    """
    import numpy as np

    flat = np.asarray(array, dtype=np.float32).reshape(-1)
    picked = flat[:: max(1, flat.size // 16)][:16]
    # One array of squares would be twice as large as the result. What malloc keeps of it would
    # count as the row's memory, so the squares are added in blocks.
    total = 0.0
    for start in range(0, flat.size, BLOCK):
        total += float(np.square(flat[start : start + BLOCK], dtype=np.float64).sum())
    return {
        "shape": list(np.shape(array)),
        "values": picked.tolist(),
        "mean_square": total / max(1, flat.size),
    }


def versions() -> dict[str, str]:
    """The versions of the libraries that are loaded, and NumPy's BLAS kernels."""
    found = {
        name: str(sys.modules[name].__version__)
        for name in ("numpy", "jax", "torch", "mpi4py", "ttkit")
        if name in sys.modules
    }
    return found | ({"BLAS kernels": blas_kernels()} if "numpy" in found else {})


def main() -> None:
    peer, row = sys.argv[1:]
    bench = Bench()
    importlib.import_module(f"workers.on_{peer}").ROWS[row](bench)


if __name__ == "__main__":
    main()
