"""Lesson 20, experts: what routers choose while they learn, its exercise."""

import numpy as np

from ttkit.lessons.exercises import Exercise
from ttkit.sim.tape import tape
from ttkit.train import Trainer


def choices_of(settings, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Train on one chip; return the losses, and how many tokens chose each expert.

    The counts are [steps, sequences, experts]. The model has two blocks, and the counts are those
    of the second block.
    """
    with tape(keeps={"topk"}) as calls, Trainer(settings) as trainer:
        losses = [record.loss for record in trainer.fit(steps, show=False)]
    seen = []
    for event in calls.events:  # A router chooses experts by a `topk`.
        if event.name == "topk" and event.returned:
            chosen = next(event.results[1].shards())[:, 0].astype(int)
            seen.append(np.eye(event.operands[0].shape[-1])[chosen].sum((1, 2)))
    return np.array(losses), np.array(seen[1::2])


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
        "places are counted from 0": lambda tokens, capacity: [
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
