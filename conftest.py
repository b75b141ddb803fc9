"""What all tests share: an environment, hypothesis profiles, torch or a skip, how charts compare."""

import os
import pathlib

import pytest
from hypothesis import settings

# Programs that tests start in processes of their own (conformance runner, ranks), and what needs the real library.
collect_ignore = ["tests/conformance/run.py", "tests/real", "tests/sim/ranks", "tests/train/ranks"]
collect_ignore += ["tests/train/oracle.py"]  # which needs torch, and not everybody has it

# The tests are about the simulator in its default state, also where there is a card or the shell has settings.
for name in [name for name in os.environ if name.startswith(("TTKIT_", "TT_"))]:
    del os.environ[name]
os.environ["TTKIT_PROGRESS"] = "0"  # which says how long a wait takes: no two runs are the same
if pathlib.Path("/dev/tenstorrent").exists():
    os.environ["TTKIT_BACKEND"] = "sim"

settings.register_profile("quick", deadline=None, print_blob=True)
settings.register_profile("long", settings.get_profile("quick"), max_examples=2000)
settings.load_profile("quick")


@pytest.fixture(scope="session")
def torch():
    """The torch module; the test is skipped, saying how to get it, where torch is not installed."""
    return pytest.importorskip("torch", reason="torch is not installed (make .venv/with-torch)")


def pytest_collectstart(collector):
    """Compare charts in notebooks by their text, which says what they show, not by their bytes."""
    if isinstance(collector, pytest.File) and collector.path.suffix == ".ipynb":
        collector.sanitize_patterns['(?s)<svg class="ttkit-chart".*?</svg>'] = "a chart"
