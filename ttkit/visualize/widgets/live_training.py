"""The progress of a training run: printed lines, or a page in a notebook.

The page shows the latest figures, and the chart of the steps so far."""

import os
import time
from html import escape
from typing import Any

from ttkit.errors import Interrupted
from ttkit.visualize.charts.plans import loss_curves, record_text
from ttkit.visualize.drawing import on_page
from ttkit.words import in_notebook, shows_progress

LINES = 20  # In a log, a whole run prints about this many lines.
EVERY_S = 2.0  # Updates are at least this many seconds apart; one takes about 60 ms.


class Lines:
    """The progress of a run as printed lines, about `LINES` of them.

    If there are ranks with replicas of the model, every rank prints. If all ranks share one mesh or
    one pipeline, only rank 0 prints.
    """

    # An engine reports this text, which says how far its training run has come.
    now = ""

    def __init__(self, trainer, end: int):
        self.trainer, self.end = trainer, end
        self.first = trainer.steps
        self.begin = time.monotonic()

    def figures(self, record) -> str:
        """Return a record as text; before the last step, with an estimate of the seconds left."""
        spent = (time.monotonic() - self.begin) / max(record.step - self.first, 1)
        steps = self.end - record.step
        left = f", {spent * steps:.0f} s left" if steps else ""
        return f"{record_text(record, self.end)}{left}"

    def update(self, record) -> None:
        """Print the record of a step if a line is due."""
        if self.trainer.rank and not self.trainer.replicas:
            return
        Lines.now = self.figures(record)
        every = max((self.end - self.first) // LINES, 1)
        due = record.step % every == 0 or record.step == self.end
        if due or record.validation_loss is not None:
            print(record_text(record, self.end), flush=True)

    def stopped(self, text: str) -> None:
        """Report that the run was stopped."""
        self.trainer.notify(text)

    def close(self) -> None:
        """Clear the progress that this process reports: the run has ended."""
        Lines.now = ""


class Page(Lines):
    """The progress of a run in a notebook: the figures of the last step above the chart.

    Both stay on the page after the run. If `shows_progress` is false, because outputs are compared,
    only the chart is shown, after the run.
    """

    def __init__(self, trainer, end: int, prompt: str = ""):
        super().__init__(trainer, end)
        self.drawn = time.monotonic()
        self.prompt = prompt
        self.sample = ""
        # IPython's display handle updates the page. It stays None if no progress is shown.
        self.handle: Any = None
        if shows_progress():
            from IPython.display import display

            self.handle = display(self._data(), raw=True, display_id=True)

    def update(self, record) -> None:
        """Show the record of a step, if the last update is long enough ago."""
        self.now = self.figures(record)
        if self.handle and time.monotonic() - self.drawn > EVERY_S:
            if self.prompt:
                sample = self.trainer.sample(self.prompt, temperature=0)
                self.sample = f"The model writes: {sample}\n"
            self.handle.update(self._data(), raw=True)
            # The next interval starts only now, because the sample itself takes time.
            self.drawn = time.monotonic()

    def _data(self) -> dict[str, str]:
        """Return the displayed page; its height is the same before the first step and later."""
        # A run that goes on from a checkpoint may have no step left.
        text = self.now or f"step {self.trainer.steps}"
        chart = loss_curves(self.trainer)
        room = f"min-height:{30 if self.prompt else 0}px"  # A sample has one or two lines.
        page = on_page(
            f'<div class="ttkit-title">{escape(text)}</div>'
            f'<div class="ttkit-note" style="{room}">{escape(self.sample)}</div>'
        )
        return {
            "text/html": page + chart._repr_html_(),
            "text/plain": f"{text}\n{self.sample}{chart!r}",
        }

    def stopped(self, text: str) -> None:
        """Raise `Interrupted`, so that the cell does not go on with its next line."""
        raise Interrupted(text)

    def close(self) -> None:
        """Show the chart of all steps, below the last figures if progress is shown."""
        if self.handle:
            self.handle.update(self._data(), raw=True)
        else:
            from IPython.display import display

            display(loss_curves(self.trainer))


def progress(trainer, end: int, prompt: str = "") -> Lines:
    """Return the display of a run's progress that fits the place where this process runs.

    Args:
        prompt: a page also shows how the model continues this text, if it is given.
    """
    # The notebook shows the output of an engine, so an engine must not draw a page.
    if trainer.world == 1 and in_notebook() and "OMPI_COMM_WORLD_RANK" not in os.environ:
        return Page(trainer, end, prompt)
    return Lines(trainer, end)
