"""Several hosts for real: sync, doctor, run and the fabric example on three hosts that are Linux
namespaces (namespaces.py), joined by ssh.
"""

import contextlib
import pathlib
import re
import shutil
import time

import pytest
from cluster import namespaces
from started import needs_mpirun

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MISSING = namespaces.missing()
pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"several hosts as namespaces: {MISSING}"),
    needs_mpirun,
]
HOSTS = ("--hostfile", "hosts.txt")
PYTHON = namespaces.PYTHON
NAMES = ["node-1", "node-2", "node-3"]
QUICK = {
    "PRTE_MCA_oob_tcp_keepalive_time": "2",
    "PRTE_MCA_oob_tcp_keepalive_intvl": "1",
    "PRTE_MCA_oob_tcp_keepalive_probes": "2",
}


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    """Three hosts; the project is on node-1 only."""
    with namespaces.Hosts(tmp_path_factory.mktemp("hosts")) as up:
        leave = shutil.ignore_patterns("__pycache__")
        for part in ("ttkit", "configs", "examples"):
            shutil.copytree(ROOT / part, up.path("node-1", part), ignore=leave)
        shutil.copy(ROOT / "pyproject.toml", up.path("node-1"))
        up.path("node-1", "hosts.txt").write_text("".join(f"{name} slots=1\n" for name in NAMES))
        yield up


@pytest.fixture(scope="module")
def synced(hosts):
    """The same, the project on all of them."""
    return sync(hosts)


def sync(hosts):
    assert ttkit(hosts, "sync", *HOSTS, "--apply").returncode == 0
    return hosts


def ttkit(hosts, *words, **environment):
    # pytest-xdist's workers have a terminal of 80 columns, where long lines would be broken.
    return hosts.call("node-1", [PYTHON, "-m", "ttkit", *words], **{"COLUMNS": "120"} | environment)


def states(done):
    """{(check, host): state} of a doctor's table."""
    found = {}
    check = host = ""
    for line in done.stdout.splitlines():
        cells = [cell.strip() for cell in line.split("│")[1:-1]]
        if len(cells) == 4 and cells[2]:
            check, host = cells[0], cells[1]
            for each in NAMES if host == "all 3 hosts" else host.split(", "):
                found[check, each] = cells[2]
    return found


def red(done):
    return {where for where, state in states(done).items() if state == "red"}


def test_sync_shows_first_and_copies_when_told_to(hosts):
    hosts.path("node-1", "checkpoints").mkdir(exist_ok=True)
    hosts.path("node-1", "checkpoints", "big.bin").write_text("x")
    hosts.path("node-2", "theirs.py").write_text("")
    dry = ttkit(hosts, "sync", *HOSTS)
    assert dry.returncode == 0, dry.stderr
    heads = [line for line in dry.stdout.splitlines() if not line.startswith(" ")]
    assert [line.split(":")[0] for line in heads] == ["node-2", "node-3", "dry run"]
    assert "files to update" in heads[0]
    assert "  configs/" in dry.stdout and " more" in dry.stdout and "checkpoints" not in dry.stdout
    assert not hosts.path("node-2", "hosts.txt").exists()
    done = ttkit(hosts, "sync", *HOSTS, "--apply")
    assert done.returncode == 0 and re.search(r"^node-2: \d+ files updated$", done.stdout, re.M)
    copied = hosts.path("node-3", "ttkit", "errors.py").read_text()
    assert copied == (ROOT / "ttkit/errors.py").read_text()
    assert not hosts.path("node-2", "checkpoints").exists()
    assert hosts.path("node-2", "theirs.py").exists()
    same = "node-2: up to date\nnode-3: up to date\n"
    assert ttkit(hosts, "sync", *HOSTS).stdout.startswith(same)
    hosts.path("node-2", "ttkit", "errors.py").write_text("")
    done = ttkit(hosts, "sync", *HOSTS, "--apply")
    assert done.stdout == "node-2: 1 file updated\n  ttkit/errors.py\nnode-3: up to date\n"


def test_doctor_finds_all_well(hosts):
    synced = sync(hosts)
    done = ttkit(synced, "doctor", *HOSTS)
    assert done.returncode == 0 and "0 warn, 0 red" in done.stdout, done.stdout + done.stderr
    checks = list(dict.fromkeys(check for check, _ in states(done)))
    assert checks == ["ssh", "network", "folder", "Python", "ttkit", "code", "MPI", "devices"]
    assert done.stdout == ttkit(synced, "doctor", *HOSTS).stdout


