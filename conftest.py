"""What all tests share: an environment, hypothesis profiles, torch or a skip, workers, how
charts compare, the end of a run.
"""

import collections
import functools
import gc
import os
import pathlib
import signal

import pytest
from hypothesis import settings

ROOT = pathlib.Path(__file__).resolve().parent
# Programs that tests start in processes of their own (conformance runner, ranks), and what needs
# the real library.
collect_ignore = ["tests/conformance/run.py", "tests/real", "tests/sim/ranks", "tests/train/ranks"]
collect_ignore += ["tests/train/oracle.py"]  # which needs torch, and not everybody has it

# The tests are about the simulator in its default state, also where there is a card or the shell
# has settings.
for name in [name for name in os.environ if name.startswith(("TTKIT_", "TT_"))]:
    del os.environ[name]
os.environ["TTKIT_PROGRESS"] = "0"  # which says how long a wait takes: no two runs are the same
os.environ["TTKIT_LEARNER"] = ""  # nothing that a test does is a learner's progress
if pathlib.Path("/dev/tenstorrent").exists():
    os.environ["TTKIT_BACKEND"] = "sim"

# A shell that starts the tests in the background makes them, and all that they start, ignore
# Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("quick", deadline=None, print_blob=True, max_examples=40)
settings.register_profile("long", settings.get_profile("quick"), max_examples=2000)
settings.load_profile("quick")


def pytest_configure(config):
    """Start a notebook's kernel once more where it dies at once.

    Its ports are chosen first and bound by the kernel later: engines and kernels of other workers
    may take one in between. Seen in 2 of 12 runs of all notebooks.
    """
    if config.pluginmanager.hasplugin("nbval"):
        from nbval import kernel

        start = kernel.start_new_kernel

        def started(*args, **kwargs):
            try:
                return start(*args, **kwargs)
            except RuntimeError:
                return start(*args, **kwargs)

        kernel.start_new_kernel = started


def pytest_collection_finish():
    """Leave what was imported out of all later garbage collections: with torch these take half a
    second each.
    """
    gc.freeze()


@pytest.fixture(scope="session")
def torch():
    """The torch module; the test is skipped, saying how to get it, where torch is not installed."""
    return pytest.importorskip("torch", reason="torch is not installed (make .venv/with-torch)")


@pytest.hookimpl(optionalhook=True)  # pytest-xdist may be missing
def pytest_xdist_auto_num_workers():
    """Return the number of workers that `-n auto` starts: one more than the cores this process
    may use, at most 8.

    One more, because tests that start ranks wait more than they compute. A worker holds up to 300
    MB, and its tests start up to 5 ranks each."""
    allowed = getattr(os, "sched_getaffinity", lambda pid: range(os.cpu_count() or 1))(0)
    return min(len(allowed) + 1, 8)


@functools.cache
def shares(path):
    """Return whether the tests of a file share something: the kernel of a notebook, or a fixture
    of the module.
    """
    return path.endswith(".ipynb") or 'scope="module"' in (ROOT / path).read_text(encoding="utf-8")


def unit(test):
    """Return what a worker takes as a whole: the file of a test that shares something with
    others of its file, or the test.
    """
    path = test.partition("::")[0]
    return path if shares(path) else test


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Give the workers one unit after the other, files first. xdist's own way, the mark
    xdist_group, has no effect in pytest 9.2.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Units(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return unit(nodeid)

    return Units(config, log) if config.option.dist == "load" else None


def pytest_terminal_summary(terminalreporter):
    """List the reasons of skipped tests, the most frequent first, in at most eight lines; pytest
    adds counts and time.
    """
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = collections.Counter(
        report.longrepr[2].removeprefix("Skipped: ") for report in skipped
    ).most_common()
    if len(reasons) > 8:
        reasons[7:] = [
            (
                f"{len(reasons) - 7} other reasons (pytest -rs lists them)",
                sum(count for _, count in reasons[7:]),
            )
        ]
    for reason, count in reasons:
        terminalreporter.write_line(f"skipped: {reason}: {count}")


def pytest_collectstart(collector):
    """Compare pictures in notebooks by their text, which says what they show, not by bytes."""
    if isinstance(collector, pytest.File) and collector.path.suffix == ".ipynb":
        drawn = r"(?s)<svg\b.*?</svg>"
        style = r"(?s)ttkit-picture-\w{6}|<style>.*?</style>"
        collector.sanitize_patterns |= {drawn: "a picture", style: ""}
