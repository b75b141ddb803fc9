"""What a notebook shows of engines: a card for each rank, buttons, and how a long wait goes."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from html import escape
from typing import Any

from ttkit.cluster.engines.engine import REPORT_EVERY_S, Report
from ttkit.hardware import current_machine
from ttkit.hardware.systems import System
from ttkit.words import counted, in_notebook, numbered, short, shows_progress

Cluster = Any  # The class in engines.cluster, which imports this module.
SHOW_AFTER_S = 2.0  # A shorter wait is not shown.
LAST_LINES = 3  # So many prints of a rank are shown while it works.
BUTTONS = {"interrupt": "Interrupt the ranks", "restart": "Restart the ranks"}
WORDS = "Run this cell to use the buttons: interrupt and restart the ranks."
THEN = "as it was when this cell ran; run it again to see the ranks now"
SHAPES = {"idle": "○", "busy": "▶", "stopped": "■", "interrupted": "■", "failed": "✕"}
CARD = (
    "border:{width}px {line} var(--{colour});border-radius:8px;box-sizing:border-box;"
    "color:var(--ink);display:inline-block;font-size:12px;line-height:17px;margin:4px 8px 4px 0;"
    "max-width:100%;overflow:hidden;padding:6px 10px;vertical-align:top;width:190px"
)
PRINTS = (
    "background:var(--chip);color:var(--ink);font-family:monospace;font-size:11px;"
    "line-height:15px;margin:4px 0 0;overflow:hidden;padding:2px 4px;text-overflow:ellipsis;"
    "white-space:pre"
)


@dataclass(frozen=True)
class Card:
    """One rank.

    Args:
        state: "busy", "idle", or the cluster's, where it does not run.
        cards: the numbers of those that it owns; "" for all.
        chips: the ids of theirs; none where the numbers are not this machine's.
        pid: None before it has started.
        last_error: that it raised.
        prints: its last lines.
        report: the last one.
    """

    rank: int
    state: str
    cards: str = ""
    chips: tuple[int, ...] = ()
    pid: int | None = None
    last_error: str = ""
    prints: tuple[str, ...] = ()
    report: Report = field(default_factory=Report)

    @property
    def owns(self) -> str:
        """Cards and chips, in words."""
        if not self.cards:
            return "all cards"
        chips = f": chips {', '.join(map(str, self.chips))}" if self.chips else ""
        return ("cards " if "," in self.cards else "card ") + self.cards + chips

    def facts(self) -> list[str]:
        """Return what is known; only what no run changes where outputs are compared."""
        report, found = self.report, [self.owns]
        if shows_progress():
            for shape in report.meshes:
                found.append(f"mesh {'x'.join(map(str, shape))}")
            if report.dram_bytes:
                devices = numbered("device", report.devices)
                found.append(f"{short(report.dram_bytes, 'B')} on the fullest of {devices}")
            if self.pid and report.process_bytes:
                memory = short(report.process_bytes, "B")
                found.append(f"{report.host}, process {self.pid}, {memory}")
        if self.state == "busy":
            found += [report.doing, f"at {report.line}" if report.line else ""]
        return [text for text in (*found, self.last_error) if text]


@dataclass(frozen=True)
class Status:
    """A cluster at one moment, as cards.

    Example:
        >>> Status("Cluster(1)", "running", (Card(0, "busy", "0,1", (0, 4, 1, 5)),))
        Cluster(1): 1 rank, running
          rank 0: busy, cards 0,1: chips 0, 4, 1, 5
    """

    name: str
    state: str
    cards: tuple[Card, ...]
    failure: str = ""
    system: System | None = None
    at: str = field(default="", compare=False)  # This is the time of day.

    @property
    def head(self) -> str:
        when = f" ({self.at})" if self.at and shows_progress() else ""
        return f"{self.name}: {counted(len(self.cards), 'rank')}, {self.state}{when}"

    def __repr__(self) -> str:
        lines = [f"  rank {c.rank}: {', '.join([c.state, *c.facts()])}" for c in self.cards]
        return "\n".join([self.head, *lines, self.failure]).rstrip()

    def _repr_html_(self) -> str:
        from ttkit.visualize.drawing import on_page

        parts = [
            f'<div class="ttkit-title">{escape(self.head)}</div>',
            *map(self._card, self.cards),
        ]
        if self.failure:
            failure = escape(self.failure).replace("\n", "<br>")
            parts.append(f'<div class="ttkit-alarm" role="alert">{failure}</div>')
        if self.state == "running" and not shows_progress():
            parts.append(f'<div class="ttkit-note">{THEN}</div>')
        return on_page("".join(parts))

    def _card(self, card: Card) -> str:
        from ttkit.visualize.mesh import draw_share
        from ttkit.visualize.widgets.live_training import small_curve

        look = CARD.format(
            width=2 if card.state == "busy" else 1,
            line="dashed" if card.state == "failed" else "solid",
            colour={"busy": "link", "failed": "curve"}.get(card.state, "edge"),
        )
        parts = [f"<b>rank {card.rank}</b> {SHAPES.get(card.state, '')} {card.state}"]
        if self.system and card.chips:
            share = draw_share(self.system, card.chips, f"rank {card.rank}", card.rank)
            parts.append(share.svg())
        parts += [f"<div>{escape(fact)}</div>" for fact in card.facts()]
        if card.state == "busy" and card.report.losses:
            parts.append(small_curve(card.report.losses).svg())
        if card.prints and shows_progress():
            parts.append(f'<div style="{PRINTS}">{escape(chr(10).join(card.prints))}</div>')
        name = f'role="group" aria-label="rank {card.rank}, {card.state}"'
        return f'<div {name} style="{look}">{"".join(parts)}</div>'


def status_of(cluster: Cluster) -> Status:
    """Return the state of a cluster, running or not, at this moment; no rank is asked."""
    busy, state, system, cards = cluster.busy(), cluster.state, current_machine(), []
    for binding in cluster.bindings.rank_bindings:
        rank, own = binding.rank, cluster.bindings.visible_devices(binding)
        answer = cluster.latest.get(rank)
        running = state == "running"
        cards.append(
            Card(
                rank,
                "busy" if rank in busy else "idle" if running else state,
                own,
                owned(system, own),
                cluster.pids.get(rank),
                cluster.last_error[rank],
                tuple(prints(answer)) if answer else (),
                cluster.report(rank) if running else Report(),
            )
        )
    at = time.strftime("%H:%M:%S")
    return Status(cluster.name, state, tuple(cards), cluster.why_failed, system, at)


def prints(answer: Any) -> list[str]:
    """Return the last lines that a rank has printed for an answer that may not be there yet."""
    return str(answer.metadata["stdout"] or "").splitlines()[-LAST_LINES:]


def owned(system: System, cards: str) -> tuple[int, ...]:
    """Return the chips of some cards; () where these numbers are not the machine's.

    Example:
        >>> from ttkit.hardware import SYSTEMS
        >>> owned(SYSTEMS["t3000"], "0,1"), owned(SYSTEMS["t3000"], "7")
        ((0, 4, 1, 5), ())
    """
    numbers = [int(name) for name in cards.split(",") if name.strip().isdigit()]
    if any(number >= len(system.cards) for number in numbers):
        return ()
    return tuple(chip for number in numbers for chip in system.cards[number])


class Live:
    """The cards on the notebook's page, which a thread refreshes, and buttons below them.

    They are HTML under a display id, not a widget: a widget that is saved shows an error where no
    kernel runs, this shows the last state.

    Args:
        interrupt: what the button calls; returns a message.
    """

    def __init__(self, cluster: Cluster, interrupt: Callable[[], str]):
        self.cluster, self.interrupt = cluster, interrupt
        self._last: Status | None = None  # This is shown.
        self._handle: Any = None  # IPython gave it for what it displayed.
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def show(self) -> None:
        """Show the cards here, and refresh them here from now on."""
        from IPython.display import display

        from ttkit.visualize.widgets.live import buttons, show_widget

        self.pause()
        self._last = status_of(self.cluster)
        self._handle = display(self._last, display_id=True)
        show_widget(buttons(BUTTONS, self.act), WORDS)
        self.follow()

    def refresh(self) -> None:
        """Replace what is shown, where it has changed."""
        if self._handle is not None and shows_progress():
            status = status_of(self.cluster)
            if status != self._last:
                self._last = status
                with contextlib.suppress(Exception):  # The page or its kernel is going.
                    self._handle.update(status)

    def follow(self) -> None:
        """Refresh what is shown, if anything is, from a thread until `pause`."""
        if self._handle is not None and self._thread is None:
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

    def act(self, name: str) -> str:
        """Do what a button says, after the cell that it interrupted; return a message."""
        try:
            if name == "restart":
                self.cluster.restart()
                return f"started anew at {time.strftime('%H:%M:%S')}"
            return self.interrupt() if self.cluster.busy() else ""
        except RuntimeError as error:
            return str(error)


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
        if not (shows_progress() and in_notebook()) or now - begin < SHOW_AFTER_S:
            return
        if now - shown >= 0.5:
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
