"""Imports go one way through the house (hardware at the bottom, lessons and the commands on top),
and `import ttkit` is light.
"""

import ast
import functools
import graphlib
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "ttkit"

# Which rooms a room may import. "ttkit" stands for the front door, ttkit/__init__.py; `from ttkit
# import ttnn` counts as backend. All rooms may import the foundation.
FOUNDATION = {"errors", "files", "lazy", "waiting", "words"}
MAY_IMPORT = {
    "errors": set(),
    "files": {"errors"},
    "lazy": {"errors"},
    "waiting": {"errors"},
    "words": set(), "hardware": set(),
    "descriptors": {"hardware"},
    "plans": {"hardware"},
    "sim": {"hardware", "plans"},
    "backend": {"hardware", "sim"},
    "cluster": {"hardware", "descriptors"},  # re-exports the descriptors
    "train": {"backend", "hardware", "plans"},
    "layouts": {"backend", "hardware", "plans", "sim", "train"},
    "profiling": {"backend", "hardware", "plans", "sim", "visualize"},
    "visualize": {"hardware", "plans", "backend"},  # of the simulator, public attributes only
}  # fmt: skip
# Inside a function only: bytes in use, which no object carries; the tables of a training plan; an
# engine, a program of its own, starts the real library before MPI; the linter asks training for the
# check of a training configuration.
#
# Descriptors bring protobuf, so the core imports them only where a descriptor is in use:
# hardware.current (`use_system(descriptor)`, TT_MESH_GRAPH_DESC_PATH), sim.ranks (the same
# variable), visualize (a picture of a descriptor, or of its file), train.context (the variable).
#
# visualize draws the ranks of a configuration that is not a cluster yet.
#
# An object that is asked to draw itself, names its picture: ttkit.lazy.drawn_by imports it then.
MAY_IMPORT_LATE = {
    "hardware": {"descriptors"},
    "sim": {"descriptors"},
    "train": {"visualize", "descriptors", "layouts"},
    "layouts": {"visualize", "descriptors"},
    "visualize": {"sim", "descriptors", "cluster"},
    "cluster": {"backend", "train", "visualize"},
}
ON_TOP = {"ttkit", "lessons", "program", "ttml", "__main__"}  # may import anything
HEAVY = ("google.protobuf", "matplotlib", "ipyparallel", "mpi4py", "torch", "ttnn", "ttkit.train")


def room(path):
    """The room a file of the package belongs to: its folder or its module; "ttkit" for the front
    door.
    """
    name = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    return "ttkit" if name == "__init__" else name


@functools.cache
def statements(source):
    """The import statements of a source text, as `import_statements` gives them."""
    return list(import_statements(ast.parse(source)))


