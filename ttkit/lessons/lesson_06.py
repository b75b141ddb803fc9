"""Lessons 06 and 06b, data parallel: their pictures, and their exercises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import ttkit
from ttkit import backend
from ttkit.lessons import difference, exercise, factor_of, require, tidy, values_mean_something
from ttkit.lessons.answers import Answer, Run, asks, numbers
from ttkit.lessons.lesson_05 import on_ranks, ranks_of
from ttkit.lessons.predicting import as_number, brief
from ttkit.visualize.chart import Chart, entitle
from ttkit.visualize.charts import COLOURS, Curves, Stacks
from ttkit.words import counted

Losses = Sequence[float]
MARKS = "os^D"  # one for each replica


# ---------------------------------------------------------------- what lesson 06 writes by hand
def opened(chips: int = 4) -> Any:
    """Close what is open, and open a row of chips that can send."""
    tidy()
    ttnn = backend.load()
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    return ttnn.open_mesh_device(ttnn.MeshShape(1, chips))


def place(mesh: Any, array: np.ndarray, dim: int | None = None) -> Any:
    """Return the array on the mesh in tiles: cut along a dimension, or whole on every chip.

    Example:
        >>> mesh, x = opened(), np.ones((64, 128), np.float32)
        >>> place(mesh, x, dim=1).shape, place(mesh, x).shape
        (Shape([64, 32]), Shape([64, 128]))
        >>> tidy()
    """
    ttnn = backend.load()
    if dim is None:
        mapper = ttnn.ReplicateTensorToMesh(mesh)
    else:
        mapper = ttnn.ShardTensorToMesh(mesh, dim=dim)
    return ttkit.from_numpy(array, device=mesh, layout=ttnn.TILE_LAYOUT, mesh_mapper=mapper)


# ---------------------------------------------------------------- the pictures
@dataclass(frozen=True, repr=False)
class Drift(Chart):
    """The loss that a training prints, beside the loss of each replica on all samples.

    Args:
        printed: {name of the run: loss of each step}.
        replicas: {name of the run: for each replica its loss on all samples, step by step}.

    Example:
        >>> Drift("loss", {"without": [4.0, 0.5]}, {"without": [[4.0, 2.0], [4.0, 2.5]]})
        loss
          without, printed: 4 at step 1, 0.5 at step 2
          without, replica 0 on all samples: 4 at step 1, 2 at step 2
          without, replica 1 on all samples: 4 at step 1, 2.5 at step 2
    """

    title: str
    printed: Mapping[str, Losses]
    replicas: Mapping[str, Sequence[Losses]] = field(default_factory=dict)

    def lines(self) -> list[tuple[str, str, Losses]]:
        """Return (run, what was measured, loss of each step) of every line of the picture."""
        found = [(run, "printed", losses) for run, losses in self.printed.items()]
        for run, each in self.replicas.items():
            found += [(run, f"replica {i} on all samples", losses) for i, losses in enumerate(each)]
        return found

    def __repr__(self) -> str:
        named = {f"{run}, {what}": [*enumerate(y, 1)] for run, what, y in self.lines()}
        return repr(Curves(self.title, named, digits=2))

    @property
    def height(self) -> float:
        """Of the figure, in inches."""
        return 3.6

    def draw(self, ax: Any) -> None:
        """Draw the losses from the first step on; each step of the axis is ten times the last."""
        runs = list(dict.fromkeys([*self.printed, *self.replicas]))
        for run, what, losses in self.lines():
            steps, colour = range(1, len(losses) + 1), COLOURS[runs.index(run)]
            if what == "printed":
                name = f"{run}: printed, ends at {losses[-1]:.2g}"
                ax.plot(steps, losses, color=colour, linewidth=2.2, label=name)
                continue
            replica = int(what.split()[1])
            ends = [each[-1] for each in self.replicas[run]]
            span = " to ".join(dict.fromkeys(f"{end:.2g}" for end in (min(ends), max(ends))))
            label = None if replica else f"{run}: replicas on all samples, {span}"
            look = {"linestyle": "none", "marker": MARKS[replica % 4], "markevery": (replica, 4)}
            ax.plot(
                steps, losses, color=colour, markersize=5, fillstyle="none", label=label, **look
            )
        ax.set_yscale("log")
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        ax.yaxis.set_minor_formatter(lambda value, _: "")
        ax.set(xlabel="step", ylabel="loss (logarithmic)")
        ax.grid(axis="y")
        entitle(ax, self.title)


class SpeedUp(Curves):
    """Samples a second over chips, in those of one chip."""

    def draw(self, ax: Any) -> None:
        """Draw the curves on equal steps."""
        super().draw(ax)
        ax.set_ylabel("times one chip's samples/s")
        ax.set(ylim=(0, None), xticks=[1, 2, 4, 8])


def speed_up(profiles: Mapping[int, Any]) -> list[Chart]:
    """Return two pictures of the same step on more and more chips, each with as many samples.

    Args:
        profiles: {chips: `ttkit.profile` of one step}, from one chip on.
    """
    one = profiles[1].time_s
    beside = {n: run.overlapped() for n, run in profiles.items()}
    curves = {
        "ideal": [(n, n) for n in profiles],
        "send, then go on": [(n, n * one / run.time_s) for n, run in profiles.items()],
        "send beside computing": [(n, n * one / run.time_s) for n, run in beside.items()],
    }
    parts = {
        counted(n, "chip"): (1e6 * (run.time_s - run.exposed_s), 1e6 * run.exposed_s)
        for n, run in profiles.items()
    }
    shares = ", ".join(f"{run.exposed_s / run.time_s:.0%} on {n}" for n, run in profiles.items())
    return [
        SpeedUp("samples a second, modelled, in those of one chip", curves, over="chips"),
        Stacks(
            f"one step, modelled; sending takes {shares}",
            parts,
            ("computing", "sending"),
            ("sending",),
            "microseconds",
        ),
    ]


# ---------------------------------------------------------------- 06.gradient
@exercise(
    "06.gradient",
    "Which samples does a chip need, and which weights? So which of x, w and y do you cut?",
    "The function gradient(x, w, y) of the lesson gives each chip the gradient of its own samples. "
    "What makes one of four?",
    "A mesh of 2 x 4 has two axes. all_reduce adds along one. And the sum becomes a mean how?",
    "for axis in (0, 1): if mesh.shape[axis] > 1: found = ttnn.all_reduce(found, "
    "cluster_axis=axis). Then multiply by 1 / mesh.get_num_devices().",
)
@asks("mean_gradient(mesh, x, w, y)", (1, 4), (2, 4), fabric=True)
def _gradient(mean_gradient: Answer, mesh: Any) -> str:
    n = mesh.get_num_devices()
    rows = 32 if min(mesh.shape) > 1 else 96  # of a device; other totals, too
    x, w, y = numbers(rows * n, 32), numbers(32, 64), numbers(rows * n, 64)
    run = mean_gradient.on(mesh, (x, (rows, 32)), (w, w.shape), (y, (rows, 64)))
    samples = zip(np.split(x, n), np.split(y, n), strict=True)
    own = [2 / b.size * a.T @ (a @ w - b) for a, b in samples]
    whole = np.mean(own, axis=0)
    run.differs(
        (own, "each device has the gradient of its own samples: nothing was averaged"),
        (
            [n * whole] * n,
            f"it is {n} times too large: the sum over {n} devices, where the loss is a mean",
        ),
        (
            [whole / n] * n,
            f"it is {n} times too small: error.logical_volume() counts one device's elements, "
            f"so that the sum needs 1/{n} once",
        ),
        ([-whole] * n, "it has the wrong sign: the error is x @ w - y, not y - x @ w"),
        ([2 / y.size * x.T @ x @ w] * n, "y is missing: the error is x @ w - y"),
        (
            [whole / 2] * n,
            "it is half as large as it should be: e² has the derivative 2 e, and the mean divides "
            "by the devices of this mesh",
        ),
    )
    placed = np.reshape(own, (*mesh.shape, *w.shape))
    for axis in (0, 1) if min(mesh.shape) > 1 else ():
        for total in (placed.mean(axis, keepdims=True), placed.sum(axis, keepdims=True) / n):
            one = np.broadcast_to(total, placed.shape)
            message = "the mean is over one axis of the mesh only: each has its own all_reduce"
            run.differs((list(one.reshape(n, *w.shape)), message))
    factor = factor_of([whole] * n, run.tensor()) if values_mean_something() else None
    require(
        factor is None or abs(factor - 1) < 1e-3,
        f"on {mesh!r} it is {factor or 1:.4g} times the gradient: the loss is a mean over all "
        f"{y.size:,} elements of y, {y.size // n:,} on each of {n} devices",
    )
    run.equals([whole] * n, 1e-4)
    run.summed()
    run.computed("the gradient")
    run.multiplied(((rows, 32), (32, 64)), ((rows, 32), (rows, 64)))
    run.put_as_given()
    _one_sum_an_axis(run, mesh)
    return f"one gradient on all {n} devices, that of one device; {run.given()}"


def _one_sum_an_axis(run: Run, mesh: Any) -> None:
    """Check that the answer called one all_reduce, or its two halves, along each axis."""
    if not run.calls:
        return
    axes = sum(length > 1 for length in mesh.shape)
    sums = f"one all_reduce for each axis that is longer than 1, {axes} on {mesh!r}"
    sent = run.sent()
    whole, halves = sent.count("all_reduce"), sent.count("reduce_scatter")
    # without an axis, one all_reduce adds along both
    fine = whole + halves <= axes and len(sent) == whole + 2 * halves
    fine = fine and sent.count("all_gather") == halves
    require(fine, f"it is right, but you called {', '.join(sent)}; the budget is {sums}")


# ---------------------------------------------------------------- 06.unequal
PARTS = ([6, 1, 3], [2, 2, 2, 2], [1, 15], [5], [128, 64, 32, 7, 1])


@exercise(
    "06.unequal",
    "Which chip should have more say: the one with 100 samples, or the one with 1?",
    "The gradient of a mean over 4 samples, times 4, is the sum over the 4 samples. What do you "
    "divide the sum over all samples by?",
    "sum(samples * gradient) / sum(samples), over the chips.",
)
@asks("joined(gradients, samples)")
def _unequal(joined: Answer) -> str:
    for samples in PARTS:
        shape = (4, 3) if len(samples) % 2 else (5,)  # a matrix, or a bias
        own = [numbers(len(samples), *shape)[i] + i for i in range(len(samples))]
        right = sum(n * g for n, g in zip(samples, own)) / sum(samples)
        call = f"joined(gradients, {samples})"
        given, counts = [each.copy() for each in own], list(samples)
        value = joined(given, counts)
        value = np.asarray(value) if isinstance(value, (list, tuple)) else value
        joined.must_give("an array", isinstance(value, np.ndarray), value)
        kept = len(given) == len(own) and not any(map(difference, own, given))
        kept = kept and np.array_equal(counts, samples)
        require(kept, f"{call} changes the lists or the arrays that it is given: make new ones")
        wrong = {
            "the plain mean, where chips have different numbers of samples": np.mean(own, axis=0),
            "the sum of the gradients; a mean is asked for": np.sum(own, axis=0),
            f"what is {sum(samples)} times too large: divide by the number of all samples": right
            * sum(samples),
            f"a sum over the number of chips, {len(samples)}, not over that of samples": right
            * sum(samples)
            / len(samples),
            "the gradient of the first chip only": own[0],
        }
        if not (found := difference(right, value, 1e-4, 1e-5)):
            continue
        for words, array in wrong.items():
            require(bool(difference(array, value, 1e-4, 1e-5)), f"{call} gives {words}")
        require(False, f"{call}: {found}")
    return f"each sample counts the same, in {len(PARTS)} ways to share samples out"


# ---------------------------------------------------------------- 06.bucket
@exercise(
    "06.bucket",
    "One Allreduce takes one array. How do you make one array of several?",
    "np.concatenate joins arrays of one dimension; g.ravel() makes such an array. Allreduce adds: "
    "what is missing to a mean?",
    "After the Allreduce, cut the flat array where each gradient ends, and give each part the "
    "gradient's shape: part.reshape(g.shape).",
)
def _bucket(average: Any, cluster: Any) -> str:
    n = ranks_of(cluster)
    for ranks, shapes in ((n, ((7, 2), (4,))), (max(n - 1, 2), ((3, 5), (7,), (2, 2, 4)))):
        _averaged(average, cluster, ranks, shapes)
    return f"{len(shapes)} gradients averaged over {n} ranks in one message"


def _averaged(average: Any, cluster: Any, n: int, shapes: Sequence[tuple[int, ...]]) -> None:
    values = [[numbers(n, *shape)[rank] for shape in shapes] for rank in range(n)]
    means = [np.mean(each, axis=0) for each in zip(*values, strict=True)]
    those_are = "Allreduce (capital A, NumPy arrays) is"
    results = on_ranks(cluster, average, "average", values, ("Allreduce",), those_are)
    size = sum(gradient.nbytes for gradient in means)
    for rank, (result, sent, calls) in enumerate(results):
        on = f"on {n} ranks, rank {rank}" if n < cluster.n else f"rank {rank}"
        several = f"{on} gave {len(result)} arrays back; there are {len(means)} gradients"
        require(len(result) == len(means), several)
        for i, (mean, mine) in enumerate(zip(means, result, strict=True)):
            wrong, here = difference(mean, mine, 1e-4, 1e-5), f"{on}, gradient {i}"
            is_sum = wrong and not difference(n * mean, mine, 1e-4, 1e-5)
            require(not is_sum, f"{here} is {n} times too large: the sum, not the mean")
            is_small = wrong and not difference(mean / n, mine, 1e-4, 1e-5)
            require(not is_small, f"{here} is {n} times too small: divided by {n} twice")
            alike = wrong and mine.shape == mean.shape
            times = float(np.vdot(mean, mine) / np.vdot(mean, mean)) if alike else 0.0
            is_scaled = abs(times) > 0 and not difference(times * mean, mine, 1e-4, 1e-5)
            require(not is_scaled, f"{here} is {times:.3g} times the mean: divide by comm.size")
            is_own = wrong and not difference(values[rank][i], mine, 1e-4, 1e-5)
            require(not is_own, f"{here} is its own still")
            require(not wrong, f"{here}: {wrong}")
        require(
            calls <= 1,
            f"it is right, but {on} called Allreduce {calls} times; "
            f"the budget is 1 for all {len(means)} gradients",
        )
        sends = f"it is right, but {on} sent {sent} bytes; its gradients have {size}"
        require(size <= sent <= 2 * size, sends)  # float64 may pass


# ---------------------------------------------------------------- 06.step
STEPS = ((8, 686.0, 310.0), (4, 100.0, 100.0), (1, 50.0, 0.0), (32, 2578.0, 640.0), (2, 3.0, 0.5))


@exercise(
    "06.step",
    "How many times the samples of one chip do n chips do in one step?",
    "How long is the step of one chip, and how long is that of n chips?",
    "n times the samples in (computing + sending); one chip needs computing for its own.",
)
@asks("faster(n, computing, sending)")
def _step(faster: Answer) -> str:
    for n, computing, sending in STEPS:
        right, call = n * computing / (computing + sending), f"faster{n, computing, sending}"
        value = as_number(given := faster(n, computing, sending))
        require(value is not None, f"{call} should give a number, gave {brief(given)}")
        assert value is not None
        if np.isclose(value, right, 1e-4):
            continue
        wrong = {
            "that is the ideal line: the sending is missing": n,
            "n chips do n times the samples of one": right / n,
            "that is the time of one chip's samples; asked is how many times faster": 1 / right,
            "only the share that is sending": sending / (computing + sending),
            "each chip has as many samples as before, so its computing is not divided by n": (
                computing / (computing / n + sending)
            ),
        }
        for words, number in wrong.items():
            require(not np.isclose(value, number, 1e-4), f"{call} gives {value:.4g}: {words}")
        require(False, f"{call} should give {right:.4g}, gives {value:.4g}")
    return f"{len(STEPS)} steps, each as much faster as it is"
