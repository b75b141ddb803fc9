"""Lesson 21, expert parallel: the traffic of its exercise."""

import itertools
from collections import Counter

import numpy as np

from ttkit.lessons.exercises import Exercise
from ttkit.plans import Topology, topology

# The busiest pair may carry at most this fraction of the bytes that the busiest pair carries if the
# experts are placed in the order of their numbers.
BUDGET = 0.7
TOKEN_BYTES = 2 * 4096  # A token has Mixtral's width, in bfloat16.


def uneven_traffic(chips: Topology, seed: int) -> np.ndarray:
    """Return [chips, experts]: how many tokens each chip sends to each expert.

    There are two experts for each chip. Two chips that are next to each other in `chips.chips` use
    an expert much, and the chip that is farthest from the first of them uses it most.
    """
    draw, ids = np.random.default_rng(seed), chips.chips
    traffic = draw.integers(0, 30, (len(ids), 2 * len(ids)))
    for expert in range(traffic.shape[1]):
        pair, nearest = int(draw.integers(len(ids) - 1)), draw.random(len(ids))
        far = [len(chips.route(chip, ids[pair])) for chip in ids] + nearest
        size = int(draw.integers(150, 400))
        traffic[int(far.argmax()), expert] += size
        traffic[pair : pair + 2, expert] += 4 * size // 5
    return traffic


def link_bytes(traffic, chips: Topology, placed) -> dict[tuple[int, int], int]:
    """Return the bytes that the dispatch sends over each pair: {(source, destination): bytes}.

    Args:
        traffic: tokens of each chip for each expert, [chips, experts].
        chips: the topology, whose `route` gives the way of a token.
        placed: the experts of each chip, in the order of `chips.chips`.
    """
    found = Counter[tuple[int, int]]()
    for destination, own in zip(chips.chips, placed):
        for source, row in zip(chips.chips, traffic):
            for link in itertools.pairwise(chips.route(source, destination)):
                found[link] += TOKEN_BYTES * sum(int(row[expert]) for expert in own)
    return dict(found)


def _busiest(traffic: np.ndarray, chips: Topology, dealt) -> tuple[tuple[int, int], int]:
    return max(link_bytes(traffic, chips, dealt).items(), key=lambda item: item[1])


def _in_order(traffic: np.ndarray, chips: Topology) -> int:
    """Return the bytes over the busiest pair with experts in numerical order."""
    dealt = np.arange(traffic.shape[1]).reshape(len(chips.chips), -1)
    return _busiest(traffic, chips, dealt)[1]


def _broken(dealt, traffic: np.ndarray, chips: Topology) -> str:
    """Return the rule that a placement of experts breaks, or ""."""
    sizes, owners = [len(own) for own in dealt], Counter(int(e) for own in dealt for e in own)
    if len(sizes) != len(chips.chips):
        return f"you gave {len(sizes)} lists of experts for {len(chips.chips)} chips"
    if wrong := sorted(e for e in range(traffic.shape[1]) if owners[e] != 1):
        return f"expert {wrong[0]} is on {owners[wrong[0]]} chips, not on one"
    if set(sizes) != {2}:
        return f"the chips have {sizes} experts; each has memory for 2"
    limit = BUDGET * _in_order(traffic, chips)
    (a, b), most = _busiest(traffic, chips, dealt)
    if most <= limit:
        return ""
    return f"chip {a} sends chip {b} {most:,} bytes; {limit:,.0f} are allowed"


def _part(dealt, traffic: np.ndarray, chips: Topology) -> str:
    part = _busiest(traffic, chips, dealt)[1] / _in_order(traffic, chips)
    return f"the busiest pair carries {part:.0%} of what it carries in numerical order"


_ON = [(topology("t3000", shape), seed) for shape, seed in (((1, 8), 1), ((1, 8), 2), ((2, 4), 2))]

Exercise(
    "21.place",
    asks="deal(traffic, chips)",
    cases=[(uneven_traffic(chips, seed), chips) for chips, seed in _ON],
    rules=_broken,
    praise=_part,
    hints=[
        "Equal work is not the goal. What does it cost to send a token to a distant chip?",
        "Begin with any order. When does it help to exchange two experts?",
        "Exchange each pair of experts in turn, and compute max(link_bytes(...).values()). Undo "
        "the exchange if that is no improvement. Continue until no exchange helps.",
        "Compare all links, the busiest first: sorted(link_bytes(...).values())[::-1].",
    ],
)
