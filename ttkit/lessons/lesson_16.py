"""Lesson 16, long sequences: the runs that it measures, a picture of causal work, its exercises."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

import ttkit
from ttkit import backend
from ttkit.lessons import difference, exercise, require, same, tidy
from ttkit.lessons.answers import Answer, asks, numbers
from ttkit.train import Trainer
from ttkit.train.config import DeviceConfig, Settings, TrainingConfig, TransformerConfig
from ttkit.train.distributed import mean_over_groups
from ttkit.train.models import create_model
from ttkit.train.parallel import MeshLayout
from ttkit.train.replicas import average_gradients
from ttkit.visualize.chart import BLUE, GREY, SMALL, Chart, bars, entitle

PLAIN, ZIGZAG = "plain order", "zig-zag order"
VOCABULARY = 96


# ---------------------------------------------------------------- what is run
def opened(chips: int, axes: dict[str, int] | None = None, **more: Any) -> MeshLayout:
    """Close what is open, open a row of chips, and return its layout.

    Args:
        axes: what axis 1 is for: {"tp": 1} or {"cp": 1}.
        more: of the layout, such as sequence_parallel=True.
    """
    tidy()
    ttnn = backend.load()
    # a ring's way back on a line goes through chips that lie between
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_2D)
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, chips))
    return MeshLayout.of((1, chips), axes or {}, mesh, **more)


def _gpt(length: int, layout: MeshLayout, blocks: int) -> Any:
    sizes = {"num_heads": 8, "embedding_dim": 256, "vocab_size": VOCABULARY}
    sizes |= {"num_blocks": blocks, "max_sequence_length": length, "dropout_prob": 0}
    model = create_model(TransformerConfig(**sizes), layout)  # type: ignore[arg-type]
    model.init_weights(42)
    return model


def _kept(length: int, layout: MeshLayout, blocks: int) -> int:
    """Return the bytes on a chip that a forward pass leaves there; they are free afterwards."""
    model, tokens = _gpt(length, layout, blocks), np.zeros((1, 1, 1, length), int)
    before = max(ttkit.memory(layout.device).used.values())
    _ = model(layout.tokens(tokens))
    return int(max(ttkit.memory(layout.device).used.values()) - before)


def block_bytes(length: int, layout: MeshLayout) -> int:
    """Return the bytes on a chip that a forward pass through one block leaves there."""
    return _kept(length, layout, 2) - _kept(length, layout, 1)


def rates(layout: MeshLayout) -> tuple[float, float]:
    """Return the bytes that a block keeps for each token and for each pair of tokens, on a chip."""
    few, many = (block_bytes(length, layout) for length in (512, 1024))
    pair = (many - 2 * few) / (1024**2 - 2 * 512**2)
    return few / 512 - 512 * pair, pair


def step(length: int, layout: MeshLayout) -> tuple[Any, dict[str, Any], tuple[Any, Any], Any]:
    """Return a step's loss, all gradients, profiles of the passes and of averaging, the model."""
    model, draw = _gpt(length, layout, 2), np.random.default_rng(1)
    tokens, targets = map(layout.tokens, draw.integers(0, VOCABULARY, (2, 1, 1, 1, length)))
    with ttkit.profile() as passes:
        loss = model.loss(model(tokens), targets)
        loss.backward()
    with ttkit.profile() as averaging:
        average_gradients(model.parameters())
    grads = {name: each.gather(each.get_grad()) for name, each in model.parameters().items()}
    return mean_over_groups(loss, layout), grads, (passes, averaging), model


def wrong_ones(good: dict[str, Any], grads: dict[str, Any]) -> list[str]:
    """Return the names of the gradients that are not the good ones."""
    return [name for name in good if difference(good[name], grads[name], 1e-3, 1e-5)]


def compare(name: str, one: tuple[Any, ...], layout: MeshLayout) -> None:
    """Print what a step has in common with one chip's, what it sends, and what a block keeps.

    Args:
        name: of the layout, such as "tensor".
        one: what `step` of 512 tokens returns on one chip.
    """
    loss, grads, profiles, _ = step(512, layout)
    same(one[0], loss, f"{name} parallel: the loss of one chip", 1e-4)
    print("  wrong gradients:", len(wrong_ones(one[1], grads)), "of", len(grads))
    for when, profile in zip(("in both passes", "once a step"), profiles):
        sent: Counter[str] = Counter()
        for record in profile.records:
            sent[record.name] += record.bytes_on_links  # type: ignore[assignment]
        texts = [f"{call} {sent[call] / 1e6:.1f}" for call in sent if sent[call]]
        print(f"  MB on links {when}:", ", ".join(texts) or "none")
    token, pair = rates(layout)
    print(f"  kept: {token / 1024:.1f} vectors a token, {pair / 4:.1f} numbers a pair")


