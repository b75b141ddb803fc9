"""Lesson 17, experts: what its pictures read, and its exercises. The answers are places of tokens,
and chips of experts.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np

from ttkit.convert import to_numpy
from ttkit.lessons import CheckFailed, exercise, require
from ttkit.lessons.answers import Answer, asks
from ttkit.lessons.predicting import as_number
from ttkit.plans import Topology, topology
from ttkit.profiler import profile
from ttkit.train import Trainer, experts, read_settings
from ttkit.train.config import Settings, TrainingConfig
from ttkit.visualize.charts import Stacks
from ttkit.words import counted

BUDGET = 0.7  # of what the busiest pair carries in the order of the experts' numbers
TOKEN_BYTES = 2 * 4096  # Mixtral's width in bfloat16
CASES = (((1, 8), 1), ((1, 8), 2), ((2, 4), 2))  # mesh shape, seed of the table


@contextmanager
def watched_choices() -> Iterator[list[np.ndarray]]:
    """Collect what routers choose: [B, S, E] of ones and zeros for each forward of a layer,
    on one device.
    """
    choose, found = experts.choices, list[np.ndarray]()

    def choices(probs: Any, k: int, numbers: Any) -> Any:
        chosen = choose(probs, k, numbers)
        found.append(to_numpy(chosen)[:, 0])
        return chosen

    with patch.object(experts, "choices", choices):
        yield found


PARTS = ("kept", "empty", "dropped")


def filled(loads: Any, places: int) -> np.ndarray:
    """Return how many choices each expert keeps, has no token for, and drops: [3, experts].

    Args:
        loads: tokens that chose each expert.
        places: of an expert.

    Example:
        >>> filled([12, 3], places=10).tolist()
        [[10, 3], [0, 7], [2, 0]]
    """
    kept = np.minimum(loads, places)
    return np.array([kept, places - kept, loads - kept])


def bars(title: str, found: Any) -> Stacks:
    """Return a bar for each expert, from what `filled` returns."""
    rows = {f"expert {expert}": row for expert, row in enumerate(np.transpose(found).tolist())}
    return Stacks(title, rows, PARTS, hatched=["dropped"])


def short_run(path: str) -> Settings:
    """Return the settings of a model's file for a short run on one chip, with characters as tokens.

    Args:
        path: of the file.
    """
    training = TrainingConfig(
        batch_size=8, learning_rate=3e-3, tokenizer_type="char", checkpoint_dir="", eval_every=0
    )
    return replace(read_settings(path), training_config=training)


def three_steps(settings: Settings) -> tuple[list[float], np.ndarray, Any]:
    """Return the losses, the first gradient of a weight of all experts, a profile of the last."""
    with Trainer(settings) as trainer:
        losses = [trainer.step().loss]
        up = trainer.parameters["blocks.0.experts.up"]
        gradient = up.gather(up.get_grad())
        losses.append(trainer.step().loss)
        with profile() as seen:
            losses.append(trainer.step().loss)
    return losses, gradient, seen


@exercise(
    "17.positions",
    "What must you know of the tokens before this one?",
    "Count how many tokens each expert has had so far, full or not.",
    "The place is that count, from 0, or -1 where the count has reached the capacity.",
)
@asks("positions(experts_of_tokens, capacity)")
def _positions(answer: Answer) -> str:
    draw = np.random.default_rng(17)
    lists = [([2, 0, 2, 2, 1, 0, 2], 2), ([0, 0, 0], 1), ([1, 0], 3), ([3, 3, 3, 3], 4), ([], 2)]
    lists += [([9, 200, 9], 1)]
    lists += [(draw.integers(0, 5, 40).tolist(), capacity) for capacity in (1, 6, 8)]
    for tokens, capacity in lists:
        given = answer(list(tokens), capacity)
        answer.must_give("a place for each token", hasattr(given, "__len__"), given)
        call = f"positions({tokens if len(tokens) < 8 else '40 tokens'}, {capacity})"
        short = f"{call} has {counted(len(given), 'place')} for {counted(len(tokens), 'token')}"
        require(len(given) == len(tokens), short)
        queues = Counter[int]()
        for token, (expert, place) in enumerate(zip(tokens, given)):
            turn, at = queues[expert], as_number(place)
            queues[expert] += 1
            wanted = turn if turn < capacity else -1
            before = f"{counted(turn, 'token')} chose expert {expert} before"
            why = f"{before}, which has {counted(capacity, 'place')}"
            why += "; places count from 0" * (token == 0 and at == 1)
            have = repr(place) if at is None else at
            rule = f"{call}: token {token} has place {have}, should have {wanted}: {why}"
            require(at == wanted, rule)
    return "each token has the place of its turn, and those that come too late have none"


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


@exercise(
    "17.place",
    "Even work is not asked for. What does a token cost that goes to a chip far away?",
    "Begin with any order. When does it help to exchange two experts?",
    "For all pairs: exchange, count max(link_bytes(...).values()), and undo it if that is no less. "
    "Go on until no exchange helps.",
    "Compare all links, the busiest first: sorted(link_bytes(...).values())[::-1].",
)
@asks("deal(traffic, chips)")
def _place(answer: Answer) -> str:
    found = []
    for shape, seed in CASES:
        chips, where = topology("t3000", shape), f"on the {shape[0]}x{shape[1]} mesh"
        traffic = uneven_traffic(chips, seed)
        placed = _dealt(answer, chips, traffic, where)
        order = np.arange(traffic.shape[1]).reshape(len(placed), -1).tolist()
        naive = max(link_bytes(traffic, chips, order).values())
        sent = link_bytes(traffic, chips, placed)
        (a, b), most = max(sent.items(), key=lambda item: item[1])
        loads, why = [int(traffic[:, own].sum()) for own in placed], ""
        by_id = [placed[chip] for chip in chips.chips]
        if max(link_bytes(traffic, chips, by_id).values()) <= naive * BUDGET:
            why = (
                f": that would fit in the order of ids; asked is that of chips.chips, {chips.chips}"
            )
        elif placed == order:
            why = ": these are the experts in the order of their numbers"
        elif max(loads) < 1.1 * sum(loads) / len(loads):
            why = f": the chips have even work, {min(loads):,} to {max(loads):,} tokens, but "
            why += "what counts is how far the tokens travel"
        if most > naive * BUDGET:
            figures = f"{most:,} bytes; {naive * BUDGET:,.0f} are allowed"
            raise CheckFailed(f"{where} chip {a} sends chip {b} {figures}{why}")
        found.append(f"{most / naive:.0%}")
    return f"the busiest pair carries {', '.join(found)} of what the order of numbers sends"


def _dealt(answer: Answer, chips: Topology, traffic: np.ndarray, where: str) -> list[list[int]]:
    """Return the experts of each chip, each of which must have one chip."""
    given, count = answer(traffic.copy(), chips), traffic.shape[1]
    lists = hasattr(given, "__len__") and not isinstance(given, dict)
    answer.must_give("a list of experts for each chip", lists, given)
    for own in given:
        rule = f"{where} each chip needs a list of its experts; one has {own!r}"
        require(hasattr(own, "__len__") and not isinstance(own, str), rule)
    rule = f"{where} you gave {len(given)} lists of experts for {len(chips.chips)} chips"
    require(len(given) == len(chips.chips), rule)
    owner: dict[Any, int] = {}
    for chip, own in zip(chips.chips, given):
        for each in own:
            expert = as_number(each)
            shown = repr(each) if expert is None else expert
            unknown = f"{where} chip {chip} has expert {shown}; there are 0 to {count - 1}"
            require(expert in range(count), unknown)
            twice = f"{where} expert {expert} is on chip {owner.get(expert)} and on chip {chip}"
            require(expert not in owner, twice)
            owner[expert] = chip
    lost = sorted(set(range(count)) - set(owner))
    require(not lost, f"{where} no chip has the experts {lost}")
    for chip, own in zip(chips.chips, given):
        rule = f"{where} chip {chip} has {len(own)} experts; each has memory for 2"
        require(len(own) == 2, rule)
    return [sorted(map(int, own)) for own in given]
