"""Lesson 16, hierarchical training: a picture of chunks on two levels, and the exercises."""

import numpy as np

from course.arrays import numbers, replicas
from ttkit.lessons.exercises import Exercise
from ttkit.lessons.on_meshes import Budget, OnMeshes
from ttkit.visualize.drawing import ROLES, Figure
from ttkit.visualize.lanes import Bar, Lane, Lanes, Look

LOOKS = {
    "B": Look("backward pass", ROLES["backward"]),
    "S": Look("reduce-scatter", ROLES["inside hosts"], 6),
    "A": Look("all-reduce", ROLES["network"]),
    "G": Look("all-gather", ROLES["all-gather"]),
    "X": Look("", ROLES["network"]),  # The chips wait.
}


def crossing(*steps: list) -> Figure:
    """Return the picture of a two-level all-reduce in chunks, beside the backward pass.

    Args:
        steps: the start and the end of each chunk, in ms, in the backward pass, which makes it,
            and in each of the three steps.

    Example:
        >>> crossing([(0, 5)], [(5, 6)], [(6, 8)], [(8, 9)])
        chunks: 1; the backward pass takes 5 ms, and the all-reduce is exposed for 4 ms
    """
    backward, end = steps[0][-1][1], steps[3][-1][1]
    bars = []
    for kind, spans in zip(LOOKS, steps):
        bars.append([Bar(a, b, kind, f"{kind}{i}") for i, (a, b) in enumerate(spans)])
    bars[0].append(Bar(backward, end, "X", f"{end - backward:.0f} ms"))
    inside = Lane("inside a host", bars[1] + bars[3])
    lanes = [Lane("chips", bars[0]), inside, Lane("network", bars[2])]
    title = f"chunks: {len(steps[0])}; the backward pass takes {backward:.0f} ms, "
    title += f"and the all-reduce is exposed for {end - backward:.0f} ms"
    drawn = Lanes(lanes, LOOKS, end, title=title, axis="ms (modelled)", until=2.7 * backward)
    return Figure(title, [drawn])


def _gradients(hosts: int, chips: int) -> list:
    rows = 32 * chips
    return [(numbers(hosts, chips, rows, 32 * hosts), (1, 1, rows, 32 * hosts))]


Exercise(
    "16.two_level",
    asks="two_level(mesh, gradients)",
    reference=lambda mesh, gradients: replicas(mesh, gradients.mean((0, 1))),
    cases=OnMeshes([(2, 4), (4, 2)], _gradients, fabric=True),
    mistakes={
        "it is the sum, {n} times the mean": lambda mesh, gradients: replicas(
            mesh, gradients.sum((0, 1))
        ),
        "each host has its own mean: the all-reduce between the hosts is missing": (
            lambda mesh, gradients: [each.mean(0) for each in gradients for _ in each]
        ),
        "it is {mesh.shape[0]} times the mean: the sum was divided by the chips of one host": (
            lambda mesh, gradients: replicas(mesh, gradients.mean(1).sum(0))
        ),
    },
    budget=Budget(link_bytes=lambda mesh, g: 2 * (mesh.get_num_devices() - 1) * g[0, 0].nbytes),
    rtol=1e-4,
    praise="each of {n} devices has the mean, and each sum crosses the network once",
    hints=[
        "Which collective leaves each chip with one part of its host's sum?",
        "ttnn.reduce_scatter(t, dim=2, cluster_axis=1) works inside the hosts. Then add the parts "
        "along axis 0, and join them again.",
        "reduce_scatter along axis 1, all_reduce along axis 0, all_gather along axis 1; then "
        "multiply by 1 / mesh.get_num_devices().",
    ],
)


# ---------------------------------------------------------------- 16.bytes
def _flat(ranks: int, nbytes: int) -> float:
    """Return the bytes that leave a host for one ring all-reduce over `ranks` ranks."""
    return 2 * (ranks - 1) / ranks * nbytes


def _leaves(ranks: int, chips: int, nbytes: int) -> np.ndarray:
    """Return the bytes that leave a host, for an all-reduce along each axis and for two levels.

    Args:
        ranks: the number of hosts, over which each chip of a host has a ring.
    """
    return np.array([chips, 1]) * _flat(ranks, nbytes)


Exercise(
    "16.bytes",
    asks="leaving_a_host(hosts, chips, nbytes)",
    reference=_leaves,
    cases=[(2, 4, 4096), (4, 8, 1 << 20), (3, 2, 600), (8, 32, 64)],
    mistakes={
        "an all-reduce over n ranks sends 2 (n - 1) / n of its array from each, not 2 (n - 1)": (
            lambda hosts, chips, nbytes: hosts * _leaves(hosts, chips, nbytes)
        ),
        "the second number is that of a flat ring over all chips": lambda h, c, nbytes: [
            _leaves(h, c, nbytes)[0],
            _flat(h * c, nbytes),
        ],
    },
    praise="with two levels a host sends 1/{chips} of the bytes",
    hints=[
        "How many chips of a host send in the all-reduce between the hosts? How large is the array "
        "of each of them?",
        "Each chip is in a ring over the hosts. Its array has nbytes, or nbytes / chips after the "
        "reduce-scatter.",
        "each = 2 * (hosts - 1) / hosts * nbytes. Each chip of the host sends this much; after a "
        "reduce-scatter, all of them together do.",
    ],
)
