"""What a notebook shows of a cluster: its ranks as a table that is refreshed, and long waits."""

from __future__ import annotations

import contextlib
import html
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Protocol

from ttkit.cluster.engines.engine import MARK, REPORT_EVERY_S, Report, report_file
from ttkit.cluster.launch.output import TAG
from ttkit.words import in_notebook, short, shows_progress

Cluster = Any  # of engines.cluster, which imports this module
SHOW_AFTER_S = 2.0  # a wait
BEAT_S = 5.0  # how often a table on a page is renewed though nothing has changed
STALE_S = 12  # without that, the page itself shows that the table is not live any more
REPORT = re.compile(TAG.pattern + MARK.encode() + rb"(.*)\n")
# Nothing of ttkit runs any more when a kernel is gone, so the page must show it: every renewal
# puts this there again, and it appears when the next one does not come.
STALE = (
    "<style>@keyframes ttkit-stale {{ to {{ opacity: 1 }} }}</style>"
    "<p style='opacity:0;animation:ttkit-stale 0s {delay}s forwards'>not live since {time}: "
    "{why}</p>"
)
GONE = "the kernel of this notebook was stopped or restarted"
COLOURS = {"busy": "#c77700", "failed": "#e03131"}  # readable on light and on dark


class Reports:
    """The last report of each rank.

    Args:
        folder: the cluster's; ranks on this host report into files there.
        elsewhere: whether some ranks are on other hosts: their reports come into mpirun's log.
    """

    def __init__(self, folder: Path, elsewhere: bool):
        self.folder, self.elsewhere = folder, elsewhere
        self._of: dict[int, bytes] = {}
        self._read = 0  # of mpirun's log

    def of(self, rank: int) -> Report:
        """Return the last report of a rank; an empty one where there is none yet."""
        if self.elsewhere:
            with contextlib.suppress(OSError), open(self.folder / "mpirun.log", "rb") as log:
                log.seek(self._read)
                for line in log:
                    if line.endswith(b"\n"):  # whole
                        self._read += len(line)
                        if found := REPORT.search(line):
                            self._of[int(found[1])] = found[2]
            if rank in self._of:
                return Report.parsed(self._of[rank])
        try:
            return Report.parsed(report_file(self.folder, rank).read_text())
        except OSError:  # not there, on another host, or of a cluster that is being removed
            return Report()


@dataclass(frozen=True)
class Row:
    """One rank, in words; "" where something is not known."""

    rank: int
    host: str
    pid: int | None
    cards: str
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
        cards: str,
        mesh_id: int | None,
        state: str,
        last_error: str,
        report: Report,
    ) -> Row:
        """Return the row of a rank, from what the notebook knows of it and what it reports."""
        shapes = ", ".join("x".join(map(str, shape)) for shape in report.meshes)
        mesh = shapes if mesh_id is None else f"id {mesh_id} {shapes}".rstrip()
        devices = ", ".join([*map(str, report.devices[:8]), *["..."] * (len(report.devices) > 8)])
        used, memory = (
            "" if number is None else short(number, "B")
            for number in (report.dram_bytes, report.process_bytes)
        )
        return cls(rank, report.host, pid, cards, mesh, devices, used, memory, state, last_error)


def rows_of(cluster: Cluster) -> tuple[Row, ...]:
    """Return the row of each rank of a cluster at this moment."""
    busy, state, rows = cluster.busy(), cluster.state, []
    pids, bindings = cluster._pids, cluster.bindings
    for binding in bindings.rank_bindings:
        rank = binding.rank
        report = cluster.report(rank)
        host = report.host or cluster.hosts[rank]  # before the first report
        # where it was; the rest is gone
        report = replace(report, host=host) if state == "running" else Report(host)
        pid = pids[rank] if rank < len(pids) else None
        now = state if state != "running" else "busy" if rank in busy else "idle"
        cards, error = bindings.visible_devices(binding), cluster.last_error[rank]
        rows.append(Row.of(rank, pid, cards, binding.mesh_id, now, error, report))
    return tuple(rows)


