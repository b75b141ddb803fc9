"""The stages of a pipeline: their blocks, their schedule, and one stage's forward and backward."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ttkit.errors import fail
from ttkit.plans.pipelines import SCHEDULES
from ttkit.plans.schedule import Action, Schedule
from ttkit.train.autograd.tensor import Tensor, Value
from ttkit.train.config.layout import Layout
from ttkit.train.config.settings import PipelineParallelConfig, TransformerConfig
from ttkit.train.model.models import create_model
from ttkit.train.model.parameter import Parameter
from ttkit.train.parallel.distributed import mean_over_groups


class Stage:
    """Parts of a model on one mesh.

    Args:
        index: from 0.
        config: the whole model.
        layout: the mesh.
        blocks: of each chunk.
    """

    def __init__(
        self, index: int, config: TransformerConfig, layout: Layout, blocks: Sequence[range]
    ):
        self.index, self.layout = index, layout
        self.parts = [create_model(config, layout, part) for part in blocks]
        self._kept: dict[tuple[int, int], tuple[Tensor | None, Tensor]] = {}

    def parameters(self) -> dict[str, Parameter]:
        """Return {name: parameter} of all chunks, named as in the whole model."""
        found: dict[str, Parameter] = {}
        for part in self.parts:
            found |= part.parameters()
        return found

    def forward(
        self,
        action: Action,
        given: Value | None,
        batch: tuple[np.ndarray, np.ndarray],
        before: int,
        keep: bool = True,
    ) -> Tensor:
        """Return the output of a part: activations [B, 1, S, E], of the last part the loss.

        Dropout zeroes the same elements as on one device, whatever the order of forwards.

        Args:
            given: activations; None for the first chunk.
            batch: tokens and targets of the micro-batch, for the first and the last chunk.
            before: calls of each dropout in all earlier steps.
            keep: whether to keep what the backward of this micro-batch needs.
        """
        part, (x, y) = self.parts[action.chunk], batch
        for dropout in part.dropouts():
            # A block calls its dropout twice, the model's own dropout is called once.
            dropout.calls = before + action.micro_batch * (1 if dropout is part.dropout else 2)
        start = None if part.is_first else Tensor(given)
        end = part(self.layout.tokens(x) if start is None else start)
        if part.is_last:
            end = part.loss(end, self.layout.tokens(y))
        if keep:
            self._kept[action.chunk, action.micro_batch] = start, end
        return end

    def backward(self, action: Action, grad: Value | None, share: float) -> Value | None:
        """Return the gradient of the input, None for tokens; add to the parameters' gradients.

        Args:
            grad: of the output; None for the last chunk, whose loss counts `share`.
        """
        start, end = self._kept.pop((action.chunk, action.micro_batch))
        if grad is None:
            end = end * share if share != 1 else end
        else:
            end.set_grad(grad)
        for layer in self.parts[action.chunk].experts():
            layer.share = share
        end.backward()
        return start.get_grad() if start else None

    def loss(self, chunk: int, out: Tensor) -> float:
        """Return what a part adds to the loss by its last forward: the last part the loss, others
        their experts' balance loss.
        """
        part = self.parts[chunk]
        found = [out] if part.is_last else [Tensor(each.balance) for each in part.experts()]
        return sum(mean_over_groups(each, self.layout) for each in found)

    def forget(self) -> None:
        """Forget what forwards kept: a step was given up."""
        self._kept.clear()

    def train(self, mode: bool = True) -> None:
        """Switch dropout on or off."""
        for part in self.parts:
            part.train(mode)


def make_schedule(
    pipeline: PipelineParallelConfig, stages: int, parts: int, given: Schedule | None = None
) -> Schedule:
    """Return the schedule of a configuration, or a given one, for so many stages and micro-batches.

    Raises:
        TTKitError: the schedule is not valid, has another size, or splits backwards.
    """
    name, chunks = pipeline.schedule, pipeline.chunks_per_rank
    if given is None and chunks > 1 and name != "interleaved":
        rule = f"chunks_per_rank is {chunks}, and {name} has one"
        fail("PipelineTrainer", rule, "schedule: interleaved")
    more = (chunks,) if name == "interleaved" else ()
    schedule = (given or SCHEDULES[name](stages, parts, *more)).validate()
    if (schedule.stages, schedule.micro_batches) != (stages, parts):
        rule = f"{schedule!r} is not for {stages} stages and gradient_accumulation_steps {parts}"
        fail("PipelineTrainer", rule, "a schedule of that size")
    if any(action.kind in "IW" for row in schedule.actions for action in row):
        rule = f"{schedule!r} splits backwards, which compute all gradients in one pass here"
        cure = "a schedule of F and B; timeline() and the pictures show the effect of splitting"
        fail("PipelineTrainer", rule, cure)
    return schedule
