"""Lesson 20, experts: what routers choose while they learn, its exercises."""

import itertools
from collections import Counter

import numpy as np

from ttkit.lessons.exercises import Exercise
from ttkit.plans import Topology, topology
from ttkit.sim.tape import tape
from ttkit.train import Trainer


def choices_of(settings, steps: int) -> np.ndarray:
    """Train on one chip; return how many of 100 tokens choose each expert, [steps, experts], in the
    second of two blocks.
    """
    with tape(keeps={"topk"}) as calls, Trainer(settings) as trainer:
        trainer.fit(steps, show=False)
    seen = []
    for event in calls.events:  # A router's choice is a top-k.
        if event.name == "topk" and event.returned:
            chosen = next(event.results[1].shards())[:, 0].astype(int)
            seen.append(np.eye(event.operands[0].shape[-1])[chosen].sum(2).mean((0, 1)))
    return 100 * np.array(seen[1::2])


# ---------------------------------------------------------------- 20.positions
def _positions(tokens: list[int], capacity: int) -> list[int]:
    turns = [tokens[:i].count(expert) for i, expert in enumerate(tokens)]
    return [turn if turn < capacity else -1 for turn in turns]


_DRAWN = np.random.default_rng(17).integers(0, 5, (3, 40)).tolist()

Exercise(
    "20.positions",
    asks="positions(experts_of_tokens, capacity)",
    reference=_positions,
    cases=[
        ([2, 0, 2, 2, 1, 0, 2], 2),
        ([1, 0], 3),
        ([], 2),
        ([9, 200, 9], 1),
        *zip(_DRAWN, (1, 6, 8)),
    ],
    reads=lambda places, *_: list(places),
    mistakes={
        "places count from 0": lambda tokens, capacity: [
            place + (place >= 0) for place in _positions(tokens, capacity)
        ],
        "each expert has a queue of its own": lambda tokens, capacity: _positions(
            [0] * len(tokens), capacity
        ),
        "a token that finds all {capacity} places taken gets -1": lambda tokens, capacity: (
            _positions(tokens, len(tokens))
        ),
    },
    praise="each token has its place in the queue, and late tokens get none",
    hints=[
        "What must you know about the tokens before this one?",
        "Count how many tokens each expert has had so far, full or not.",
        "The place is that count, from 0, or -1 where the count has reached the capacity.",
    ],
)


# ---------------------------------------------------------------- 21.place
# The busiest pair may carry this part of what it carries with experts in the order of their
# numbers.
BUDGET = 0.7
TOKEN_BYTES = 2 * 4096  # A token has Mixtral's width, in bfloat16.


def uneven_traffic(chips: Topology, seed: int) -> np.ndarray:
    """Return how many tokens of each chip go to each of two experts a chip, [chips, experts].

    One chip uses an expert most; two neighbours, far from it, use it together.
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
    """Return the bytes that the dispatch sends over each link: {(source, destination): bytes}.

    Args:
        traffic: tokens of each chip for each expert, [chips, experts].
        chips: the topology; a token takes its `route`.
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


def _in_order(traffic: np.ndarray, chips: Topology) -> list[list[int]]:
    return np.arange(traffic.shape[1]).reshape(len(chips.chips), -1).tolist()


def _broken(dealt, traffic: np.ndarray, chips: Topology) -> str:
    """Return which rule a dealing of experts breaks."""
    sizes, owners = [len(own) for own in dealt], Counter(int(e) for own in dealt for e in own)
    if len(sizes) != len(chips.chips):
        return f"you gave {len(sizes)} lists of experts for {len(chips.chips)} chips"
    if wrong := sorted(e for e in range(traffic.shape[1]) if owners[e] != 1):
        return f"expert {wrong[0]} is on {owners[wrong[0]]} chips, not on one"
    if set(sizes) != {2}:
        return f"the chips have {sizes} experts; each has memory for 2"
    limit = BUDGET * _busiest(traffic, chips, _in_order(traffic, chips))[1]
    (a, b), most = _busiest(traffic, chips, dealt)
    if most <= limit:
        return ""
    return f"chip {a} sends chip {b} {most:,} bytes; {limit:,.0f} are allowed"


def _part(dealt, traffic: np.ndarray, chips: Topology) -> str:
    part = (
        _busiest(traffic, chips, dealt)[1] / _busiest(traffic, chips, _in_order(traffic, chips))[1]
    )
    return f"the busiest pair carries {part:.0%} of its load with experts in numerical order"


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
