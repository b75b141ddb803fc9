"""No folder outlives its processes: the next start removes what is left when all were killed, and
nothing else.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

import pytest

from ttkit.cluster import processes as room
from ttkit.cluster.processes import Supervised, sweep

HOLD = "import sys, time; from ttkit.cluster.processes import Supervised; Supervised('a'); "
HOLD += "print(flush=True); time.sleep(600)"


@pytest.fixture
def base(tmp_path, monkeypatch):
    """A folder for temporary files and one in memory, of this test alone."""
    for name in ("tmp", "shm"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(room, "SHARED_MEMORY", tmp_path / "shm")
    monkeypatch.setattr(room, "NEW_S", 0)
    return tmp_path / "tmp"


@pytest.fixture
def left(base):
    """The folder of a process that was killed."""
    env = os.environ | {"TMPDIR": str(base)}
    with subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, env=env) as owner:
        owner.stdout.readline()
        (folder,) = base.iterdir()
        sweep()
        kept = folder.exists()
        owner.kill()  # Before the assertion: `with` waits for a process that would sleep on.
    assert kept, "its process lives"
    return folder


def test_what_belongs_to_a_process_that_is_gone(left):
    sweep()
    assert not left.exists()


def test_a_new_folder_may_not_have_its_lock_yet(left, monkeypatch):
    monkeypatch.setattr(room, "NEW_S", 60)
    sweep()
    assert left.exists()


def test_another_users(left, monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: os.getuid() + 1)
    sweep()
    assert left.exists()


def test_a_folder_that_somebody_else_named_so(base):
    """A clone, or CI's folder, may have a name that begins like a cluster's."""
    (base / "ttkit-mine").mkdir()
    sweep()
    assert (base / "ttkit-mine").exists()


def test_both_folders_end_with_their_processes(base):
    processes = Supervised("cluster")
    shared = processes.shared_memory(1)
    sweep()
    assert processes.folder.exists() and shared.exists()
    assert processes.folder.stat().st_mode & 0o077 == 0
    processes.stop()
    assert not processes.folder.exists() and not shared.exists()


START = "import sys, ttkit; c = ttkit.Cluster(1).start(); print(c.folder); input()"


def test_every_process_killed_at_once(monkeypatch):
    import psutil

    # what starts beside this test would sweep it
    base = tempfile.TemporaryDirectory(prefix="ttkit-")
    monkeypatch.setattr("tempfile.tempdir", base.name)
    monkeypatch.setattr(room, "NEW_S", 0)
    words, env = [sys.executable, "-c", START], os.environ | {"TMPDIR": base.name}
    with (
        base,
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as owner,
    ):
        folder = pathlib.Path(owner.stdout.readline().decode().strip())
        processes = psutil.Process(owner.pid).children(recursive=True)
        for process in [psutil.Process(owner.pid), *processes]:
            process.suspend()  # so that none of them sees another one end
        for process in [*processes, psutil.Process(owner.pid)]:
            process.kill()
        psutil.wait_procs(processes, timeout=10)
        owner.wait()
        assert folder.exists()
        sweep()
        assert not folder.exists() and not (room.SHARED_MEMORY / folder.name).exists()