def import_statements(node, late=False):
    """(statement, whether it stands inside a function) for each import anywhere under a node."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.Import, ast.ImportFrom)):
            yield child, late
        else:
            yield from import_statements(
                child, late or isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef))
            )


def imported_rooms(source, package, rooms):
    """(line, room, late) for each import of ttkit in a source text that stands in `package` (a
    list of names).
    """
    for node, late in statements(source):
        names = [alias.name for alias in node.names]
        if isinstance(node, ast.Import):
            targets = names
        else:
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            targets = [f"{module}.{name}" for name in names] if module == "ttkit" else [module]
        for target in targets:
            top, _, rest = target.partition(".")
            name = rest.split(".")[0]
            if top == "ttkit" and not name.startswith("__"):  # ttkit.__version__ is nobody's room
                of = "backend" if name == "ttnn" else name if name in rooms else "ttkit"
                yield node.lineno, of, late


def wrong_imports(files, rooms):
    for path, source in files:
        here = room(path)
        if here in ON_TOP:
            continue
        package = ["ttkit", *path.relative_to(PACKAGE).parts[:-1]]
        allowed = MAY_IMPORT.get(here, set()) | {here}
        if here not in FOUNDATION:
            allowed |= FOUNDATION
        for line, target, late in imported_rooms(source, package, rooms):
            if target not in allowed | (MAY_IMPORT_LATE.get(here, set()) if late else set()):
                rule = f"'{here}' may import only {sorted(allowed - {here}) or 'itself'}"
                yield f"{path.relative_to(ROOT)}:{line} imports '{target}'; {rule}"


FILES = [(path, path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))]
ROOMS = {room(path) for path, _ in FILES} | set(MAY_IMPORT) | ON_TOP


def test_every_room_has_a_rule():
    assert ROOMS <= set(MAY_IMPORT) | ON_TOP, "say in MAY_IMPORT what a new room may import"


def test_imports_go_one_way():
    wrong = list(wrong_imports(FILES, ROOMS))
    assert not wrong, "\n".join(wrong)


def test_no_modules_import_each_other_in_a_circle():
    names = {path: ".".join(path.relative_to(ROOT).with_suffix("").parts) for path, _ in FILES}
    modules = {name.removesuffix(".__init__") for name in names.values()}
    imports = {}
    for path, source in FILES:
        here = imports.setdefault(names[path].removesuffix(".__init__"), set())
        for node, _ in statements(source):  # also late, and for types only
            for alias in node.names:
                of = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
                full = of + alias.name
                here.add(full if full in modules else of.removesuffix("."))
    others = {name: here & modules - {name} for name, here in imports.items()}
    graphlib.TopologicalSorter(others).prepare()  # raises CycleError with the circle


@pytest.mark.parametrize(
    "where, source, target",
    [
        ("hardware/chips.py", "from ttkit import sim", "sim"),
        ("hardware/chips.py", "from ..plans.cost import price", "plans"),
        ("sim/ops.py", "def f():\n    import ttkit.train.model.modules", "train"),
        ("train/modules.py", "from ttkit.sim import tensor", "sim"),
        ("train/modules.py", "import ttkit", "ttkit"),
        ("train/modules.py", "from ttkit import pcc", "ttkit"),
        ("errors.py", "from . import files", "files"),
        ("sim/mesh/__init__.py", "from ttkit.visualize.mesh import draw_mesh", "visualize"),
        ("sim/mesh/__init__.py", "if True:\n    import ttkit.visualize", "visualize"),
        ("visualize/mesh.py", "from ..sim import mesh", "sim"),
        ("plans/cost.py", "from .. import backend", "backend"),
        ("cluster/launch/command.py", "from ttkit import ttnn", "backend"),
        ("sim/ops.py", "from . import tensor\nfrom .tensor import Tensor\nimport numpy", None),
        ("sim/ops.py", "from ..hardware import chips", None),
        ("train/modules.py", "from ttkit import ttnn\nfrom ttkit.plans import pipelines", None),
        ("train/plan.py", "def f():\n    from ttkit.visualize.charts.plans import Page", None),
        ("backend.py", "from ttkit import __version__", None),
        ("__main__.py", "import ttkit\nfrom ttkit import cluster, train", None),
    ],
)
def test_the_rule_sees_and_allows(where, source, target):
    wrong = list(wrong_imports([(PACKAGE / where, source)], ROOMS))
    assert len(wrong) == bool(target) and all(f"imports '{target}'" in each for each in wrong)


@pytest.mark.parametrize(
    ("modules", "heavy"),
    [
        ("ttkit", HEAVY),
        ("ttkit.hardware, ttkit.plans, ttkit.sim.ttnn, ttkit.visualize.mesh", HEAVY[:1]),
        ("ttkit.train.run.trainer, ttkit.train.config.files", HEAVY[:1]),
    ],
)
def test_ttkit_is_light_and_core_and_training_need_no_protobuf(modules, heavy):
    code = f"import sys, {modules}; print(*[name for name in {heavy!r} if name in sys.modules])"
    how = {"cwd": ROOT, "check": True, "capture_output": True, "text": True}
    assert subprocess.run([sys.executable, "-c", code], **how).stdout.split() == []


def test_protobuf_is_imported_by_descriptors_only():
    importers = {
        room(path)
        for path, source in FILES
        for node, _ in statements(source)
        if "google" in ast.unparse(node)
    }
    assert importers == {"descriptors"}
