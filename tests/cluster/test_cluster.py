"""Engines: rank = engine, results and output in rank order, and every fault said in seconds with
no process left behind.
"""

import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time

import psutil
import pytest

import ttkit
from ttkit.cluster.engines import results
from ttkit.errors import TTKitError

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUSY = 12  # a busy machine may take so many times the seconds that an idle one does


def family(pid=None):
    """All living processes below one, this one if not given."""
    below = psutil.Process(pid).children(recursive=True)
    return [each for each in below if each.status() != psutil.STATUS_ZOMBIE]


def tree(cluster):
    """All living processes of a cluster."""
    top = cluster._processes.pids["supervisor"]
    return [psutil.Process(top), *family(top)]


def gone(processes, within_s):
    """Whether these processes are gone, or zombies that nobody has fetched, within a time."""
    until = time.monotonic() + BUSY * within_s
    while any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in processes):
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


@pytest.fixture(scope="module")
def four():
    """Four engines; a test that breaks them restarts them."""
    with ttkit.Cluster(4) as cluster:
        yield cluster
    assert family() == []


class takes:
    """A block that must end within some seconds."""

    def __init__(self, seconds):
        self.seconds = seconds

    def __enter__(self):
        self.begin = time.monotonic()

    def __exit__(self, kind, error, trace):
        if kind is None:
            assert time.monotonic() - self.begin < BUSY * self.seconds


def later(seconds, pid, number=signal.SIGKILL):
    threading.Timer(seconds, os.kill, (pid, number)).start()


# What runs on the engines.


def where():
    import os

    from mpi4py import MPI

    return MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size, os.environ["TT_VISIBLE_DEVICES"]


def late_first():
    import time

    from mpi4py import MPI

    time.sleep(0.2 - 0.05 * MPI.COMM_WORLD.rank)
    return MPI.COMM_WORLD.rank


def all_reduce(value):
    import numpy
    from mpi4py import MPI

    total = numpy.empty_like(value)
    MPI.COMM_WORLD.Allreduce(value * (MPI.COMM_WORLD.rank + 1), total)
    return total


def chips():
    from ttkit import ttnn

    return ttnn.get_num_devices()


def fail_on(rank):
    from mpi4py import MPI

    if MPI.COMM_WORLD.rank == rank:
        raise ValueError("this one is wrong")
    MPI.COMM_WORLD.allreduce(1)  # the first one would hold the GIL


def wait_for(rank):
    import time

    from mpi4py import MPI

    if MPI.COMM_WORLD.rank == rank:
        time.sleep(600)
    MPI.COMM_WORLD.Barrier()


def arrive_and_sleep(folder):
    import os
    import time

    # one line: a rank that is still in touch() is at the same line as the others
    (folder / str(os.getpid())).touch() or time.sleep(600)


def hold_a_mesh():
    import time

    from ttkit import ttnn

    with ttnn.open_mesh_device(ttnn.MeshShape(1, 2)):
        time.sleep(600)


def give_a_tensor():
    import numpy

    import ttkit

    return ttkit.from_numpy(numpy.zeros((32, 32), "f4"))


def give_what_ranks_read():
    class Odd:
        def __reduce__(self):
            return eval, ("__import__('os').environ['OMPI_COMM_WORLD_RANK']",)

    return Odd()


def say_where():
    import random
    import time

    from mpi4py import MPI

    time.sleep(random.random() / 5)
    print("I am", MPI.COMM_WORLD.rank)


def say_the_same():
    print("hello")
    print("again")


def say_and_fail():
    print("until here")
    raise ValueError("no further")


def test_an_engine_is_a_rank_with_cards_of_its_own(four):
    assert four.run(where) == [(rank, 4, str(rank)) for rank in range(4)]
    assert four.run(chips) == [2, 2, 2, 2]


def test_arrays_are_reduced_across_ranks(four):
    import numpy

    value = numpy.arange(100_000, dtype=numpy.float32)
    for total in four.run(all_reduce, value):
        numpy.testing.assert_array_equal(total, value * 10)


def test_ipyparallel_is_there_for_the_rest(four):
    assert four.client[:].apply_sync(late_first) == [0, 1, 2, 3]


