"""Lesson 10, hierarchical training. The answers are roles and bytes."""

from __future__ import annotations

from typing import Any

from ttkit.lessons import exercise, require
from ttkit.lessons.answers import asks
from ttkit.lessons.predicting import as_number


@exercise("10.roles")
@asks("role(rank, world, num_workers)")
def _roles(answer: Any) -> str:
    tiers = {2: ["aggregator_optimizer"], 3: ["aggregator", "optimizer"]}
    for workers in (1, 2, 3, 5):
        for number, others in tiers.items():
            wanted = ["worker"] * workers + others
            for rank, name in enumerate(wanted):
                given = answer(rank, len(wanted), workers)
                call = f"role({rank}, {len(wanted)}, {workers})"
                rule = f"in {number}-tier mode rank {rank} is {name!r}"
                require(given == name, f"{call} gives {given!r}; {rule}")
    return "every rank has its role, in two tiers and in three"


@exercise("10.bytes")
@asks("aggregator_bytes(num_workers, gradients, weights)")
def _bytes(answer: Any) -> str:
    for n, gradients, weights in ((2, 4096, 1024), (3, 100, 1 << 20), (7, 12, 5), (1, 8, 4)):
        call = f"aggregator_bytes({n}, {gradients}, {weights})"
        pair = answer(n, gradients, weights)
        is_pair = isinstance(pair, (tuple, list)) and len(pair) == 2
        require(is_pair, f"{call} should be a pair: bytes that come in, bytes that go out")
        found = tuple(as_number(given) for given in pair)
        come, go = n * gradients + weights, gradients + n * weights
        swapped = n > 1 and found == (go, come)
        require(not swapped, f"{call}: in and out are swapped; what the workers send comes in")
        for what, given, fact, alone, one in (
            ("come in", found[0], come, n * gradients, (n + 1) * gradients),
            ("go out", found[1], go, n * weights, (n + 1) * weights),
        ):
            says = f"{call} says that {given} bytes {what}"
            require(given != alone, f"{says}; the optimizer is a neighbour, too")
            other = "the optimizer sends weights and gets gradients, the workers the reverse"
            require(given != one, f"{says}; {other}")
            require(given == fact, f"{says}; it is {fact:,}")
    return "gradients of all workers and the optimizer's weights come in; the reverse goes out"
