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


def shift_in_turns(comm, x):
    """Rank 0 receives first, so the sends resolve one after the other."""
    left = np.empty_like(x)
    before, after = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    if comm.rank == 0:
        comm.Recv(left, source=before)
        comm.Send(x, dest=after)
    else:
        comm.Send(x, dest=after)
        comm.Recv(left, before)
    return left


def shift_without_waiting(comm, x):
    from mpi4py import MPI

    left = np.empty_like(x)
    coming = comm.Irecv(
        [left, MPI.DOUBLE if x.itemsize == 8 else MPI.FLOAT], source=(comm.rank - 1) % comm.size
    )
    going = comm.Isend(
        [x, MPI.DOUBLE if x.itemsize == 8 else MPI.FLOAT], dest=(comm.rank + 1) % comm.size
    )
    MPI.Request.Waitall([coming, going])
    return left


def send_first(comm, x):
    left = np.empty_like(x)
    comm.Send(x, dest=(comm.rank + 1) % comm.size)
    comm.Recv(left, source=(comm.rank - 1) % comm.size)
    return left


def send_first_unless_error(comm, x):
    try:
        return send_first(comm, x)
    except Exception:
        return shift(comm, x)


def send_first_unless_anything(comm, x):
    """A bare except hides the end of a wait, too; what was sent then arrives after all."""
    left = np.empty_like(x)
    before = (comm.rank - 1) % comm.size
    try:
        comm.Send(x, dest=(comm.rank + 1) % comm.size)
        comm.Recv(left, source=before)
    except:  # noqa: E722
        comm.Recv(left, source=before)
    return left


def return_after_all(comm, x):
    try:
        comm.Send(x, dest=(comm.rank + 1) % comm.size)
    finally:
        return x  # noqa: B012


def wait_before_the_send(comm, x):
    left = np.empty_like(x)
    comm.Irecv(left, source=(comm.rank - 1) % comm.size).Wait()
    comm.Send(x, dest=(comm.rank + 1) % comm.size)
    return left


def to_the_wrong_rank(comm, x):
    left = np.empty_like(x)
    comm.Isend(x, dest=0)
    comm.Recv(left, source=(comm.rank - 1) % comm.size)
    return left


def four_ranks_only(comm, x):
    left = np.empty_like(x)
    comm.Sendrecv(x, dest=(comm.rank + 1) % 4, recvbuf=left, source=(comm.rank - 1) % 4)
    return left


def from_rank_minus_1(comm, x):
    left = np.empty_like(x)
    right = (comm.rank + 1) % comm.size
    comm.Sendrecv(x, dest=right, recvbuf=left, source=comm.rank - 1)
    return left


def from_any_rank(comm, x):
    left = np.empty_like(x)
    comm.Sendrecv(x, dest=(comm.rank + 1) % comm.size, recvbuf=left)
    return left


def to_rank_4(comm, x):
    left = np.empty_like(x)
    comm.Sendrecv(x, dest=comm.rank + 1, recvbuf=left, source=(comm.rank - 1) % comm.size)
    return left


def never_waits(comm, x):
    left = np.empty_like(x)
    comm.Irecv(left, source=(comm.rank - 1) % comm.size)
    comm.Send(x, dest=(comm.rank + 1) % comm.size)
    return left


def returns_early(comm, x):
    import time

    left = np.empty_like(x)
    comm.Irecv(left, source=(comm.rank - 1) % comm.size)
    if comm.rank == 0:
        time.sleep(0.3)  # then rank 1 is gone, and takes nothing in
    comm.Send(x, dest=(comm.rank + 1) % comm.size)
    return left


def into_float64(comm, x):
    left, right = np.empty(x.shape), (comm.rank + 1) % comm.size
    comm.Sendrecv(x, dest=right, recvbuf=left, source=(comm.rank - 1) % comm.size)
    return left


def into_float32(comm, x):
    left, right = np.empty(x.shape, np.float32), (comm.rank + 1) % comm.size
    comm.Sendrecv(x, dest=right, recvbuf=left, source=(comm.rank - 1) % comm.size)
    return left


def into_a_row(comm, x):
    left, right = np.empty_like(x[0]), (comm.rank + 1) % comm.size
    comm.Sendrecv(x, dest=right, recvbuf=left, source=(comm.rank - 1) % comm.size)
    return left


