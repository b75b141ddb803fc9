"""What a notebook shows of engines: a card for each rank, at one moment or during a long wait."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any

from ttkit.cluster.engines.engine import Report
from ttkit.hardware import current_machine
from ttkit.hardware.systems import System
from ttkit.words import counted, in_notebook, short, shows_progress

Cluster = Any  # The class in engines.cluster, which imports this module.
SHOW_AFTER_S = 2.0  # A shorter wait is not shown.
REFRESH_S = 0.5
LAST_LINES = 3  # So many prints of a rank are shown while it works.
NOTE = "as it was when this cell ran; run it again to see the ranks now"
SHAPES = {"idle": "○", "busy": "▶", "stopped": "■", "interrupted": "■", "failed": "✕"}
CARD = (
    "border:{width}px {line} var(--{colour});border-radius:8px;box-sizing:border-box;"
    "color:var(--ink);display:inline-block;font-size:12px;line-height:17px;margin:4px 8px 4px 0;"
    "max-width:100%;overflow:hidden;padding:6px 10px;vertical-align:top;width:190px"
)


@dataclass(frozen=True)
class Card:
    """What a notebook shows of one rank.

    Args:
        state: "busy", "idle", or the cluster's, where it does not run.
        cards: the numbers of the cards that it owns; "" for all.
        chips: the device ids of these cards; () if this machine does not have them.
        pid: its process id; None before it has started.
        last_error: the last error that it raised.
        prints: the last lines that it printed.
        report: its last report.
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
        """Return the known facts; only those that every run shares if outputs are compared."""
        report, found = self.report, [self.owns]
        if shows_progress():
            for shape in report.meshes:
                found.append(f"mesh {'x'.join(map(str, shape))}")
            if self.pid and report.process_bytes:
                memory = short(report.process_bytes, "B")
                found.append(f"{report.host}, process {self.pid}, {memory}")
        if self.state == "busy":
            found += [report.doing, f"at {report.line}" if report.line else ""]
        found.append(self.last_error)
        if shows_progress():
            found += [f"printed: {line}" for line in self.prints]
        return [text for text in found if text]


@dataclass(frozen=True)
class Status:
    """A cluster at one moment, as cards.

    Example:
        >>> Status("Cluster(1): 1 rank, running", (Card(0, "busy", "0,1", (0, 4, 1, 5)),))
        Cluster(1): 1 rank, running
          rank 0: busy, cards 0,1: chips 0, 4, 1, 5
    """

    title: str
    cards: tuple[Card, ...]
    failure: str = ""
    system: System | None = None
    note: str = ""

    def __repr__(self) -> str:
        lines = [f"  rank {c.rank}: {', '.join([c.state, *c.facts()])}" for c in self.cards]
        return "\n".join([self.title, *lines, self.failure]).rstrip()

    def _repr_html_(self) -> str:
        from ttkit.visualize.drawing import on_page

        parts = [
            f'<div class="ttkit-title">{escape(self.title)}</div>',
            *map(self._card, self.cards),
        ]
        if self.failure:
            failure = escape(self.failure).replace("\n", "<br>")
            parts.append(f'<div class="ttkit-alarm" role="alert">{failure}</div>')
        if self.note:
            parts.append(f'<div class="ttkit-note">{self.note}</div>')
        return on_page("".join(parts))

    def _card(self, card: Card) -> str:
        from ttkit.visualize.mesh import draw_share

        look = CARD.format(
            width=2 if card.state == "busy" else 1,
            line="dashed" if card.state == "failed" else "solid",
            colour={"busy": "link", "failed": "curve"}.get(card.state, "edge"),
        )
        parts = [f"<b>rank {card.rank}</b> {SHAPES.get(card.state, '')} {card.state}"]
        if self.system and card.chips:
            title = f"rank {card.rank}: {card.owns}"
            parts.append(draw_share(self.system, card.chips, title, card.rank).svg())
        parts += [f"<div>{escape(fact)}</div>" for fact in card.facts()]
        name = f'role="group" aria-label="rank {card.rank}, {card.state}"'
        return f'<div {name} style="{look}">{"".join(parts)}</div>'


def status_of(cluster: Cluster) -> Status:
    """Return the state of a cluster, running or not, at this moment; no rank is asked."""
    busy, state, system, cards = cluster.busy(), cluster.state, current_machine(), []
    for binding in cluster.bindings.rank_bindings:
        rank, own = binding.rank, cluster.bindings.visible_devices(binding)
        answer = cluster.latest.get(rank)
        # While a rank works, its prints are in the metadata of the answer that it still owes.
        printed = str(answer.metadata["stdout"] or "") if answer and rank in busy else ""
        running = state == "running"
        cards.append(
            Card(
                rank,
                "busy" if rank in busy else "idle" if running else state,
                own,
                owned(system, own),
                cluster.pids.get(rank),
                cluster.last_error[rank],
                tuple(printed.splitlines()[-LAST_LINES:]),
                cluster.report(rank) if running else Report(),
            )
        )
    title = f"{cluster.name}: {counted(len(cards), 'rank')}, {state}"
    note = NOTE if state == "running" else ""
    return Status(title, tuple(cards), cluster.why_failed, system, note)


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


@contextlib.contextmanager
def progress(cluster: Cluster, what: str) -> Iterator[Callable[[str], None]]:
    """Show the cards during a wait of more than two seconds on a notebook's page, until it ends.

    What is yielded takes the state of the wait in words. TTKIT_PROGRESS=0 turns it off.
    """
    begin = shown = time.monotonic()
    handle: Any = None

    def show(state: str) -> None:
        nonlocal shown, handle
        now = time.monotonic()
        if not (shows_progress() and in_notebook()) or now - begin < SHOW_AFTER_S:
            return
        if now - shown >= REFRESH_S:
            shown, title = now, f"{what}: {state}, {now - begin:.0f} s"
            status = replace(status_of(cluster), title=title, note="")
            if handle is None:
                from IPython.display import display

                handle = display(status, display_id=True)
            else:
                handle.update(status)

    try:
        yield show
    finally:
        if handle is not None:
            handle.update({"text/plain": ""}, raw=True)