def states(cluster):
    return [line.strip() for line in repr(cluster.status()).splitlines()[1 : 1 + cluster.n]]


def test_the_status_of_idle_ranks(four):
    for rank, line in enumerate(states(four)):
        assert line.startswith(f"rank {rank}, idle: card {rank} (2 chips: {rank}, {rank + 4})")
    assert repr(four) == "<Cluster(4): 4 engines, running>"


def test_the_status_knows_what_busy_ranks_hold(four):
    def held():
        busy = [line.partition(":")[0] for line in states(four)]
        reports = [four.report(rank) for rank in range(4)]
        at = {str(report.line).partition(": ")[2] for report in reports}
        return [report.meshes for report in reports], busy, at

    wanted = [((1, 2),)] * 4, [f"rank {r}, busy" for r in range(4)], {"time.sleep(600)"}
    answer = four.client[:].apply_async(hold_a_mesh)
    until = time.monotonic() + BUSY * 10
    try:
        # A report may come when the mesh is open and the tensor is not there yet.
        while held() != wanted and time.monotonic() < until:
            time.sleep(0.05)
        assert held() == wanted
        reports = [four.report(rank) for rank in range(4)]
        assert {report.host for report in reports} == {socket.gethostname()}
        assert all(report.process_bytes > 10_000_000 for report in reports)
        assert "of hold_a_mesh: time.sleep(600)" in str(reports[0].line)
    finally:
        four.interrupt()  # or the next test would wait for them
    with pytest.raises(Exception, match="KeyboardInterrupt"):
        answer.get(timeout=BUSY * 10)


def test_an_error_names_rank_and_line_and_a_hung_collective_is_interrupted(four, capsys):
    with takes(10), pytest.raises(TTKitError) as caught:
        four.run(fail_on, 2)
    for part in (
        "cluster.run(fail_on): rank 2 of 4 raised ValueError: this one is wrong",
        'of fail_on: raise ValueError("this one is wrong")',
        "ranks 0, 1 and 3 did not finish",
        "of fail_on: MPI.COMM_WORLD.allreduce(1)",
    ):
        assert part in str(caught.value)
    ranks = states(four)
    assert ["busy" in line for line in ranks] == [True, True, False, True]
    assert ranks[2].endswith("; ValueError: this one is wrong")
    before = tree(four)
    four.interrupt()
    said = capsys.readouterr().out
    assert "ranks 0, 1 and 3 were at line" in said and "MPI.COMM_WORLD.allreduce(1)" in said
    assert "the next call starts new engines" in said
    assert gone(before, 1)
    assert repr(four) == "<Cluster(4): 4 engines, interrupted>"
    assert four.run(late_first) == [0, 1, 2, 3]


def test_python_code_is_interrupted_and_the_engines_stay(four, capsys, tmp_path):
    pids = [four.pid(rank) for rank in range(4)]

    done = threading.Event()

    def interrupt():
        while len(list(tmp_path.iterdir())) < 4:  # until all ranks are in the function
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)
        # as a person does: Python loses a KeyboardInterrupt that comes in a finalizer
        while not done.wait(60):
            os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with takes(10), pytest.raises(KeyboardInterrupt):
        try:
            four.run(arrive_and_sleep, tmp_path)
        finally:
            done.set()
    assert "ranks 0, 1, 2 and 3 were at" in capsys.readouterr().out
    assert four.run(late_first) == [0, 1, 2, 3]
    assert [four.pid(rank) for rank in range(4)] == pids


def test_an_interrupt_while_tasks_are_sent(four, capsys, monkeypatch):
    def ask(*given, plain=results.ask):
        plain(*given)
        raise KeyboardInterrupt

    monkeypatch.setattr(results, "ask", ask)
    with pytest.raises(KeyboardInterrupt):
        four.run(time.sleep, 300)
    monkeypatch.undo()
    assert "ranks 0, 1, 2 and 3 were at" in capsys.readouterr().out
    assert four.run(late_first) == [0, 1, 2, 3]


