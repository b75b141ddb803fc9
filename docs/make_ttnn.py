"""Make docs/ttnn.md: every public name of ttnn 0.81.1, and whether it is here.

`python docs/make_ttnn.py`. With --check, exit status 1 when the page is out of step. The names of
the real library are data, recorded once: docs/ttnn_names.txt.
"""

import pathlib
import re
import sys
import textwrap

DOCS = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent))

# Names that a simulator of values has no use for: why, and which (of the whole name).
OUT_OF_SCOPE = {
    "own kernels, program descriptors, and what they talk to": (
        r"\w*(Kernel|Program|Semaphore|CB\w*|Config|Tile)Descriptor|MeshProgramDescriptor"
        r"|(\w+_)?program_descriptors?(_hash)?|generic_op|experimental\.prepare_generic_op|NOC.*"
        r"|RuntimeArgs.*|TensorAccessorArgs|UnpackToDestMode.*|DataMovementProcessor.*|CBFormat.*"
        r"|\w+(ProgramFactory|DeviceOperation|Inputs|Params)|\w*select_program_factory"
        r"|\w*[Mm]cast\w*(\.\w+)?|\w*fabric_(connection|kernel)\w*|setup_\w+connection"
        r"|FaceGeometry|device\.(Clear|Deallocate)\w+|experimental\.get_moe_\w+"
    ),
    "profiler readers and reports": (
        r"ReadDeviceProfiler|\w*tracy\w*|get_\w+perf_data|device\.\w*Profiler\w*|LightMetal.*"
        r"|light_metal.*|device\.\w*(Realtime|Report)\w*|dump_\w*(state|operations|segfault)"
        r"|get_memory_view"
    ),
    "circular buffers and prefetchers": (r".*circular_buffer.*|.*refetcher.*|\w*_cb_\w*|cb_\w+"),
    "convolution, pooling, images": (
        r".*[Cc]onv[123_t].*|Op2D.*|.*conv_(output|bias|weights|tran).*|.*pool.*|fold|upsample|rotate"
        r"|.*grid_sample.*|SlidingWindow.*|.*halo.*|YUV.*|RGB.*|rgb.*|yuv.*|moreh_fold"
        r"|experimental\.(neighbor_pad|slice_reshard)_async"
        r"|.*(MaxPool|ConvT|Conv2d|batch_norm2d).*|experimental\.(convert_to_\w+|padded_slice)"
    ),
    "graphs of the library's own buffers and kernels": r"graph\..*",
    "how the library is built: hooks, registries, its configuration": (
        r"(auto_)?register_\w+|attach_\w+|create_module_if_not_exists|query_registered_\w+|ispkg"
        r"|(load|save|manage)_config\w*|CONFIG.*|Config|SetRootDir|\w+_dir|logger|name|root_dir"
        r"|command_queue|test_\w+|experimental\.test_\w+|composite_example\w*|create_\w+attributes"
        r"|model_preprocessing\.(git_hash|trace|visualize|repr_\w+|\w*dot_access\w*)"
    ),
    "direct access to chips and streams of other hosts": (
        r"cluster\..*|[DH]2[DH].*|InterProcess.*|LayerAck.*|experimental\.\w+_(h2d|d2h)"
    ),
}
# Names that change no value: they say how the hardware should do it.
HINTS = (
    r"Core(Grid|Range|RangeSet|Type).*|\w*ProgramConfig|\w*ComputeKernelConfig|SubDevice\w*"
    r"|\w*(Core|core)(Config|Axis|Type|_grid|_range)\w*(\.\w+)?|MathFidelity.*|ThrottleLevel.*"
    r"|\w*[Ss]emaphore\w*|MinimalMatmulConfig|\w*compute_(kernel_)?config|num_cores_to_\w+|QueueId"
    r"|Fabric\w+(Mode|Config)(\.\w+)?|grid_to_cores|corerange_to_cores|MeshEvent"
    r"|(record|wait_for)_event|event_synchronize|apply_device_delay|split_work_to_cores|UNIFIED_\w+"
)
SPACES = {  # heading of each group of names
    "": "ttnn",
    **{
        name: f"ttnn.{name}"
        for name in ("experimental", "transformer", "kv_cache", "device", "graph", "cluster")
        + ("distributed", "types", "model_preprocessing", "tracer")
    },
}
KINDS = ("here", "a hint", "not here", "out of scope")


def recorded() -> list[tuple[str, str]]:
    """Return (name, what it is) of every public name of the real library."""
    lines = (DOCS / "ttnn_names.txt").read_text(encoding="utf-8").splitlines()
    return [tuple(line.split()) for line in lines if not line.startswith("#")]


