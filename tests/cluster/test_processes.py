"""The folders of a launch: nobody else reads them, and they end with its processes."""

from ttkit.cluster import processes as room
from ttkit.cluster.processes import Supervised


def test_both_folders_end_with_their_processes(tmp_path, monkeypatch):
    for name in ("tmp", "shm"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(room, "SHARED_MEMORY", tmp_path / "shm")
    processes = Supervised("cluster")
    shared = processes.shared_memory(1)
    assert processes.folder.exists() and shared.exists()
    assert processes.folder.stat().st_mode & 0o077 == 0
    processes.stop()
    assert not processes.folder.exists() and not shared.exists()
