"""Lesson 06 on four engines: its exercises with right and with wrong answers."""

import numpy as np
import pytest
from answers import both

from ttkit import lessons
from ttkit.errors import TTKitError


# An engine has a function itself, and nothing that stands beside it: each is whole, or a closure.
def shift_by(steps):
    def shift(comm, x):
        there, here = (comm.rank + steps) % comm.size, (comm.rank - steps) % comm.size
        arriving = np.empty_like(x)
        comm.Sendrecv(x, dest=there, recvbuf=arriving, source=here)
        return arriving

    return shift


shift = shift_by(1)


def odd_ranks_receive_first(comm, x):
    left = np.empty_like(x)
    if comm.rank % 2:
        comm.Recv(left, source=comm.rank - 1)
    comm.Send(x, dest=(comm.rank + 1) % comm.size)
    if comm.rank % 2 == 0:
        comm.Recv(left, source=(comm.rank - 1) % comm.size)
    return left


def row_by_row(comm, x):
    left, right = np.empty_like(x), (comm.rank + 1) % comm.size
    for mine, arriving in zip(x, left):
        comm.Sendrecv(mine, right, recvbuf=arriving, source=(comm.rank - 1) % comm.size)
    return left


def send_first(comm, x):
    left = np.empty_like(x)
    comm.Send(x, dest=(comm.rank + 1) % comm.size)
    comm.Recv(left, source=(comm.rank - 1) % comm.size)
    return left


def twice(comm, x):
    left = np.empty_like(x)
    for _ in range(2):
        right = (comm.rank + 1) % comm.size
        comm.Sendrecv(x, dest=right, recvbuf=left, source=(comm.rank - 1) % comm.size)
    return left


def ring_of(rounds=2, scale=1, own=0):
    """The ring, with so many times n - 1 rounds."""

    def ring(comm, x):
        n = comm.size
        chunks = x.reshape(n, -1).copy()
        for r in range(rounds * (n - 1)):
            out, into = (comm.rank - r) % n, (comm.rank - r - 1) % n
            arriving = one_on(comm, chunks[out])
            chunks[into] = chunks[into] + arriving if r < n - 1 else arriving
        return chunks.reshape(x.shape) * scale + own * x

    one_on = shift
    return ring


def by_halves(first):
    """Recursive halving and doubling of four ranks: other messages, the same bytes."""

    def answer(comm, x):
        if comm.size != 4:
            return ring(comm, x)
        y, lo, hi, spans = x.copy(), 0, x.size, []
        for distance in (1, 2):
            peer, middle = comm.rank ^ distance, (lo + hi) // 2
            keep, give = ((lo, middle), (middle, hi))[:: 1 if comm.rank & distance == 0 else -1]
            arriving = np.empty(keep[1] - keep[0], x.dtype)
            comm.Sendrecv(y[give[0] : give[1]].copy(), peer, recvbuf=arriving, source=peer)
            spans.append((peer, keep, give))
            lo, hi = keep
            y[lo:hi] += arriving
        for peer, keep, give in reversed(spans):
            arriving = np.empty(give[1] - give[0], x.dtype)
            comm.Sendrecv(y[keep[0] : keep[1]].copy(), peer, recvbuf=arriving, source=peer)
            y[give[0] : give[1]] = arriving
        return y

    ring = first
    return answer


def all_round_the_ring(one_on):
    def dear(comm, x):
        total = x.copy()
        for _ in range(comm.size - 1):
            x = one_on(comm, x)
            total += x
        return total

    return dear


def in_place(comm, x):  # as with torch's tensors: into the array that came
    x[:] = ring_of()(comm, x)
    return x


test_a_right_answer_passes, test_a_wrong_answer_is_told_where = both(
    {
        "06.shift": (
            [shift, odd_ranks_receive_first, row_by_row],
            {
                "rank 0: element [0, 0] should be": shift_by(2),
                "send x the other way": shift_by(-1),
                "each rank still has its own values": lambda comm, x: x,
                "a deadlock: rank 0 waits for 1, 1 for 2, 2 for 3, 3 for 0": send_first,
                "of send_first: comm.Send(x, dest=(comm.rank + 1) % comm.size)\n": send_first,
                "rank 0: returned nothing": lambda comm, x: None,
                "rank 0 sent 160 bytes; the budget is 80": twice,
            },
        ),
        "06.all_reduce": (
            [ring_of(), by_halves(ring_of()), in_place],
            {
                "rank 0 sent 384 bytes; the budget is 192": all_round_the_ring(shift),
                "rank 0: element [0] should be": ring_of(rounds=1),
                "that is the mean; expected the sum": ring_of(scale=0.25),
                "that is 4 times the sum": ring_of(scale=4),
                "each rank added its own values twice": ring_of(own=1),
                "each rank still has its own values": lambda comm, x: x,
            },
        ),
    },
    "cluster",
)


def test_an_error_names_the_rank_and_a_deadlock_leaves_the_engines(cluster):
    pid = cluster.pid(0)
    with pytest.raises(TTKitError, match="rank 0 of 4 raised ZeroDivisionError"):
        lessons.check("06.shift", lambda comm, x: x / (1 // comm.rank), cluster)
    with pytest.raises(lessons.CheckFailed):
        lessons.check("06.shift", send_first, cluster)
    lessons.check("06.shift", shift, cluster)
    assert cluster.pid(0) == pid


def test_a_stub_stays_to_do(cluster, capsys):
    def stub(comm, x):
        lessons.todo()

    lessons.check("06.shift", stub, cluster)
    assert "exercise 06.shift: not done yet" in capsys.readouterr().out


def test_the_check_needs_a_cluster():
    with pytest.raises(lessons.CheckFailed, match="at least three ranks"):
        lessons.check("06.shift", shift)
