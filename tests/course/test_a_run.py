"""What conftest.py adds to a run: the reasons of skipped tests in a few lines, how many workers
there are, and what stays in one.
"""

import os
import pathlib
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def ours(request):
    return request.config.pluginmanager.get_plugin(str(ROOT / "conftest.py"))


def run(folder, *words, **environment):
    """Python on the tests of a folder, with no plugins of its own accord."""
    words = [sys.executable, *map(str, words), "-p", "no:cacheprovider", str(folder)]
    env = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"} | environment
    how = {"capture_output": True, "text": True, "timeout": 280}
    return subprocess.run(words, cwd=folder, env=env, **how)


def told(ours, reasons):
    """The lines at the end of a run that skipped tests for these reasons."""
    lines = []
    reports = [SimpleNamespace(longrepr=("a.py", 1, f"Skipped: {reason}")) for reason in reasons]
    reporter = SimpleNamespace(stats={"skipped": reports}, write_line=lines.append)
    ours.pytest_terminal_summary(reporter)
    return lines


def test_reasons_are_counted_and_the_most_frequent_comes_first(ours):
    assert told(ours, ["no card", "no torch", "no torch"]) == [
        "skipped: no torch: 2",
        "skipped: no card: 1",
    ]
    assert told(ours, []) == []


def test_many_reasons_fit_into_eight_lines(ours):
    lines = told(ours, [f"reason {n}" for n in range(12)] + ["reason 11"])
    assert len(lines) == 8 and lines[0] == "skipped: reason 11: 2"
    assert lines[-1] == "skipped: 5 other reasons (pytest -rs lists them): 5"
    assert len(told(ours, [f"reason {n}" for n in range(8)])) == 8


def test_a_worker_for_each_core_that_may_be_used_and_one_more(ours, monkeypatch):
    for cores, workers in ((1, 2), (2, 3), (64, 8)):
        monkeypatch.setattr(
            os, "sched_getaffinity", lambda pid, n=cores: set(range(n)), raising=False
        )
        assert ours.pytest_xdist_auto_num_workers() == workers


def test_tests_hear_ctrl_c_where_the_shell_ignores_it(tmp_path):
    """A shell without job control starts what ends in & so."""
    (tmp_path / "test_it.py").write_text("""import os, pytest, signal
def test_it():
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
""")
    ignore = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); "
    ignore += "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    words = ["-c", ignore, *"-m pytest -q -p conftest -o addopts= --confcutdir".split(), ROOT]
    done = run(tmp_path, *words, "-c", ROOT / "pyproject.toml", PYTHONPATH=str(ROOT))
    assert done.returncode == 0, done.stdout + done.stderr


SHARED = """import os, pathlib, pytest, time
@pytest.fixture(scope="module")
def pid():
    return os.getpid()
@pytest.mark.parametrize("number", range(8))
def test_it(pid, number):
    print(f"worker of {__name__}: {os.getpid()}")
"""
# A test of the third file ends when both workers have begun one of them.
MEET = """
    here = pathlib.Path(__file__).parent / "met"
    here.mkdir(exist_ok=True)
    (here / str(os.getpid())).touch()
    until = time.monotonic() + 120
    while len(list(here.iterdir())) < 2 and time.monotonic() < until:
        time.sleep(0.02)
"""


def test_tests_that_share_something_stay_in_one_worker(tmp_path):
    (tmp_path / "conftest.py").write_text((ROOT / "conftest.py").read_text())
    for name in ("one", "two"):
        (tmp_path / f"test_{name}.py").write_text(SHARED)
    (tmp_path / "test_three.py").write_text(SHARED.replace("module", "function") + MEET)
    words = "-m pytest -p xdist -n 2 -rP -c".split()
    done = run(tmp_path, *words, os.devnull, f"--rootdir={tmp_path}")
    assert "24 passed" in done.stdout, done.stdout + done.stderr
    for name, count in (("one", 1), ("two", 1), ("three", 2)):
        assert len(set(re.findall(rf"worker of test_{name}: (\d+)", done.stdout))) == count
