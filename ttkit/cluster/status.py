"""The ranks of a cluster as a table, which a notebook keeps up to date."""

from __future__ import annotations

import contextlib
import html
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from ttkit.cluster.report import EVERY_S, Report
from ttkit.cluster.waiting import shows_progress
from ttkit.words import in_notebook, short

BEAT_S = 5.0  # how often a table on a page is renewed though nothing has changed
STALE_S = 12  # without that, the page itself says that the table is not live any more
# Nothing of the kit runs any more when a kernel is gone, so the page must say it: every renewal
# puts this there anew, and it appears when the next one does not come.
STALE = (
    "<style>@keyframes ttkit-stale {{ to {{ opacity: 1 }} }}</style>"
    "<p style='opacity:0;animation:ttkit-stale 0s {delay}s forwards'>not live since {time}: "
    "{why}</p>"
)
GONE = "the kernel of this notebook was stopped or restarted"
COLOURS = {"busy": "#c77700", "failed": "#e03131"}  # readable on light and on dark


@dataclass(frozen=True)
class Row:
    """One rank, in words; "" where something is not known."""

    rank: int
    host: str
    pid: int | None
    boards: str
    mesh: str
    devices: str
    DRAM: str  # in use, of the fullest device
    memory: str  # of the host, that the process has
    state: str  # "busy", "idle", or the cluster's, where it does not run
    last_error: str

    @classmethod
    def of(
        cls,
        rank: int,
        pid: int | None,
        boards: str,
        mesh_id: int | None,
        state: str,
        last_error: str,
        report: Report,
    ) -> Row:
        """From what the notebook knows of a rank, and what it reports."""
        shapes = ", ".join("x".join(map(str, shape)) for shape in report.meshes)
        mesh = " ".join(
            part for part in ("" if mesh_id is None else f"id {mesh_id}", shapes) if part
        )
        ids = [*map(str, report.devices[:8]), *(["..."] if len(report.devices) > 8 else [])]
        used, memory = (
            "" if number is None else short(number, "B")
            for number in (report.dram_bytes, report.process_bytes)
        )
        return cls(
            rank, report.host, pid, boards, mesh, ", ".join(ids), used, memory, state, last_error
        )


@dataclass(frozen=True)
class Status:
    """A cluster at one moment; prints as a table.

    Example:
        >>> report = Report("here", ((1, 2),), (4, 0), 8192, 61_000_000)
        >>> one = Row.of(0, 7, "0,1", None, "idle", "", report)
        >>> print(Status("Cluster(2)", (one, Row.of(1, None, "2,3", 0, "busy", "KeyError: 'x'", Report()))))
        rank  host  pid  boards  mesh  devices  DRAM     memory  state  last error
        0     here  7    0,1     1x2   4, 0     8.19 kB  61 MB   idle
        1     -     -    2,3     id 0  -        -        -       busy   KeyError: 'x'
    """

    name: str
    rows: tuple[Row, ...]
    failure: str = ""
    # in a notebook, where it is kept up to date
    show: Callable[[Status], None] | None = field(default=None, repr=False, compare=False)

    @property
    def lives(self) -> bool:
        """Whether the ranks run, so that the table may change."""
        return any(row.state in ("busy", "idle") for row in self.rows)

    def cells(self) -> list[list[str]]:
        """The table: its head, then a row for each rank."""
        names = [field.name for field in fields(Row)]
        rows = [
            [
                str(value) if value not in ("", None) else "-" * (name != "last_error")
                for name, value in vars(row).items()
            ]
            for row in self.rows
        ]
        return [[name.replace("_", " ") for name in names], *rows]

    def __str__(self) -> str:
        cells = self.cells()
        widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
        lines = [
            "  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip()
            for row in cells
        ]
        return "\n".join([*lines, *([self.failure] if self.failure else [])])

    def _repr_html_(self) -> str:
        def line(tag: str, texts: list[str]) -> str:
            found = (
                f"<{tag} style='text-align:left;{_look(text) if tag == 'td' else ''}'>{html.escape(text)}</{tag}>"
                for text in texts
            )
            return f"<tr>{''.join(found)}</tr>"

        head, *rows = self.cells()
        body = "".join(line("td", row) for row in rows)
        failure = f"<pre>{html.escape(self.failure)}</pre>" if self.failure else ""
        return f"<div style='overflow-x:auto'><table><thead>{line('th', head)}</thead><tbody>{body}</tbody></table>{failure}</div>"

    def _ipython_display_(self) -> None:
        if self.show and in_notebook():
            self.show(self)
        else:
            print(self)

    __repr__ = __str__


def _look(text: str) -> str:
    return f"color:{COLOURS[text]};font-weight:600" if text in COLOURS else ""


class Live:
    """A status on the notebook's page that a thread refreshes, while the cluster runs.

    What it puts there is HTML under a display id, not a widget: a widget that is saved shows an
    error where no kernel runs, this shows the last table."""

    def __init__(self, ask: Callable[[], Status]):
        self._ask = ask
        self._last: Status | None = None  # that is shown
        self._put_at = 0.0
        self._handle: Any = None  # of what IPython displayed
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def show(self, status: Status) -> None:
        """Show a status here, and refresh this one from now on; say on the one before that it is
        not live any more.
        """
        from IPython.display import display

        self.pause()
        if self._handle is not None and self._last is not None and shows_progress():
            self._put(self._last, stale=(0, "a newer table is below"))
        self._last, self._put_at = status, time.monotonic()
        self._handle = display(self._data(status), raw=True, display_id=True)
        self.follow()

    def refresh(self) -> None:
        """Put what is so now in the place of what is shown, where it has changed or some seconds
        have passed.
        """
        if self._handle is None:
            return
        status = self._ask()
        beat = self._thread is not None and time.monotonic() > self._put_at + BEAT_S
        if beat or status != self._last:
            self._put(status)

    def _put(self, status: Status, stale: tuple[int, str] = (STALE_S, GONE)) -> None:
        self._last, self._put_at = status, time.monotonic()
        with contextlib.suppress(Exception):  # the page or its kernel is going: nobody looks
            self._handle.update(self._data(status, *stale), raw=True)

    def _data(self, status: Status, delay: int = STALE_S, why: str = GONE) -> dict[str, str]:
        """What is displayed; while it is kept up to date, with what appears when that ends."""
        text = status._repr_html_()
        if shows_progress() and status.lives:
            text += STALE.format(delay=delay, time=time.strftime("%H:%M:%S"), why=why)
        return {"text/html": text, "text/plain": str(status)}

    def follow(self) -> None:
        """Refresh what is shown, if anything is, from a thread: until `pause`, and while the
        ranks run.
        """
        if self._handle is not None and self._thread is None and shows_progress():
            self.refresh()
            self._end = threading.Event()
            self._thread = threading.Thread(
                target=self._refresh_often, args=(self._end,), name="ttkit status", daemon=True
            )
            self._thread.start()

    def _refresh_often(self, end: threading.Event) -> None:
        while not end.wait(EVERY_S):
            self.refresh()

    def pause(self) -> None:
        """Stop refreshing; done when this returns."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._end.set()
            self._thread.join(1.0)
            self._thread = None
