"""What a notebook shows of engines: a card for each rank, at one moment or during a long wait."""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from html import escape
from typing import Any

from ttkit.cluster.engines.engine import Report
from ttkit.hardware import current_machine
from ttkit.hardware.systems import System
from ttkit.words import counted, in_notebook, short, shows_progress

Cluster = Any  # The class in engines.cluster, which imports this module.
SHOW_AFTER_S = 2.0  # A shorter wait is not shown.
REFRESH_S = 0.5
LAST_LINES = 3  # This many prints of a rank are shown while it works.
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
        owns: its cards and chips, in words.
        chips: the device ids of its cards; () if this machine does not have them, or for all.
        facts: what else is known, in words.
    """

    rank: int
    state: str
    owns: str = "all cards"
    chips: tuple[int, ...] = ()
    facts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Status:
    """A cluster at one moment, as cards.

    Example:
        >>> Status("Cluster(1): 1 rank, running", (Card(0, "busy", "card 0: chips 0, 4"),))
        Cluster(1): 1 rank, running
          rank 0: busy, card 0: chips 0, 4
    """

    title: str
    cards: tuple[Card, ...]
    failure: str = ""
    system: System | None = None
    note: str = ""

    def __repr__(self) -> str:
        lines = [f"  rank {c.rank}: {', '.join([c.state, c.owns, *c.facts])}" for c in self.cards]
        return "\n".join([self.title, *lines, self.failure]).rstrip()

    def _repr_html_(self) -> str:
        from ttkit.visualize.drawing import on_page

        parts = [f'<div class="ttkit-title">{escape(self.title)}</div>']
        parts += map(self._card, self.cards)
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
        parts += [f"<div>{escape(fact)}</div>" for fact in (card.owns, *card.facts)]
        name = f'role="group" aria-label="rank {card.rank}, {card.state}"'
        return f'<div {name} style="{look}">{"".join(parts)}</div>'


def status_of(cluster: Cluster) -> Status:
    """Return the state of a cluster, running or not, at this moment; no rank is asked."""
    state, system, busy = cluster.state, current_machine(), cluster.busy()
    cards = []
    for binding in cluster.bindings.rank_bindings:
        rank, numbers = binding.rank, cluster.bindings.visible_devices(binding)
        own = "busy" if rank in busy else "idle" if state == "running" else state
        report = cluster.report(rank) if state == "running" else Report()
        chips = owned(system, numbers)
        owns = f"card{'s' if ',' in numbers else ''} {numbers}" if numbers else "all cards"
        owns += f": chips {', '.join(map(str, chips))}" if chips else ""
        facts = tuple(filter(None, _facts(cluster, rank, own, report)))
        cards.append(Card(rank, own, owns, chips, facts))
    title = f"{cluster.name}: {counted(len(cards), 'rank')}, {state}"
    note = NOTE if state == "running" else ""
    return Status(title, tuple(cards), cluster.why_failed, system, note)


def _facts(cluster: Cluster, rank: int, state: str, report: Report) -> Iterator[str]:
    """Yield what is known of a rank; only what every run shares where outputs are compared."""
    if shows_progress():
        for shape in report.meshes:
            yield f"mesh {'x'.join(map(str, shape))}"
        if report.process_bytes:
            memory = short(report.process_bytes, "B")
            yield f"{report.host}, process {cluster.pids.get(rank)}, {memory}"
    if state == "busy":
        yield report.doing
        yield f"at {report.line}" if report.line else ""
    yield cluster.last_error[rank]
    answer = cluster.latest.get(rank)
    if shows_progress() and state == "busy" and answer:
        # While a rank works, its prints are in the metadata of the answer that it still owes.
        for line in str(answer.metadata["stdout"] or "").splitlines()[-LAST_LINES:]:
            yield f"printed: {line}"


def owned(system: System, cards: str) -> tuple[int, ...]:
    """Return the chips of some cards; () where these numbers are not the machine's.

    Example:
        >>> from ttkit.hardware import SYSTEMS
        >>> owned(SYSTEMS["t3000"], "0,1"), owned(SYSTEMS["t3000"], "7")
        ((0, 4, 1, 5), ())
    """
    numbers = [int(name) for name in cards.split(",") if name]
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
