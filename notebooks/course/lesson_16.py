"""Lesson 16, long sequences: the runs that it measures, a picture of causal work, its exercises."""

from __future__ import annotations

from typing import Any

import numpy as np

import ttkit
from ttkit import backend
from ttkit.lessons import CheckFailed, difference, same, tidy
from ttkit.lessons.exercises import exercise
from ttkit.lessons.on_meshes import numbers
from ttkit.train import Trainer
from ttkit.train.config.layout import Layout
from ttkit.train.config.settings import DeviceConfig, Settings, TrainingConfig, TransformerConfig
from ttkit.train.model.models import create_model
from ttkit.train.parallel.data_parallel import average_gradients
from ttkit.train.parallel.distributed import mean_over_groups
from ttkit.visualize.charts import BLUE, GREY, SMALL, Chart, entitle

PLAIN, ZIGZAG = "plain order", "zig-zag order"
VOCABULARY = 96


# ---------------------------------------------------------------- what is run
def opened(chips: int, axes: dict[str, int] | None = None, **more: Any) -> Layout:
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
    return Layout(axes=tuple((axes or {}).items()), **more).on(mesh)


def _gpt(length: int, layout: Layout, blocks: int) -> Any:
    sizes = {"num_heads": 8, "embedding_dim": 256, "vocab_size": VOCABULARY}
    sizes |= {"num_blocks": blocks, "max_sequence_length": length, "dropout_prob": 0}
    model = create_model(TransformerConfig(**sizes), layout)  # type: ignore[arg-type]
    model.init_weights(42)
    return model


def _kept(length: int, layout: Layout, blocks: int) -> int:
    """Return the bytes on a chip that a forward pass leaves there; they are free afterwards."""
    model, tokens = _gpt(length, layout, blocks), np.zeros((1, 1, 1, length), int)
    before = max(ttkit.memory(layout.device).used.values())
    _ = model(layout.tokens(tokens))
    return int(max(ttkit.memory(layout.device).used.values()) - before)


def block_bytes(length: int, layout: Layout) -> int:
    """Return the bytes on a chip that a forward pass through one block leaves there."""
    return _kept(length, layout, 2) - _kept(length, layout, 1)


def rates(layout: Layout) -> tuple[float, float]:
    """Return the bytes that a block keeps for each token and for each pair of tokens, on a chip."""
    few, many = (block_bytes(length, layout) for length in (512, 1024))
    pair = (many - 2 * few) / (1024**2 - 2 * 512**2)
    return few / 512 - 512 * pair, pair


def step(length: int, layout: Layout) -> tuple[Any, dict[str, Any], tuple[Any, Any], Any]:
    """Return a step's loss, all gradients, profiles of the passes and of averaging, the model."""
    model, draw = _gpt(length, layout, 2), np.random.default_rng(1)
    tokens, targets = map(layout.tokens, draw.integers(0, VOCABULARY, (2, 1, 1, 1, length)))
    with ttkit.profile() as passes:
        loss = model.loss(model(tokens), targets)
        loss.backward()
    with ttkit.profile() as averaging:
        average_gradients(model.parameters())
    grads = {name: each.gather_grad() for name, each in model.parameters().items()}
    return mean_over_groups(loss, layout), grads, (passes, averaging), model


def wrong_ones(good: dict[str, Any], grads: dict[str, Any]) -> list[str]:
    """Return the names of the gradients that are not the good ones."""
    return [name for name in good if difference(good[name], grads[name], 1e-3, 1e-5)]


def compare(name: str, one: tuple[Any, ...], layout: Layout) -> None:
    """Print what a step has in common with one chip's, what it sends, and what a block keeps.

    Args:
        name: of the layout, such as "tensor".
        one: what `step` of 512 tokens returns on one chip.
    """
    loss, grads, profiles, _ = step(512, layout)
    same(one[0], loss, f"{name} parallel: the loss of one chip", 1e-4)
    print("  wrong gradients:", len(wrong_ones(one[1], grads)), "of", len(grads))
    for when, profile in zip(("in both passes", "once a step"), profiles):
        sent: dict[str, list[int]] = {}  # the bytes of each call
        for record in profile.records:
            if record.bytes_on_links:
                sent.setdefault(record.name, []).append(record.bytes_on_links)
        texts = [f"{sum(sizes) / 1e6:.1f} in {len(sizes)} {call}" for call, sizes in sent.items()]
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
                    cells = [(left + k, 1) for k in np.flatnonzero(which)]
                    first = {} if row or left else {"label": label}
                    look = {"facecolor": colour, "edgecolor": "black", "linewidth": 0.5, **first}
                    ax.broken_barh(cells, (row, 1), **look)
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


