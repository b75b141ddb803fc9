"""A cluster on a notebook's page: a card for each rank, kept up to date, and two buttons."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from html import escape
from typing import Any

from ttkit.cluster.engines import results
from ttkit.cluster.engines.engine import Report
from ttkit.cluster.engines.stacks import stacks, users_line
from ttkit.cluster.engines.status import Live, Row, Status
from ttkit.hardware import current_machine
from ttkit.hardware.systems import System
from ttkit.words import counted, shows_progress

Cluster = Any  # of engines.cluster, which imports this module
LOOK_S, LOOK_FAR_S = 2.0, 30.0  # between two looks at the lines of busy ranks, here and by ssh
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
        row: its line in the table of `cluster.status()`.
        chips: the ids of those that it owns; none where the numbers of its cards are not known.
        line, doing: where its program and its training are.
        prints: its last lines.
        losses: of its training, so far.
    """

    row: Row
    chips: tuple[int, ...] = ()
    line: str = ""
    doing: str = ""
    prints: tuple[str, ...] = ()
    losses: tuple[float, ...] = ()

    @property
    def owns(self) -> str:
        """Cards and chips, in words."""
        cards, ids = self.row.cards, ", ".join(map(str, self.chips))
        words = [f"card{'s' * (',' in cards)} {cards}"] if cards else []
        return ": ".join([*words, f"chips {ids}"] if ids else words) or "all cards"

    def facts(self) -> list[str]:
        """Return lines below the picture; only what no run changes where outputs are compared."""
        row, live = self.row, shows_progress()
        mesh = f"mesh {row.mesh}" if row.mesh and live else ""
        memory = f"{row.host}, process {row.pid}, {row.memory}" if row.pid and live else ""
        busy = [f"at {self.line}"] if self.line and row.state == "busy" else []
        error = [row.last_error] if row.last_error else []
        return [text for text in (self.owns, mesh, memory, self.doing, *busy, *error) if text]


@dataclass(frozen=True)
class Dashboard:
    """A cluster at one moment, as cards.

    Example:
        >>> from ttkit.cluster.engines.engine import Report
        >>> row = Row.of(0, None, "0,1", None, "busy", "", Report())
        >>> Dashboard("Cluster(1)", "running", (Card(row, (0, 4, 1, 5)),))
        Cluster(1): 1 rank, running
          rank 0: busy, cards 0,1: chips 0, 4, 1, 5
    """

    name: str
    state: str
    cards: tuple[Card, ...]
    failure: str = ""
    system: System | None = None
    at: str = field(default="", compare=False)  # the time of day

    @property
    def lives(self) -> bool:
        """Whether the ranks run, so that it may change."""
        return self.state == "running"

    def __repr__(self) -> str:
        when = f" ({self.at})" if self.at and shows_progress() else ""
        lines = [f"{self.name}: {counted(len(self.cards), 'rank')}, {self.state}{when}"]
        for card in self.cards:
            lines.append(f"  rank {card.row.rank}: {card.row.state}, {card.owns}")
        return "\n".join([*lines, *([self.failure] if self.failure else [])])

    def _repr_html_(self) -> str:
        from ttkit.visualize.drawing import on_page

        head = repr(self).partition("\n")[0]
        parts = [f'<div class="ttkit-title">{escape(head)}</div>', *map(self._card, self.cards)]
        if self.failure:
            failure = escape(self.failure).replace("\n", "<br>")
            parts.append(f'<div class="ttkit-alarm" role="alert">{failure}</div>')
        if self.lives and not shows_progress():
            parts.append(f'<div class="ttkit-note">{THEN}</div>')
        return on_page("".join(parts))

    def _card(self, card: Card) -> str:
        row, bad = card.row, card.row.state == "failed"
        look = CARD.format(
            width=2 if row.state == "busy" else 1,
            line="dashed" if bad else "solid",
            colour={"busy": "link", "failed": "curve"}.get(row.state, "edge"),
        )
        from ttkit.visualize.mesh import draw_share

        head = f"<b>rank {row.rank}</b> {SHAPES.get(row.state, '')} {row.state}"
        picture = ""
        if self.system and card.chips:
            picture = draw_share(self.system, card.chips, f"rank {row.rank}", row.rank).svg()
        facts = "".join(f"<div>{escape(fact)}</div>" for fact in card.facts())
        if card.losses:
            from ttkit.visualize.live_training import small_curve

            facts += small_curve(card.losses).svg()
        printed = escape("\n".join(card.prints)) if shows_progress() else ""
        prints = f'<div style="{PRINTS}">{printed}</div>' if printed else ""
        name = f'role="group" aria-label="rank {row.rank}, {row.state}"'
        return f'<div {name} style="{look}">{head}{picture}{facts}{prints}</div>'


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


class Watcher:
    """Knows the dashboard of a cluster, running or not, at any moment, and shows it."""

    def __init__(self, cluster: Cluster):
        self.cluster, self.system = cluster, current_machine()
        self._lines: dict[int, str] = {}  # of the ranks that were busy at the last look
        self._look = time.monotonic() + LOOK_S

    def now(self) -> Dashboard:
        """Return the dashboard at this moment."""
        cluster = self.cluster
        status: Status = cluster.status()
        busy = [row.rank for row in status.rows if row.state == "busy"]
        if busy and time.monotonic() > self._look:
            with contextlib.suppress(OSError):  # the engines are being stopped
                found = stacks(cluster, busy)
                self._lines = {rank: users_line(frames) for rank, frames in found.items()}
            self._look = time.monotonic() + (LOOK_FAR_S if any(cluster.hosts) else LOOK_S)
        elif not busy:
            self._lines, self._look = {}, time.monotonic() + LOOK_S
        cards = tuple(map(self._card, status.rows))
        at, why = time.strftime("%H:%M:%S"), status.failure
        return Dashboard(cluster.name, cluster.state, cards, why, self.system, at)

    def _card(self, row: Row) -> Card:
        answer = self.cluster.latest.get(row.rank)
        prints = tuple(results.prints(answer, results.LAST_LINES)) if answer else ()
        report = self.cluster.report(row.rank) if row.state == "busy" else Report()
        owns, line = owned(self.system, row.cards), self._lines.get(row.rank, "")
        return Card(row, owns, line, report.doing, prints, tuple(report.losses))

    def show(self, live: Live) -> None:
        """Show the cards, which are kept up to date, and below them the buttons."""
        from ttkit.visualize.live import buttons, show_widget

        live.show(self.now(), self.now)
        show_widget(buttons(BUTTONS, self.act), WORDS)

    def act(self, name: str) -> str:
        """Do what a button says, after the cell that it interrupted; return a message."""
        cluster = self.cluster
        try:
            if name == "restart":
                cluster.restart()
                return f"started anew at {time.strftime('%H:%M:%S')}"
            return results.interrupt(cluster) if cluster.busy() else ""
        except RuntimeError as error:
            return str(error)
