"""Unchanged programs: `import ttnn` and `import ttml` give the simulator's; a report of a run."""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from collections.abc import Sequence
from types import SimpleNamespace, TracebackType
from typing import Any

from ttkit import backend, dialect
from ttkit.errors import fail
from ttkit.files import write_whole
from ttkit.hardware import current_system, use_system
from ttkit.profiler import Profile
from ttkit.sim import memory, ttnn
from ttkit.sim.arguments import describe
from ttkit.sim.operation import OPERATIONS as RECORDS
from ttkit.sim.operation import watchers
from ttkit.sim.trace import tensors_in
from ttkit.sim.types import PlacementShard
from ttkit.words import short

# Modules of the real ttnn whose names are, here, those of ttnn itself; operations.NAME too.
WHOLE = ["core", "decorators", "distributed", "distributed.distributed", "operations", "types"]
OPERATIONS = "activations binary ccl core data_movement embedding losses matmul normalization"
OPERATIONS += " reduction transformer unary"


def install_as_ttnn() -> None:
    """Let `import ttnn` and `import ttml` give the simulator's, after a line on stderr.

    Submodules too, such as `ttnn.experimental`, `ttnn.distributed` and `ttml.autograd`. A second
    call does nothing.

    Raises:
        TTKitError: the real ttnn or ttml is imported already, or ttkit uses the real ttnn.
    """
    if sys.modules.get("ttnn") is ttnn:
        return
    asked, cure = "install_as_ttnn()", "call it first, or run the program by ttkit python PROGRAM"
    for name in ("ttnn", "ttml"):
        if name in sys.modules:
            fail(asked, f"the real {name} is imported already", cure)
    os.environ.setdefault("TTKIT_BACKEND", "sim")
    if not backend.is_simulated():
        fail(asked, f"ttkit uses the real ttnn here: {backend.choice().why}", "TTKIT_BACKEND=sim")
    from ttkit import ttml

    sys.modules.update({"ttnn": ttnn, "ttml": ttml})
    for name in WHOLE + [f"operations.{name}" for name in OPERATIONS.split()]:
        sys.modules[f"ttnn.{name}"] = ttnn
        vars(ttnn).setdefault(name.partition(".")[0], ttnn)
    for name, space in [*vars(ttnn).items(), *sys.modules.items()]:
        if isinstance(space, SimpleNamespace) or name.startswith("ttkit.ttml."):
            full = f"ttnn.{name}".removeprefix("ttnn.ttkit.")
            sys.modules[full] = space  # type: ignore[assignment]
    tracy = SimpleNamespace(signpost=lambda header, message=None: None)
    sys.modules.setdefault("tracy", tracy)  # type: ignore[arg-type]
    print(
        f"ttkit: ttnn and ttml are the simulator's, on a {current_system().name}", file=sys.stderr
    )


# ---------------------------------------------------------------- the command
def python(words: Sequence[str]) -> int:
    """`ttkit python`: run an unchanged program on the simulator."""
    about = "Run a Python program that imports ttnn or ttml, unchanged, on the simulator."
    parser = argparse.ArgumentParser("ttkit python", description=about)
    parser.add_argument("--system", metavar="NAME", help="the machine, such as galaxy")
    parser.add_argument("--strict", action="store_true", help="accept what ttnn 0.81.1 accepts")
    report = "at the end, print what ran; into FILE where one is given that does not end in .py"
    parser.add_argument("--report", nargs="?", const="-", metavar="FILE", help=report)
    parser.add_argument("-m", action="store_true", help="PROGRAM is a module, such as pytest")
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="PROGRAM [ARGUMENT ...]")
    asked = parser.parse_args(words)
    if str(asked.report).endswith(".py"):
        asked.program, asked.report = [asked.report, *asked.program], "-"
    if not asked.program:
        parser.error("PROGRAM is missing")
    if asked.system:
        use_system(asked.system)
    if asked.strict:
        dialect.strict()
    install_as_ttnn()
    watchers.append(_Programs())
    used = _Report()
    if asked.report:
        watchers.append(used)
    sys.argv[:] = asked.program
    sys.path[0] = "" if asked.m else os.path.dirname(os.path.abspath(sys.argv[0]))
    try:
        if asked.m:
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(sys.argv[0], run_name="__main__")
    except Exception as error:
        error.__traceback__ = _of_the_program(error.__traceback__)
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    finally:
        if asked.report == "-":
            print(used, file=sys.stderr)
        elif asked.report:
            write_whole(asked.report, f"{used}\n", f"--report {asked.report}")
    return 0


def _of_the_program(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback from the program's first frame to its last."""
    first = last = None
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__", "").partition(".")[0] not in ("runpy", "ttkit"):
            first, last = first or trace, trace
        trace = trace.tb_next
    if last is not None:
        last.tb_next = None
    return first


class _Programs:
    """Count the programs that a card would compile: one for all calls that differ in values."""

    def before(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Do nothing."""

    def after(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Record a call on a mesh."""
        given = [*args, *kwargs.values()]
        tensors = tensors_in(given)
        if tensors and tensors[0].mesh and RECORDS[name].kind not in ("write", "read"):
            plain = (value for value in given if isinstance(value, (int, float, str)))
            tensors[0].mesh.programs.add((name, *plain, *map(describe.show, tensors)))


class _Report(Profile):
    """A profile that also knows the memory that was in use, and shards that are not whole tiles."""

    peak, fullest = 0, 0  # bytes, and the chip that held them

    def __init__(self) -> None:
        super().__init__()
        self.warnings: dict[str, None] = {}

    def after(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Record a call."""
        super().after(name, args, kwargs, result)
        for chip, used in memory.bytes_in_use().items():
            if used > self.peak:
                self.peak, self.fullest = used, chip
        for tensor in tensors_in(result):
            shape, rank = tensor.shard_shape, len(tensor.shard_shape)
            for placement in tensor.topology.placements():
                at = placement.dim % rank - rank if isinstance(placement, PlacementShard) else 0
                if at and shape[at] != tensor.padded[at]:
                    text = f"{name}: shards of {list(shape)} are stored as {list(tensor.padded)}"
                    self.warnings[f"{text}: dim {at} does not divide into whole tiles"] = None

    def __str__(self) -> str:
        system, chips = current_system(), {chip for r in self.records for chip in r.chips}
        warnings = "".join(f"warning: {text}\n" for text in self.warnings)
        return f"""{system.name}, {"x".join(map(str, system.shape))} chips: {self!r}
{len(chips)} chips used: {", ".join(map(str, sorted(chips)))}
memory: at most {short(self.peak, "B")} of {system.chip.dram.value:g} GB on chip {self.fullest}
{warnings}{self.summary()!r}"""
