"""The user's line in a traceback or a stack: decided by what a file is, wherever a project lies."""

import faulthandler
import importlib.util
import json
import pathlib
import sysconfig

import numpy
import pytest
from IPython.core.ultratb import VerboseTB

import ttkit
from ttkit.cluster.engines import stacks
from ttkit.cluster.engines.stacks import ANSI, frames_of, is_library, raised_at, users_line

PROGRAM = """import json
import numpy

def read(text):
    return json.loads(text)

def halves(n):
    return numpy.ones(n).reshape(2, -1)

def tell(file, dump):
    dump(file, all_threads=False)
"""
# The user's own file in a clone, in one with a blank and other letters, in an editable package, in
# a folder whose name looks like what faulthandler writes for another one.
PLACES = ["ttkit/examples", "my kits/größe 大/ttkit/tests", "src/mine", "gr\\xf6sse", "a:7"]


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
        text = VerboseTB().text(type(error), error, error.__traceback__)
    return ANSI.sub("", text)


def line_of(file, number):
    lines = pathlib.Path(file).read_text().splitlines() if pathlib.Path(file).exists() else []
    return lines[number - 1].strip() if 0 < number <= len(lines) else ""


@pytest.mark.parametrize("home", [False, True], ids=["", "below HOME"])
@pytest.mark.parametrize("place", PLACES)
def test_a_line_of_the_user_is_named(place, home, tmp_path, monkeypatch):
    if home:
        monkeypatch.setenv("HOME", str(tmp_path))
    mine = load(tmp_path / place / "a.py")
    text = formatted(mine.read, "{")
    assert (f"File ~/{place}/a.py" in text) == home
    assert raised_at(text) == "line 5 of read: return json.loads(text)"
    there = raised_at(formatted(mine.halves, 5))
    assert there == "line 8 of halves: return numpy.ones(n).reshape(2, -1)"
    with open(tmp_path / "stack", "w+") as file:
        mine.tell(file, faulthandler.dump_traceback)
        file.seek(0)
        found = users_line(frames_of(file.read(), line_of))
    assert found == "line 11 of tell: dump(file, all_threads=False)"


def test_a_clone_with_its_environment_inside(tmp_path, monkeypatch):
    clone = tmp_path / "ttkit"
    packages = clone / ".venv/lib/python3.11/site-packages"
    package = clone / "ttkit/cluster/engines/stacks.py"
    monkeypatch.setattr(stacks, "__file__", str(package))
    stacks._folders.cache_clear()
    try:
        assert is_library(str(package)) and is_library(str(clone / "ttkit/sim/mesh.py"))
        assert is_library(str(packages / "numpy/core.py"))
        for mine in ("notebooks/a.py", "tests/cluster/test_a.py", "examples/a.py", ".venv/a.py"):
            assert not is_library(str(clone / mine))
    finally:
        stacks._folders.cache_clear()


def test_what_is_a_library():
    standard = sysconfig.get_path("stdlib")
    for file in (ttkit.__file__, numpy.__file__, json.__file__, f"{standard}/threading.py"):
        assert is_library(file)
    for file in ("<string>", "<frozen importlib._bootstrap>", "mpi4py/MPI.src/Comm.pyx"):
        assert is_library(file)
    assert is_library("/usr/lib/python3/dist-packages/yaml/reader.py")
    for file in ("/usr/local/src/a.py", "/opt/ttkit/a.py", "/tmp/ipykernel_7/1.py"):
        assert not is_library(file)


def test_a_stack_that_is_not_whole_waits_for_the_rest():
    assert frames_of('  File "/a.py", line 7 in f\n', line_of) == []
    cut = '  File "/a.py", line 7 in f\n' * 100 + "  ...\n"
    assert len(frames_of(cut, line_of)) == 100


def test_no_line_of_the_user():
    assert users_line(frames_of('  File "<string>", line 1 in <module>\n', line_of)) == ""
    assert raised_at("ValueError: what is sent has no line") == ""
