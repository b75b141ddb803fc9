"""What a host lacks is said before anything starts."""

import os
import resource
import subprocess
import sys
from collections import namedtuple

import pytest

import ttkit
from ttkit.cluster import keeper, room
from ttkit.errors import TTKitError


def limit(monkeypatch, number):
    monkeypatch.setattr(resource, "getrlimit", lambda which: (number, number))


def test_too_few_open_files(monkeypatch):
    limit(monkeypatch, 64)
    rule = "a process may open 64 files here, and the controller needs 122"
    with pytest.raises(TTKitError, match=rf"start Cluster\(2\): {rule}\n  try: `ulimit -n 1024`"):
        ttkit.Cluster(2).start()


@pytest.mark.parametrize("number", [128, resource.RLIM_INFINITY])
def test_enough_open_files(monkeypatch, number):
    limit(monkeypatch, number)
    room.check_host("start", 2)


def test_a_deleted_working_folder(tmp_path):
    program = "import os, ttkit; os.rmdir(os.getcwd()); ttkit.Cluster(2).start()"
    env = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(ttkit.__file__))}
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True)
    said = "start Cluster(2): the working folder was deleted, and each rank starts in it"
    assert said in done.stderr


@pytest.mark.parametrize(
    ("free", "said"),
    [
        ({"tmp": 64_000, "shm": 1 << 30}, "tmp has 64 kB free of the 1 MB needed: a cluster keeps"),
        ({"tmp": 8 << 20, "shm": 1 << 20}, "tmp has 8.39 MB free of the 18.9 MB needed: Open MPI"),
        ({"tmp": 2 << 20, "shm": 10 << 20}, "shm has 10.5 MB free of the 18.9 MB needed: Open MPI"),
        ({"tmp": 20 << 20, "shm": 1 << 20}, ""),
        ({"tmp": 1 << 20, "shm": 20 << 20}, ""),
    ],
)
def test_no_room(free, said, tmp_path, monkeypatch):
    usage = namedtuple("usage", "free")
    folders = {name: tmp_path / name for name in free}
    folder = folders["tmp"] / "cluster"
    folder.mkdir(parents=True)
    folders["shm"].mkdir()
    monkeypatch.setattr(keeper, "SHARED_MEMORY", folders["shm"])
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage(free[path.parent.name]))
    shared = keeper.shared_memory(folder, 2)
    if not said:
        return room.check_folder("start", folder, shared)
    with pytest.raises(TTKitError, match=said):
        room.check_folder("start", folder, shared)
