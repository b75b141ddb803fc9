"""Run unchanged programs, whose `import ttnn` and `import ttml` get the simulator's modules, and
report what they did."""

import os
import runpy
import sys
import traceback
from argparse import REMAINDER, ArgumentParser
from collections.abc import Sequence
from contextlib import nullcontext
from types import SimpleNamespace

from ttkit import backend, errors
from ttkit.errors import fail
from ttkit.hardware import use_system
from ttkit.profiling import Profile, traffic
from ttkit.profiling.traffic import KIT_CODE, note_line
from ttkit.sim import ttnn
from ttkit.sim.ops import golden
from ttkit.sim.ranks import machine
from ttkit.sim.tape import Tape, tape
from ttkit.words import add_options, counted, short

# In the real ttnn these are modules. Here all names of these modules are in ttnn itself.
TTNN_MODULES = """core decorators distributed distributed.distributed types operations
operations.binary operations.ccl operations.core operations.data_movement
operations.embedding operations.losses operations.matmul operations.normalization
operations.reduction operations.transformer operations.unary"""


def install_as_ttnn() -> None:
    """Make `import ttnn` and `import ttml` import the simulator's modules.

    One line on stderr reports this. Submodules such as `ttnn.experimental`,
    `ttnn.distributed` and `ttml.autograd` are the simulator's, too. A second call does
    nothing.

    Raises:
        TTKitError: the real ttnn or ttml is imported already, or ttkit uses the real ttnn.
    """
    if sys.modules.get("ttnn") is ttnn:
        return
    asked = "install_as_ttnn()"
    cure = "call it first, or run the program by ttkit python PROGRAM"
    for name in ("ttnn", "ttml"):
        if name in sys.modules:
            fail(asked, f"the real {name} is imported already", cure)
    os.environ.setdefault("TTKIT_BACKEND", "sim")
    if not backend.is_simulated():
        fail(
            asked,
            f"ttkit uses the real ttnn here: {backend.chosen_backend().why}",
            "TTKIT_BACKEND=sim",
        )
    from ttkit import ttml

    sys.modules.update({"ttnn": ttnn, "ttml": ttml, "ttnn.operations.activations": golden})
    for name in TTNN_MODULES.split():
        sys.modules[f"ttnn.{name}"] = ttnn
        vars(ttnn).setdefault(name.rpartition(".")[2], ttnn)
    for name, space in [*vars(ttnn).items(), *sys.modules.items()]:
        if isinstance(space, SimpleNamespace) or name.startswith("ttkit.ttml."):
            full = f"ttnn.{name}".removeprefix("ttnn.ttkit.")
            sys.modules[full] = space  # type: ignore[assignment]
    tracy = SimpleNamespace(signpost=lambda header, message=None: None)
    sys.modules.setdefault("tracy", tracy)  # type: ignore[arg-type]
    # The fixtures of tt-metal's tests/ttnn close the database of its reports; there is none.
    database = SimpleNamespace(SQLITE_CONNECTION=None)
    vars(ttnn)["database"] = sys.modules["ttnn.database"] = database  # type: ignore[assignment]
    print(f"ttkit: ttnn and ttml are the simulator's, on a {machine().name}", file=sys.stderr)


# ---------------------------------------------------------------- the command
OPTIONS = (
    ("--system", "NAME", "the machine, such as galaxy"),
    ("--strict", "", "accept only what ttnn 0.81.1 accepts"),
    ("-m", "", "PROGRAM is a module, such as pytest"),
)


def python(parser: ArgumentParser, words: Sequence[str]) -> int:
    """Run a Python program that imports ttnn or ttml, unchanged, on the simulator."""
    add_options(parser, OPTIONS)
    parser.add_argument("--report", nargs=REMAINDER,
                        help="print what ran; FILE.json after it is for ttkit report")  # fmt: skip
    parser.add_argument("program", nargs=REMAINDER, metavar="PROGRAM [ARGUMENT ...]")
    asked = parser.parse_args(words)
    # argparse would take the program's name for the file, and then the program's options for its
    # own. So --report takes all words after it, and those that follow the file are parsed again.
    if (rest := asked.report) is not None:
        path = rest.pop(0) if rest and rest[0].endswith(".json") else ""
        asked = parser.parse_args([*rest, *asked.program], asked)
        asked.report = path
    if not asked.program:
        parser.error("PROGRAM is missing")
    if asked.system:
        use_system(asked.system)
    if asked.strict:
        errors.strict()
    install_as_ttnn()
    for module in list(sys.modules.values()):
        if str(getattr(module, "__file__", "")).startswith(KIT_CODE):
            vars(module)["__tracebackhide__"] = True  # pytest then leaves out the module's frames.
    sys.argv[:] = asked.program
    sys.path[0] = "" if asked.m else os.path.dirname(os.path.abspath(sys.argv[0]))
    run = runpy.run_module if asked.m else runpy.run_path
    try:
        with tape(before=note_line) if asked.report is not None else nullcontext() as calls:
            run(sys.argv[0], run_name="__main__")
    except Exception as error:
        shown = traceback.TracebackException.from_exception(error)
        shown.stack[:] = [frame for frame in shown.stack if not frame.filename.startswith(KIT_CODE)]
        print(*shown.format(), sep="", end="", file=sys.stderr)
        return 1
    finally:
        if calls and (profile := Profile(calls)).records:
            print(report_of(calls, profile, asked.report), file=sys.stderr)
    return 0


def report(parser: ArgumentParser, words: Sequence[str]) -> int:
    """Show where the collectives of two runs differ. The files come from `ttkit python
    --report FILE.json`."""
    parser.add_argument("one", metavar="A.json")
    parser.add_argument("other", metavar="B.json")
    asked = parser.parse_args(words)
    print(traffic.compare(traffic.read(asked.one), traffic.read(asked.other)))
    return 0


def report_of(calls: Tape, profile: Profile, path: str) -> str:
    """Return a text about a run: its chips, memory, warnings, collectives, and a profile.

    Args:
        path: the path of the file to write for `ttkit report`; "" writes no file.
    """
    system = machine()
    chips = sorted({chip for record in profile.records for chip in record.chips})
    most = max((event.in_use for event in calls.events), default=0)
    sent, wrong = traffic.sent_by(calls.events)
    if path:
        traffic.write(sent, path)
    warnings = [f"warning: {text}\n" for text in wrong]
    tables = [f"{traffic.table(sent)!r}\n"] if any(line.along for line in sent) else []
    return f"""{system.name}, {"x".join(map(str, system.shape))} chips: {profile!r}
{counted(len(chips), "chip")} used: {", ".join(map(str, chips))}
memory: at most {short(most, "B")} of a chip's {system.chip.dram.value:g} GB
{"".join([*warnings, *tables])}{profile.summary()!r}"""
