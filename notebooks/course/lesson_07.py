"""Lesson 07, tensor parallel: its pictures, the silent bug, and the exercises."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from course.lesson_03 import PARTIAL
from ttkit.errors import fail
from ttkit.lessons import tidy
from ttkit.lessons.exercises import exercise
from ttkit.lessons.on_meshes import Budget, OnMeshes, numbers, replicas, split
from ttkit.visualize.charts import BLUE, Chart, Curves, entitle
from ttkit.visualize.drawing import INK, Drawing, Figure, tone
from ttkit.visualize.matmul import draw_matmul
from ttkit.words import counted

CHECKS = ("Does the loss fall?", "Are replicas equal?", "Are gradients those of one chip?")
LAYERS = {  # what a parameter's name begins with: its layer, in the order of the model
    "vocabulary.table": "table of tokens",
    "position": "positions",
    "blocks.0.norm1": "norm 1",
    "blocks.0.attention.query": "attention, heads",
    "blocks.0.attention.key": "attention, heads",
    "blocks.0.attention.value": "attention, heads",
    "blocks.0.attention.out": "attention, output",
    "blocks.0.norm2": "norm 2",
    "blocks.0.up": "MLP, columns",
    "blocks.0.down": "MLP, rows",
    "norm": "last norm",
    "vocabulary.head": "logits",
}

LANE, BOX, HIGH = 38, 82, 28  # from chip to chip, and a box: its width and height
LEFT, GAP, SIGN = 58, 12, 46  # room for the chip's name, between boxes, and for f or g
WHOLE = "#e6e9ed"
STRIPES = "rgba(255,255,255,.55)"
Column = tuple[str, str]  # the words in the boxes, and what they are: whole, own, or a sum's part


# ---------------------------------------------------------------- what is measured
def loss_bytes(vocabulary: int = 8192, tokens: int = 64, chips: int = 4) -> dict[str, int]:
    """Return the bytes over links of the loss of a vocabulary in parts, in two ways.

    Returns:
        "three numbers" of each token, which `ttkit.train` sends, and "all logits" gathered.
    """
    from ttkit import ttnn
    from ttkit.profiler import profile
    from ttkit.train.config.settings import DeviceConfig, Settings
    from ttkit.train.context import open_layout
    from ttkit.train.model.models import Vocabulary

    tidy()
    layout = open_layout(Settings(DeviceConfig((1, chips), enable_tp=True)))
    table = Vocabulary(vocab_size=vocabulary, width=128, tied=True, layout=layout)
    table.init_weights(42)
    drawn = np.random.default_rng(0).integers(0, vocabulary, (1, 1, 1, tokens))
    numbered = layout.tokens(drawn)
    logits = table.logits(table.embed(numbered))
    with profile() as few:
        table.loss(logits, numbered)
    with profile() as every:
        ttnn.all_gather(logits.get_value(), 3, cluster_axis=1)
    tidy()
    seen = {"three numbers": few, "all logits": every}
    return {name: sum(r.bytes_on_links for r in p.records) for name, p in seen.items()}


# ---------------------------------------------------------------- the silent bug
@contextmanager
def left_out(f: str) -> Iterator[None]:
    """Leave f, which `ttkit.train` calls `enter`, out of a model that runs inside the block.

    Args:
        f: "nothing", "every f" or "the MLP's f".
    """
    from ttkit.train.model import attention, models, modules

    modules_of: dict[str, list[Any]] = {
        "nothing": [],
        "every f": [attention, models, modules],
        "the MLP's f": [modules],
    }
    if f not in modules_of:
        fail(f"left_out({f!r})", f"one of {', '.join(modules_of)}", 'left_out("every f")')
    kept = [(module, module.enter) for module in modules_of[f]]
    for module, _ in kept:
        module.enter = lambda x, layout: x
    try:
        yield
    finally:
        for module, enter in kept:
            module.enter = enter


@dataclass(frozen=True)
class Trained:
    """A training, and what three checks see of it.

    Args:
        losses: of each step, as printed.
        apart: {layer: the largest difference between chips}, of what each chip has whole.
        gradients: {layer: [gradient on each chip]} of the first step; one array where it is cut.
    """

    losses: list[float]
    apart: dict[str, float]
    gradients: dict[str, list[np.ndarray]]


def train_gpt(chips: int = 4, without: str = "nothing", steps: int = 60) -> Trained:
    """Train a small GPT, tensor-parallel over some chips.

    Args:
        without: what is left out: "nothing", "every f" or "the MLP's f".
    """
    from ttkit import ttnn
    from ttkit.convert import to_numpy
    from ttkit.train import Trainer
    from ttkit.train.config.settings import (
        DeviceConfig,
        Settings,
        TrainingConfig,
        TransformerConfig,
    )

    gpt = TransformerConfig(
        num_heads=4, embedding_dim=64, num_blocks=1, max_sequence_length=32, dropout_prob=0.0
    )
    plain: dict[str, Any] = {"tokenizer_type": "byte", "eval_every": 0, "checkpoint_dir": ""}
    training = TrainingConfig(batch_size=8, max_steps=steps, learning_rate=0.01, **plain)
    device = DeviceConfig((1, chips), enable_tp=chips > 1)
    tidy()

    def on_chips(tensor: Any) -> list[np.ndarray]:
        return [to_numpy(shard) for shard in ttnn.get_device_tensors(tensor)]

    with left_out(without), Trainer(Settings(device, training, transformer_config=gpt)) as trainer:
        losses, gradients = [trainer.step().loss], dict[str, list[np.ndarray]]()
        named = dict(trainer.parameters)
        for name, p in named.items():
            gradient = p.get_grad()
            whole = p.shard_dim is None
            gradients[name] = on_chips(gradient) if whole else [p.gather(gradient)]
        losses += [record.loss for record in trainer.fit(show=False)]
        apart = dict[str, float]()
        for name, p in named.items():
            if p.shard_dim is None:
                found = float(np.ptp(on_chips(p.get_value()), axis=0).max())
                apart[layer_of(name)] = max(found, apart.get(layer_of(name), 0.0))
    return Trained(losses, apart, gradients)


def layer_of(name: str) -> str:
    """Return the layer of a parameter.

    Example:
        >>> layer_of("blocks.0.attention.query.weight"), layer_of("norm.bias")
        ('attention, heads', 'last norm')
    """
    return next(layer for start, layer in LAYERS.items() if name.startswith(start))


def wrong_gradients(one: Trained, other: Trained) -> dict[str, float]:
    """Return {layer: how far its gradient is from that of one device, in parts of its size}."""
    largest = max(float(np.linalg.norm(own[0])) for own in one.gradients.values())
    found = dict.fromkeys(LAYERS.values(), 0.0)
    for name, (right, *_) in one.gradients.items():
        size = float(np.linalg.norm(right)) + 1e-3 * largest  # some are nearly zero
        far = max(float(np.linalg.norm(mine - right)) for mine in other.gradients[name])
        found[layer_of(name)] = max(found[layer_of(name)], far / size)
    return found


@dataclass(frozen=True, repr=False)
class Found(Chart):
    """A bar for each layer, hatched where the check finds a fault.

    Args:
        values: {layer: how wrong it is}; below a hundredth it is right.
    """

    title: str
    values: Mapping[str, float]
    unit: str

    def __repr__(self) -> str:
        return "\n  ".join([self.title, *(f"{name}: {v:.1f}" for name, v in self.values.items())])

    @property
    def height(self) -> float:
        """Of the figure, in inches."""
        return 0.9 + 0.25 * len(self.values)

    def draw(self, ax: Any) -> None:
        """Draw the bars, the layer nearest to the input on top."""
        names, values = list(self.values), list(self.values.values())
        drawn = ax.barh(names, values, 0.7, color=BLUE, hatch="///", edgecolor="white")
        ax.bar_label(drawn, [f"{v:.1f}" if v > 0.01 else "0: right" for v in values], padding=4)
        ax.set(xlim=(0, 1.2 * max(*values, 0.5)), xlabel=self.unit)
        ax.tick_params(axis="y", length=0)
        ax.invert_yaxis()
        entitle(ax, self.title)


def find(runs: Mapping[str, Trained], without: str, check: str) -> Chart:
    """Return the picture of what a check sees of a run.

    Args:
        runs: trainings by what was left out, and that of "one chip".
        check: one of CHECKS.
    """
    one, run = runs["one chip"], runs[without]
    if check == CHECKS[0]:
        return _Losses(without, run.losses)
    if check == CHECKS[1]:
        order = {name: run.apart[name] for name in LAYERS.values() if name in run.apart}
        return Found(
            _verdict(without, order.values()), order, "largest difference between two chips"
        )
    wrong = wrong_gradients(one, run)
    unit = "difference from one chip's gradient, in parts of its size"
    return Found(_verdict(without, wrong.values()), wrong, unit)


def _verdict(without: str, values: Any) -> str:
    wrong = sum(value > 0.01 for value in values)
    fault = f"this check finds the fault: {wrong} of {len(values)} layers are wrong"
    return f"{without} left out: " + (fault if wrong else "all layers are right")


class _Losses(Curves):
    """The losses of a run, as its reader sees them."""

    def __init__(self, without: str, losses: Sequence[float]):
        last = np.mean(losses[-5:])
        title = (
            f"{without} left out: the loss falls, to {last:.1f} at the end. Alone it says nothing"
        )
        super().__init__(title, {"printed loss": [*enumerate(losses, 1)]}, digits=2)

    def draw(self, ax: Any) -> None:
        """Draw the curve on the same axis for every run."""
        super().draw(ax)
        ax.set(ylim=(0, 6), ylabel="loss")


# ---------------------------------------------------------------- the pictures
def cuts(added: bool = False, chips: int = 4) -> list[Figure]:
    """Draw a product whose matrix is cut by columns, then one whose matrix is cut by rows.

    Args:
        added: all_reduce has added the partial sums of the second product.
    """
    hidden = draw_matmul(cut="columns", chips=chips, shape=(8, 12, 16))
    return [hidden, draw_matmul(cut="rows", chips=chips, shape=(8, 16, 12), reduced=added)]


def passes(way: str = "forwards", chips: int = 4, f: bool = True, g: bool = True) -> Figure:
    """Draw a pair of matrices, columns then rows, over chips: what each chip has at each point.

    Args:
        way: "forwards" or "backwards".
        f: the all-reduce of the backward pass is there.
        g: the all-reduce of the forward pass is there.

    Example:
        >>> passes("backwards", f=False)
        backwards, 4 chips: dx is a partial sum on each chip. Nothing is sent.
          on each chip: dy (whole), g sends nothing, dy @ downᵀ (own), gelu' (own),
          ... @ upᵀ (partial), f is left out, dx (partial)
    """
    if way == "forwards":
        end, ours, other, sums, quiet = "y", "g", "f", g, f
        words = ["x", "x @ up", "gelu", "... @ down", end]
    else:
        end, ours, other, sums, quiet = "dx", "f", "g", f, g
        words = ["dy", "dy @ downᵀ", "gelu'", "... @ upᵀ", end]
    kinds = ["whole", "own", "own", "partial", "whole" if sums else "partial"]
    columns = [*zip(words, kinds, strict=True)]
    signs = {  # before these columns
        1: (other, "sends nothing" if quiet else "left out"),
        4: (ours, "all-reduce" if sums else "left out"),
    }
    title, alarm = f"{way}, {counted(chips, 'chip')}: {end} is ", ""
    if sums:
        title += f"the whole sum on every chip. {ours} is an all-reduce."
    else:
        title += "a partial sum on each chip. Nothing is sent."
        alarm = f"Without {ours} each chip has a different {end} from here on, and none is right."
    notes = [
        "Grey: whole, and the same on every chip. A colour: the chip's own part. "
        "Striped: a partial sum, as long as the whole.",
    ]
    has = [f"{words} ({kind})" for words, kind in columns]
    has.insert(1, f"{other} {'sends nothing' if quiet else 'is left out'}")
    has.insert(5, f"{ours} {'is an all-reduce' if sums else 'is left out'}")
    rows = f"  on each chip: {', '.join(has[:4])},\n  {', '.join(has[4:])}"
    drawing = _lanes(title, columns, chips, way, signs)
    return Figure(title, [drawing], notes, f"{title}\n{rows}", alarm)


def _lanes(
    title: str, columns: list[Column], chips: int, way: str, signs: dict[int, tuple[str, str]]
) -> Drawing:
    """Draw a lane for each chip, the columns from left to right, and f and g across all lanes."""
    meaning = {
        "whole": "all of it, as on every chip",
        "own": f"1/{chips} of the features",
        "partial": "a partial sum",
    }
    drawing = Drawing(LEFT + 5 * BOX + 2 * SIGN + 6 * GAP + 2, 34 + chips * LANE, title)
    x = float(LEFT)
    for i, (words, kind) in enumerate(columns):
        if i in signs:
            _sign(drawing, x, chips * LANE - (LANE - HIGH), *signs[i])
            x += SIGN + GAP
        for chip in range(chips):
            y = 26 + chip * LANE
            drawing.add(
                "rect", x=x, y=y, width=BOX, height=HIGH, rx=5,
                fill=WHOLE if kind == "whole" else tone(chip), stroke="var(--edge)",
                hover=f"chip {chip}: {words}, {meaning[kind]}",
            )  # fmt: skip
            if kind == "partial":
                ends = (x + 3, y + HIGH / 2), (x + BOX - 3, y + HIGH / 2)
                drawing.line(*ends, colour=STRIPES, width=HIGH - 2, dash="5 7")
            drawing.words(x + BOX / 2, y + 18, words, size=12, colour=INK)
            if i < 4 and i + 1 not in signs:
                drawing.arrow((x + BOX + 2, y + 14), (x + BOX + GAP - 1, y + 14), width=1.4, head=6)
        x += BOX + GAP
    for chip in range(chips):
        drawing.words(LEFT - 8, 44 + chip * LANE, f"chip {chip}", size=12, anchor="end")
    drawing.words(LEFT, 15, f"{way} →", size=12, anchor="start", bold=True)
    return drawing


def _sign(drawing: Drawing, x: float, tall: float, name: str, says: str) -> None:
    """Draw f or g across the lanes: filled where it sends, empty where it does nothing."""
    sends = says == "all-reduce"
    fill, colour = ("var(--link)", "var(--page)") if sends else ("none", "var(--ink)")
    drawing.add(
        "rect", x=x, y=26, width=SIGN, height=tall, rx=6, fill=fill, hover=f"{name}: {says}",
        stroke="var(--link)", stroke_dasharray="" if sends else "4 3",
    )  # fmt: skip
    shown = f"no {name}" if says == "left out" else name
    drawing.words(x + SIGN / 2, 32 + tall / 2, shown, size=16, colour=colour, bold=True)
    drawing.words(x + SIGN / 2, 15, says.removeprefix("sends "), size=11, colour="var(--soft)")


def heads(heads: int = 8, chips: int = 4) -> Figure:
    """Draw which chip computes which attention heads.

    Raises:
        TTKitError: the chips cannot have equally many.

    Example:
        >>> heads(8, 4)
        8 attention heads over 4 chips: 2 on each
          chip 0: heads 0, 1
          chip 1: heads 2, 3
          chip 2: heads 4, 5
          chip 3: heads 6, 7
    """
    if heads % chips:
        rule = "num_heads must be divisible by the number of devices"
        fail(f"{heads} heads over {chips} chips", rule, f"a multiple of {chips}, or fewer chips")
    each = heads // chips
    title = f"{heads} attention heads over {counted(chips, 'chip')}: {each} on each"
    wide = min(58, 660 // max(each, 1))
    drawing = Drawing(max(LEFT + each * wide + 10, 300), chips * LANE + 4, title)
    lines = [title]
    for chip in range(chips):
        y, mine = 2 + chip * LANE, range(chip * each, (chip + 1) * each)
        drawing.words(LEFT - 8, y + 18, f"chip {chip}", size=12, anchor="end")
        for i, head in enumerate(mine):
            drawing.add(
                "rect", x=LEFT + i * wide, y=y, width=wide - 4, height=HIGH, rx=5,
                fill=tone(chip), stroke="var(--edge)",
                hover=f"head {head}: its columns of query, key and value are on chip {chip}",
            )  # fmt: skip
            at = LEFT + i * wide + wide / 2 - 2
            drawing.words(
                at, y + 18, f"head {head}" if wide > 50 else f"{head}", size=11, colour=INK
            )
        lines.append(f"  chip {chip}: head{'s' * (each > 1)} {', '.join(map(str, mine))}")
    return Figure(title, [drawing], ["A colour: one chip. No head needs another head's numbers."],
                  "\n".join(lines))  # fmt: skip


# ---------------------------------------------------------------- 07.swiglu
Hidden = Callable[[np.ndarray, np.ndarray], np.ndarray]
TOO_LARGE = "it is {n} times too large: the sum was made twice, or of whole values"
TOO_SMALL = "it is {n} times too small: a sum is asked for, not a mean"


def _silu(a: np.ndarray) -> np.ndarray:
    return a * (1 + np.tanh(a / 2)) / 2


def _relu(a: np.ndarray) -> np.ndarray:
    return np.maximum(a, 0)


def _gelu(a: np.ndarray) -> np.ndarray:
    return a * (1 + np.vectorize(math.erf)(a / math.sqrt(2))) / 2


def _mlp(hidden: Hidden) -> Callable[..., Any]:
    """Return the MLP whose hidden features are made so of x @ gate and x @ up."""
    return lambda mesh, x, gate, up, down: replicas(mesh, hidden(x @ gate, x @ up) @ down)


def _parts(mesh: Any, x: np.ndarray, *weights: np.ndarray) -> list[np.ndarray]:
    """Return the partial sum of each device."""
    cut = (split(mesh, weight, dim) for weight, dim in zip(weights, (1, 1, 0)))
    return [(_silu(x @ gate) * (x @ up)) @ down for gate, up, down in zip(*cut)]


def _three_matrices(rows: int, columns: int) -> list[Any]:
    n = rows * columns
    width, out = 32 * (5 - n), 96 * (5 - n)  # not the same on each mesh
    x, (gate, up) = numbers(64 * n, width) / 8, numbers(2, width, 32 * n) / 8
    shards = [x.shape, (width, 32), (width, 32), (32, out)]
    return list(zip([x, gate, up, numbers(32 * n, out) / 8], shards))


_swiglu = _mlp(lambda a, b: _silu(a) * b)

exercise(
    "07.swiglu",
    asks="swiglu(mesh, x, gate, up, down)",
    reference=_swiglu,
    cases=OnMeshes([(1, 4), (1, 3)], _three_matrices, fabric=True),
    mistakes={
        "the silu is on x @ up; it belongs on x @ gate": _mlp(lambda a, b: a * _silu(b)),
        "the silu is missing: silu(x @ gate)": _mlp(lambda a, b: a * b),
        "the silu is on the product of both; it belongs on x @ gate alone": _mlp(
            lambda a, b: _silu(a * b)
        ),
        "there is a silu on x @ up, too; it belongs on x @ gate alone": _mlp(
            lambda a, b: _silu(a) * _silu(b)
        ),
        "this is gelu; silu is asked for: ttnn.silu": _mlp(lambda a, b: _gelu(a) * b),
        "this is relu; silu is asked for: ttnn.silu": _mlp(lambda a, b: _relu(a) * b),
        "this is sigmoid; silu(a) is a * sigmoid(a): ttnn.silu": _mlp(
            lambda a, b: _silu(a) / a * b
        ),
        "x @ up is missing: silu(x @ gate) * (x @ up)": _mlp(lambda a, b: _silu(a)),
        "both are added; silu(x @ gate) and x @ up are multiplied": _mlp(lambda a, b: _silu(a) + b),
        "gate is used twice, and up is not": _mlp(lambda a, b: _silu(a) * a),
        "up is used twice, and gate is not": _mlp(lambda a, b: _silu(b) * b),
        PARTIAL: _parts,
        TOO_LARGE: lambda mesh, *arrays: [a * mesh.shape[1] for a in _swiglu(mesh, *arrays)],
        TOO_SMALL: lambda mesh, *arrays: [a / mesh.shape[1] for a in _swiglu(mesh, *arrays)],
    },
    budget=Budget(sends=1),
    rtol=1e-3,
    praise="three matrices, one sum",
    hints=[
        "Which cut gives a chip finished numbers of its own columns, which it can multiply element "
        "by element?",
        "gate and up have the same columns: cut both alike. Which cut of down fits the hidden "
        "features that a chip has?",
        "gate and up by columns, down by rows. Then each chip has a partial sum: one all_reduce.",
    ],
)


# ---------------------------------------------------------------- 07.backward
def _columns(rows: int, columns: int) -> list[Any]:
    n = rows * columns
    return [(numbers(64 * n, 32 * n), (64 * n, 32)), (numbers(96 * n, 32 * n), (96 * n, 32))]


exercise(
    "07.backward",
    asks="backward(mesh, dy, w)",
    reference=lambda mesh, dy, w: replicas(mesh, dy @ w.T),
    cases=OnMeshes([(1, 4), (1, 3)], _columns, fabric=True),
    mistakes={
        PARTIAL: lambda mesh, dy, w: [
            a @ b.T for a, b in zip(split(mesh, dy, 1), split(mesh, w, 1))
        ],
        TOO_LARGE: lambda mesh, dy, w: replicas(mesh, dy @ w.T * mesh.shape[1]),
        TOO_SMALL: lambda mesh, dy, w: replicas(mesh, dy @ w.T / mesh.shape[1]),
    },
    budget=Budget(sends=1),
    rtol=1e-4,
    praise="the gradient of x on each of {n} devices",
    hints=[
        "A chip has some columns of dy and of w. Which numbers of dy @ wᵀ can it compute from "
        "them?",
        "dy @ wᵀ is a sum over the columns. A chip has the part of that sum for its columns.",
        "ttnn.matmul(dy, w, transpose_b=True) on each chip, then what f does on the way back.",
    ],
)