def test_idle_engines_burn_nothing_and_listen_on_this_host_only(four):
    engines = [psutil.Process(four.pid(rank)) for rank in range(4)]

    def used():
        return sum(sum(engine.cpu_times()[:2]) for engine in engines)

    before = used()
    time.sleep(1.0)
    assert used() - before < 0.5  # seconds, of the four that they could have used
    # Open MPI's own, for its daemons on other hosts: it cannot be told not to
    mpirun = four._processes.pids["mpirun"]
    others = [process for process in family() if process.pid != mpirun]
    sockets = [each for process in others for each in process.net_connections("inet")]
    assert sockets
    assert {each.laddr.ip for each in sockets if each.status == psutil.CONN_LISTEN} == {"127.0.0.1"}


def test_a_tensor_stays_in_its_rank(four):
    with takes(10), pytest.raises(TTKitError) as caught:
        four.run(give_a_tensor)
    assert "raised TTKitError: pickle or deepcopy a FLOAT32 tensor" in str(caught.value)
    with pytest.raises(TTKitError, match=r"ttkit.to_numpy\(tensor\)"):
        four.run(print, give_a_tensor())
    assert four.busy() == []


def test_an_answer_that_only_the_ranks_can_read(four):
    with takes(10), pytest.raises(TTKitError) as caught:
        four.run(give_what_ranks_read)
    assert str(caught.value) == (
        "cluster.run(give_what_ranks_read): ranks 0, 1, 2 and 3 of 4 returned an answer that "
        "cannot "
        "be read: KeyError: 'OMPI_COMM_WORLD_RANK'\n"
        "  try: NumPy arrays, numbers, text, and lists and dicts of them; ttkit.to_numpy(tensor)"
    )


def test_what_cannot_be_sent(four):
    with pytest.raises(TTKitError, match="an argument cannot be sent to the ranks: cannot pickle"):
        four.run(print, threading.Lock())


def test_prints_are_shown_in_rank_order(four, capsys):
    assert four.run(say_where) == [None] * 4
    lines = [f"[rank {rank}] I am {rank}" for rank in range(4)]
    assert capsys.readouterr().out.splitlines() == lines
    four.run(say_the_same)
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("[all ranks] hello\n[all ranks] again\n", "")
    with pytest.raises(TTKitError):
        four.run(say_and_fail)
    assert capsys.readouterr().out == "[all ranks] until here\n"


def test_engines_that_are_killed_are_reported_without_being_asked(four):
    before = tree(four)
    answer = four.client[:].apply_async(wait_for, 3)
    later(0.7, four.pid(3))
    killed = r"rank 3 of 4 was killed by signal 9 \(Killed\); the others were stopped"
    with takes(10), pytest.raises(Exception, match=killed):  # of ipyparallel's own view
        answer.get(timeout=BUSY * 10)
    assert all(f"rank {rank}, failed:" in states(four)[rank] for rank in range(4))
    assert "rank 3 of 4 was killed" in str(four.status())
    with pytest.raises(TTKitError, match=rf"{killed}(.|\n)*try: cluster.restart\(\)"):
        four.run(late_first)
    four.restart()
    assert gone(before, 1)
    assert four.run(late_first) == [0, 1, 2, 3]


def test_a_supervisor_that_is_killed(four):
    before = tree(four)
    later(0.5, four._processes.pids["supervisor"])
    killed = r"supervisor was killed by signal 9 \(SIGKILL\)"
    with takes(10), pytest.raises(TTKitError, match=killed):
        four.run(wait_for, 0)
    four.stop()
    assert gone(before, 1)
    with pytest.raises(TTKitError, match="the cluster is not started"):
        four.run(late_first)


def test_a_controller_that_ends_before_it_answers(monkeypatch):
    two = ttkit.Cluster(2)

    def unanswered(*args, **kwargs):
        os.kill(two._processes.pids["controller"], signal.SIGKILL)
        raise TimeoutError("Hub connection request timed out")

    monkeypatch.setattr("ttkit.cluster.engines.results.Client", unanswered)
    with takes(20), pytest.raises(TTKitError, match="controller was killed by signal 9"):
        two.start()
    assert two.state == "stopped"


# What cannot start, and a program that starts engines.


