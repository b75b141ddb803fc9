"""The drawing of a step: the chunks on each chip, and the transfers on their links."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ttkit.visualize.drawing import (
    ALARM,
    BAD,
    INK,
    Point,
    Rectangle,
    ranges,
    size_text,
    tone,
    width_of,
)
from ttkit.visualize.mesh import MeshDrawing
from ttkit.visualize.steps import Arrow, Held, StepPicture, whole_of

NUMBER = 11  # size of the numbers in the boxes and of the words at the arrows
# Boxes of chips that hold at most so many chunks: columns, and width and height of a box.
LARGE_BOXES = ((8, 4, 24, 24), (64, 6, 19, 16), (math.inf, 20, 6, 6))
SMALL_BOXES = ((4, 2, 20, 18), (8, 4, 20, 18), (64, 8, 9, 9), (math.inf, 16, 6, 6))
SHARE_W, SHARE_H = 24, 33  # of a box with "3/8" under its number
COPY, SUM, LINK = "var(--link)", "var(--curve)", "var(--frame)"
EMPTY = "var(--empty)"  # a box for a chunk that has not come
PAPER = "#dde2ea"  # the part of a box that is still to be filled, in both themes
BADGE = 7  # half the height of the badge on an arrow
HIT = 26  # pixels across an arrow that can be clicked
# A chunk that is new glides from where it was sent; one that is added glides and disappears.
MOTION = (
    ".ttkit-merge{opacity:0}@media(prefers-reduced-motion:no-preference){"
    ".ttkit-glide{animation:ttkit-glide 1s ease-in-out both}"
    ".ttkit-merge{animation:ttkit-merge 1s ease-in-out both}}"
    "@keyframes ttkit-glide{from{transform:translate(var(--dx),var(--dy))}}"
    "@keyframes ttkit-merge{from{transform:translate(var(--dx),var(--dy));opacity:1}"
    "80%{opacity:1}to{opacity:0}}"
)


class StepDrawing(MeshDrawing):
    """A drawing of what each chip holds after a step, and of its transfers on their links.

    Args:
        small: one of several on a page.
        title: its caption; by default the step and what it sends.
        glides: the (chip, chunk) that glide; by default all that are new, in a large drawing.
    """

    def __init__(
        self,
        step: StepPicture,
        small: bool = False,
        title: str = "",
        glides: Collection[tuple[int, int]] | None = None,
    ):
        self.step, self.small, plan = step, small, step.plan
        most = max(1, *map(len, step.slots.values()))
        sizes = SMALL_BOXES if small else LARGE_BOXES
        columns, self.box_w, self.box_h = next(box for limit, *box in sizes if most <= limit)
        self.sizes = len(step.mesh.devices) <= 8  # room for bytes at the arrows
        self.numbers = most <= (8 if small else 64)
        self.shares = most <= 8 and plan.adds and plan.group_size < 100
        if self.shares:
            share = width_of(f"{whole_of(plan)}/{whole_of(plan)}", NUMBER)
            self.box_w, self.box_h = max(SHARE_W, math.ceil(share)), SHARE_H
        self.columns = min(columns, most)
        names = [self._name(chip, label) for chip, label in self._chips()]
        widest = max(width_of(name, NUMBER + 1, bold=True) for name in names)
        width = max(self.columns * self.box_w, widest) + 10
        self.head = 19 if small else 23  # above the boxes
        height = self.head + math.ceil(most / self.columns) * self.box_h + 7
        wrong = f"step {step.number} goes wrong" if step.wrong and small else step.caption
        mesh = replace(step.mesh, title=title or wrong, links=1 if small else step.mesh.links)
        host, gap, room = ("", (18, 22), (4, 4)) if small else ("host", (46, 50), (26, 46))
        super().__init__(mesh, width, height, host, gap=gap, room=room, colour=LINK)
        self.spots = dict(self._spots())
        glides = [] if small and glides is None else glides
        self.moving = [move for move in self._moves() if glides is None or move[:2] in glides]
        if self.moving:
            self.add("style", MOTION)
        for (chip, _), name, (x, y) in zip(self._chips(), names, self.corners):
            about = "" if self.numbers else self._about(chip)
            self.box(x, y, self.w, self.h, fill="var(--chip)")
            self.words(x + self.w / 2, y + 15, name, size=NUMBER + 1, bold=True)
            if about:
                self.add(
                    "rect", hover=about, fill="transparent", **self._frame((x, y, width, height))
                )
        self._boxes()
        good = [arrow for arrow in step.arrows if not arrow.wrong]
        for arrow in good:
            look = (1.5, 6) if small else (2, 8)
            colour = SUM if arrow.reduce else COPY
            self.arrow(*self._course(arrow), colour=colour, width=look[0], head=look[1])
        for arrow in good if not small else ():  # over all arrows, so that none hides them
            self._label(arrow)
        for arrow in step.arrows:
            if arrow.wrong:
                self._wrong(arrow)

    def _chips(self) -> Iterator[tuple[int, str]]:
        return zip(self.step.mesh.devices, self.step.mesh.labels)

    def _name(self, chip: int, label: str) -> str:
        if self.small:
            return str(self.step.names.get(chip, chip))
        return self.step.name(chip) if chip in self.step.names else f"device {chip} {label}"

    @staticmethod
    def _frame(box: Rectangle) -> dict[str, Any]:
        return dict(zip(("x", "y", "width", "height"), box))

    # ------------------------------------------------------------ boxes
    def _spots(self) -> Iterator[tuple[tuple[int, int], Rectangle]]:
        """Yield where the box of each chunk is on each chip."""
        # the chip is seen between a box and its rim: on dark pages both are light
        self.pad = pad = min(2.4, self.box_w / 7)
        w, h = self.box_w - 2 * pad, self.box_h - 2 * pad
        for chip, corner in zip(self.step.mesh.devices, self.corners):
            left = corner[0] + (self.w - self.columns * self.box_w) / 2 + pad
            for i, chunk in enumerate(self.step.slots[chip]):
                row, column = divmod(i, self.columns)
                top = corner[1] + self.head + pad + row * self.box_h
                yield (chip, chunk), (left + column * self.box_w, top, w, h)

    def _moves(self) -> Iterator[tuple[int, int, int, bool]]:
        """Yield the chunks that come in this step: (chip, chunk, source, whether it is added)."""
        held = {(chip, one.chunk) for chip, all in self.step.held.items() for one in all}
        for arrow in self.step.arrows:
            for transfer in () if arrow.wrong else arrow.transfers:
                for chunk in transfer.chunks:
                    if {(arrow.destination, chunk), (arrow.source, chunk)} <= held:
                        yield arrow.destination, chunk, arrow.source, transfer.reduce

    def _boxes(self) -> None:
        """Draw the chunks of all chips; those that glide on top, as parts of their own."""
        held = {(chip, one.chunk): one for chip, all in self.step.held.items() for one in all}
        coming = {move[:2] for move in self.moving if not move[3]}
        still = {key: one for key, one in held.items() if key not in coming}
        empty = [box for key, box in self.spots.items() if key not in still]
        self.blocks(empty, fill=EMPTY, edge=LINK, width=min(0.8, self.box_w / 15))
        self._held(still)
        for chip, chunk, source, adds in self.moving:
            key, there = (chip, chunk), self.spots[source, chunk]
            dx, dy = (a - b for a, b in zip(there[:2], self.spots[key][:2]))
            kind = "merge" if adds else "glide"
            with self._group(f'class="ttkit-{kind}" style="--dx:{dx:g}px;--dy:{dy:g}px"'):
                self._held({key: held[key]})
        for key, box in self.spots.items() if self.numbers else ():
            hover = self._hover(*key, held.get(key))
            self.add("rect", hover=hover, fill="transparent", **self._frame(box))

    @contextmanager
    def _group(self, look: str) -> Iterator[None]:
        self._parts.append(f"<g {look}>")
        yield
        self._parts.append("</g>")

    def _held(self, boxes: dict[tuple[int, int], Held]) -> None:
        """Draw boxes that are held, one shape for each look."""
        whole, rim = whole_of(self.step.plan), 0.6 * self.pad
        fills: dict[str, list[Rectangle]] = {PAPER: []}
        rims: list[Rectangle] = []
        begun: list[Rectangle] = []  # sums that are not finished
        for (chip, chunk), one in boxes.items():
            x, y, w, h = self.spots[chip, chunk]
            full = h * min(1, one.parts / whole)  # a bad plan may add what is not asked for
            if full < h:
                fills[PAPER].append((x, y, w, h))
                begun.append((x, y, w, h))
            fills.setdefault(tone(chunk), []).append((x, y + h - full, w, full))
            if one.new:
                off = self.pad - rim / 2
                rims.append((x - off, y - off, w + 2 * off, h + 2 * off))
        for fill, drawn in fills.items():
            self.blocks(drawn, fill=fill)
        outlines = [self.spots[key] for key in boxes]
        self.blocks(outlines, edge=INK, width=min(0.6, self.box_w / 15))
        self.blocks(rims, edge="var(--ink)", width=rim)
        for x, y, w, h in () if self.numbers else begun:
            self.line((x, y + h), (x + w, y), colour=INK, width=1)
        for (chip, chunk), one in boxes.items() if self.numbers else ():
            x, y, w, h = self.spots[chip, chunk]
            middle, base = x + w / 2, y + h / 2 + 4
            if self.shares:
                self.words(middle, base - 6, str(chunk), size=NUMBER + 1, colour=INK, bold=True)
                self.words(middle, base + 8, f"{one.parts}/{whole}", size=NUMBER, colour=INK)
            else:
                self.words(middle, base, str(chunk), size=NUMBER, colour=INK)

    def _hover(self, chip: int, chunk: int, one: Held | None) -> str:
        """Return what a box is: its chunk, its parts, and where it came from."""
        step, plan = self.step, self.step.plan
        if one is None:
            return f"chunk {chunk}: not on {step.name(chip)} yet"
        owner = plan.topology.chips[chunk]
        if plan.adds:
            text = f"chunk {chunk}: the parts of {one.parts} of {plan.group_size} chips"
        else:
            text = f"chunk {chunk}, the shard of {step.name(owner)}"
        sources = [step.name(m[2]) for m in self._moves() if m[:2] == (chip, chunk)]
        return text + (f"; in this step from {' and '.join(sources)}" if sources else "")

    def _about(self, chip: int) -> str:
        """Return what a chip holds, where its boxes have no numbers."""
        held, whole = self.step.held[chip], whole_of(self.step.plan)
        text = f"{self.step.name(chip)} holds chunks {ranges(one.chunk for one in held)}"
        done = ranges(one.chunk for one in held if one.parts == whole)
        return text + (f"; finished sums: {done or 'none'}" if whole > 1 else "")

    # ------------------------------------------------------------ arrows
    def _course(self, arrow: Arrow) -> tuple[Point, ...]:
        """Return how an arrow is drawn: each way on its own side of the link."""
        return self.way(arrow.source, arrow.destination)

    def way(self, source: int, destination: int) -> tuple[Point, ...]:
        """Return how an arrow between two chips is drawn: its start, its end and its lift."""
        at = self.step.plan.topology.place
        off, out = (3.5, 4) if self.small else (9, 13)
        if self.step.mesh.spot(at[source]) < self.step.mesh.spot(at[destination]):
            off, out = -off, -2
        return self.course(at[source], at[destination], off, out)

    def _label(self, arrow: Arrow) -> None:
        """Draw the numbers of an arrow's chunks, a plus if the chip adds them, and its bytes."""
        (x1, y1), (x2, y2), (right, up) = self._course(arrow)
        x, y = (x1 + x2) / 2 + 0.85 * right, (y1 + y2) / 2 + 0.85 * up
        # of two curves, the way forward is the inner one
        first = self.step.forward(arrow) != bool(right or up)
        upright = abs(x2 - x1) <= abs(y2 - y1)
        y += (-9 if self.step.forward(arrow) else 9) * upright  # side by side they are too wide
        chunks = ranges(arrow.chunks)
        short = chunks if len(chunks) <= 5 else f"{len(arrow.chunks)} x"
        text = "+" * arrow.reduce + short
        tones = list(dict.fromkeys(tone(c) for c in arrow.chunks))[:4]
        wide = max(13, width_of(text, NUMBER, bold=True) + 4)
        left, top, each = x - wide / 2, y - BADGE, wide / len(tones)
        self.blocks([(left - 1, top - 1, wide + 2, 2 * BADGE + 2)], fill=INK)
        for i, fill in enumerate(tones):
            self.blocks([(left + i * each, top, each, 2 * BADGE)], fill=fill)
        self.words(x, y + 4, text, size=NUMBER, colour=INK, bold=True)
        if not upright:
            at, anchor = (x, y - 10 if first else y + 19), "middle"
        else:
            off = wide / 2 + 4
            at, anchor = ((x - off, y + 4), "end") if first else ((x + off, y + 4), "start")
        if self.sizes:
            self.words(*at, size_text(arrow.bytes), size=NUMBER, anchor=anchor, halo=True)
        ends = " to ".join(map(self.step.name, (arrow.source, arrow.destination)))
        adds = ", which adds it" if arrow.reduce else ""
        hover = f"{ends}{adds}: {arrow.brings}, {size_text(arrow.bytes)}"
        box = (left - 1, top - 1, wide + 2, 2.0 * BADGE + 2)
        self.add("rect", hover=hover, fill="transparent", **self._frame(box))

    def _wrong(self, arrow: Arrow) -> None:
        """Draw a dashed red line for what cannot be sent, with the reason."""
        at = self.step.plan.topology.place
        if arrow.source not in at or arrow.destination not in at:
            return  # a chip that is not there has no place
        corners = (self.corner(at[chip]) for chip in (arrow.source, arrow.destination))
        start, end = ((x + self.w / 2, y + self.h / 2) for x, y in corners)
        self.line(start, end, colour=BAD, width=2.5, dash="6 4")
        wide = width_of(arrow.wrong, NUMBER, bold=True) + 8
        x, y = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
        self.box(x - wide / 2, y - 8, wide, 16, fill=ALARM, edge=BAD, round=3)
        self.words(x, y + 4, arrow.wrong, size=NUMBER, colour=INK, bold=True)


