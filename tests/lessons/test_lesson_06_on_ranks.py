"""The exercise of lesson 06 that runs on engines: right answers pass, wrong ones are told where."""

import numpy as np
import pytest

import ttkit
from ttkit import lessons


@pytest.fixture(scope="module")
def cluster():
    with ttkit.Cluster(4) as cluster:
        yield cluster


def bucket(comm, gradients):
    flat = np.concatenate([g.ravel() for g in gradients])
    total = np.empty_like(flat)
    comm.Allreduce(flat, total)
    ends = np.cumsum([g.size for g in gradients])[:-1]
    return [part.reshape(g.shape) / comm.size for part, g in zip(np.split(total, ends), gradients)]


def in_place(comm, gradients):
    from mpi4py import MPI

    flat = np.concatenate([g.ravel() for g in gradients])
    comm.Allreduce(MPI.IN_PLACE, flat)
    ends = np.cumsum([g.size for g in gradients])[:-1]
    parts = zip(np.split(flat / comm.size, ends), gradients)
    return tuple(part.reshape(g.shape) for part, g in parts)


def every_rank_to_every_rank(comm, gradients):
    """A gather by one Allreduce of zeros, but for the own gradients."""
    flat = np.concatenate([g.ravel() for g in gradients])
    mine = np.zeros((comm.size, flat.size), flat.dtype)
    mine[comm.rank] = flat
    every = np.empty_like(mine)
    comm.Allreduce(mine, every)
    ends = np.cumsum([g.size for g in gradients])[:-1]
    return [p.reshape(g.shape) for p, g in zip(np.split(every.mean(0), ends), gradients)]


def one_by_one(comm, gradients):
    means = [np.empty_like(g) for g in gradients]
    for g, mean in zip(gradients, means):
        comm.Allreduce(g / comm.size, mean)
    return means


def then(change):
    """The right answer, spoiled; a closure goes to the engines with all that it needs."""
    first = bucket
    return lambda comm, gradients: change(comm, first(comm, gradients))


def around_the_check(comm, gradients):
    """By a communicator of its own, whose bytes nobody counts."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    own = world.Create_group(world.group.Incl(range(comm.size)))
    flat = np.concatenate([g.ravel() for g in gradients]) / comm.size
    total = np.empty_like(flat)
    own.Allreduce(flat, total)
    ends = np.cumsum([g.size for g in gradients])[:-1]
    return [part.reshape(g.shape) for part, g in zip(np.split(total, ends), gradients)]


def lazily(comm, gradients):
    for g in gradients:
        yield comm.allreduce(g)


WRONG = [
    (around_the_check, "rank 0 sent 0 bytes; its gradients have 72"),
    (lazily, "comm.allreduce is not for this exercise"),
    (
        then(lambda comm, means: [mean.astype(str) for mean in means]),
        "it gave a list, not a list of arrays of real numbers",
    ),
    (then(lambda comm, means: [mean * np.nan for mean in means]), "should be .*, is nan"),
    (
        then(lambda comm, means: [mean * comm.size / 4 for mean in means]),
        "on 3 ranks, rank 0, gradient 0 is 0.75 times the mean: divide by comm.size",
    ),
    (every_rank_to_every_rank, "rank 0 sent 288 bytes; its gradients have 72"),
    (then(lambda comm, means: [means[0], means[0].ravel()[:4]]), "gradient 1: element"),
    (one_by_one, "called Allreduce 2 times; the budget is 1"),
    (
        then(lambda comm, means: [mean * comm.size for mean in means]),
        "rank 0, gradient 0 is 4 times too large",
    ),
    (lambda comm, gradients: gradients, "gradient 0 is its own still"),
    (
        then(lambda comm, means: [mean.ravel() for mean in means]),
        r"the shape should be \[7, 2\], is \[14\]",
    ),
    (then(lambda comm, means: means[:1]), "gave 1 arrays back; there are 2"),
    (then(lambda comm, means: [mean / comm.size for mean in means]), "4 times too small"),
    (then(lambda comm, means: means[::-1]), "gradient 0: the shape should be"),
    (
        lambda comm, gradients: [comm.allreduce(g) for g in gradients],
        "comm.allreduce is not for this exercise: Allreduce",
    ),
]


def one_after_the_other(comm, gradients):
    flat = np.concatenate([g.ravel() for g in gradients]) / comm.size
    total = np.empty_like(flat)
    comm.Allreduce(flat, total)
    for g in gradients:
        yield total[: g.size].reshape(g.shape)
        total = total[g.size :]


@pytest.mark.parametrize("answer", [bucket, in_place, one_after_the_other])
def test_a_right_answer_passes(cluster, answer, capsys):
    lessons.check("06.bucket", answer, cluster)
    assert "3 gradients averaged over 4 ranks in one message" in capsys.readouterr().out


@pytest.mark.parametrize(("answer", "names"), WRONG)
def test_a_wrong_answer_is_told_where(cluster, answer, names):
    with pytest.raises(lessons.CheckFailed, match=names):
        lessons.check("06.bucket", answer, cluster)