def write_config(folder, **environment):
    overrides = ", ".join(f'{name}: "{value}"' for name, value in environment.items())
    (folder / "rank_bindings.yaml").write_text(
        "rank_bindings:\n  - {rank: 0, mesh_id: 0, mesh_host_rank: 0}\n  - {rank: 1, mesh_id: 0, "
        f"mesh_host_rank: 1, env_overrides: {{{overrides}}}}}\n"
        f"mesh_graph_desc_path: {ROOT}/configs/t3000_2ranks/mgd.textproto\n"
    )
    return folder


def test_no_mpirun(monkeypatch):
    monkeypatch.setattr("ttkit.cluster.engines.cluster.find_mpirun", lambda: "/no/mpirun")
    with takes(10), pytest.raises(TTKitError, match="/no/mpirun is not a program here"):
        ttkit.Cluster(2).start()


def test_an_engine_that_fails_at_import(tmp_path):
    (tmp_path / "mpi4py.py").write_text("raise ImportError('broken on purpose')\n")
    cluster = ttkit.Cluster(write_config(tmp_path, PYTHONPATH=tmp_path))
    before = set(family())
    with (
        takes(10),
        pytest.raises(TTKitError, match=r"rank 1 of 2 (exited with code 1|ended)") as caught,
    ):
        cluster.start()
    assert "ImportError: broken on purpose" in str(caught.value)
    assert set(family()) == before
    assert cluster.state == "stopped"


def test_hosts_elsewhere_that_are_not_there():
    cluster = ttkit.Cluster("configs/2loudboxes")
    assert cluster.hosts == ["metal-wh-01", "metal-wh-04"]
    cure = "correct its name in the hosts file; ttkit doctor checks it"
    with pytest.raises(TTKitError, match=rf"the address of metal-wh-01: .*\n  try: {cure}"):
        cluster.start()
    assert cluster.state == "stopped"


OWNER = """
import sys, time
import ttkit

def found():
    import json, os, sys
    import helper

    names = [os.environ.get(name) for name in ("TT_MESH_ID", "TT_MESH_HOST_RANK", "MINE")]
    return helper.VALUE, json.loads("7"), sys.path.index("") > 0, names

if __name__ == "__main__":
    cluster = ttkit.Cluster(sys.argv[1]).start()
    print(*cluster.run(found), sep="\\n")
    try:
        cluster.run(lambda: 1 / 0)
    except RuntimeError as error:
        print(error)
    print(cluster._processes.folder, flush=True)
    time.sleep(600)
"""


def test_a_program_with_engines_that_is_killed(tmp_path):
    """The working folder has files with names of the standard library, the program lies in a clone
    named ttkit; each rank has its own variables; nothing is left behind."""
    working, clone = tmp_path / "working", tmp_path / "it's my kits/größe/ttkit/scripts"
    for folder in (working, clone):
        folder.mkdir(parents=True)
    for name in ("json", "select", "socket", "tempfile", "logging", "psutil"):
        (working / f"{name}.py").write_text("raise SystemExit('the wrong file')\n")
    (working / "helper.py").write_text("VALUE = 3\n")
    (clone / "run.py").write_text(OWNER)
    words = [sys.executable, str(clone / "run.py"), str(write_config(tmp_path, MINE="yes"))]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with subprocess.Popen(words, cwd=working, env=env, stdout=subprocess.PIPE, text=True) as owner:
        assert [owner.stdout.readline().rstrip("\n") for _ in range(5)] == [
            "(3, 7, True, ['0', '0', None])",
            "(3, 7, True, ['0', '1', 'yes'])",
            "cluster.run(lambda): ranks 0 and 1 of 2 raised ZeroDivisionError: division by zero",
            "    at line 16 of <lambda>: cluster.run(lambda: 1 / 0)",
            "  try: fix that line",
        ]
        folder = pathlib.Path(owner.stdout.readline().strip())
        assert folder.is_absolute() and folder.is_dir()
        below = family(owner.pid)
        assert len(below) >= 5  # supervisor, controller, mpirun, two engines
        os.kill(owner.pid, signal.SIGKILL)  # and a zombie until this block ends
        assert gone(below, 8)
    assert not folder.exists() and not (pathlib.Path("/dev/shm") / folder.name).exists()
