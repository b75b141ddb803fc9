"""Make the parts of docs/architecture.md that code knows: the rooms, and the ways of three calls.

`python docs/make_architecture.py`. With --check, exit status 1 when the page is out of step.
"""

import ast
import functools
import pathlib
import re
import sys
from collections.abc import Callable, Iterator

DOCS = pathlib.Path(__file__).resolve().parent
PAGE, PACKAGE = DOCS / "architecture.md", DOCS.parent / "ttkit"
sys.path.insert(0, str(DOCS.parent))

# The modules that every room imports; the picture leaves them out.
FOUNDATION = {"errors", "files", "lazy", "waiting", "words"}
ON_TOP = {"__init__", "__main__", "program", "ttml"}  # these import what they are asked for


# ---------------------------------------------------------------- the rooms
def room_of(path: pathlib.Path) -> str:
    """Return the room of a module: its folder, or its own name where it stands in no folder."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(node: ast.AST, late: bool = False) -> Iterator[tuple[str, bool]]:
    """Yield (room, whether inside a function) for each import of ttkit under a node."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ImportFrom) and (child.module or "").split(".")[0] == "ttkit":
            names = [f"{child.module}.{alias.name}" for alias in child.names]
        elif isinstance(child, ast.Import):
            names = [alias.name for alias in child.names if alias.name.startswith("ttkit.")]
        else:
            inside = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef))
            yield from imports(child, late or inside)
            continue
        for name in names:
            room = name.split(".")[1]
            yield ("backend" if room == "ttnn" else room), late


def arrows() -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """Return the rooms that each room imports: when it is imported itself, and later."""
    rooms = {room_of(path) for path in PACKAGE.rglob("*.py")} - FOUNDATION - ON_TOP
    first: dict[str, set[str]] = {room: set() for room in sorted(rooms)}
    later: dict[str, set[str]] = {room: set() for room in sorted(rooms)}
    for path in sorted(PACKAGE.rglob("*.py")):
        here = room_of(path)
        if here in rooms:
            for room, late in imports(ast.parse(path.read_text(encoding="utf-8"))):
                if room in rooms and room != here:
                    (later if late else first)[here].add(room)
    return first, {here: later[here] - first[here] for here in later}


def reached(first: dict[str, set[str]], room: str) -> set[str]:
    """Return the rooms that come with a room."""
    return first[room].union(*(reached(first, each) for each in first[room]))


def rooms() -> str:
    """Return the picture of the rooms, as a Mermaid graph."""
    first, later = arrows()
    lines = ["```mermaid", "graph TD"]
    for here, others in first.items():
        lines.append(f"  {here}")
        through = set().union(*(reached(first, other) for other in others))
        lines += [f"  {here} --> {other}" for other in sorted(others - through)]
    known = {here: reached(first, here) for here in first}
    for here, others in later.items():
        lines += [f"  {here} -.-> {other}" for other in sorted(others - known[here])]
    return "\n".join([*lines, "```"])


# ---------------------------------------------------------------- the way of a call
@functools.cache
def functions(file: str) -> dict[int, tuple[str, str]]:
    """Return {first line: (name, first sentence of its docstring)} of a file's functions.

    A function inside another one goes by the name of the outer one.
    """
    found: dict[int, tuple[str, str]] = {}

    def visit(node: ast.AST, prefix: str, outer: tuple[str, str] | None) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                visit(child, f"{prefix}{child.name}.", outer)
            elif isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                text = " ".join((ast.get_docstring(child) or "").partition("\n\n")[0].split())
                known = outer or (f"{prefix}{child.name}", re.split(r"[.;](?: |$)", text)[0])
                found[min([child.lineno, *(d.lineno for d in child.decorator_list)])] = known
                visit(child, prefix, known)
            else:
                visit(child, prefix, outer)

    visit(ast.parse(pathlib.Path(file).read_text(encoding="utf-8")), "", None)
    return found


