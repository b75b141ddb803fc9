"""What shows a training run while it goes on: lines, or a notebook's page.

The page of a notebook has figures and the chart as they come, and a stop button."""

from __future__ import annotations

import os
import time
from html import escape
from typing import Any

from ttkit.errors import Interrupted
from ttkit.visualize.charts.plans import loss_curves, words
from ttkit.visualize.drawing import on_page
from ttkit.visualize.widgets import buttons, show_widget
from ttkit.words import in_notebook, shows_progress

RECENT = 10  # The speed shown is that of so many last steps.
LINES = 20  # In a log, a whole run prints about so many lines.
EVERY_S = 2.0  # Updates are so many seconds apart; one takes about 60 ms.
STOP = "Stop after this step"
BAR = (
    '<div role="progressbar" aria-label="training" aria-valuemin="0" aria-valuemax="{end}" '
    'aria-valuenow="{now}" style="border:1px solid var(--edge);border-radius:4px;height:10px;'
    'margin:4px 0;max-width:480px"><div style="background:var(--link);border-radius:3px;'
    'height:10px;width:{percent:.1f}%"></div></div>'
)


class Lines:
    """Shows a run while it goes on, in lines printed now and then: in logs, and on each of several
    ranks."""

    # An engine reports this text, which says how far its run is.
    now = ""

    def __init__(self, trainer, end: int):
        self.trainer, self.end = trainer, end
        self.first, self.begin = trainer.steps, time.monotonic()

    def figures(self, record) -> str:
        """Return a record with the time that the rest may take and the speed of some steps."""
        recent = [*self.trainer.history[-RECENT:]] or [record]
        lasted = sum(each.step_time_s for each in recent) or 1e-9
        speed = sum(each.tokens_per_s * each.step_time_s for each in recent) / lasted
        spent = (time.monotonic() - self.begin) / max(record.step - self.first, 1)
        left = f"{spent * (self.end - record.step):.0f} s left"
        return (
            f"step {record.step} of {self.end} · {left} · {speed:,.0f} tokens/s · "
            f"loss {record.loss:.3f}"
        )

    def update(self, record) -> None:
        """Take a record."""
        if self.trainer.rank and not self.trainer.replicas:
            return
        Lines.now, every = self.figures(record), max((self.end - self.first) // LINES, 1)
        due = record.step % every == 0 or record.step == self.end
        if due or record.validation_loss is not None:
            print(words(record, self.end), flush=True)

    def stopped(self, text: str) -> None:
        """Report that the run was stopped."""
        self.trainer.notify(text)

    def close(self) -> None:
        """Clear the progress that this process reports: the run has ended."""
        Lines.now = ""


class Page(Lines):
    """The figures of the last step, a bar, the chart and a stop button; then the chart stays.

    Where outputs are compared only the chart is shown, at the end.
    """

    def __init__(self, trainer, end: int):
        super().__init__(trainer, end)
        self.drawn = time.monotonic()
        # IPython's display handle, through which the page is updated, is None until there is one.
        self.handle: Any = None
        self.button: Any = None
        if shows_progress():
            from IPython.display import display

            stop = buttons({"stop": STOP}, lambda _: "", once=True)
            self.button = show_widget(stop, STOP)
            self.handle = display(self._data("nothing yet", 0), raw=True, display_id=True)

    def update(self, record) -> None:
        """Take a record."""
        if self.handle and time.monotonic() - self.drawn > EVERY_S:
            self.drawn = time.monotonic()
            self.handle.update(self._data(self.figures(record), record.step), raw=True)

    def _data(self, text: str, step: int) -> dict[str, str]:
        """Return what is displayed."""
        checked = [r for r in self.trainer.history if r.validation_loss is not None]
        words = text + (f" · validation {checked[-1].validation_loss:.3f}" if checked else "")
        bar = BAR.format(end=self.end, now=step, percent=100 * step / max(self.end, 1))
        title = f'<div class="ttkit-title">{escape(words)}</div>'
        chart = loss_curves(self.trainer)._repr_html_() if step else ""
        return {"text/html": on_page(title + bar) + chart, "text/plain": words}

    def stopped(self, text: str) -> None:
        """End the cell, which would go on with its next line."""
        raise Interrupted(text)

    def close(self) -> None:
        """Leave the chart of all steps."""
        chart = loss_curves(self.trainer)
        if self.handle:
            self.button.update({"text/plain": ""}, raw=True)
            self.handle.update(chart)
        else:
            from IPython.display import display

            display(chart)


def progress(trainer, end: int) -> Lines:
    """Return what shows a run where this one runs."""
    # The notebook shows the output of an engine, so an engine must not draw a page.
    launched = "OMPI_COMM_WORLD_RANK" in os.environ
    if trainer.world == 1 and in_notebook() and not launched:
        return Page(trainer, end)
    return Lines(trainer, end)
