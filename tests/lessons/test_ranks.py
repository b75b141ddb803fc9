"""Functions that run on ranks: their messages are recorded, their waits end and are explained."""

import numpy as np
import pytest

import ttkit
from course.ranks import ring_exchange, watch, why_stuck
from ttkit.plans.messages import Call, exchange


def ring(comm, numbers):
    sending = np.array([numbers[comm.rank]])
    total = sending.copy()
    for _ in range(comm.size - 1):
        arriving = np.empty_like(sending)
        right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        comm.Sendrecv(sending, dest=right, recvbuf=arriving, source=left)
        total, sending = total + arriving, arriving
    return float(total[0])


def send_first(comm):
    comm.Send(np.ones(1), dest=(comm.rank + 1) % comm.size)


def any_source(comm):
    if comm.rank:
        comm.Send(np.array([comm.rank]), dest=0)
        return None
    got, number = [], np.empty(1, int)
    for _ in range(comm.size - 1):
        comm.Recv(number)
        got.append(int(number[0]))
    return sorted(got)


def one_waits(comm):
    if comm.rank == 2:
        comm.Recv(np.empty(1), source=0)
    return comm.rank


def to_nobody(comm):
    from mpi4py import MPI

    right = comm.rank + 1 if comm.rank + 1 < comm.size else MPI.PROC_NULL
    left = comm.rank - 1 if comm.rank else MPI.PROC_NULL
    comm.Sendrecv(np.ones(3), dest=right, recvbuf=np.empty(3), source=left)


def test_the_ring_is_recorded(cluster):
    run = watch(cluster, ring, [1.0, 20.0, 300.0, 4000.0])
    assert run.results == (4321.0,) * 4
    plain = ring_exchange(4, buffered=True)
    assert [m._replace(text="") for m in run.messages] == list(plain.messages)
    assert [m.text for m in run.messages if m.sender == 0] == ["1", "4000", "300"]


def test_a_deadlock_ends_names_the_line_and_leaves_the_engines(cluster):
    pid = cluster.pid(1)
    run = watch(cluster, send_first, limit_s=1)
    assert run.cycle == (0, 1, 2, 3) and run.messages == ()
    line = r"of send_first: comm.Send(np.ones(1), dest=(comm.rank + 1) % comm.size)"
    assert all(wait.line.endswith(line) for wait in run.waits)
    assert watch(cluster, ring, [1.0] * 4).results == (4.0,) * 4 and cluster.pid(1) == pid


def test_messages_from_any_rank_have_their_sender(cluster):
    run = watch(cluster, any_source)
    assert run.results[0] == [1, 2, 3] and run.waits == ()
    assert sorted((m.sender, m.receiver) for m in run.messages) == [(1, 0), (2, 0), (3, 0)]


def test_one_rank_waits_for_one_that_is_done(cluster):
    run = watch(cluster, one_waits, limit_s=1)
    assert [(wait.rank, wait.peer, wait.receives) for wait in run.waits] == [(2, 0, True)]
    assert run.results == (0, 1, None, 3)


def test_a_message_to_nobody_is_none(cluster):
    assert len(watch(cluster, to_nobody).messages) == 3


def test_an_error_names_the_rank(cluster):
    def fails(comm):
        return 1 / comm.rank

    with pytest.raises(ttkit.TTKitError, match="rank 0 of 4 raised ZeroDivisionError"):
        watch(cluster, fails)


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (ring_exchange(3, "Send, then Recv"), "a deadlock: rank 0 waits for 1, 1 for 2, 2 for 0"),
        (exchange([[Call("Send", to=1)], []]), "rank 0 cannot go on"),
        (exchange([[Call("Recv", source=-1)], []]), "for any rank to send"),
    ],
)
def test_why_ranks_are_stuck(run, said):
    assert said in why_stuck(run)