def test_doctor_says_what_is_wrong_and_what_to_do(synced):
    synced.path("node-2", "ttkit", "errors.py").write_text("broken = True\n")
    keys = synced.folder / "node-3" / "authorized_keys"
    allowed = keys.read_text()
    keys.write_text("")
    try:
        done = ttkit(synced, "doctor", *HOSTS)
    finally:
        keys.write_text(allowed)
        sync(synced)
    assert done.returncode == 1
    assert red(done) == {("ssh", "node-3"), ("ttkit", "node-2"), ("code", "node-2")}
    assert "Permission denied" in done.stdout and "try: ssh-copy-id node-3" in done.stdout
    assert "differs from the code here: ttkit/errors.py" in done.stdout
    assert "try: ttkit sync --apply" in done.stdout


def test_doctor_does_not_wait_for_a_dead_host(synced):
    with synced.unplugged("node-2"):
        since = time.monotonic()
        done = ttkit(synced, "doctor", *HOSTS)
        took = time.monotonic() - since
    assert done.returncode == 1 and "ping node-2" in done.stdout, done.stdout
    assert states(done)["ssh", "node-2"] == "red"
    assert states(done)["MPI", "node-3"] == "ok" and took < 120


def test_doctor_sees_a_wall_between_hosts(synced):
    """node-2 and node-3 reach node-1 but not each other."""

    def wall(change):
        for name, other in (("node-2", 3), ("node-3", 2)):
            synced.call(name, ["ip", "route", change, "blackhole", f"10.77.0.{other}/32"])

    wall("add")
    try:
        done = ttkit(synced, "doctor", *HOSTS)
    finally:
        wall("del")
    assert red(done) == {("network", "node-2"), ("network", "node-3")}, done.stdout
    assert "cannot open a TCP connection to node-3" in done.stdout and "firewall" in done.stdout


RUN = [PYTHON, "-m", "ttkit", "run", *HOSTS, PYTHON, "-uc"]
WHERE = (
    "import socket\nfrom mpi4py import MPI\ncomm = "
    "MPI.COMM_WORLD\nprint(comm.allreduce(comm.rank), socket.gethostname())\n"
)
SHARED = """import numpy as np
from ttkit import from_numpy, to_numpy, ttnn
ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
mesh = ttnn.open_mesh_device()
x = np.arange(6 * 32 * 64, dtype=np.float32).reshape(6 * 32, 64) % 97
shards = from_numpy(x, device=mesh, layout=ttnn.TILE_LAYOUT, mesh_mapper=ttnn.ShardTensorToMesh(mesh, dim=0))
y = ttnn.all_gather(ttnn.add(shards, shards), dim=0, cluster_axis=1, topology=ttnn.Topology.Linear)
everyone = to_numpy(y, mesh_composer=ttnn.ConcatMeshToTensor(mesh, dim=0))
assert (everyone == np.concatenate([2 * x] * 6)).all()
print(mesh.shape, sum(mesh.get_view().is_local(place) for place in ttnn.MeshCoordinateRange(mesh.shape)))
"""


BACKEND = """import pathlib, zipfile
INFO = "tiny-1.dist-info"
def build_editable(folder, settings=None, metadata=None):
    here = pathlib.Path.cwd()
    with zipfile.ZipFile(f"{folder}/tiny-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny.pth", str(here))
        wheel.writestr(f"{INFO}/METADATA", "Metadata-Version: 2.1\\nName: tiny\\nVersion: 1\\n")
        wheel.writestr(f"{INFO}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(f"{INFO}/RECORD", "")
    (here / "tiny.py").write_text("")
    return "tiny-1-py3-none-any.whl"
"""


def test_ranks_run_on_the_hosts_in_order(synced):
    options = [*HOSTS, "--tcp-interface", "eth0"]
    done = ttkit(synced, "run", *options, PYTHON, "-c", WHERE)
    assert sorted(done.stdout.splitlines()) == [
        f"[Rank {rank}/3] 3 {name}" for rank, name in enumerate(NAMES)
    ], done.stdout + done.stderr


