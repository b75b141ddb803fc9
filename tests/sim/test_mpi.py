"""Several ranks: real processes under Open MPI, on meshes that they share or send to.

What they compute together is in test_ccl_mpi.py.
"""

import re
import sys

import pytest
from started import TWO, passed

import ttkit
from ttkit import ttnn
from ttkit.sim.ranks import binding, mpi


def test_other_calls_are_named(run):
    process = run((2, 4), (2, 1), "faults.py", "mismatch")
    passed(process, 2)
    for rank in (0, 1):
        lines = [line for line in process.out.splitlines() if line.startswith(f"rank {rank}:")]
        assert len(lines) == 5
        assert all("rank 0 calls" in line and "rank 1 calls" in line for line in lines)
        assert "all_reduce([32, 32] FLOAT32 on 2x4, cluster_axis=0)" in lines[0]
        assert "cluster_axis=1" in lines[0]
        assert "[64, 32]" in lines[2] and "BFLOAT16" in lines[3]


def test_a_rank_that_does_not_come_is_named(run):
    process = run((2, 4), (2, 2), "faults.py", "late")
    passed(process, 4)
    for rank in (0, 2, 3):
        first, second = [
            line for line in process.out.splitlines() if line.startswith(f"rank {rank}:")
        ]
        assert re.search(rf"rank {rank} waited 5\.\d s for rank 1, which did not come", first)
        assert "all_reduce" in first
        assert "out of step" in second


def test_a_dead_rank_ends_the_others(run):
    process = run((2, 4), (2, 1), "faults.py", "dies")
    assert process.returncode == 3 and process.seconds < 100


def test_a_wait_can_be_interrupted(run):
    process = run((2, 4), (2, 1), "faults.py", "interrupted")
    passed(process, 2)
    assert "rank 0: rank 0 waited" in process.out
    assert "s for rank 1 in all_reduce([32, 32] FLOAT32 on 2x4, cluster_axis=0)" in process.out


def test_one_binding_for_two_ranks(run):
    process = run((2, 4), (2, 1), "faults.py", "twice")
    assert (
        process.out.count("ranks 0 and 1 have the same TT_MESH_ID=0 and TT_MESH_HOST_RANK=0") == 2
    )


def test_context_and_sockets_between_meshes(run):
    passed(run((2, 4), (1, 1), "talk.py", "two", n=2, top=TWO), 2)


def test_sockets_within_a_shared_mesh(run):
    passed(run((2, 4), (2, 1), "talk.py", "shared"), 2)


def test_a_process_on_its_own_knows_no_ranks(monkeypatch):
    monkeypatch.setenv("TT_MESH_ID", "0")
    monkeypatch.setenv("TT_MESH_HOST_RANK", "1")
    monkeypatch.setitem(sys.modules, "mpi4py", None)  # an import of it fails
    assert binding() is None and not mpi.world.cache_info().currsize
    assert int(ttnn.distributed_context_get_size()) == 1
    ttnn.distributed_context_barrier()
    with ttnn.open_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
        assert mesh.grid.local and mesh.owners is None
        corner = ttnn.MeshCoreCoord(ttnn.MeshCoordinate(0, 0), ttnn.CoreCoord(0, 0))
        memory = ttnn.SocketMemoryConfig(ttnn.BufferType.L1, 4096)
        config = ttnn.SocketConfig([ttnn.SocketConnection(corner, corner)], memory, 0, 1)
        with pytest.raises(ttkit.TTKitError, match="this process is alone"):
            ttnn.MeshSocket(mesh, config)


def test_sockets_of_one_process():
    with ttnn.open_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
        first, second = mesh.create_submeshes(ttnn.MeshShape(2, 2))
        places = [ttnn.MeshCoordinate(r, c) for r in range(2) for c in range(2)]
        cores = [ttnn.MeshCoreCoord(place, ttnn.CoreCoord(0, 0)) for place in places]
        memory = ttnn.SocketMemoryConfig(ttnn.BufferType.L1, 1 << 16)
        joined = ttnn.SocketConfig([ttnn.SocketConnection(a, a) for a in cores], memory)
        sender, receiver = ttnn.create_socket_pair(first, second, joined)
        t = ttnn.ones([32, 32], ttnn.float32, ttnn.TILE_LAYOUT, first)
        into = ttnn.zeros([32, 32], ttnn.float32, ttnn.TILE_LAYOUT, second)
        send, receive = ttnn.experimental.send_async, ttnn.experimental.recv_async
        for call, given, phrase in [
            (receive, (into, receiver), "nothing has been sent"),
            (receive, (t, sender), "recv_async op requires a RECEIVER socket"),
            (send, (into, receiver), "send_async op requires a SENDER socket"),
            (send, (into, sender), "the tensor lies on"),
        ]:
            with pytest.raises(ttkit.TTKitError, match=phrase):
                call(*given)
        send(t, sender)
        (got,) = receive(into, receiver)
        assert got is into and float(got.full_array().min()) == 1