@dataclass(frozen=True)
class Status:
    """A cluster at one moment; prints as a table.

    Example:
        >>> report = Report("here", ((1, 2),), (4, 0), 8192, 61_000_000)
        >>> one = Row.of(0, 7, "0,1", None, "idle", "", report)
        >>> other = Row.of(1, None, "2,3", 0, "busy", "KeyError: 'x'", Report())
        >>> print(Status("Cluster(2)", (one, other)))
        rank  host  pid  cards  mesh  devices  DRAM     memory  state  last error
        0     here  7    0,1    1x2   4, 0     8.19 kB  61 MB   idle
        1     -     -    2,3    id 0  -        -        -       busy   KeyError: 'x'
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
        """Return the table: its head, then a row for each rank."""
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
            found = []
            for text in texts:
                style = "text-align:left"
                if tag == "td" and text in COLOURS:
                    style += f";color:{COLOURS[text]};font-weight:600"
                found.append(f"<{tag} style='{style}'>{html.escape(text)}</{tag}>")
            return f"<tr>{''.join(found)}</tr>"

        head, *rows = self.cells()
        body = "".join(line("td", row) for row in rows)
        failure = f"<pre>{html.escape(self.failure)}</pre>" if self.failure else ""
        return (
            f"<div style='overflow-x:auto'><table><thead>{line('th', head)}</thead>"
            f"<tbody>{body}</tbody></table>{failure}</div>"
        )

    def _ipython_display_(self) -> None:
        if self.show and in_notebook():
            self.show(self)
        else:
            print(self)

    __repr__ = __str__


class Shown(Protocol):
    """What a page can show of a cluster: a `Status`, or a `Dashboard`."""

    @property
    def lives(self) -> bool:
        """Whether the ranks run, so that it may change."""

    def _repr_html_(self) -> str: ...


class Live:
    """A status on the notebook's page that a thread refreshes, while the cluster runs.

    It is HTML under a display id, not a widget: a widget that is saved shows an error where no
    kernel runs, this shows the last table.
    """

    def __init__(self, ask: Callable[[], Shown]):
        self._ask = ask
        self._last: Shown | None = None  # that is shown
        self._put_at = 0.0
        self._handle: Any = None  # of what IPython displayed
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def show(self, status: Shown, ask: Callable[[], Shown] | None = None) -> None:
        """Show a status here and refresh it from now on; mark the one before as not live.

        Args:
            ask: what gives the next ones; as before if not given.
        """
        from IPython.display import display

        self.pause()
        if self._handle is not None and self._last is not None and shows_progress():
            self._put(self._last, stale=(0, "a newer one is below"))
        self._ask = ask or self._ask
        self._last, self._put_at = status, time.monotonic()
        self._handle = display(self._data(status), raw=True, display_id=True)
        self.follow()

    def refresh(self) -> None:
        """Replace what is shown, where it has changed or some seconds have passed."""
        if self._handle is None or not shows_progress():
            return
        status = self._ask()
        beat = self._thread is not None and time.monotonic() > self._put_at + BEAT_S
        if beat or status != self._last:
            self._put(status)

    def _put(self, status: Shown, stale: tuple[int, str] = (STALE_S, GONE)) -> None:
        self._last, self._put_at = status, time.monotonic()
        with contextlib.suppress(Exception):  # the page or its kernel is going
            self._handle.update(self._data(status, *stale), raw=True)

    def _data(self, status: Shown, delay: int = STALE_S, why: str = GONE) -> dict[str, str]:
        """Return what is displayed; while it is refreshed, with what appears when that ends."""
        text = status._repr_html_()
        if shows_progress() and status.lives:
            text += STALE.format(delay=delay, time=time.strftime("%H:%M:%S"), why=why)
        return {"text/html": text, "text/plain": str(status)}

    def follow(self) -> None:
        """Refresh what is shown, if anything is, from a thread until `pause`."""
        if self._handle is not None and self._thread is None and shows_progress():
            self.refresh()
            self._end = threading.Event()
            self._thread = threading.Thread(
                target=self._refresh_often, args=(self._end,), name="ttkit status", daemon=True
            )
            self._thread.start()

    def _refresh_often(self, end: threading.Event) -> None:
        while not end.wait(REPORT_EVERY_S):
            self.refresh()

    def pause(self) -> None:
        """Stop refreshing; done when this returns."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._end.set()
            self._thread.join(1.0)
            self._thread = None


@contextlib.contextmanager
def progress(what: str) -> Iterator[Callable[..., None]]:
    """Show the state of a wait of more than two seconds on a notebook's page, until it ends.

    What is yielded takes the state in words, and a call that returns lines below it.
    TTKIT_PROGRESS=0 turns it off.
    """
    from IPython.display import display

    begin = shown = time.monotonic()
    handle: Any = None

    def show(state: str, below: Callable[[], list[str]] = list) -> None:
        nonlocal shown, handle
        now = time.monotonic()
        if shows_waits() and now - begin >= SHOW_AFTER_S and now - shown >= 0.5:
            shown, head = now, f"{what}: {state}, {now - begin:.0f} s"
            text = {"text/plain": "\n".join([head, *below()])}
            if handle is None:
                handle = display(text, raw=True, display_id=True)
            else:
                handle.update(text, raw=True)

    try:
        yield show
    finally:
        if handle is not None:
            handle.update({"text/plain": ""}, raw=True)


def shows_waits() -> bool:
    """Whether a long wait is shown: on a notebook's page."""
    return shows_progress() and in_notebook()
