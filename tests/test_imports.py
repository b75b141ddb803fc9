"""Imports go one way through the house (DESIGN: hardware at the bottom, lessons and cli on top), and `import ttkit` is light."""

import ast
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "ttkit"

# Which rooms a room may import. "ttkit" stands for the front door, ttkit/__init__.py; `from ttkit import ttnn` counts as backend.
MAY_IMPORT = {
    "hardware": set(),
    "plans": {"hardware"},
    "sim": {"hardware", "plans"},
    "backend": {"hardware", "sim"},
    "cluster": {"hardware"},  # stands alone, but for the descriptors that it re-exports
    "train": {"backend", "plans"},
    "visualize": {"hardware", "plans", "backend"},  # of the simulator, public attributes only
}
ON_TOP = {"ttkit", "lessons", "cli", "__main__"}  # may import anything
HEAVY = ("matplotlib", "ipyparallel", "mpi4py", "torch", "ttnn", "ttkit.train")


def room(path):
    """The room a file of the package belongs to: its folder or its module; "ttkit" for the front door."""
    name = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    return "ttkit" if name == "__init__" else name


def imported_modules(tree, package):
    """(line, module, names) of each import statement anywhere in a file, inside functions too; relative ones made absolute."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name, []
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            yield node.lineno, ".".join([*base, *([node.module] if node.module else [])]), [alias.name for alias in node.names]


def imported_rooms(source, package, rooms):
    """(line, room) for each import of ttkit in a source text that stands in `package` (a list of names)."""
    for line, module, names in imported_modules(ast.parse(source), package):
        parts = module.split(".")
        if parts[0] != "ttkit":
            continue
        if len(parts) > 1:
            yield line, parts[1]
        else:
            for name in names or ["ttkit"]:
                yield line, "backend" if name == "ttnn" else name if name in rooms else "ttkit"


def wrong_imports(files, rooms):
    for path, source in files:
        here = room(path)
        if here in ON_TOP:
            continue
        package = ["ttkit", *path.relative_to(PACKAGE).parts[:-1]]
        for line, target in imported_rooms(source, package, rooms):
            if target != here and target not in MAY_IMPORT.get(here, set()):
                yield f"{path.relative_to(ROOT)}:{line} imports ttkit room '{target}'; '{here}' may import {sorted(MAY_IMPORT.get(here, set())) or 'nothing'}"


FILES = [(path, path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))]
ROOMS = {room(path) for path, _ in FILES} | set(MAY_IMPORT) | ON_TOP


def test_every_room_has_a_rule():
    assert ROOMS <= set(MAY_IMPORT) | ON_TOP, "say in MAY_IMPORT what a new room may import"


def test_imports_go_one_way():
    wrong = list(wrong_imports(FILES, ROOMS))
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "where, source, target",
    [
        ("hardware/chips.py", "from ttkit import sim", "sim"),
        ("hardware/chips.py", "from ..plans.cost import price", "plans"),
        ("sim/ops.py", "def f():\n    import ttkit.train.modules", "train"),
        ("train/modules.py", "from ttkit.sim import tensor", "sim"),
        ("train/modules.py", "import ttkit", "ttkit"),
        ("visualize/mesh.py", "from ..sim import mesh", "sim"),
        ("plans/cost.py", "from .. import backend", "backend"),
        ("cluster/launch.py", "from ttkit import ttnn", "backend"),
    ],
)
def test_the_rule_sees(where, source, target):
    (wrong,) = wrong_imports([(PACKAGE / where, source)], ROOMS)
    assert f"room '{target}'" in wrong


@pytest.mark.parametrize(
    "where, source",
    [
        ("sim/ops.py", "from . import tensor\nfrom .tensor import Tensor\nfrom ..hardware import chips\nimport numpy"),
        ("train/modules.py", "from ttkit import ttnn\nfrom ttkit.plans import pipelines"),
        ("cli.py", "import ttkit\nfrom ttkit import cluster, train"),
    ],
)
def test_the_rule_allows(where, source):
    assert not list(wrong_imports([(PACKAGE / where, source)], ROOMS))


def test_import_ttkit_is_light():
    code = f"import sys, ttkit; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout.split() == []
