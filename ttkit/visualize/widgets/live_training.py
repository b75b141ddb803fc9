"""What shows a training run while it goes on: lines, or a notebook's page.

The page of a notebook shows the latest figures and the chart so far."""

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
    """Lines that show a run while it goes on, printed now and then: in logs, and on each of several
    ranks with replicas; of ranks that share a mesh or a pipeline, only the first prints."""

    # An engine reports this text, which says how far its run is.
    now = ""

    def __init__(self, trainer, end: int):
        self.trainer, self.end = trainer, end
        self.first, self.begin = trainer.steps, time.monotonic()

    def figures(self, record) -> str:
        """Return a record with the time that the rest may take."""
        spent = (time.monotonic() - self.begin) / max(record.step - self.first, 1)
        return f"{record_text(record, self.end)}, {spent * (self.end - record.step):.0f} s left"

    def update(self, record) -> None:
        """Take a record."""
        if self.trainer.rank and not self.trainer.replicas:
            return
        Lines.now, every = self.figures(record), max((self.end - self.first) // LINES, 1)
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
    """The figures of the last step above the chart, which stay at the end.

    Where outputs are compared only the chart is shown, at the end.
    """

    def __init__(self, trainer, end: int, prompt: str = ""):
        super().__init__(trainer, end)
        self.drawn, self.prompt, self.sample = time.monotonic(), prompt, ""
        # IPython's display handle, through which the page is updated, is None until there is one.
        self.handle: Any = None
        if shows_progress():
            from IPython.display import display

            self.handle = display(self._data(), raw=True, display_id=True)

    def update(self, record) -> None:
        """Take a record."""
        self.now = self.figures(record)
        if self.handle and time.monotonic() - self.drawn > EVERY_S:
            if self.prompt:
                self.sample = f"\n{self.trainer.sample(self.prompt, temperature=0)!r}"
            self.handle.update(self._data(), raw=True)
            # The next interval starts only now, because the sample itself takes time.
            self.drawn = time.monotonic()

    def _data(self) -> dict[str, str]:
        """Return what is displayed; it is as tall before the first step as after the last."""
        # A run that goes on from a checkpoint may have no step left.
        text = (self.now or f"step {self.trainer.steps}") + self.sample
        chart = loss_curves(self.trainer)
        room = f"min-height:{51 if self.prompt else 17}px;white-space:pre-line"
        title = f'<div class="ttkit-title" style="{room}">{escape(text)}</div>'
        page = on_page(title) + chart._repr_html_()
        return {"text/html": page, "text/plain": f"{text}\n{chart!r}"}

    def stopped(self, text: str) -> None:
        """End the cell, which would go on with its next line."""
        raise Interrupted(text)

    def close(self) -> None:
        """Leave the figures and the chart of all steps."""
        if self.handle:
            self.handle.update(self._data(), raw=True)
        else:
            from IPython.display import display

            display(loss_curves(self.trainer))


def progress(trainer, end: int, prompt: str = "") -> Lines:
    """Return what shows a run where this one runs; a page also shows how it continues a prompt."""
    # The notebook shows the output of an engine, so an engine must not draw a page.
    launched = "OMPI_COMM_WORLD_RANK" in os.environ
    if trainer.world == 1 and in_notebook() and not launched:
        return Page(trainer, end, prompt)
    return Lines(trainer, end)