def trained_losses(chips: int, length: int = 512) -> np.ndarray:
    """Return three losses of a small GPT on a row of chips, context parallel over several."""
    model = TransformerConfig(
        num_heads=2, embedding_dim=64, num_blocks=1, dropout_prob=0, max_sequence_length=length
    )
    training = TrainingConfig(
        batch_size=1, max_steps=3, tokenizer_type="byte", eval_every=0, checkpoint_dir=""
    )
    tidy()  # the trainer opens its own mesh
    device = DeviceConfig((1, chips), enable_cp=chips > 1)
    with Trainer(Settings(device, training, transformer_config=model)) as trainer:
        return np.array([record.loss for record in trainer.fit(show=False)])


# ---------------------------------------------------------------- a picture of causal work
def chunks_of(chips: int) -> dict[str, np.ndarray]:
    """Return which two of 2 x chips chunks each chip has, [chips, 2], in both orders."""
    early = np.arange(chips)
    return {
        PLAIN: np.stack([2 * early, 2 * early + 1], 1),
        ZIGZAG: np.stack([early, 2 * chips - 1 - early], 1),
    }


class CausalWork(Chart):
    """Which chunks of keys the queries of each chip need, in plain and in zig-zag order.

    Example:
        >>> CausalWork(2)
        causal attention on 2 chips: who needs which keys
          plain order: chips 0 to 1 compute 25 %, 75 % of the scores
          zig-zag order: chips 0 to 1 compute 50 %, 50 % of the scores
    """

    height = 4.4

    def __init__(self, chips: int = 8):
        self.chips, self.orders = chips, chunks_of(chips)
        self.title = f"causal attention on {chips} chips: who needs which keys"
        # a chunk of queries needs the chunks before it whole, and half of its own
        work = {name: (2 * chunks + 1).sum(1) for name, chunks in self.orders.items()}
        self.percent = {name: 100 * each / each.sum() for name, each in work.items()}

    def __repr__(self) -> str:
        lines = [self.title]
        for name, percent in self.percent.items():
            texts = ", ".join(f"{each:.3g} %" for each in percent)
            lines.append(f"{name}: chips 0 to {self.chips - 1} compute {texts} of the scores")
        return "\n  ".join(lines)

    def draw(self, ax: Any) -> None:
        """Draw a row for each chunk of queries and a column for each of keys, chip by chip."""
        side = 2 * self.chips
        for left, (name, chunks) in zip((0, 1.42 * side), self.orders.items()):
            rows = chunks.ravel()
            for row, query in enumerate(rows):
                spans = {"whole": rows < query, "half, masked": rows == query}
                for (label, which), colour in zip(spans.items(), (BLUE, (BLUE, 0.35))):
                    cells = [(left + k, left + k + 1) for k in np.flatnonzero(which)]
                    bars(ax, row + 0.5, cells, label, colour, height=1)
            for chip, percent in enumerate(self.percent[name]):
                look = {"va": "center", "size": SMALL}
                ax.text(left - 0.3, 2 * chip + 1, f"{chip}", ha="right", **look)
                ax.text(left + side + 0.3, 2 * chip + 1, f"{percent:.3g} %", **look)
            for edge in range(0, side + 1, 2):
                thin = {"color": GREY, "linewidth": 1.1}
                ax.plot([left, left + side], [edge, edge], **thin)
                ax.plot([left + edge, left + edge], [0, side], **thin)
            about = f"{name}: the busiest chip computes {self.percent[name].max():.3g} %"
            ax.text(left, side * 1.03, about, va="top")
        ax.set(xlim=(-0.08 * side, 2.72 * side), ylim=(side * 1.1, -0.01 * side))
        ax.axis("off")
        entitle(ax, f"{self.title}\nrow: a chunk of queries; column: one of keys; numbered: chips")


# ---------------------------------------------------------------- exercises
def flat(positions: Any) -> list[Any]:
    """Return what nested lists or arrays hold, in order.

    Example:
        >>> flat([range(2), [[2], np.arange(3, 5)]])
        [0, 1, 2, 3, 4]
    """
    nested = positions.tolist() if isinstance(positions, np.ndarray) else positions
    if isinstance(nested, str) or not hasattr(nested, "__iter__"):
        return [nested]
    return [position for each in nested for position in flat(each)]


