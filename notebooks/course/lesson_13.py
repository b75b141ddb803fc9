"""Lesson 13, hierarchical training: its exercises."""

from __future__ import annotations

from ttkit.lessons.exercises import Exercise


def _role(rank: int, world: int, num_workers: int) -> str:
    left = {1: ["aggregator_optimizer"], 2: ["aggregator", "optimizer"]}[world - num_workers]
    return "worker" if rank < num_workers else left[rank - num_workers]


Exercise(
    "13.roles",
    asks="role(rank, world, num_workers)",
    reference=_role,
    cases=[
        (rank, workers + others, workers)
        for workers in (1, 2, 3, 40)
        for others in (1, 2)
        for rank in range(workers + others)
    ],
    mistakes={
        "with {world} ranks and {num_workers} workers one rank has both jobs": (
            lambda rank, world, num_workers: _role(rank, num_workers + 2, num_workers)
        ),
        "the workers are ranks 0 to {num_workers} - 1": lambda rank, world, num_workers: _role(
            max(rank - 1, 0), world, num_workers
        ),
    },
    praise="every rank has its role, in two tiers and in three",
    hints=[
        "Which ranks come first? How many ranks are left when the workers have theirs?",
        "world - num_workers is 1 in two tiers and 2 in three.",
        "rank < num_workers is a worker. Else: with one rank left it is 'aggregator_optimizer'; "
        "with two, the first is the 'aggregator', the second the 'optimizer'.",
    ],
)
Exercise(
    "13.bytes",
    asks="aggregator_bytes(num_workers, gradients, weights)",
    reference=lambda n, gradients, weights: (n * gradients + weights, gradients + n * weights),
    cases=[(2, 4096, 1024), (3, 100, 1 << 20), (7, 12, 5), (1, 8, 4)],
    mistakes={
        "in and out are swapped; what the workers send comes in": lambda n, gradients, weights: (
            gradients + n * weights,
            n * gradients + weights,
        ),
        "the optimizer is a neighbour, too": lambda n, gradients, weights: (
            n * gradients,
            n * weights,
        ),
        "the optimizer sends weights and gets gradients, the workers the reverse": (
            lambda n, gradients, weights: ((n + 1) * gradients, (n + 1) * weights)
        ),
    },
    praise="gradients of all workers and the optimizer's weights come in; the reverse goes out",
    hints=[
        "Draw the arrows that point at the aggregator. Which carry gradients, which weights?",
        "In: gradients of each worker, and what does the optimizer send? Out: the reverse.",
        "in is num_workers * gradients + weights. Out is the other way round.",
    ],
)