class ClickableStep(StepDrawing):
    """A step whose arrows can be clicked: one for each way of each cable.

    A click does "send SOURCE DESTINATION".

    Args:
        glides: the (chip, chunk) that glide.
        chunk: what a click sends; None where each arrow has its own.
    """

    def __init__(
        self, step: StepPicture, glides: Collection[tuple[int, int]], chunk: int | None = None
    ):
        super().__init__(step, glides=glides)
        used = {(arrow.source, arrow.destination) for arrow in step.arrows}
        for source, destination in sorted(step.plan.topology.pairs):
            course = self.way(source, destination)
            (x1, y1), (x2, y2), (right, up) = course
            if (source, destination) not in used:
                self.arrow(*course, colour="var(--edge)", width=1.2, head=7)
            x, y = (x1 + x2) / 2 + 0.75 * right, (y1 + y2) / 2 + 0.75 * up
            upright = abs(x2 - x1) <= abs(y2 - y1)
            w, h = (HIT, abs(y2 - y1)) if upright else (abs(x2 - x1), HIT)
            out = HIT / 2 - 10  # the two ways of a cable do not share a pixel
            out = -out if step.forward(Arrow(source, destination, ())) else out
            x, y = (x + out, y) if upright else (x, y + out)
            what = "send" if chunk is None else f"send chunk {chunk}"
            name = f"{what} from {step.name(source)} to {step.name(destination)}"
            self.add(
                "rect",
                hover=name,
                fill="transparent",
                style="cursor:pointer",
                role="button",
                tabindex=0,
                aria_label=name,
                data_act=f"send {source} {destination}",
                **self._frame((x - w / 2, y - h / 2, w, h)),
            )