def test_one_mesh_over_three_hosts(synced):
    folder = synced.path("node-1", "cfg")
    folder.mkdir(exist_ok=True)
    text = (ROOT / "configs/n300/mgd.textproto").read_text()
    for old, new in (
        ("device_topology { dims: [1, 2]", "device_topology { dims: [1, 6]"),
        ("host_topology { dims: [1, 1]", "host_topology { dims: [1, 3]"),
    ):
        assert old in text
        text = text.replace(old, new)
    (folder / "mgd.textproto").write_text(text)
    ranks = "".join(f"  - {{rank: {n}, mesh_id: 0, mesh_host_rank: {n}}}\n" for n in range(3))
    bindings = f"rank_bindings:\n{ranks}mesh_graph_desc_path: cfg/mgd.textproto\n"
    (folder / "rank_bindings.yaml").write_text(bindings)
    shutil.copy(synced.path("node-1", "hosts.txt"), folder)
    synced.path("node-1", "shared.py").write_text(SHARED)
    assert ttkit(synced, "sync", "--config", "cfg", "--apply").returncode == 0
    assert ttkit(synced, "doctor", "--config", "cfg").returncode == 0
    words = ["run", "--config", "cfg", PYTHON, "-m", "mpi4py", "shared.py"]
    done = ttkit(synced, *words, TTKIT_SYSTEM="n300")
    assert sorted(done.stdout.splitlines()) == [
        f"[Rank {rank}/3] MeshShape([1, 6]) 2" for rank in range(3)
    ], done.stdout + done.stderr


def test_the_fabric_example(hosts):
    """Two LoudBoxes through the runner, which brings the code itself: 1 + 2 from the ranks,
    times 8 chips.
    """
    shutil.rmtree(hosts.path("node-3", "examples"), ignore_errors=True)
    hosts.path("node-1", "two.txt").write_text("node-1 slots=1\nnode-3 slots=1\n")
    runner = "examples/fabric_minimal_example/runner.sh"
    words = ["--hostfile", "two.txt", "--rank-bindings", "configs/2loudboxes/rank_bindings.yaml"]
    done = hosts.call("node-1", [runner, *words], PYTHON=PYTHON)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[Rank 0/2] rank 0 of 2 on node-1: a 1x8 mesh" in done.stdout
    assert "[Rank 1/2] rank 1 of 2 on node-3: a 1x8 mesh" in done.stdout
    assert "[Rank 0/2] sum over 2 ranks and 8 chips: 24, expected 24" in done.stdout
    # no hosts file: all here
    done = hosts.call("node-1", [runner], PYTHON=PYTHON)
    assert done.returncode == 0 and "24, expected 24" in done.stdout, done.stderr
    assert "[Rank 1/2] rank 1 of 2 on node-1" in done.stdout


@contextlib.contextmanager
def running_ranks(hosts, text, **environment):
    """A `ttkit run` of a program whose three ranks have said that they are in."""
    running = hosts.start("node-1", [*RUN, text], **environment)
    try:
        for _ in range(3):
            while not (line := running.stdout.readline()).endswith(" in\n"):
                assert line, running.communicate()
        yield running
    finally:
        running.kill()
        running.communicate()


SILENT = "host node-3 (rank 2) no longer answers; the ranks on the other hosts were stopped"


def left(hosts, within_s, pattern=r"ttkit\.cluster\.|prted|prterun", names=NAMES):
    """The hosts where a process, one of a cluster, still runs after some time."""
    until = time.monotonic() + within_s
    while True:
        shown = {name: hosts.call(name, ["ps", "ax", "-o", "args"]).stdout for name in names}
        there = [name for name in names if re.search(pattern, shown[name])]
        if not there or time.monotonic() > until:
            return there
        time.sleep(0.2)


def test_a_host_that_is_cut_off_is_named_and_the_others_end(synced):
    text = (
        WHERE + "import time\nprint('in', flush=True)\nwhile True:\n    comm.allreduce(1)\n    "
        "time.sleep(0.05)\n"
    )
    with running_ranks(synced, text, **QUICK) as running, synced.unplugged("node-3"):
        since = time.monotonic()
        _, err = running.communicate(timeout=300)
        took = time.monotonic() - since
        still_there = left(synced, 240, " -uc ", NAMES[:2])
    assert running.returncode == 1 and took < 240, err
    assert f"ttkit run: {SILENT}" in err and "ttkit doctor" in err
    assert not still_there


def test_ctrl_c_lets_the_ranks_of_all_hosts_end_in_their_own_way(synced):
    text = (
        WHERE + "import time\ntry:\n    print('in', flush=True)\n    time.sleep(60)\nexcept "
        "KeyboardInterrupt:\n    time.sleep(1)\n    print('saved', flush=True)\n"
    )
    with running_ranks(synced, text) as running:
        pid = synced.call("node-1", ["pgrep", "-o", "-f", "ttkit run --hostfile"]).stdout.strip()
        synced.call("node-1", ["kill", "-INT", pid])
        out, err = running.communicate(timeout=300)
    assert out.count(" saved\n") == 3, out + err
    assert "interrupted by SIGINT; all 3 ranks have ended" in err


