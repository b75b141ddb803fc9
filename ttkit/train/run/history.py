"""What a notebook shows of training: the records of a run in five lines, and a trainer in a few."""

from __future__ import annotations

import math
from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import Any, SupportsIndex, overload

from ttkit.train.run.run_folder import Record
from ttkit.words import counted, short, shows_progress


class History(list[Record]):
    """A list of records that shows itself in five lines.

    Args:
        checkpoint: where the state after the last of these steps is saved.

    Example:
        >>> history = History([Record(1, 4.2, 1e-3, 0.5, 100.0), Record(2, 3.1, 1e-3, 0.5, 100.0)])
        >>> history
        2 steps, 1 to 2
        loss 4.2 at first, 3.1 at last
        >>> history[-1].loss, len(history + history[:1])
        (3.1, 3)
    """

    def __init__(self, records: Iterable[Record] = (), checkpoint: Path | None = None):
        super().__init__(records)
        self.checkpoint = checkpoint

    @overload
    def __getitem__(self, at: SupportsIndex) -> Record: ...
    @overload
    def __getitem__(self, at: slice) -> History: ...
    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        return History(found) if isinstance(at, slice) else found

    def __add__(self, other: list[Any]) -> History:  # type: ignore[override]
        return History(super().__add__(other), getattr(other, "checkpoint", None))

    def lines(self) -> list[str]:
        """Return what is shown; without what was measured where outputs are compared."""
        if not self:
            return ["no steps"]
        first, last = self[0], self[-1]
        lines = [
            f"{counted(len(self), 'step')}, {first.step} to {last.step}",
            f"loss {first.loss:.3g} at first, {last.loss:.3g} at last",
        ]
        checked = [(r.validation_loss, r.step) for r in self if r.validation_loss is not None]
        if checked:
            lines.append("best validation loss {:.3g}, at step {}".format(*min(checked)))
        seconds = sum(record.step_time_s for record in self)
        if shows_progress() and seconds:
            tokens = sum(record.tokens_per_s * record.step_time_s for record in self)
            lines.append(f"{short(seconds, 's')}, {tokens / seconds:,.0f} tokens/s (measured)")
        if self.checkpoint:
            lines.append(f"checkpoint: {self.checkpoint}")
        return lines

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        head, *rest = (escape(line) for line in self.lines())
        return "<br>".join([f"<b>{head}</b>", *rest])


def described(trainer: Any) -> str:
    """Return a trainer in a few lines: its run, model, mesh, batch and progress."""
    config, model = trainer.settings.training_config, trainer.model_config
    device = trainer.settings.device_config
    shape = "x".join(map(str, device.mesh_shape))
    axes = [f"{name} on axis {axis}" for name, axis, _ in trainer.layout.strategies()]
    count = sum(math.prod(parameter.global_shape) for parameter in trainer.parameters.values())
    size = f"{counted(model.num_blocks, 'block')}, {count:,} parameters"
    rank = f", rank {trainer.rank} of {trainer.world}" if trainer.world > 1 else ""
    loss = f", loss {trainer.history[-1].loss:.3g}" if trainer.history else ""
    return "\n".join(
        [
            f"{type(trainer).__name__} of {config.project_name}{rank}",
            f"  model: {model.model_type}, {size}",
            f"  mesh: {shape}, {'; '.join(axes) or 'one copy on each chip'}",
            f"  batch: {config.batch_size} sequences of {model.max_sequence_length} tokens",
            f"  step {trainer.steps} of {trainer.max_steps}{loss}; "
            f"checkpoints: {config.checkpoint_dir or 'none'}",
        ]
    )
