"""Lesson 07, tensor parallel: the silent bug, and the exercises."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ttkit.errors import fail
from ttkit.lessons import exercise, require, tidy
from ttkit.lessons.answers import Answer, Run, asks, numbers, row_of
from ttkit.lessons.calls import lean
from ttkit.lessons.lesson_03 import PARTIAL
from ttkit.visualize.chart import BLUE, Chart, entitle
from ttkit.visualize.charts import Curves

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


# ---------------------------------------------------------------- what is measured
def loss_bytes(vocabulary: int = 8192, tokens: int = 64, chips: int = 4) -> dict[str, int]:
    """Return the bytes over links of the loss of a vocabulary in parts, in two ways.

    Returns:
        "three numbers" of each token, which `ttkit.train` sends, and "all logits" gathered.
    """
    from ttkit import ttnn
    from ttkit.profiler import profile
    from ttkit.train.config import DeviceConfig, Settings
    from ttkit.train.context import open_layout
    from ttkit.train.models import Vocabulary

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
    from ttkit.train import attention, models, modules

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
    from ttkit.train.config import DeviceConfig, Settings, TrainingConfig, TransformerConfig

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


# ---------------------------------------------------------------- the exercises
def _one_sum(run: Run, what: str) -> None:
    """Check that the product was made on the mesh, and that one collective led to the tensor."""
    run.summed()
    run.computed(what)
    if not run.calls:
        return
    sent = run.sent()
    fine = sent in (["all_reduce"], ["reduce_scatter", "all_gather"])
    calls = ", ".join(sent) or "no collective"
    require(fine, f"it is right, but you called {calls}; one all_reduce is enough")


@exercise(
    "07.swiglu",
    "Which cut gives a chip finished numbers of its own columns, which it can multiply element by "
    "element?",
    "gate and up have the same columns: cut both alike. Which cut of down fits the hidden features "
    "that a chip has?",
    "gate and up by columns, down by rows. Then each chip has a partial sum: one all_reduce.",
)
@asks("swiglu(mesh, x, gate, up, down)", (1, 4), (1, 3), fabric=True)
def _swiglu(swiglu: Answer, mesh: Any) -> str:
    n = row_of(mesh)
    width, out = 32 * (5 - n), 96 * (5 - n)  # not the same on each mesh
    x, (gate, up) = numbers(64 * n, width) / 8, numbers(2, width, 32 * n) / 8  # silu is no relu
    down, (wide, low) = numbers(32 * n, out) / 8, ((width, 32), (32, out))
    run = swiglu.on(mesh, (x, x.shape), (gate, wide), (up, wide), (down, low))

    def silu(a: np.ndarray) -> np.ndarray:
        return a * (1 + np.tanh(a / 2)) / 2

    def part(gate: np.ndarray, up: np.ndarray, down: np.ndarray) -> np.ndarray:
        return (silu(x @ gate) * (x @ up)) @ down

    cuts = zip(np.split(gate, n, 1), np.split(up, n, 1), np.split(down, n), strict=True)
    right = part(gate, up, down)
    a, b = x @ gate, x @ up
    gelu = a * (1 + np.vectorize(math.erf)(a / math.sqrt(2))) / 2
    instead = {
        "the silu is on x @ up; it belongs on x @ gate": a * silu(b),
        "the silu is missing: silu(x @ gate)": a * b,
        "the silu is on the product of both; it belongs on x @ gate alone": silu(a * b),
        "there is a silu on x @ up, too; it belongs on x @ gate alone": silu(a) * silu(b),
        "this is gelu; silu is asked for: ttnn.silu": gelu * b,
        "this is relu; silu is asked for: ttnn.silu": np.maximum(a, 0) * b,
        "this is sigmoid; silu(a) is a * sigmoid(a): ttnn.silu": silu(a) / a * b,
        "x @ up is missing: silu(x @ gate) * (x @ up)": silu(a),
        "both are added; silu(x @ gate) and x @ up are multiplied": silu(a) + b,
        "gate is used twice, and up is not": silu(a) * a,
        "up is used twice, and gate is not": silu(b) * b,
    }
    run.differs(
        ([part(*cut) for cut in cuts], PARTIAL),
        *(([hidden @ down] * n, words) for words, hidden in instead.items()),
        ([n * right] * n, f"it is {n} times too large: the sum was made twice, or of whole values"),
        ([right / n] * n, f"it is {n} times too small: a sum is asked for, not a mean"),
        rtol=1e-3,
    )
    run.equals([right] * n, 1e-3)
    _one_sum(run, "the MLP")
    products = [call.operands[:2] for call in run.led if call.kind == "product"]
    shapes = [lean(list(tensor.shape)) for pair in products for tensor in pair]
    hidden = [64 * n, 32]
    if shapes != [[64 * n, width], [width, 64], hidden, [*low]]:  # gate and up beside each other
        run.multiplied((x.shape, wide), (x.shape, wide), (hidden, low))
    return f"three matrices, one sum; {run.given()}"


@exercise(
    "07.backward",
    "A chip has some columns of dy and of w. Which numbers of dy @ wᵀ can it compute from them?",
    "dy @ wᵀ is a sum over the columns. A chip has the part of that sum for its columns.",
    "ttnn.matmul(dy, w, transpose_b=True) on each chip, then what f does on the way back.",
)
@asks("backward(mesh, dy, w)", (1, 4), (1, 3), fabric=True)
def _backward(backward: Answer, mesh: Any) -> str:
    n = row_of(mesh)
    dy, w = numbers(64 * n, 32 * n), numbers(96 * n, 32 * n)
    run = backward.on(mesh, (dy, (64 * n, 32)), (w, (96 * n, 32)))
    parts = [a @ b.T for a, b in zip(np.split(dy, n, 1), np.split(w, n, 1), strict=True)]
    right = dy @ w.T
    run.differs(
        (parts, PARTIAL),
        ([n * right] * n, f"it is {n} times too large: the sum was made twice, or of whole values"),
        ([right / n] * n, f"it is {n} times too small: a sum is asked for, not a mean"),
        rtol=1e-3,
    )
    run.equals([right] * n, 1e-4)
    _one_sum(run, "the gradient")
    run.multiplied(((64 * n, 32), (96 * n, 32)))
    return f"the gradient of x on each of {n} devices; {run.given()}"