def test_a_host_that_cannot_be_reached_is_named(synced):
    synced.path("node-1", "away.txt").write_text("node-1 slots=1\nno-such-host slots=2\n")
    done = ttkit(synced, "run", "--hostfile", "away.txt", PYTHON, "-c", WHERE)
    assert done.returncode and "no-such-host" in done.stderr, done.stderr
    assert "ttkit run: a host cannot be reached by ssh: " in done.stderr


@pytest.mark.long
def test_install_makes_the_environment_there(synced):
    """A project without dependencies, with a build backend of its own: these hosts have no way
    to an index of packages.
    """
    project = synced.path("node-1", "project")
    project.mkdir()
    (project / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    (project / "backend.py").write_text(BACKEND)
    words = ["sync", "--hostfile", "../hosts.txt", "--install"]

    def install(*more):
        command = [PYTHON, "-m", "ttkit", *words, *more]
        return synced.call(
            "node-1", command, str(synced.site / "project"), PYTHONPATH=str(synced.site)
        )

    assert "nothing was changed" in install().stdout
    assert not synced.path("node-2", "project").exists()
    done = install("--apply")
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("2 files updated; environment set up") == 2
    asks = [synced.site / "project/.venv/bin/python", "-c", "import tiny; print(tiny.__file__)"]
    assert synced.call("node-3", asks, cwd="/").stdout == f"{synced.site}/project/tiny.py\n"


# ---- engines

ENGINES = """import os, time
import ttkit
from ttkit.errors import TTKitError

def where(factor=1):
    import socket
    from mpi4py import MPI
    return MPI.COMM_WORLD.allreduce(MPI.COMM_WORLD.rank) * factor, socket.gethostname()

def boom():
    from mpi4py import MPI
    if MPI.COMM_WORLD.rank == 2:
        raise ValueError("of rank 2")

def wait(seconds):
    import time
    time.sleep(seconds)

def talk():
    from mpi4py import MPI
    while True:
        MPI.COMM_WORLD.allreduce(1)

cluster = ttkit.Cluster("cfg").start()
print(os.getpid(), flush=True)
"""
USED = """
print(cluster.run(where, 10))
try:
    cluster.run(boom)
except TTKitError as error:
    print(str(error).splitlines()[0])
cluster.timeout_s = 0.5
try:
    cluster.run(wait, 50)
except TTKitError:
    cluster.interrupt()
cluster.timeout_s = None
print(cluster.run(where))
while not all(cluster.report(rank).process_bytes for rank in range(3)):
    time.sleep(0.1)
print([cluster.report(rank).host for rank in range(3)])
listening = os.popen("ss -Hltn").read().split()[3::5]
print(sum(place.startswith("10.77.0.1:") for place in listening) >= 10)
cluster.stop()
"""
CUT = """
try:
    cluster.run(talk)
except TTKitError as error:
    print(error)
cluster.stop()
"""


@pytest.fixture
def engines(synced):
    """engines(program): a Python on node-1 that has started a Cluster on the three hosts and
    goes on with the program.
    """
    folder = synced.path("node-1", "cfg")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    shutil.copy(synced.path("node-1", "hosts.txt"), folder)
    started = []

    def start(program):
        synced.path("node-1", "own.py").write_text(ENGINES + program)
        own = [PYTHON, "own.py"]
        process = synced.start("node-1", own, PYTHONPATH=str(synced.site), **QUICK)
        started.append(process)
        pid = process.stdout.readline()
        assert pid, process.communicate()
        return process, int(pid)

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_engines_on_three_hosts(synced, engines):
    process, _ = engines(USED)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, out + err
    assert out.splitlines() == [
        f"{[(30, name) for name in NAMES]}",
        "cluster.run(boom): rank 2 of 3 raised ValueError: of rank 2",
        "ranks 0, 1 and 2 were at line 17 of wait: time.sleep(seconds)",
        "interrupted; after a collective, cluster.restart(): what some ranks have sent for it is "
        "still under way",
        f"{[(3, name) for name in NAMES]}",
        f"{NAMES}",
        "True",
    ]
    assert left(synced, 10) == []


@pytest.mark.long
def test_no_engine_outlives_its_notebook(synced, engines):
    _, pid = engines("time.sleep(60)")
    assert left(synced, 0) == NAMES
    synced.call("node-1", ["kill", "-KILL", pid])
    assert left(synced, 30) == []


@pytest.mark.long
def test_a_cluster_says_which_host_fell_silent(synced, engines):
    process, _ = engines(CUT)
    time.sleep(1.0)
    with synced.unplugged("node-3"):
        out, err = process.communicate(timeout=300)
        assert SILENT in out, out + err
        assert not left(synced, 20, names=NAMES[:2])
        assert left(synced, 30) == []  # the rank that was cut off has ended by itself