@exercise(
    "16.balanced",
    "How many keys does position p see? Which positions see most, and which least?",
    "Give each chip as many early positions as late ones.",
    "np.arange(length).reshape(2 * chips, -1) makes chunks; chip i takes the chunks i and "
    "2 * chips - 1 - i.",
)
@asks("balanced(length, chips)")
def _balanced(answer: Answer) -> str:
    for length, chips in ((16, 2), (64, 4), (48, 3), (96, 8), (20, 1)):
        call, found = f"balanced({length}, {chips})", answer(length, chips)
        answer.must_give("positions, chip by chip", hasattr(found, "__iter__"), found)
        parts = [flat(each) for each in found]
        order, sizes = np.array(flat(parts)), [len(part) for part in parts]
        size = f"{call} should give {length} positions, chip by chip; it has {order.size}"
        require(order.size == length, size)
        uneven = len(sizes) == chips and set(sizes) != {length // chips}
        require(not uneven, f"{call} gives the chips {sizes} positions, not {length // chips} each")
        whole = np.issubdtype(order.dtype, np.integer)
        require(whole, f"{call}: positions are whole numbers, not {order.dtype}")
        missing = sorted(set(range(length)).difference(order.tolist()))
        require(not missing, f"{call}: position {missing[:1]} is missing; each belongs to one chip")
        work = (order.reshape(chips, -1) + 1).sum(1)  # position p sees p + 1 keys
        most, least = int(work.argmax()), int(work.argmin())
        require(
            work[most] == work[least],
            f"{call}: chip {most} computes {work[most]} scores and chip {least} {work[least]}; "
            f"all wait for the slowest, and the budget of a chip is {work.sum() // chips}",
        )
    return "in five cuts no chip computes more scores than another"


Part = tuple[np.ndarray, ...]  # out, max, sum
UNLIKE = "exponentials are added that have different max subtracted"
OWN_MAX = "each query has a max of its own, the higher of its two"


def _part(scores: np.ndarray, values: np.ndarray) -> Part:
    top = scores.max(-1, keepdims=True)
    powers = np.exp(scores - top)
    return powers @ values, top, powers.sum(-1, keepdims=True)


@exercise(
    "16.merge",
    "What would each part be, if the max of the other one had been subtracted from its scores?",
    "The new max is np.maximum(max1, max2). Part 1 is multiplied by np.exp(max1 - new max).",
    "Both out and sum of a part are multiplied by its factor; then they are added.",
)
@asks("merge(out1, max1, sum1, out2, max2, sum2)")
def _merge(answer: Answer) -> str:
    for case, height, queries, d in (("small scores", 1, 4, 8), ("scores up to 960", 120, 6, 5)):
        scores, values = numbers(queries, 24) * np.float32(height), numbers(24, d)
        scores[0, :9] -= 16 * height  # the second part is far higher
        scores[1, 9:] -= 16 * height
        one, two = _part(scores[:, :9], values[:9]), _part(scores[:, 9:], values[9:])
        _compare(answer, one, two, _part(scores, values), case)
    scores -= 2000  # no max is above 0
    one, two = _part(scores[:, :9], values[:9]), _part(scores[:, 9:], values[9:])
    for rows, hides in ((slice(1, 3), "two queries"), (slice(None), "all queries")):
        for array, empty in zip(two, (0, -np.inf, 0)):
            array[rows] = empty
        seen = two[1] > -np.inf
        wanted = _part(scores, values)
        whole = tuple(np.where(seen, both, first) for both, first in zip(wanted, one))
        _compare(answer, one, two, whole, f"the mask hides part 2 from {hides}")
    return "the parts make the whole, large scores too, in the bytes of one part"


def _compare(answer: Answer, one: Part, two: Part, whole: Part, case: str) -> None:
    with np.errstate(all="ignore"):
        found = answer(*(array.copy() for array in (*one, *two)))
    three = isinstance(found, (tuple, list)) and len(found) == 3
    answer.must_give("three arrays, (out, max, sum)", three, found)
    mistakes = {
        "max": [
            (np.minimum(one[1], two[1]), "that is the lower of the two"),
            (whole[2], "that is sum; the order is (out, max, sum)"),
        ],
        "sum": [(one[2] + two[2], UNLIKE)],
        "out": [(one[0] + two[0], UNLIKE), (whole[0] / whole[2], "it is divided by sum already")],
    }
    for name, at in (("max", 1), ("sum", 2), ("out", 0)):
        want = whole[at]
        try:
            have = np.asarray(found[at])
        except ValueError:  # lists of unlike lengths
            have = np.empty(0)
        shape = f"{name} should have the shape {want.shape}, has {have.shape}"
        require(have.shape == want.shape, shape)
        kind = f"{name} should hold float32 as the parts do, holds {have.dtype}"
        require(have.dtype.kind == "f" and have.itemsize >= want.itemsize, kind)
        size = f"{name} takes {have.nbytes} bytes as {have.dtype}; a part has {want.nbytes}"
        require(have.nbytes <= want.nbytes, size)
        wrong = difference(want, have, 1e-3, 1e-4)
        whys = [why for values, why in mistakes[name] if not difference(values, have, 1e-3, 1e-4)]
        whys.append(OWN_MAX if name == "max" else "look at its factors")
        if np.isnan(have).any() and np.isinf(two[1]).any():
            whys = ["exp(-inf) is 0, but -inf times 0, and -inf minus -inf, are no number"]
        elif name != "max" and not np.isfinite(have).all():
            whys = ["exp overflows; subtract the higher max first"]
        require(not wrong, f"{case}: {name}: {wrong}; {whys[0]}")
