"""The exercises of lesson 05 on four engines: right answers pass, wrong ones are told where."""

import numpy as np
import pytest

import ttkit
from ttkit import lessons


@pytest.fixture(scope="module")
def cluster():
    with ttkit.Cluster(4) as cluster:
        yield cluster


def shift(comm, x):
    left = np.empty_like(x)
    comm.Sendrecv(
        x, dest=(comm.rank + 1) % comm.size, recvbuf=left, source=(comm.rank - 1) % comm.size
    )
    return left


def shift_in_two(comm, x):
    left = np.empty_like(x)
    request = comm.Isend(x, dest=(comm.Get_rank() + 1) % comm.Get_size())
    comm.Recv(left, source=(comm.rank - 1) % comm.size)
    request.Wait()
    return left


def shift_back(comm, x):
    right = np.empty_like(x)
    comm.Sendrecv(
        x, dest=(comm.rank - 1) % comm.size, recvbuf=right, source=(comm.rank + 1) % comm.size
    )
    return right


def shift_twice(comm, x):
    for _ in range(comm.size + 1):
        x = shift(comm, x)
    return x


def shift_without_wrap(comm, x):
    left = x.copy()
    if comm.rank + 1 < comm.size:
        comm.Send(x, dest=comm.rank + 1)
    if comm.rank > 0:
        comm.Recv(left, source=comm.rank - 1)
    return left


def ring(comm, x):
    n = comm.size
    chunks = x.reshape(n, -1).copy()
    for r in range(2 * (n - 1)):
        out, into = (comm.rank - r) % n, (comm.rank - r - 1) % n
        arriving = shift(comm, chunks[out])
        chunks[into] = chunks[into] + arriving if r < n - 1 else arriving
    return chunks.reshape(x.shape)


def dear(comm, x):
    total = x.copy()
    for _ in range(comm.size - 1):
        x = shift(comm, x)
        total += x
    return total


def half_done(comm, x):
    n = comm.size
    chunks = x.reshape(n, -1).copy()
    for r in range(n - 1):
        into = (comm.rank - r - 1) % n
        chunks[into] += shift(comm, chunks[(comm.rank - r) % n])
    return chunks.reshape(x.shape)


def builtin(comm, x):
    total = np.empty_like(x)
    comm.Allreduce(x, total)
    return total


def waits(comm, x):
    comm.Recv(x, source=(comm.rank - 1) % comm.size)
    return x


def raises(comm, x):
    if comm.rank == 1:
        raise KeyError("x")
    return shift(comm, x)


def sends_engines_the_helper(function):
    """`shift` is looked up on the engine, where only the answer's own globals are: put it in."""

    def answer(comm, x):
        globals()["shift"] = helper
        return function(comm, x)

    helper = shift
    return answer


RIGHT = [
    ("05.shift", shift),
    ("05.shift", shift_in_two),
    ("05.all_reduce", sends_engines_the_helper(ring)),
]
WRONG = [
    ("05.shift", shift_back, "rank 0 has what rank 1 had: it should be sent the other way"),
    ("05.shift", lambda comm, x: x, "rank 0 has its own values still"),
    ("05.shift", shift_without_wrap, "rank 0 has its own values still"),
    (
        "05.shift",
        sends_engines_the_helper(shift_twice),
        "rank 0 sent 300 bytes; one array of 60 is enough",
    ),
    ("05.shift", lambda comm, x: None, "rank 0: it gave nothing back"),
    ("05.shift", lambda comm, x: object(), "rank 0: it gave a object, not an array"),
    (
        "05.shift",
        raises,
        r"rank 1 of 4 raised KeyError: 'x'\n *at line \d+ of raises: raise KeyError",
    ),
    ("05.shift", 7, "shift should be a function, is a int"),
    ("05.all_reduce", sends_engines_the_helper(dear), "rank 0 sent 384 bytes; the budget is 192"),
    (
        "05.all_reduce",
        sends_engines_the_helper(half_done),
        "rank 0 has a wrong sum in chunks 0, 2, 3 of 4",
    ),
    ("05.all_reduce", builtin, "rank 0: comm.Allreduce is not for this exercise"),
    ("05.all_reduce", lambda comm, x: x[:3], r"rank 0 should give back \(32,\), gave \(3,\)"),
]


@pytest.mark.parametrize(("name", "answer"), RIGHT)
def test_a_right_answer_passes(cluster, name, answer, capsys):
    lessons.check(name, answer, cluster)
    assert f"exercise {name}: " in capsys.readouterr().out


@pytest.mark.parametrize(("name", "answer", "message"), WRONG)
def test_a_wrong_answer_is_told_where(cluster, name, answer, message):
    with pytest.raises(lessons.CheckFailed, match=message):
        lessons.check(name, answer, cluster)


def test_an_answer_that_waits_for_ever(cluster, monkeypatch):
    said = r"ranks 0, 1, 2 and 3 did not finish in 5 s\n *at line \d+ of waits: comm.Recv"
    lessons.check("05.shift", shift, cluster)  # what it imports is there
    with monkeypatch.context() as patch:
        patch.setattr("ttkit.lessons.lesson_05.TIME_S", 5)
        with pytest.raises(lessons.CheckFailed, match=said):
            lessons.check("05.shift", waits, cluster)
    lessons.check("05.shift", shift, cluster)


def test_a_stub_stays_to_do(cluster):
    def stub(comm, x):
        lessons.todo()

    with pytest.raises(lessons.NotDone, match=r"exercise 05\.shift"):
        lessons.check("05.shift", stub, cluster)


def test_a_cluster_that_was_stopped(cluster):
    cluster.stop()
    with pytest.raises(lessons.CheckFailed) as caught:
        lessons.check("05.shift", shift, cluster)
    rule, cure = str(caught.value).split("\n  try: ")
    assert (rule, cure.partition(",")[0]) == ("the cluster is not started", "cluster.start()")
    assert cluster.state == "stopped"


def test_without_a_cluster():
    with pytest.raises(lessons.CheckFailed, match="give the cluster, too"):
        lessons.check("05.shift", shift)
