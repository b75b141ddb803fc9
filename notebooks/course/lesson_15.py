"""Lesson 15, sharded data parallel: what a chip holds, and the exercises."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from ttkit import backend
from ttkit.convert import from_numpy
from ttkit.lessons.exercises import exercise
from ttkit.lessons.on_meshes import MeshRun, OnMeshes, numbers
from ttkit.train.config.settings import (
    DeviceConfig,
    LayoutConfig,
    Settings,
    TrainingConfig,
    TransformerConfig,
)
from ttkit.visualize.charts import memory
from ttkit.words import counted


# ---------------------------------------------------------------- what a chip holds
def settings(zero: Literal[0, 1, 2, 3] = 0, micro_batches: int = 1) -> Settings:
    """Return the lesson's run: a small GPT on eight chips, data parallel, in float32 with AdamW.

    Args:
        zero: the stage.
        micro_batches: parts of the batch.
    """
    model = TransformerConfig(
        num_heads=4,
        embedding_dim=256,
        num_blocks=1,
        vocab_size=256,
        max_sequence_length=64,
        dropout_prob=0,
        bias=False,
    )
    training = TrainingConfig(
        batch_size=32,
        gradient_accumulation_steps=micro_batches,
        tokenizer_type="byte",
        checkpoint_dir="",
        eval_every=0,
    )
    device, layout = DeviceConfig((1, 8), enable_ddp=True), LayoutConfig(zero=zero)
    return Settings(device, training, transformer_config=model, layout=layout)


def held(trainer: Any) -> dict[str, dict[str, int]]:
    """Return what a step keeps on each chip, counted: {chip: {kind: bytes}}; train one step.

    Args:
        trainer: a new one.
    """

    def look() -> Any:
        return memory(trainer.layout.device).used

    start = look()
    trainer.forward(*trainer.batches.batch(0))  # makes the masks, which stay
    before = look()
    trainer.forward(*trainer.batches.batch(0)).backward()
    grads = look()
    trainer.step()
    trainer.optimizer.zero_grad()
    end, kinds = look(), ("weights", "gradients", "optimizer")
    sizes = ((start[i], grads[i] - before[i], end[i] - before[i]) for i in sorted(end))
    return {f"chip {i}": dict(zip(kinds, each)) for i, each in zip(sorted(end), sizes)}


# ---------------------------------------------------------------- 15.step
SHAPE = (256, 512)  # of the weight on a chip
RATE = 0.1


@dataclass
class _Step(MeshRun):
    """A call of an answer on a mesh, along one of its axes.

    Args:
        updated: the shape of each weight that the optimizer was given.
    """

    updated: list[list[int]] = field(default_factory=list)

    def over(self, budget: Any) -> str:
        """Say how it keeps more moments, or sends more, than ZeRO-1."""
        mesh, w, _, axis = self.arguments
        n, nbytes = mesh.shape[axis], w[0, 0].nbytes
        if len(self.updated) != 1:
            return f": update was called {counted(len(self.updated), 'time')}, not once"
        moments = 8 * np.prod(self.updated[0])
        if moments * n != 2 * nbytes:
            keeps = f"update was given {self.updated[0]}, so it keeps {moments:,} bytes of moments"
            return f": {keeps} on each chip; the budget is {2 * nbytes // n:,}, 1/{n} of all"
        if not backend.is_simulated():
            return ""
        used = [record for record in self.records if record.kind == "communication"]
        total = sum(record.bytes_on_links for record in used)
        most = 2 * (n - 1) * nbytes * mesh.get_num_devices() // n
        if not used:
            return ": nothing was sent; the chips can do all of it, without the host"
        if total > most:
            names = ", ".join(record.name.rpartition(".")[2] for record in used)
            budget = f"the budget is {most:,}, what one all_reduce of the gradient sends"
            return f" it is right, but {names} sent {total:,} bytes; {budget}"
        return ""

    def used(self, budget: Any) -> str:
        """Return what is kept of the moments."""
        nbytes, n = self.arguments[1][0, 0].nbytes, self.arguments[0].shape[self.arguments[3]]
        return f"{2 * nbytes // n:,} bytes of moments on a chip, 1/{n} of all"


class _Steps:
    """Calls of an answer along a row of chips, and along the columns of a mesh."""

    def runs(self, answer: Any, asks: str, mesh: Any) -> Iterator[_Step]:
        """Yield each call."""
        ttnn, updated = backend.load(), list[list[int]]()

        def update(w: Any, grad: Any) -> Any:
            updated.append(list(w.shape))
            return ttnn.subtract(w, ttnn.multiply(grad, RATE))

        def step(mesh: Any, w: np.ndarray, grads: np.ndarray) -> Any:
            updated.clear()
            each = ttnn.MeshMapperConfig([ttnn.PlacementShard(0), ttnn.PlacementShard(1)])
            how: Any = {"device": mesh, "layout": ttnn.TILE_LAYOUT}
            how["mesh_mapper"] = ttnn.create_mesh_mapper(mesh, each)
            whole = np.broadcast_to(w, grads.shape).copy()
            return answer(from_numpy(whole, **how), from_numpy(grads, **how), _axis(mesh), update)

        tries = OnMeshes([(1, 8), (2, 4)], _given, fabric=True)
        for run in tries.runs(step, asks, mesh):
            axis = _axis(run.arguments[0])
            run.arguments += (axis,)
            run.where += f" along axis {axis}"
            run.names["chips"] = run.arguments[0].shape[axis]
            yield _Step(**vars(run), updated=updated)


def _axis(mesh: Any) -> int:
    return 1 if mesh.shape[0] == 1 else 0


def _given(rows: int, columns: int) -> list[Any]:
    """Return the weight, the same along the axis, and another gradient for each chip."""
    places = (1, 1) if rows == 1 else (1, columns)
    grads = numbers(rows, columns, *SHAPE) / 8
    return [(numbers(*places, *SHAPE), None), (grads, None)]


def _chips(mesh: Any, *values: np.ndarray) -> list[np.ndarray]:
    """Return what each chip holds of a weight and its gradients after an update."""
    w, grad = (np.broadcast_to(each, (*mesh.shape, *SHAPE)) for each in values)
    new = w - np.float32(RATE) * grad
    return [new[at][None, None] for at in np.ndindex(*mesh.shape)]


def _unsummed(grads: np.ndarray, axis: int) -> np.ndarray:
    """Return the rows of each chip along an axis, side by side: nothing was summed along it."""
    n = grads.shape[axis]
    rows = [np.split(grads.take([chip], axis), n, 2)[chip] for chip in range(n)]
    return np.concatenate(rows, 2)


def _taken(of: Any) -> Any:
    """Return an update of the weight that takes something else than the mean of gradients.

    Args:
        of: from gradients and the axis to what is taken.
    """
    return lambda mesh, w, grads, axis: _chips(mesh, w, of(grads, axis))


def _mean(grads: np.ndarray, axis: int) -> np.ndarray:
    return grads.mean(axis, keepdims=True)


exercise(
    "15.step",
    asks="zero1_step(w, grad, axis, update)",
    reference=_taken(_mean),
    cases=_Steps(),
    mistakes={
        "that is the old weight; return the one that update gives": _taken(lambda g, axis: 0 * g),
        "each chip took its own gradient: nothing was summed": _taken(_unsummed),
        "that is the sum of the gradients, {chips} times their mean": _taken(
            lambda g, axis: g.sum(axis, keepdims=True)
        ),
        "the gradient is {chips} times too small: divided twice": _taken(
            lambda g, axis: _mean(g, axis) / g.shape[axis]
        ),
        "the sum is divided by all {n} chips; along the axis are {chips}": _taken(
            lambda g, axis: _mean(g, axis) / g.shape[1 - axis]
        ),
        "the gradients were summed along the other axis, over chips with other weights": _taken(
            lambda g, axis: _unsummed(_mean(g, 1 - axis), axis)
        ),
        "no chip has it whole; an all_gather is missing": lambda mesh, w, grads, axis: [
            np.split(new, mesh.shape[axis], 2)[at[axis]]
            for new, at in zip(_chips(mesh, w, _mean(grads, axis)), np.ndindex(*mesh.shape))
        ],
        "the order is update(w, grad)": lambda mesh, w, grads, axis: _chips(
            mesh, _mean(grads, axis), w
        ),
    },
    rtol=1e-4,
    praise="one device's weights, an all-reduce's bytes",
    hints=[
        "Which part of the mean gradient can this chip own, if the all-reduce stops half way?",
        "reduce_scatter adds the gradients and gives each chip a part. Which part of w belongs to "
        "it?",
        "ttnn.mesh_partition cuts w in the same way and sends nothing. The mean is the sum divided "
        "by w.device().shape[axis].",
        "reduce_scatter, multiply, mesh_partition, update, all_gather: all along "
        "cluster_axis=axis.",
    ],
)


# ---------------------------------------------------------------- 15.smallest
BYTES = {"float32": (4, 4, 8), "bfloat16": (2, 2, 12)}  # of weight, gradient, AdamW's state


def _stages(parameters: int, groups: int, parts: int, precision: str, room: float) -> list[int]:
    """Return the stages that fit."""
    fits = []
    for stage in range(4):
        cuts = [groups if stage >= at else 1 for at in (3, 2, 1)]
        each = sum(size / cut for size, cut in zip(BYTES[precision], cuts))
        if parameters / parts * each <= room:
            fits.append(stage)
    return fits


def _smallest(*case: Any) -> int | None:
    return min(_stages(*case), default=None)


exercise(
    "15.smallest",
    asks="smallest(parameters, groups, parts, precision, room)",
    reference=_smallest,
    cases=[
        (7_500_000_000, 64, 1, "bfloat16", 32e9),
        (7_500_000_000, 64, 1, "bfloat16", 16e9),
        (8_030_261_248, 4, 8, "float32", 10e9),
        (8_030_261_248, 4, 8, "float32", 11e9),
        (1_100_000_000, 8, 1, "float32", 12e9),
        (1_000_000_000, 8, 1, "float32", 16e9),  # 16 bytes each: stage 0 fits exactly
        (1_100_000_000, 8, 1, "bfloat16", 7e9),
        (70_000_000_000, 4, 8, "bfloat16", 12e9),
        (70_000_000_000, 8, 32, "bfloat16", 1e9),
        (1_000_000_000, 1, 8, "bfloat16", 1.5e9),
    ],
    mistakes={
        "no stage fits, so the answer is None": lambda *case: None if _stages(*case) else 3,
        "that one fits, but the smallest is asked for": lambda *case: max(
            _stages(*case), default=None
        ),
        "tensor parallelism cuts the model, too, in {parts} parts": lambda p, g, t, *more: (
            _smallest(p, g, 1, *more)
        ),
        "a stage cuts over the {groups} groups, not over all chips": lambda p, g, t, *more: (
            _smallest(p, g * t, t, *more)
        ),
        "a stage cuts over the groups, tensor parallelism over the parts": lambda p, g, t, *more: (
            _smallest(p, t, g, *more)
        ),
        "that would be the stage in the other precision": lambda p, g, t, precision, room: (
            _smallest(p, g, t, "float32" if precision == "bfloat16" else "bfloat16", room)
        ),
        "what takes the room exactly fits": lambda p, g, t, precision, room: _smallest(
            p, g, t, precision, room - 1
        ),
    },
    praise="the smallest stage in 10 cases",
    hints=[
        "What does tensor parallelism do to the weights, gradients and moments of a chip?",
        "bytes_each(stage, n, precision) is for one parameter. Which number of chips is n?",
        "for stage in range(4): does parameters / parts * bytes_each(stage, groups, precision) "
        "fit?",
    ],
)