# ---------------------------------------------------------------- 16.balanced
def _uneven(order: Any, length: int, chips: int) -> str:
    """Return which rule an order of positions breaks."""
    found = np.ravel(order)
    if missing := sorted(set(range(length)).difference(found.tolist())):
        return f"position {missing[0]} is missing; each belongs to one chip"
    if found.size != length:
        return f"{length} positions are asked for, there are {found.size}"
    work = (found.reshape(chips, -1) + 1).sum(1)  # position p sees p + 1 keys
    most, least = int(work.argmax()), int(work.argmin())
    if work[most] == work[least]:
        return ""
    return (
        f"chip {most} computes {work[most]} scores and chip {least} {work[least]}; all wait for "
        f"the slowest, and the budget of a chip is {work.sum() // chips}"
    )


exercise(
    "16.balanced",
    asks="balanced(length, chips)",
    cases=[(16, 2), (64, 4), (48, 3), (96, 8), (20, 1)],
    rules=_uneven,
    praise="in five cuts no chip computes more scores than another",
    hints=[
        "How many keys does position p see? Which positions see most, and which least?",
        "Give each chip as many early positions as late ones.",
        "np.arange(length).reshape(2 * chips, -1) makes chunks; chip i takes the chunks i and "
        "2 * chips - 1 - i.",
    ],
)


# ---------------------------------------------------------------- 16.merge
Part = tuple[np.ndarray, ...]  # out, max, sum
UNLIKE = "exponentials are added that have different max subtracted"


def _part(scores: np.ndarray, values: np.ndarray) -> Part:
    top = scores.max(-1, keepdims=True)
    powers = np.exp(scores - top)
    return powers @ values, top, powers.sum(-1, keepdims=True)


def _parts(queries: int, d: int, height: float, hidden: slice = slice(0)) -> Part:
    """Return two parts of scores up to 8 times a height; a mask hides the second of some."""
    scores, values = numbers(queries, 24) * np.float32(height), numbers(24, d)
    scores[0, :9] -= 16 * height  # the second part is far higher
    scores[1, 9:] -= 16 * height
    one, two = _part(scores[:, :9], values[:9]), _part(scores[:, 9:], values[9:])
    for array, empty in zip(two, (0, -np.inf, 0)):
        array[hidden] = empty
    return *one, *two


def _merged(*parts: np.ndarray, top: Any = np.maximum, shrinks: bool = True) -> Part:
    out1, max1, sum1, out2, max2, sum2 = parts
    new = top(max1, max2)
    one, two = (np.exp(each - new) if shrinks else np.float32(1) for each in (max1, max2))
    return out1 * one + out2 * two, new, sum1 * one + sum2 * two


def _finite(found: Any, *parts: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the three arrays; name what makes infinite numbers."""
    out, top, total = (np.asarray(array) for array in found)
    if not all(np.isfinite(array).all() for array in (out, top, total)):
        if np.isinf(parts[4]).any():
            rule = "exp(-inf) is 0, but -inf times 0, and -inf minus -inf, are no number"
            raise CheckFailed(f"where the mask hides part 2, its max is -inf: {rule}")
        raise CheckFailed("exp overflows; subtract the higher max first")
    return out, top, total


def _larger(found: Any, *parts: np.ndarray) -> str:
    size, most = (sum(np.asarray(a).nbytes for a in three) for three in (found, parts[:3]))
    return f"your part takes {size} bytes; one that came has {most}" if size > most else ""


exercise(
    "16.merge",
    asks="merge(out1, max1, sum1, out2, max2, sum2)",
    reference=_merged,
    cases=[
        _parts(4, 8, 1),
        _parts(6, 5, 120),  # scores up to 960
        _parts(6, 5, 120, slice(2, 4)),
        _parts(6, 5, 120, slice(None)),
    ],
    reads=_finite,
    mistakes={
        UNLIKE: lambda *parts: _merged(*parts, shrinks=False),
        "max is the higher of the two": lambda *parts: (
            _merged(*parts, top=np.minimum) if np.isfinite(parts[4]).all() else None
        ),
        "out is not divided by sum yet": lambda *parts: (
            _merged(*parts)[0] / _merged(*parts)[2],
            *_merged(*parts)[1:],
        ),
        "the order is (out, max, sum)": lambda *parts: [_merged(*parts)[i] for i in (0, 2, 1)],
        "each part is multiplied by exp(its own max - the higher one)": lambda *parts: _merged(
            *(parts[i] for i in (3, 1, 5, 0, 4, 2))
        ),
        "each query has a max of its own, the higher of its two": lambda *parts: _merged(
            *parts, top=lambda one, two: np.maximum(one, two).max() + 0 * one
        ),
    },
    rules=_larger,
    praise="the parts make the whole, large scores too, in the bytes of one part",
    hints=[
        "What would each part be, if the max of the other one had been subtracted from its scores?",
        "The new max is np.maximum(max1, max2). Part 1 is multiplied by np.exp(max1 - new max).",
        "Both out and sum of a part are multiplied by its factor; then they are added.",
    ],
)
