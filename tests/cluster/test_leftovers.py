"""What a cluster leaves when all its processes are killed at once: removed by the next start, and
nothing else is.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import pytest

from ttkit.cluster import keeper, leftovers

pytestmark = pytest.mark.skipif(not leftovers._where(), reason="reads /proc")


@pytest.fixture
def places(tmp_path, monkeypatch):
    """A folder for temporary files and one in memory, of this test alone."""
    for name in ("tmp", "shm"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    for module in (keeper, leftovers):
        monkeypatch.setattr(module, "SHARED_MEMORY", tmp_path / "shm")
    return [tmp_path / "tmp" / "ttkit-cluster-a", tmp_path / "shm" / "ttkit-cluster-a"]


def fill(places, pids):
    for place in places:
        place.mkdir()
        (place / "key").write_text("secret")
    leftovers.record(places[0], pids)


@pytest.fixture
def ended():
    """The number of a process that has ended, and when it started."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        since = leftovers.started(process.pid)
        process.communicate(b"\n")
    return process.pid, since


def there(places):
    leftovers.sweep()
    return [place.exists() for place in places]


def rewrite(places, **changes):
    for place in places:
        noted = json.loads((place / leftovers.RECORD).read_text())
        (place / leftovers.RECORD).write_text(json.dumps(noted | changes))


def test_what_belongs_to_processes_that_are_gone(places, ended):
    fill(places, [])
    rewrite(places, since=dict([ended]))
    assert there(places) == [False, False]


def test_a_number_that_was_given_to_another_process(places):
    fill(places, [os.getpid()])
    assert there(places) == [True, True]
    rewrite(places, since={os.getpid(): "1"})
    assert there(places) == [False, False]


def test_one_process_that_lives_is_enough(places, ended):
    fill(places, [])
    rewrite(places, since={**dict([ended]), os.getpid(): leftovers.started(os.getpid())})
    assert there(places) == [True, True]


@pytest.mark.parametrize("where", ["", "another boot pid:[1]"])
def test_another_machine_or_container(places, ended, where):
    fill(places, [])
    rewrite(places, since=dict([ended]), where=where)
    assert there(places) == [True, True]


def test_another_users(places, ended, monkeypatch):
    fill(places, [])
    rewrite(places, since=dict([ended]))
    monkeypatch.setattr("os.geteuid", lambda: os.getuid() + 1)
    assert there(places) == [True, True]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"since": 3}', '{"since": {"a": 1}}'])
def test_a_folder_without_a_record(places, text):
    fill(places, [os.getpid()])
    for place in places:
        (place / leftovers.RECORD).write_text(text)
    assert there(places) == [True, True]


START = "import sys, ttkit; c = ttkit.Cluster(1).start(); print(c._processes.folder); input()"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="kills by Linux's process trees")
def test_every_process_killed_at_once(monkeypatch):
    import psutil

    from ttkit.cluster.processes import Processes

    # what starts beside this test would sweep it
    base = tempfile.TemporaryDirectory(prefix="ttkit-")
    monkeypatch.setattr("tempfile.tempdir", base.name)
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
        Processes(lambda folder: ({}, dict(os.environ)), lambda ended: None).stop()
        assert not folder.exists() and not (keeper.SHARED_MEMORY / folder.name).exists()
