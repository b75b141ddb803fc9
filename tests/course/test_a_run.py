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
    (tmp_path / "test_it.py").write_text(
        "import os, pytest, signal\ndef test_it():\n    with pytest.raises(KeyboardInterrupt):\n "
        "       os.kill(os.getpid(), signal.SIGINT)\n"
    )
    ignore = (
        "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); "
        "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    )
    words = [
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--confcutdir",
        ROOT,
        "-p",
        "conftest",
        tmp_path,
        "-o",
        "addopts=",
        "-c",
        ROOT / "pyproject.toml",
    ]
    shell = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-c", ignore, *map(str, words)]
    done = subprocess.run(
        command, cwd=tmp_path, env=shell, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_tests_that_share_something_stay_in_one_worker(tmp_path):
    (tmp_path / "conftest.py").write_text((ROOT / "conftest.py").read_text())
    shared = (
        'import os, pytest\n@pytest.fixture(scope="module")\ndef pid():\n    return os.getpid()\n'
    )
    shared += (
        "@pytest.mark.parametrize('number', range(8))\ndef test_it(pid, "
        "number):\n    print(f'worker of {__name__}: {os.getpid()}')\n"
    )
    for name in ("one", "two"):
        (tmp_path / f"test_{name}.py").write_text(shared)
    # A test of the third file ends when both workers have begun one of them.
    meet = (
        "    import pathlib, time\n    here = pathlib.Path(__file__).parent / 'met'\n    "
        "here.mkdir(exist_ok=True)\n"
    )
    meet += "    (here / str(os.getpid())).touch()\n    until = time.monotonic() + 120\n"
    meet += (
        "    while len(list(here.iterdir())) < 2 and time.monotonic() < until:\n        "
        "time.sleep(0.02)\n"
    )
    (tmp_path / "test_three.py").write_text(shared.replace("module", "function") + meet)
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "xdist",
        "-n",
        "2",
        "-rP",
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
        f"--rootdir={tmp_path}",
        tmp_path,
    ]
    shell = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        [*map(str, words)], cwd=tmp_path, env=shell, capture_output=True, text=True, timeout=280
    )
    assert "24 passed" in done.stdout, done.stdout + done.stderr
    found = {
        name: set(re.findall(rf"worker of test_{name}: (\d+)", done.stdout))
        for name in ("one", "two", "three")
    }
    assert {name: len(workers) for name, workers in found.items()} == {
        "one": 1,
        "two": 1,
        "three": 2,
    }