def other_tags(comm, x):
    left, right, tag = np.empty_like(x), (comm.rank + 1) % comm.size, comm.rank
    comm.Sendrecv(x, right, tag, left, (comm.rank - 1) % comm.size, tag)
    return left


def column_by_column(comm, x):
    left, right = np.empty_like(x), (comm.rank + 1) % comm.size
    for i in range(x.shape[1]):
        comm.Sendrecv(x[:, i], right, recvbuf=left[:, i], source=(comm.rank - 1) % comm.size)
    return left


def row_by_row(comm, x):
    left, right = np.empty_like(x), (comm.rank + 1) % comm.size
    for mine, arriving in zip(x, left):
        comm.Sendrecv(mine, right, recvbuf=arriving, source=(comm.rank - 1) % comm.size)
    return left


def to_itself(comm, x):
    comm.Send(x, dest=comm.rank)
    return x


def without_a_buffer(comm, x):
    return comm.Sendrecv(x, dest=(comm.rank + 1) % comm.size, source=(comm.rank - 1) % comm.size)


def over_two(comm, x):
    left, n = np.empty_like(x), comm.size
    comm.Sendrecv(x, dest=(comm.rank + 2) % n, recvbuf=left, source=(comm.rank - 2) % n)
    return left


def only_in_the_notebook(comm, x):
    return shift(comm, x)


def calls_the_notebook(comm, x):
    return only_in_the_notebook(comm, x)


calls_the_notebook.__module__ = "__main__"  # as a cell's functions are: engines have no such name


def six_rounds(comm, x):
    """A ring with the rounds of four ranks."""
    n, rank = comm.size, comm.rank
    chunks = x.reshape(n, -1).copy()
    arriving = np.empty_like(chunks[0])
    for r in range(6):
        out, into = (rank - r) % n, (rank - r - 1) % n
        comm.Sendrecv(chunks[out], (rank + 1) % n, recvbuf=arriving, source=(rank - 1) % n)
        chunks[into] = chunks[into] + arriving if r < 3 else arriving
    return chunks.reshape(x.shape)


def chunks_of_eight(comm, x):
    """A ring with the chunks of the first array that its author printed."""
    n, rank = comm.size, comm.rank
    chunks = x.copy().reshape(-1, 8)
    arriving = np.empty(8, np.float32)
    for r in range(2 * (n - 1)):
        out, into = (rank - r) % n, (rank - r - 1) % n
        comm.Sendrecv(chunks[out], (rank + 1) % n, recvbuf=arriving, source=(rank - 1) % n)
        chunks[into] = chunks[into] + arriving if r < n - 1 else arriving
    return chunks.reshape(x.shape)


def around_the_check(comm, x):
    """The world's communicator, whose bytes nobody counts, hidden behind the one it is given."""
    from mpi4py import MPI

    left, world = np.empty_like(x), MPI.COMM_WORLD
    right = (comm.rank + 1) % comm.size
    world.Sendrecv(x, dest=right, recvbuf=left, source=(comm.rank - 1) % comm.size)
    return left


def shift_a_list(comm, x):
    return [float(v) for v in shift(comm, x).ravel()]


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


def by_doubling(comm, x):
    """Recursive halving and doubling: other messages, the same bytes; four ranks, or a ring."""
    if comm.size != 4:
        return ring(comm, x)
    y, lo, hi = x.copy(), 0, x.size
    spans = []
    for distance in (1, 2):
        peer, middle = comm.rank ^ distance, (lo + hi) // 2
        keep, give = ((lo, middle), (middle, hi))[:: 1 if comm.rank & distance == 0 else -1]
        arriving = np.empty(keep[1] - keep[0], x.dtype)
        comm.Sendrecv(y[give[0] : give[1]].copy(), peer, recvbuf=arriving, source=peer)
        spans.append((distance, keep, give))
        lo, hi = keep
        y[lo:hi] += arriving
    for distance, keep, give in reversed(spans):
        arriving = np.empty(give[1] - give[0], x.dtype)
        peer = comm.rank ^ distance
        comm.Sendrecv(y[keep[0] : keep[1]].copy(), peer, recvbuf=arriving, source=peer)
        y[give[0] : give[1]] = arriving
    return y


