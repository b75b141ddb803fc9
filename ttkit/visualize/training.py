"""A training run while it goes on: a bar and numbers on a terminal, also the curves in a notebook, lines in a log."""

from __future__ import annotations

import sys
import time
from typing import Any

from ttkit.visualize.curves import Curves
from ttkit.words import counted

EVERY_S = 2.0  # between two pictures: one takes a tenth of a second, which training should have
LINES = 20  # printed in a whole run where there is neither terminal nor notebook


def loss_curves(trainer: Any) -> Curves:
    """The losses that a trainer's history holds.

    Args:
        trainer: a `ttkit.train.Trainer`.
    """
    history = trainer.history
    held_out = [(record.step, record.validation_loss) for record in history if record.validation_loss is not None]
    curves = {"training loss": [(record.step, record.loss) for record in history]} | ({"validation loss": held_out} if held_out else {})
    return Curves(f"{trainer.settings.training_config.project_name}: {counted(len(history), 'step')}", curves)


def words(record: Any, end: int) -> str:
    """A record as a line of text."""
    held_out = "" if record.validation_loss is None else f", validation {record.validation_loss:.4f}"
    return f"step {record.step}/{end}: loss {record.loss:.4f}{held_out}, {record.tokens_per_s:,.0f} tokens/s"


class Lines:
    """Prints now and then: for logs, and for each of several ranks."""

    def __init__(self, trainer: Any, end: int):
        self.end, self.every, self.silent = end, max((end - trainer.steps) // LINES, 1), bool(trainer.rank) and not trainer.replicas

    def update(self, record: Any) -> None:
        """Take a record."""
        if not self.silent and (record.step % self.every == 0 or record.step == self.end or record.validation_loss is not None):
            print(words(record, self.end), flush=True)

    def close(self) -> None:
        """Nothing is open."""


class Bar:
    """A bar on a terminal."""

    def __init__(self, trainer: Any, end: int):
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self.end = end
        self.bar = Progress(BarColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
        self.task = self.bar.add_task("", total=end, completed=trainer.steps)
        self.bar.start()

    def update(self, record: Any) -> None:
        """Take a record."""
        self.bar.update(self.task, completed=record.step, description=words(record, self.end))

    def close(self) -> None:
        """Leave the bar as it is."""
        self.bar.stop()


class Page:
    """The curves in a notebook, drawn anew as they grow; the last picture stays."""

    def __init__(self, trainer: Any, end: int):
        from IPython.display import display

        self.trainer, self.drawn = trainer, time.monotonic()
        self.handle = display(loss_curves(trainer), display_id=True)

    def update(self, record: Any) -> None:
        """Take a record."""
        if time.monotonic() - self.drawn > EVERY_S:
            self.close()

    def close(self) -> None:
        """Draw what there is."""
        self.handle.update(loss_curves(self.trainer))
        self.drawn = time.monotonic()


def progress(trainer: Any, end: int) -> Lines | Bar | Page:
    """What shows a run where this one runs."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    if shell is not None and hasattr(shell, "kernel") and trainer.world == 1:
        return Page(trainer, end)
    return Bar(trainer, end) if sys.stderr.isatty() and sys.stdout.isatty() and trainer.world == 1 else Lines(trainer, end)
