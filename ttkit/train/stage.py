"""One stage of a pipeline: its parts of a model on a mesh, and what it does with a micro-batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from ttkit.errors import fail
from ttkit.plans.schedule import Action
from ttkit.train.autograd import Tensor, Value
from ttkit.train.config import TransformerConfig
from ttkit.train.models import create_model
from ttkit.train.modules import Layout, Parameter

TABLE = "vocabulary.table"  # both ends of a model with tied embeddings have it
COPY = "vocabulary.table, the last stage's"  # the key of the second one, where a process has both


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
        """name -> parameter of all chunks, with the names of the whole model; a second token
        table under `COPY`.
        """
        found: dict[str, Parameter] = {}
        for part in self.parts:
            for name, parameter in part.parameters().items():
                found[COPY if name == TABLE and not part.is_first else name] = parameter
        return found

    def forward(
        self, action: Action, given: Value, targets: Value | None, keep: bool = True
    ) -> Tensor:
        """What comes out of a part: activations [B, 1, S, E], or the loss [1, 1, 1, 1] where it
        is the last.

        Args:
            given: tokens for the first part, activations for the others.
            targets: for the last part.
            keep: what the backward of this micro-batch needs.
        """
        part = self.parts[action.chunk]
        start = None if part.is_first else Tensor(given)
        end = part(given if start is None else start)
        if part.is_last:
            end = part.loss(end, targets)
        if keep:
            self._kept[action.chunk, action.micro_batch] = start, end
        return end

    def backward(self, action: Action, grad: Value | None, share: float) -> Value | None:
        """The gradient of what came in, None for tokens; the parameters have theirs added.

        Args:
            grad: of what came out; None for the last part, whose loss counts `share`.
        """
        start, end = self._kept.pop((action.chunk, action.micro_batch))
        if grad is None:
            end = end * share if share != 1 else end
        else:
            end.set_grad(grad)
        end.backward()
        return start.get_grad() if start else None

    def forget(self) -> None:
        """Drop what forwards left: a step was given up."""
        self._kept.clear()

    def set_dropout(self, action: Action, before: int) -> None:
        """Make a forward drop the elements that it drops on one device, in whatever order
        forwards come.

        Args:
            before: calls of each dropout in all steps before.
        """
        part = self.parts[action.chunk]
        for dropout in part.dropouts():
            # a block has two places
            dropout.calls = before + action.micro_batch * (1 if dropout is part.dropout else 2)

    def train(self, mode: bool = True) -> None:
        """Use dropout, or do not."""
        for part in self.parts:
            part.train(mode)


def split_blocks(
    config: TransformerConfig, stages: int, chunks: int = 1, per_stage: Sequence[int] = ()
) -> list[list[range]]:
    """Which blocks each chunk of each stage has; parts of the model are dealt out in turn, as
    `ttkit.plans.Schedule` says.

    Unless given, they are shared out so that the part with the most work has least: the head counts
    as the blocks that its weights are worth.

    Args:
        per_stage: how many blocks each stage has, all its chunks together.

    Raises:
        TTKitError: a part without a block; counts that are not those of the model.

    Example:
        >>> from ttkit.train.config import TransformerConfig
        >>> split_blocks(TransformerConfig(num_blocks=6), 2, chunks=2)
        [[range(0, 2), range(4, 5)], [range(2, 4), range(5, 6)]]
        >>> split_blocks(TransformerConfig(num_blocks=6), 2, per_stage=[4, 2])
        [[range(0, 4)], [range(4, 6)]]
    """
    total, parts = config.num_blocks, stages * chunks
    asked = f"cut {total} blocks into {parts} parts"
    if total < parts or any(count < chunks for count in per_stage):
        each = f" of {chunks} chunks" if chunks > 1 else ""
        have = f"blocks_per_rank {list(per_stage)}" if per_stage else f"num_blocks {total}"
        fail(
            asked,
            f"{stages} stages{each} need at least a block for each part, "
            f"and {have} has not so many",
            "fewer stages or chunks",
        )
    if per_stage:
        if len(per_stage) != stages or sum(per_stage) != total:
            fail(
                asked,
                f"blocks_per_rank {list(per_stage)} does not add up to {total} blocks on {stages} "
                "stages",
                "one line 'RANK: BLOCKS' for each stage",
            )
        sizes = [
            count // chunks + (chunk < count % chunks)
            for chunk in range(chunks)
            for count in per_stage
        ]
    else:
        sizes = _balanced(config, parts)
    ends = [sum(sizes[: part + 1]) for part in range(parts)]
    return [
        [range(ends[part] - sizes[part], ends[part]) for part in range(stage, parts, stages)]
        for stage in range(stages)
    ]


def _balanced(config: TransformerConfig, parts: int) -> list[int]:
    total = config.num_blocks
    # a block without the ends
    alone = create_model(replace(config, num_blocks=3), Layout(), range(1, 2))
    head = (
        config.vocab_size
        * config.embedding_dim
        / sum(math.prod(p.global_shape) for p in alone.parameters().values())
    )
    if parts == 1:
        return [total]
    last = min(
        range(1, total - parts + 2),
        key=lambda count: (max(-(-(total - count) // (parts - 1)), count + head), -count),
    )
    rest = total - last
    return [rest // (parts - 1) + (part < rest % (parts - 1)) for part in range(parts - 1)] + [last]
