"""Lesson 10, hierarchical training. The answers are roles and bytes."""

from __future__ import annotations

from typing import Any

from ttkit.lessons import as_number, exercise, require
from ttkit.lessons.answers import asks


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
@asks("aggregator_bytes(num_workers, model_bytes)")
def _bytes(answer: Any) -> str:
    for workers, size in ((1, 100), (2, 4096), (3, 1 << 20), (7, 12)):
        call = f"aggregator_bytes({workers}, {size})"
        pair = answer(workers, size)
        is_pair = isinstance(pair, (tuple, list)) and len(pair) == 2
        require(is_pair, f"{call} should be a pair: bytes that come in, bytes that go out")
        fact = (workers + 1) * size
        for what, given in zip(("come in", "go out"), pair, strict=True):
            found = as_number(given)
            alone = f"{call} says that {workers * size:,} bytes {what}"
            require(found != workers * size, f"{alone}; the optimizer is a neighbour, too")
            require(found == fact, f"{call} says that {given} bytes {what}; it is {fact:,}")
    return "gradients of all workers and weights of the optimizer come in, and as much goes out"