def way(call: Callable[[], object], files: str = "", depth: int = 9) -> str:
    """Return the functions that a call goes through from file to file, as a nested list.

    A function stands in it once, where another file calls it first.

    Args:
        files: a pattern of the files to list; the call goes through others, too.
        depth: how deep the list goes.
    """
    lines: list[str] = []
    seen: set[tuple[str, str]] = set()
    stack: list[tuple[str, int]] = [("", 0)]  # of each frame, its file and depth in the list

    def watch(frame: object, event: str, _: object) -> None:
        code = frame.f_code  # type: ignore[attr-defined]
        file = code.co_filename
        if not file.startswith(str(PACKAGE)):
            return
        if event == "return":
            stack.pop()
        elif event == "call":
            caller, level = stack[-1]
            name, what = functions(file).get(code.co_firstlineno, ("", ""))
            place = pathlib.Path(file).relative_to(PACKAGE).as_posix()
            first = file != caller and (file, name) not in seen
            shown = first and bool(what) and level < depth and bool(re.match(files, place))
            if shown:
                seen.add((file, name))
                lines.append(f"{'  ' * level}- [{place}](../ttkit/{place}) `{name}`: {what}")
            stack.append((file, level + shown))

    call()  # once before, so that nothing is imported or remembered for the first time
    sys.setprofile(watch)
    try:
        kept = call()  # while it is kept, freeing it is no part of the way
    finally:
        sys.setprofile(None)
    del kept
    return "\n".join(lines)


def all_gather() -> str:
    """Return the way of an all_gather along the columns of a 2x4 mesh."""
    import numpy as np

    import ttkit
    from ttkit.sim import ttnn

    ttkit.strict()
    ttkit.use_system("t3000")
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    with ttnn.open_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
        mapper = ttnn.ShardTensor2dMesh(mesh, (2, 4), (0, 1))
        x = np.zeros((64, 256), np.float32)
        tensor = ttkit.from_numpy(x, device=mesh, layout=ttnn.TILE_LAYOUT, mesh_mapper=mapper)
        found = way(lambda: ttnn.all_gather(tensor, dim=1, cluster_axis=1))
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)
    ttkit.strict(False)
    ttkit.use_system(None)
    return found


def training_step() -> str:
    """Return the way of one step of a small GPT, over two replicas of four chips each."""
    import ttkit
    from ttkit.train import Settings, Trainer
    from ttkit.train.config.settings import DeviceConfig, TrainingConfig, TransformerConfig

    ttkit.use_system("t3000")
    model = TransformerConfig(
        num_heads=4, embedding_dim=128, num_blocks=1, max_sequence_length=32, dropout_prob=0
    )
    training = TrainingConfig(batch_size=4, tokenizer_type="byte", checkpoint_dir="", eval_every=0)
    device = DeviceConfig((2, 4), enable_ddp=True, enable_tp=True)
    with Trainer(Settings(device, training, transformer_config=model)) as trainer:
        found = way(trainer.step, r"train/|sim/(collectives/ccl|ops/matmul)\.py", depth=4)
    ttkit.use_system(None)
    return found


def plan_of_layouts() -> str:
    """Return the way of a plan of all layouts of a small GPT on two chips."""
    from ttkit import plan_layouts
    from ttkit.train.config.settings import TransformerConfig

    model = TransformerConfig(num_heads=8, embedding_dim=256, dropout_prob=0)
    return way(lambda: plan_layouts(model, "n300", batch=4), "layouts/", depth=3)


PARTS = {
    "rooms": rooms,
    "all_gather": all_gather,
    "training step": training_step,
    "plan of layouts": plan_of_layouts,
}


def render(page: str) -> str:
    """Return the page with its made parts as they are now."""
    for name, part in PARTS.items():
        begin, end = f"<!-- made: {name} -->", "<!-- end -->"
        before, mark, rest = page.partition(begin)
        _, closed, after = rest.partition(end)
        if not (mark and closed):
            raise ValueError(f"{PAGE.name}: there is no {begin} ... {end}")
        page = f"{before}{begin}\n{part()}\n{end}{after}"
    return page


def main() -> int:
    page = PAGE.read_text(encoding="utf-8")
    made = render(page)
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(made, encoding="utf-8")
    elif page != made:
        print("docs/architecture.md is out of step: python docs/make_architecture.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
