"""Lesson 17, experts. The answers are places of tokens, and chips of experts."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ttkit.convert import to_numpy
from ttkit.lessons import CheckFailed, as_number, exercise, require
from ttkit.lessons.answers import Answer, asks
from ttkit.plans import Topology, topology
from ttkit.train import experts

BUDGET = 0.7  # of what the busiest link carries in the order of the experts' numbers
TOKEN_BYTES = 2 * 4096  # Mixtral's width in bfloat16
CASES = (((1, 8), 1), ((1, 8), 2), ((2, 4), 2))  # mesh shape, seed of the table


@contextmanager
def watched_choices() -> Iterator[list[np.ndarray]]:
    """Collect what routers choose: [B, S, E] of ones and zeros for each forward of a layer."""
    choose, found = experts.choices, list[np.ndarray]()

    def choices(*args: Any) -> Any:
        chosen = choose(*args)
        found.append(to_numpy(chosen)[:, 0])
        return chosen

    experts.choices = choices
    try:
        yield found
    finally:
        experts.choices = choose


# ---------------------------------------------------------------- 17.positions
@exercise("17.positions")
@asks("positions(experts_of_tokens, capacity)")
def _positions(answer: Answer) -> str:
    draw = np.random.default_rng(17)
    lists = [([2, 0, 2, 2, 1, 0, 2], 2), ([0, 0, 0], 1), ([1, 0], 3), ([3, 3, 3, 3], 4), ([], 2)]
    lists += [(draw.integers(0, 5, 40).tolist(), capacity) for capacity in (1, 6, 8)]
    for numbers, capacity in lists:
        given = answer(list(numbers), capacity)
        answer.must_give("a place for each token", hasattr(given, "__len__"), given)
        call = f"positions({numbers if len(numbers) < 8 else '40 tokens'}, {capacity})"
        rule = f"{call} has {len(given)} places for {len(numbers)} tokens"
        require(len(given) == len(numbers), rule)
        queues = Counter[int]()
        for token, (expert, place) in enumerate(zip(numbers, given)):
            turn, at = queues[expert], as_number(place)
            queues[expert] += 1
            wanted = turn if turn < capacity else -1
            first = f"{turn} before it chose expert {expert}, which has {capacity} places"
            why = f"{call}: token {token} has place {place!r}, should have {wanted}: {first}"
            if at is not None and wanted == -1 and at >= capacity:
                why += f"; the last place is {capacity - 1}"
            elif turn < capacity and at == turn + 1:
                why += "; places count from 0"
            require(at == wanted, why)
    return "each token has the place of its turn, and those that come too late have none"


# ---------------------------------------------------------------- 17.place
def uneven_traffic(chips: Topology, seed: int, experts_a_chip: int = 2) -> np.ndarray:
    """Return how many tokens of each chip go to each expert, [chips, experts].

    One chip uses an expert most; two neighbours, far from it, use it together.
    """
    draw, ids = np.random.default_rng(seed), chips.chips
    traffic = draw.integers(0, 30, (len(ids), experts_a_chip * len(ids)))
    for expert in range(traffic.shape[1]):
        pair, nearest = int(draw.integers(len(ids) - 1)), draw.random(len(ids))
        far = [len(chips.route(chip, ids[pair])) for chip in ids] + nearest
        size = int(draw.integers(150, 400))
        traffic[int(far.argmax()), expert] += size
        traffic[pair : pair + 2, expert] += 4 * size // 5
    return traffic


def link_bytes(traffic: Any, chips: Topology, placed: Any) -> dict[tuple[int, int], int]:
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


def in_order(traffic: np.ndarray, chips: Topology) -> list[list[int]]:
    """Return the experts of each chip as they are numbered."""
    return np.arange(traffic.shape[1]).reshape(len(chips.chips), -1).tolist()


@exercise("17.place")
@asks("place(traffic, chips)")
def _place(answer: Answer) -> str:
    found = []
    for shape, seed in CASES:
        chips = topology("t3000", shape)
        traffic = uneven_traffic(chips, seed)
        given = answer(traffic.copy(), chips)
        where = f"on the {shape[0]}x{shape[1]} mesh"
        placed = _dealt(answer, given, chips, traffic.shape[1], where)
        naive = max(link_bytes(traffic, chips, in_order(traffic, chips)).values())
        sent = link_bytes(traffic, chips, placed)
        (a, b), most = max(sent.items(), key=lambda item: item[1])
        figures = f"chip {a} to chip {b} carries {most:,} bytes; {naive * BUDGET:,.0f} are allowed"
        if most > naive * BUDGET:
            why, loads = "", [int(traffic[:, own].sum()) for own in placed]
            if placed == in_order(traffic, chips):
                why = ": these are the experts in the order of their numbers"
            elif max(loads) < 1.1 * sum(loads) / len(loads):
                why = f": the chips have even work, {min(loads):,} to {max(loads):,} tokens, but"
                why += " their tokens come from far"
            elif placed == _own(traffic, chips):
                why = ": each expert is where most of its tokens are, but its other tokens are many"
            raise CheckFailed(f"{where} {figures}{why}")
        found.append(f"{most / naive:.0%}")
    return f"the busiest link carries {', '.join(found)} of what the order of numbers sends"


def _dealt(answer: Answer, given: Any, chips: Topology, count: int, where: str) -> list[list[int]]:
    """Return the experts of each chip, each of which must have one chip."""
    lists = hasattr(given, "__len__") and all(hasattr(own, "__len__") for own in given)
    answer.must_give("a list of experts for each chip", lists, given)
    rule = f"{where} you gave {len(given)} lists of experts for {len(chips.chips)} chips"
    require(len(given) == len(chips.chips), rule)
    owner, each, placed = dict[int, int](), count // len(given), []
    for chip, own in zip(chips.chips, given):
        for name in own:
            expert = as_number(name)
            known = expert in range(count)
            require(known, f"{where} chip {chip} has expert {name!r}; there are 0 to {count - 1}")
            again = f"{where} expert {expert} is on chip {owner.get(expert)} and on chip {chip}"
            require(expert not in owner, again)
            owner[expert] = chip
        placed.append(sorted(map(int, own)))
    lost = sorted(set(range(count)) - set(owner))
    require(not lost, f"{where} expert {(lost or [0])[0]} is on no chip ({len(lost)} are missing)")
    for chip, own in zip(chips.chips, placed):
        rule = f"{where} chip {chip} has {len(own)} experts; each has memory for {each}"
        require(len(own) == each, rule)
    return placed


def _own(traffic: np.ndarray, chips: Topology) -> list[list[int]]:
    """Return the experts of each chip where those with most tokens of a chip choose first."""
    placed: list[list[int]] = [[] for _ in chips.chips]
    each = traffic.shape[1] // len(placed)
    for expert in np.argsort(-traffic.max(0)).tolist():
        free = [place for place, own in enumerate(placed) if len(own) < each]
        placed[max(free, key=lambda place: traffic[place, expert])].append(expert)
    return list(map(sorted, placed))
