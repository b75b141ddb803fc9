"""The user's line in a traceback or a stack: decided by what a file is, wherever a project lies."""

import importlib.util
import json
import sysconfig

import numpy
import pytest

import ttkit
from ttkit.cluster.engines import stacks
from ttkit.cluster.engines.engine import plain_traceback
from ttkit.cluster.engines.stacks import is_library, raised_at, running_line

PROGRAM = """import json
import numpy

def read(text):
    return json.loads(text)

def halves(n):
    return numpy.ones(n).reshape(2, -1)

def tell(line):
    return line()
"""
# The user's own file in a clone, in one with a blank and other letters, in an editable package.
PLACES = ["ttkit/examples", "my kits/größe 大/ttkit/tests", "src/mine"]


def load(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(PROGRAM)
    spec = importlib.util.spec_from_file_location("mine", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def formatted(call, *arguments):
    """A traceback as an engine sends it."""
    try:
        call(*arguments)
    except Exception as error:
        return "\n".join(plain_traceback(type(error), error))


@pytest.mark.parametrize("place", PLACES)
def test_a_line_of_the_user_is_named(place, tmp_path):
    mine = load(tmp_path / place / "a.py")
    assert raised_at(formatted(mine.read, "{")) == "line 5 of read: return json.loads(text)"
    there = raised_at(formatted(mine.halves, 5))
    assert there == "line 8 of halves: return numpy.ones(n).reshape(2, -1)"
    assert str(mine.tell(running_line)) == "line 11 of tell: return line()"


def test_a_syntax_error_has_a_line_without_a_function():
    text = formatted(compile, "x = 1\nx = = 2\n", "/tmp/ipykernel_7/1.py", "exec")
    # The text stands on a line of its own, as Python 3.11 writes it.
    assert raised_at(text) == "line 2: x = = 2"


def test_a_clone_with_its_environment_inside(tmp_path, monkeypatch):
    clone = tmp_path / "ttkit"
    packages = clone / ".venv/lib/python3.11/site-packages"
    package = clone / "ttkit/cluster/engines/stacks.py"
    monkeypatch.setattr(stacks, "__file__", str(package))
    assert is_library(str(package)) and is_library(str(clone / "ttkit/sim/mesh/__init__.py"))
    assert is_library(str(packages / "numpy/core.py"))
    for mine in ("notebooks/a.py", "tests/cluster/test_a.py", "examples/a.py", ".venv/a.py"):
        assert not is_library(str(clone / mine))


def test_what_is_a_library():
    standard = sysconfig.get_path("stdlib")
    for file in (ttkit.__file__, numpy.__file__, json.__file__, f"{standard}/threading.py"):
        assert is_library(file)
    for file in ("<string>", "<frozen importlib._bootstrap>", "mpi4py/MPI.src/Comm.pyx"):
        assert is_library(file)
    assert is_library("/usr/lib/python3/dist-packages/yaml/reader.py")
    for file in ("/usr/local/src/a.py", "/opt/ttkit/a.py", "/tmp/ipykernel_7/1.py"):
        assert not is_library(file)


def test_no_line_of_the_user():
    assert raised_at('  File "<string>", line 1, in <module>\n') == ""
    assert raised_at("ValueError: what is sent has no line") == ""