def out_of_scope(name: str) -> str:
    """Return why a name is out of scope, or ""."""
    return next((why for why, names in OUT_OF_SCOPE.items() if re.fullmatch(names, name)), "")


def is_here(name: str) -> bool:
    """Whether the simulator has a name of ttnn, given without `ttnn.`."""
    from ttkit.sim import ttnn

    found = ttnn
    for part in name.split("."):
        if isinstance(found, type):
            members = getattr(found, "__members__", vars(found))
            if part not in members:
                return False
            found = members[part]
            continue
        try:
            found = getattr(found, part)
        except AttributeError:
            return False
    return True


def kind_of(name: str) -> str:
    """Return which of `KINDS` a name is."""
    if is_here(name):
        return "a hint" if re.fullmatch(HINTS, name) else "here"
    return "out of scope" if out_of_scope(name) else "not here"


def ttml_names() -> tuple[list[str], list[str]]:
    """Return the names of tt-train's ttml (C++ bindings) that are here, and that are not."""
    from ttkit import ttml

    here: list[str] = []
    missing: list[str] = []
    for line in (DOCS / "ttml_names.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            space, *names = line.split()
            found = ttml
            for part in filter(None, space.strip(".").split(".")):
                found = getattr(found, part, None)
            for name in names:
                (here if hasattr(found, name) else missing).append(f"{space}.{name}".lstrip("."))
    return here, missing


def listed(names: list[str]) -> list[str]:
    return textwrap.wrap(", ".join(f"`{name}`" for name in names), 138) or ["None."]


def made() -> str:
    """Return the page."""
    rows = [(name, what, kind_of(name)) for name, what in recorded()]
    lines = [
        "# Names of ttnn 0.81.1",
        "",
        "Every public name of the real library, and whether the simulator has it. Made by",
        "`python docs/make_ttnn.py` from [ttnn_names.txt](ttnn_names.txt), which was recorded from",
        "the library itself.",
        "",
        "- **here**: it computes, checks or answers as the library does.",
        "- **a hint**: it is accepted, checked from shapes and kept, and changes no value.",
        "- **not here**: asking for it fails, with the closest name that is here.",
        "- **out of scope**: values and plans do not depend on it; the reason stands beside it.",
        "",
        "| | " + " | ".join(KINDS) + " |",
        "|---|" + "---:|" * len(KINDS),
    ]
    for what in ("operation", "function", "class", "enumeration", "member", "constant"):
        counts = [sum(w == what and k == kind for _, w, k in rows) for kind in KINDS]
        lines.append(f"| {what} | " + " | ".join(map(str, counts)) + " |")
    totals = [sum(k == kind for *_, k in rows) for kind in KINDS]
    lines.append("| all | " + " | ".join(map(str, totals)) + " |")
    for space, title in SPACES.items():
        mine = []
        for name, what, kind in rows:
            front, _, last = name.rpartition(".")
            if what != "member" and front == space:
                mine.append((last, name, kind))
        lines += ["", f"## {title}"]
        for kind in KINDS[:3]:
            names = [last for last, _, k in mine if k == kind]
            if names:
                lines += ["", f"**{kind.capitalize()}** ({len(names)}):", *listed(names)]
        left = [(out_of_scope(name), last) for last, name, k in mine if k == KINDS[3]]
        for why in OUT_OF_SCOPE:
            names = [last for reason, last in left if reason == why]
            if names:
                lines += ["", f"**Out of scope**, {why} ({len(names)}):", *listed(names)]
    lines += ["", "## Members of enumerations that are not here", ""]
    gone = [n for n, what, k in rows if what == "member" and k == "not here"]
    lines += listed([name for name in gone if is_here(name.rpartition(".")[0])])
    here, missing = ttml_names()
    lines += [
        "",
        "## ttml",
        "",
        "Names of tt-train's own module (its C++ bindings). `ttml.common` and other modules that",
        "are Python in tt-train come from its sources, where they are on `sys.path` or below",
        "`TT_METAL_HOME`.",
        "",
        f"**Here** ({len(here)}):",
        *listed(here),
        "",
        f"**Not here** ({len(missing)}):",
        *listed(missing),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    page = DOCS / "ttnn.md"
    if sys.argv[1:] == ["--check"]:
        if page.read_text(encoding="utf-8") != made():
            sys.exit("docs/ttnn.md is out of step: python docs/make_ttnn.py")
    else:
        page.write_text(made(), encoding="utf-8")
