"""What a Cluster starts: cards shared in PCIe order, or the ranks of a folder; and what a host lacks
is reported before anything starts.
"""

import os
import pathlib
import resource
import subprocess
import sys
from collections import namedtuple

import pytest

import ttkit
from ttkit.cluster import processes as room
from ttkit.cluster.engines import start
from ttkit.cluster.engines.start import equal_cards, ranks_of
from ttkit.cluster.processes import Supervised
from ttkit.errors import TTKitError

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "number, cards", [(1, ["0,1,2,3"]), (2, ["0,1", "2,3"]), (4, ["0", "1", "2", "3"])]
)
def test_ranks_share_the_cards_in_pcie_order(number, cards):
    assert [
        binding.env_overrides["TT_VISIBLE_DEVICES"] for binding in equal_cards(number).rank_bindings
    ] == cards


def test_ranks_share_the_visible_cards(monkeypatch):
    monkeypatch.setenv("TT_VISIBLE_DEVICES", "2,3")
    assert [
        binding.env_overrides["TT_VISIBLE_DEVICES"] for binding in equal_cards(2).rank_bindings
    ] == ["2", "3"]


@pytest.mark.parametrize("number", [-1, 0, 3, 8])
def test_cards_that_cannot_be_shared(number):
    with pytest.raises(
        TTKitError,
        match=rf"Cluster\({number}\): a t3000 has 4 cards, which {number} ranks cannot share equally",
    ):
        ttkit.Cluster(number)


def test_cards_that_are_no_mesh():
    ttkit.use_system("galaxy")
    try:
        assert len(ranks_of(8).rank_bindings) == 8
        with pytest.raises(TTKitError, match="Cluster"):
            ranks_of(5)
    finally:
        ttkit.use_system(None)


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
    start.check_host("start", 2)


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
    for name in free:
        (tmp_path / name).mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(room, "SHARED_MEMORY", tmp_path / "shm")
    near = lambda path: "shm" if "shm" in pathlib.Path(path).parts else "tmp"  # noqa: E731
    processes = Supervised("cluster")
    try:
        monkeypatch.setattr("shutil.disk_usage", lambda path: usage(free[near(path)]))
        shared = processes.shared_memory(2)
        if not said:
            return start.check_space("start", processes.folder, shared)
        with pytest.raises(TTKitError, match=said):
            start.check_space("start", processes.folder, shared)
    finally:
        processes.stop()
    assert not any(list((tmp_path / name).iterdir()) for name in free)
