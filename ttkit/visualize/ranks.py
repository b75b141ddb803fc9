"""Pictures of ranks: processes, the host that each runs on, and the cards that it owns."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ttkit.visualize.drawing import INK, Drawing, Figure, ranges, tone
from ttkit.words import counted

RANK_W, GAP, PAD = 124, 12, 12  # of a process
HEAD = 64  # the process, above its cards
CHIP_W, CHIP_H, CARD_PAD = 44, 26, 6
CARD_HEAD = 18
MOST = 8  # cards that are drawn one by one


@dataclass(frozen=True)
class RankBox:
    """One rank: its number, its host, its part of the machine.

    Args:
        host: "" for this computer.
        cards: number of each card -> ids of its chips on that host's machine.
        place: its mesh, and its part of it, in words.
    """

    number: int
    host: str
    cards: dict[int, tuple[int, ...]]
    place: str = ""

    def __str__(self) -> str:
        count = sum(map(len, self.cards.values()))
        word = "card" if len(self.cards) == 1 else "cards"
        host = f" on {self.host}" if self.host else ""
        chips = ranges(chip for card in self.cards.values() for chip in card)
        place = f", {self.place}" if self.place else ""
        return (
            f"rank {self.number}{host}: {word} {ranges(self.cards)} "
            f"({counted(count, 'chip')}: {chips}){place}"
        )


def boxes_of(cluster: Any, system: Any) -> list[RankBox]:
    """Return the ranks of a cluster, started or not, each host being such a system."""
    bindings, boxes = cluster.bindings, []
    for binding in bindings.rank_bindings:
        given = bindings.visible_devices(binding)
        names = given.split(",") if given else map(str, range(len(system.cards)))
        cards = {int(name): system.cards[int(name)] for name in names}
        part = binding.mesh_host_rank
        place = "" if binding.mesh_id is None else f"mesh {binding.mesh_id}"
        place += "" if part is None else f", part {part}"
        boxes.append(RankBox(binding.rank, cluster.hosts[binding.rank], cards, place))
    return boxes


def draw_ranks(boxes: Sequence[RankBox], system: str) -> Figure:
    """Draw each host with its processes, and below each process the cards that it owns."""
    hosts: dict[str, list[RankBox]] = {}
    for box in boxes:
        hosts.setdefault(box.host, []).append(box)
    drawings = list(_hosts(hosts, system))
    shared = "" if len(hosts) == 1 else f" on {len(hosts)} hosts"
    title = f"{len(boxes)} ranks{shared}: each is a process with its own memory and its own cards"
    text = "\n".join([title, *(f"  {box}" for box in boxes)])
    note = "A number in a chip is its id on that host's machine."
    return Figure(title, drawings, [note], text=text)


def _hosts(hosts: dict[str, list[RankBox]], system: str) -> Iterator[Drawing]:
    for host, boxes in hosts.items():
        columns = min(4, len(boxes))
        heights = [max(map(_height, boxes[i : i + columns])) for i in range(0, len(boxes), columns)]
        width = PAD * 2 + columns * RANK_W + (columns - 1) * GAP
        height = 34 + sum(heights) + GAP * len(heights)
        draw = Drawing(width + 2, height + 2, "\n".join(map(str, boxes)))
        draw.box(1, 1, width, height, edge="var(--frame)", round=10)
        name = f"host {host}" if host else "this computer"
        inside = system if len(hosts) > 1 else f"{name}: {system}"
        draw.words(PAD, 20, inside, anchor="start", bold=True)
        top = 32.0
        for i, row_height in enumerate(heights):
            for j, box in enumerate(boxes[i * columns : (i + 1) * columns]):
                _rank(draw, box, PAD + j * (RANK_W + GAP), top)
            top += row_height + GAP
        draw.title = name
        yield draw


def _columns(box: RankBox) -> int:
    """Return how many chips stand beside one another in a card."""
    return min(2, max(map(len, box.cards.values()), default=1))


def _height(box: RankBox) -> float:
    if len(box.cards) > MOST:
        return HEAD + CARD_HEAD + CHIP_H
    rows = math.ceil(max(map(len, box.cards.values()), default=1) / _columns(box))
    return HEAD - 4 + len(box.cards) * (rows * (CHIP_H + 4) + CARD_HEAD + CARD_PAD + 4)


def _rank(draw: Drawing, box: RankBox, x: float, top: float) -> None:
    fill, middle = tone(box.number), x + RANK_W / 2
    draw.box(x, top, RANK_W, HEAD - 14, fill=fill, edge="#1c2430", round=8)
    draw.words(middle, top + 20, f"rank {box.number}", size=13, bold=True, colour=INK)
    draw.words(middle, top + 37, box.place or "a Python process", size=11, colour=INK)
    look: dict[str, Any] = {
        "fill": "transparent",
        "x": x,
        "y": top,
        "width": RANK_W,
        "height": HEAD - 14,
    }
    draw.add("rect", hover=str(box), **look)
    y = top + HEAD
    draw.line((middle, top + HEAD - 14), (middle, y), colour="var(--edge)", width=2)
    if len(box.cards) > MOST:
        chips = sum(map(len, box.cards.values()))
        draw.box(x, y, RANK_W, CARD_HEAD + CHIP_H, fill="var(--chip)")
        draw.words(middle, y + 18, f"cards {ranges(box.cards)}", size=12)
        draw.words(middle, y + 35, f"{chips} chips", size=11, colour="var(--soft)")
        return
    columns = _columns(box)
    for number, held in box.cards.items():
        rows = math.ceil(len(held) / columns)
        height = CARD_HEAD + rows * (CHIP_H + 4) + CARD_PAD
        draw.box(x, y, RANK_W, height, fill="var(--chip)")
        draw.words(x + 8, y + 14, f"card {number}", size=11, anchor="start")
        left = middle - (columns * (CHIP_W + 6) - 6) / 2
        for i, chip in enumerate(held):
            at = left + i % columns * (CHIP_W + 6), y + CARD_HEAD + i // columns * (CHIP_H + 4)
            draw.box(*at, CHIP_W, CHIP_H, fill=fill, edge="#1c2430", round=4)
            draw.words(at[0] + CHIP_W / 2, at[1] + 17, str(chip), size=12, colour=INK)
        y += height + 4