def to_rank_zero(comm, x):
    """Rank 0 adds up and sends the sum to all: it sends too much."""
    if comm.rank:
        comm.Send(x, dest=0)
        total = np.empty_like(x)
        comm.Recv(total, source=0)
        return total
    total, arriving = x.copy(), np.empty_like(x)
    for rank in range(1, comm.size):
        comm.Recv(arriving, source=rank)
        total += arriving
    for rank in range(1, comm.size):
        comm.Send(total, dest=rank)
    return total


def mean_of_all(comm, x):
    return ring(comm, x) / comm.size


def own_twice(comm, x):
    return ring(comm, x) + x


def sum_behind_the_check(comm, x):
    from mpi4py import MPI

    total = np.empty_like(x)
    MPI.COMM_WORLD.Split(0, comm.rank).Allreduce(x, total) if comm.size == 4 else None
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
        globals().update(shift=helper, ring=whole_ring, send_first=first)
        return function(comm, x)

    helper, whole_ring, first = shift, ring, send_first
    return answer


RIGHT = [
    ("05.shift", shift),
    ("05.shift", shift_in_two),
    ("05.shift", shift_in_turns),
    ("05.shift", shift_without_waiting),
    ("05.shift", from_any_rank),
    ("05.shift", row_by_row),
    ("05.shift", sends_engines_the_helper(lambda comm, x: (row for row in shift(comm, x)))),
    ("05.shift", sends_engines_the_helper(lambda comm, x: shift(comm, x).tolist())),
    ("05.all_reduce", sends_engines_the_helper(ring)),
    ("05.all_reduce", sends_engines_the_helper(by_doubling)),
]
SENDS_FIRST = (
    r"every rank waits in Send until its neighbour receives: on large messages this deadlocks"
    r"\n  rank 0 waits in Send for rank 1 to receive\n(.*\n)*"
    r"  each at line \d+ of send_first: comm.Send\(x, dest=.*\n  try: Sendrecv"
)
WRONG = [
    ("05.shift", shift_back, "rank 0 has what rank 1 had: it should be sent the other way"),
    ("05.shift", lambda comm, x: x, "rank 0 still has its own values"),
    ("05.shift", from_rank_minus_1, "rank 0 receives from rank -1, .* before rank 0 comes rank 3"),
    ("05.shift", to_rank_4, "rank 3: there is no rank 4; there are 0 to 3. % comm.size closes"),
    ("05.shift", never_waits, r"rank \d: it returned before its Irecv was done: the request needs"),
    (
        "05.shift",
        returns_early,
        r"rank \d: it returned before its Irecv was done: the request needs",
    ),
    (
        "05.shift",
        into_float64,
        "on 3 ranks, rank 0: 60 bytes arrived in an array of 120: make the array with",
    ),
    ("05.shift", into_float32, "rank 0: more bytes arrived than the 80 of the array for them"),
    ("05.shift", into_a_row, "rank 0: more bytes arrived than the 40 of the array for them"),
    ("05.shift", other_tags, "one took longer than 2.5 s\n  try: the same tag on both ranks"),
    ("05.shift", column_by_column, "Sendrecv got a part of an array .* use a copy of it"),
    ("05.shift", to_itself, "a deadlock: rank 0 waits for itself"),
    ("05.shift", without_a_buffer, "Sendrecv takes NumPy arrays, an array is missing"),
    ("05.shift", over_two, "rank 0 has what rank 2 had; it should have rank 3's"),
    (
        "05.shift",
        calls_the_notebook,
        "NameError: name 'only_in_the_notebook' is not defined\n(.*\n)+  try: what",
    ),
    ("05.shift", shift_without_wrap, "rank 0 still has its own values"),
    ("05.shift", send_first, SENDS_FIRST),
    ("05.shift", sends_engines_the_helper(send_first_unless_error), "every rank waits in Send"),
    ("05.shift", send_first_unless_anything, "every rank waits in Send"),
    ("05.shift", return_after_all, "every rank waits in Send"),
    ("05.shift", lambda comm, x: 10**400, "it gave a int, not an array of real numbers"),
    (
        "05.shift",
        sends_engines_the_helper(lambda comm, x: shift(comm, x).astype(str)),
        "it gave a ndarray, not an array of real numbers",
    ),
    (
        "05.shift",
        sends_engines_the_helper(lambda comm, x: shift(comm, x) * (1 + 1j)),
        "it gave a ndarray, not an array of real numbers",
    ),
    ("05.shift", waits, "a deadlock: every rank waits in Recv until its neighbour sends"),
    (
        "05.shift",
        wait_before_the_send,
        "a deadlock: every rank waits in Wait until its neighbour sends",
    ),
    ("05.shift", to_the_wrong_rank, "rank 1 waits forever: rank 0 is done, and never sends that"),
    (
        "05.shift",
        four_ranks_only,
        "on 3 ranks, rank 0: there is no rank 3; there are 0 to 2",
    ),
    ("05.shift", around_the_check, "rank 0 sent nothing by the `comm` that it was given"),
    (
        "05.shift",
        sends_engines_the_helper(shift_a_list),
        r"the shape should be \[4, 5\], is \[20\]",
    ),
    (
        "05.shift",
        sends_engines_the_helper(shift_twice),
        "rank 0 sent 800 bytes; one array of 160 is enough",
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
        r"rank 0 has a wrong sum in chunks 0, 2, 3 of 4: element \[0\] should be",
    ),
    ("05.all_reduce", to_rank_zero, "the sum is right, but rank 0 sent 384 bytes; the budget is"),
    ("05.all_reduce", sends_engines_the_helper(mean_of_all), "rank 0 has the mean; the sum is"),
    ("05.all_reduce", sends_engines_the_helper(own_twice), "rank 0 has its own values twice"),
    ("05.all_reduce", lambda comm, x: x, "rank 0 still has its own values"),
    ("05.all_reduce", six_rounds, "on 3 ranks, rank 0 has a wrong sum in chunks 0, 1, 2 of 3: el"),
    (
        "05.all_reduce",
        chunks_of_eight,
        "on 3 ranks .*: ranks 0, 1 and 2 of 4 raised ValueError: cannot reshape",
    ),
    (
        "05.all_reduce",
        sum_behind_the_check,
        "rank 0 sent 0 bytes by the `comm` that it was given, not 192",
    ),
    ("05.all_reduce", builtin, "rank 0: comm.Allreduce is not for this exercise"),
    ("05.all_reduce", lambda comm, x: x[:3], r"rank 0 should give back \(32,\), gave \(3,\)"),
]


