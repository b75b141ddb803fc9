"""Run the numeric tests and the notebooks as other CPUs would; print one line for each.

python scripts/try_cpus.py                     tests and notebooks, each kernel, 1 and 2 threads
python scripts/try_cpus.py --notebooks         the notebooks alone; --tests: the tests alone
python scripts/try_cpus.py --kernels Haswell --threads 1
python scripts/try_cpus.py -- -k matmul -x     what follows -- goes to pytest

OpenBLAS and NumPy choose code by the CPU. Each choice adds numbers in an order of its own, so last
bits differ. The variable OPENBLAS_CORETYPE chooses the kernel of OpenBLAS; with
NPY_DISABLE_CPU_FEATURES, NumPy leaves out its own code for newer CPUs. A kernel that is asked for
and does not run is skipped, with the reason. Exit status 1 when a combination fails.
"""

import argparse
import json
import os
import pathlib
import platform
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
# What computes with float32. Left out: tests of files, processes, pictures and the command line.
TESTS = (
    "tests/sim",
    "tests/guide",
    "tests/train",
    "tests/test_conformance.py",
    "tests/course/test_notebooks_numbers.py",
    "tests/lessons",
    "--ignore=tests/train/test_interrupted.py",
)
NOTEBOOKS = ("--nbval", "--nbval-current-env", "--nbval-cell-timeout=300", "notebooks")
PARTS = {"tests": TESTS, "notebooks": NOTEBOOKS}


class Kernel(NamedTuple):
    """A kernel of OpenBLAS, and the CPUs that choose it."""

    name: str  # for OPENBLAS_CORETYPE
    shown_as: tuple[str, ...]  # by threadpoolctl, when it runs
    lacks: tuple[str, ...] | None  # how features that such a CPU lacks begin in NumPy; None: all


# By platform.machine(), oldest first. OpenBLAS has several names for its oldest kernel on x86-64,
# and threadpoolctl shows the first of them.
X86 = (
    Kernel("Prescott", ("Prescott", "Katmai"), None),
    Kernel("Haswell", ("Haswell",), ("AVX512", "X86_V4")),
    Kernel("SkylakeX", ("SkylakeX",), ()),
)
ARM = (Kernel("ARMV8", ("armv8",), None), Kernel("NEOVERSEN1", ("neoversen1",), ("SVE",)))
KERNELS = {"x86_64": X86, "AMD64": X86, "aarch64": ARM, "arm64": ARM}

# It multiplies, so that it ends here when this CPU cannot run the kernel.
PROBE = """
import json, numpy, threadpoolctl
numpy.ones((300, 300), numpy.float32) @ numpy.ones((300, 300), numpy.float32)
pools = [pool for pool in threadpoolctl.threadpool_info() if "numpy" in pool["filepath"]]
kernels = [pool["architecture"] for pool in pools if pool["internal_api"] == "openblas"]
features = numpy.show_config(mode="dicts")["SIMD Extensions"]
print(json.dumps([kernels[0] if kernels else "", features.get("found", [])]))
"""


def probe(env: dict[str, str]) -> tuple[str, list[str]]:
    """The kernel of NumPy's OpenBLAS in this environment ("" without one), the CPU's features.

    Raises:
        RuntimeError: NumPy does not start or cannot multiply, with the reason.
    """
    command = [sys.executable, "-c", PROBE]
    done = subprocess.run(command, env=os.environ | env, capture_output=True, text=True)
    if done.returncode < 0:
        name = signal.Signals(-done.returncode).name
        raise RuntimeError(f"this CPU cannot run it ({name})")
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    kernel, features = json.loads(done.stdout)
    return kernel, features


def counts(threads: int) -> dict[str, str]:
    """The variables that set the number of BLAS threads."""
    return dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), str(threads))


def environment(kernel: Kernel, features: Sequence[str]) -> dict[str, str]:
    """The variables for a CPU that chooses this kernel, where NumPy finds these features."""
    lacks = [each for each in features if kernel.lacks is None or each.startswith(kernel.lacks)]
    return {"OPENBLAS_CORETYPE": kernel.name, "NPY_DISABLE_CPU_FEATURES": " ".join(lacks)}


def refusal(kernel: Kernel, env: dict[str, str]) -> str:
    """Why this kernel cannot be tried here, or ""."""
    try:
        runs, _ = probe(env)
    except RuntimeError as error:
        return str(error)
    names = [name.casefold() for name in kernel.shown_as]
    return "" if runs.casefold() in names else f"OpenBLAS runs {runs} instead"


def environments(names: Sequence[str] = ()) -> tuple[dict[str, dict[str, str]], list[str]]:
    """The variables for each kernel that runs here, by its name; a line for each one that does not.

    Args:
        names: these kernels only.

    Raises:
        ValueError: a name is no kernel of this machine.
    """
    own, features = probe({})
    machine = platform.machine()
    if not own or machine not in KERNELS:
        why = f"no kernels are listed for {machine}" if own else "NumPy's BLAS is not OpenBLAS"
        return {own or "own": {}}, [f"{why}: only the kernel that this CPU chooses is tried"]
    known = {each.name: each for each in KERNELS[machine]}
    if wrong := sorted(set(names) - known.keys()):
        rule = f"OpenBLAS on {machine} has {', '.join(known)} here"
        raise ValueError(f"{', '.join(wrong)}: no such kernel; {rule}")
    found, skipped = {}, []
    for name in names or known:
        env = environment(known[name], features)
        if reason := refusal(known[name], env):
            skipped.append(f"{name}: skipped, {reason}")
        else:
            found[name] = env
    return found, skipped


def run(arguments: Sequence[str], env: dict[str, str]) -> tuple[str, bool]:
    """Run pytest: the numbers that passed, failed, skipped, the seconds; and whether all is well.

    Prints what pytest says when something fails.
    """
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-rN", "-p", "no:cacheprovider"]
        done = subprocess.run(
            [*command, f"--junit-xml={report}", *arguments],
            cwd=ROOT,
            env=os.environ | env | {"TTKIT_PROGRESS": "0"},  # progress differs in every run
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        suite = ET.parse(report).getroot().find("testsuite") if report.exists() else None
    if done.returncode:
        print(done.stdout, flush=True)
    if suite is None:
        return f"pytest ended with status {done.returncode}", False
    names = ("tests", "skipped", "failures", "errors")
    total, skipped, *bad = (int(suite.attrib[name]) for name in names)
    found = f"{total - skipped - sum(bad)} passed, {sum(bad)} failed, {skipped} skipped"
    return f"{found}, {time.monotonic() - start:.0f} s", done.returncode == 0


def main() -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--tests", action="store_true", help="the numeric tests alone")
    parser.add_argument("--notebooks", action="store_true", help="the notebooks alone")
    parser.add_argument("--kernels", nargs="+", default=[], metavar="NAME", help="only these")
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2], metavar="N")
    parser.add_argument("pytest", nargs="*", help="options for pytest, after --")
    args = parser.parse_args()

    chosen = [name for name in PARTS if getattr(args, name)] or list(PARTS)
    try:
        kernels, skipped = environments(args.kernels)
    except (RuntimeError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    for line in skipped:
        print(line, flush=True)
    good = bool(kernels)
    for name, env in kernels.items():
        for threads in args.threads:
            for part in chosen:
                line, passed = run(
                    [*PARTS[part], "-n", "auto", *args.pytest], env | counts(threads)
                )
                good &= passed
                label = f"{name}, {threads} thread{'s' if threads > 1 else ''}, {part}"
                print(f"{label:32} {line}{'' if passed else '  FAILED'}", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
