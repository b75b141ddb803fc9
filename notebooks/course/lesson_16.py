"""Lesson 16, long sequences: steps of a small GPT, a picture of causal work, its exercises."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

import numpy as np

import ttkit
from course.arrays import numbers
from course.common import opened, small_gpt
from ttkit import lessons
from ttkit.lessons.exercises import Exercise
from ttkit.train import Layout, create_model
from ttkit.train.config.layout import zigzag
from ttkit.train.parallel.data_parallel import average_gradients
from ttkit.train.parallel.distributed import mean_over_replicas
from ttkit.visualize.charts import Chart, entitle


# ---------------------------------------------------------------- steps of a small GPT
def laid_out(chips: int, axes: dict[str, int] | None = None, **more: Any) -> Layout:
    """Return a layout on a new row of chips."""
    return Layout(axes=tuple((axes or {}).items()), **more).on(opened(chips))


def _gpt(length: int, layout: Layout, blocks: int = 2):
    sizes = {"num_heads": 8, "embedding_dim": 256, "vocab_size": 96, "num_blocks": blocks}
    settings = small_gpt(**sizes, max_sequence_length=length, attention="stored")
    model = create_model(settings.transformer_config, layout)
    model.init_weights(42)
    return model


def _kept(length: int, layout: Layout, blocks: int) -> int:
    model, tokens = _gpt(length, layout, blocks), np.zeros((1, 1, 1, length), int)
    model(layout.tokens(tokens))  # The first forward makes the mask, which stays.
    before = max(ttkit.memory(layout.device).used.values())
    _ = model(layout.tokens(tokens))
    return max(ttkit.memory(layout.device).used.values()) - before


def block_bytes(length: int, layout: Layout) -> int:
    """Return the bytes that one block keeps of a forward pass, with its scores, on a chip."""
    return _kept(length, layout, 2) - _kept(length, layout, 1)


class Step(NamedTuple):
    """One step of the GPT: its loss, its averaged gradients, and what its two passes sent."""

    loss: Any
    gradients: dict[str, np.ndarray]
    calls: dict[str, list[int]]  # A list has the bytes on links of each call of a collective.


def step(length: int, layout: Layout) -> Step:
    """Run forward and backward; return what the chips have then and have sent."""
    model, draw = _gpt(length, layout), np.random.default_rng(1)
    tokens, targets = map(layout.tokens, draw.integers(0, 96, (2, 1, 1, 1, length)))
    with ttkit.profile() as passes:
        loss = model.loss(model(tokens), targets)
        loss.backward()
    calls = defaultdict(list)
    for record in passes.records:
        if record.bytes_on_links:
            calls[record.name.split(".")[-1]].append(record.bytes_on_links)
    parameters = model.parameters()
    average_gradients(parameters)  # Replicas that have other tokens each have a part.
    gradients = {name: each.gather_grad() for name, each in parameters.items()}
    return Step(mean_over_replicas(loss, layout), gradients, calls)


def differing(wanted: dict, found: dict) -> list[str]:
    """Return the names of the gradients that are not those of one chip."""
    return [name for name in wanted if lessons.difference(wanted[name], found[name], 1e-3, 1e-5)]


def compare(name: str, one: Step, layout: Layout) -> None:
    """Compare a step with that of one chip; print its collectives and what a block keeps."""
    found = step(512, layout)
    lessons.same(one.loss, found.loss, f"with {name} parallelism the loss is one chip's", 1e-4)
    wrong = len(differing(one.gradients, found.gradients))
    print(f"  {wrong} of {len(one.gradients)} gradients are wrong")
    for call, sizes in found.calls.items():
        print(f"  {len(sizes):3} x {call:14} {sum(sizes) / 1e6:6.1f} MB on links")
    print(f"  a block keeps {block_bytes(512, layout) / 1e6:.1f} MB of activations")


class CausalWork(Chart):
    """Which chunks of keys the queries of each chip need, in plain and in zig-zag order.

    Example:
        >>> CausalWork(2)
        causal attention on 2 chips: who needs which keys
          plain order: chips 0 to 1 compute 25 %, 75 % of the scores
          zig-zag order: chips 0 to 1 compute 50 %, 50 % of the scores
    """

    height = 3.5

    def __init__(self, chips: int = 8):
        self.chips, chunks = chips, np.arange(2 * chips)
        self.title = f"causal attention on {chips} chips: who needs which keys"
        # Each chip has two neighbouring entries of the order.
        self.orders = {"plain order": chunks, "zig-zag order": zigzag(2 * chips, chips)}
        # A chunk of queries needs all keys of earlier chunks and half of those of its own.
        work = {
            name: (2 * order + 1).reshape(chips, 2).sum(1) for name, order in self.orders.items()
        }
        self.percent = {name: 100 * each / each.sum() for name, each in work.items()}

    def __repr__(self) -> str:
        lines = [self.title]
        for name, percent in self.percent.items():
            texts = ", ".join(f"{each:.3g} %" for each in percent)
            lines.append(f"{name}: chips 0 to {self.chips - 1} compute {texts} of the scores")
        return "\n  ".join(lines)

    def draw(self, ax) -> None:
        """Draw a row for each chunk of queries and a column for each of keys, in both orders."""
        shown = []
        for order in self.orders.values():
            shown.append(1.0 * (order < order[:, None]) + 0.5 * (order == order[:, None]))
            shown.append(np.full((2 * self.chips, 1), np.nan))  # It stays blank.
        ax.imshow(np.hstack(shown[:-1]), cmap="Blues", vmin=0, vmax=1.3)
        chips = np.arange(self.chips)
        starts = np.array([0, 2 * self.chips + 1])
        for edge in 2 * chips[1:] - 0.5:  # Between the chunks of two chips.
            ax.axhline(edge, color="white")
            for start in starts:
                ax.axvline(start + edge, color="white")
        ax.set_yticks(2 * chips + 0.5, [f"chip {chip}" for chip in chips])
        ax.set_xticks(
            starts + self.chips - 0.5,
            [
                f"{name}: the busiest computes {percent.max():.3g} %"
                for name, percent in self.percent.items()
            ],
        )
        entitle(
            ax, f"{self.title}\nrow: a chunk of queries; column: a chunk of keys; pale: half masked"
        )


# ---------------------------------------------------------------- 16.balanced
def _uneven(order, length: int, chips: int) -> str:
    """Return which rule an order of positions breaks."""
    found = np.ravel(order)
    if missing := sorted(set(range(length)).difference(found.tolist())):
        return f"position {missing[0]} is missing; each belongs to one chip"
    if found.size != length:
        return f"expected {length} positions, got {found.size}"
    work = (found.reshape(chips, -1) + 1).sum(1)  # The query at position p sees p + 1 keys.
    most, least = int(work.argmax()), int(work.argmin())
    if work[most] == work[least]:
        return ""
    return (
        f"chip {most} computes {work[most]} scores and chip {least} only {work[least]}; "
        f"all wait for the slowest, and the limit per chip is {work.sum() // chips}"
    )


Exercise(
    "16.balanced",
    asks="balanced(length, chips)",
    cases=[(16, 2), (64, 4), (48, 3), (96, 8), (20, 1)],
    rules=_uneven,
    praise="in five cases no chip computes more scores than another",
    hints=[
        "How many keys does position p see? Which positions see the most, and which the least?",
        "Give each chip as many early positions as late ones.",
        "np.arange(length).reshape(2 * chips, -1) makes chunks; chip i takes the chunks i and "
        "2 * chips - 1 - i.",
    ],
)


# ---------------------------------------------------------------- 16.merge
Part = tuple[np.ndarray, ...]  # A part is its output, maximum and sum.
UNLIKE = "you added exponentials of scores from which different maxima were subtracted"


def _part(scores: np.ndarray, values: np.ndarray) -> Part:
    top = scores.max(-1, keepdims=True)
    powers = np.exp(scores - top)
    return powers @ values, top, powers.sum(-1, keepdims=True)


def _parts(queries: int, d: int, height: float, hidden: slice = slice(0)) -> Part:
    """Return two parts of scores up to 8 times a height; a mask hides the second of some."""
    scores, values = numbers(queries, 24) * np.float32(height), numbers(24, d)
    # In query 0 the second part has far higher scores, in query 1 the first.
    scores[0, :9] -= 16 * height
    scores[1, 9:] -= 16 * height
    one, two = _part(scores[:, :9], values[:9]), _part(scores[:, 9:], values[9:])
    for array, empty in zip(two, (0, -np.inf, 0)):
        array[hidden] = empty
    return *one, *two


def _merged(*parts: np.ndarray, shrinks: bool = True) -> Part:
    out1, max1, sum1, out2, max2, sum2 = parts
    new = np.maximum(max1, max2)
    one, two = (np.exp(each - new) if shrinks else np.float32(1) for each in (max1, max2))
    return out1 * one + out2 * two, new, sum1 * one + sum2 * two


Exercise(
    "16.merge",
    asks="merge(out1, max1, sum1, out2, max2, sum2)",
    reference=_merged,
    cases=[
        _parts(4, 8, 1),
        _parts(6, 5, 120),  # Scores go up to 960, where exp overflows.
        _parts(6, 5, 120, slice(2, 4)),
        _parts(6, 5, 120, slice(None)),
    ],
    reads=lambda found, *_: tuple(map(np.asarray, found)),
    mistakes={
        UNLIKE: lambda *parts: _merged(*parts, shrinks=False),
        "do not divide `out` by `sum` yet": lambda *parts: (
            _merged(*parts)[0] / _merged(*parts)[2],
            *_merged(*parts)[1:],
        ),
    },
    praise="merged correctly, even for large scores",
    hints=[
        "What would each part be if the other part's max had been subtracted from its scores?",
        "The new max is np.maximum(max1, max2). Part 1 is multiplied by np.exp(max1 - new max).",
        "Multiply both out and sum of each part by its factor; then add the two parts.",
    ],
)