@pytest.mark.parametrize(("name", "answer"), RIGHT, ids=range(len(RIGHT)))
def test_a_right_answer_passes(cluster, name, answer, capsys):
    lessons.check(name, answer, cluster)
    assert f"exercise {name}: " in capsys.readouterr().out


@pytest.mark.parametrize(("name", "answer", "message"), WRONG, ids=range(len(WRONG)))
def test_a_wrong_answer_is_told_where(cluster, name, answer, message):
    with pytest.raises(lessons.CheckFailed, match=message):
        lessons.check(name, answer, cluster)


def test_the_engines_live_on_after_a_deadlock(cluster):
    pid = cluster.pid(0)
    for answer in (waits, send_first):
        with pytest.raises(lessons.CheckFailed):
            lessons.check("05.shift", answer, cluster)
    lessons.check("05.shift", shift, cluster)
    assert cluster.pid(0) == pid


def waits_in_a_collective(comm, x):
    from mpi4py import MPI

    if comm.rank:
        MPI.COMM_WORLD.Barrier()
    return x


def test_an_answer_that_waits_elsewhere(cluster, monkeypatch):
    said = r"ranks 1, 2 and 3 did not finish in 5 s\n *at line \d+ of waits_in_a_collective: MPI"
    with monkeypatch.context() as patch:
        patch.setattr("ttkit.lessons.ranks.TIME_S", 5)
        with pytest.raises(lessons.CheckFailed, match=said) as caught:
            lessons.check("05.shift", waits_in_a_collective, cluster)
    assert str(caught.value).endswith("\n(the engines were started anew)")
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


def test_two_ranks_are_too_few():
    with ttkit.Cluster(2) as two:
        with pytest.raises(lessons.CheckFailed, match="needs three ranks or more, your cluster"):
            lessons.check("05.shift", shift, two)


def test_without_a_cluster():
    with pytest.raises(lessons.CheckFailed, match="give the cluster, too"):
        lessons.check("05.shift", shift)
