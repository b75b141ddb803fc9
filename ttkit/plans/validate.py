"""What a plan must keep to: real cables, chunks that are held, every contribution once, no more
messages than links.
"""

from __future__ import annotations

from collections import Counter
from typing import NoReturn

import numpy as np

from ttkit.errors import fail
from ttkit.plans.plan import REDUCES, Plan, Step, Transfer


def validate(plan: Plan) -> None:
    """Go through a plan step by step; raise at the first thing that cannot be, naming chip,
    chunk and step.
    """
    adds = plan.collective in REDUCES
    bit = {chip: 1 << i for i, chip in enumerate(plan.topology.chips)}
    # chip -> chunk -> whose contributions are in it, as bits
    parts = plan.before(lambda chip, c: bit[chip]) if adds else {}
    held = {chip: set(chunks) for chip, chunks in plan.before(lambda chip, c: True).items()}
    pairs, size_of, room = (
        plan.topology.pairs,
        plan.sizes.__getitem__,
        plan.topology.links // plan.links,
    )
    for number, step in enumerate(plan.steps, 1):
        ends = [(t.source, t.destination) for t in step]
        for t, pair in zip(step, ends, strict=True):
            if pair not in pairs:
                _no_cable(plan, number, t)
            chunks = t.chunks
            if not chunks or not all(isinstance(c, (int, np.integer)) for c in chunks):
                _wrong(
                    plan,
                    number,
                    f"chip {t.source} sends chip {t.destination} {t.chunk!r}, "
                    "which is not a chunk's number",
                    "chunk=0, or chunk=(0, 1)",
                )
            if not held[t.source].issuperset(chunks):
                _not_held(plan, number, t, next(c for c in chunks if c not in held[t.source]))
            if t.bytes != sum(map(size_of, chunks)):
                _wrong_size(plan, number, t)
            if t.reduce and not adds:
                _wrong(
                    plan,
                    number,
                    f"chip {t.destination} would add {_chunks(t)} from chip {t.source}, "
                    f"but {plan.collective} adds nothing",
                    "reduce=False",
                )
        if len(set(ends)) < len(ends):
            _check_load(plan, number, step, room)
        if adds:
            _add_up(plan, number, step, parts)
        for t in step:
            held[t.destination].update(t.chunks)
    _reached(plan, held, parts, bit)


def _add_up(plan: Plan, number: int, step: Step, parts: dict[int, dict[int, int]]) -> None:
    """Take in what a step brings, where parts are added: none twice, none lost."""
    # all read before any is added
    arrives = [(t, [parts[t.source][c] for c in t.chunks]) for t in step]
    written: dict[tuple[int, int], int] = {}
    for t, masks in arrives:
        have = parts[t.destination]
        for c, mask in zip(t.chunks, masks, strict=True):
            old = have.get(c, 0)
            if t.reduce and old & mask:
                _wrong(
                    plan,
                    number,
                    f"{_sends(t, c)}, which would add the part of {_chips(plan, old & mask)} a "
                    "second time",
                )
            if not t.reduce and old & ~mask:
                _wrong(
                    plan,
                    number,
                    f"{_sends(t, c)}, where it would overwrite the part of "
                    f"{_chips(plan, old & ~mask)}",
                    "reduce=True adds it",
                )
            if not t.reduce and written.setdefault((t.destination, c), t.source) != t.source:
                _wrong(
                    plan,
                    number,
                    f"{_sends(t, c)}, and so does chip {written[t.destination, c]}: "
                    "one overwrites the other",
                    "reduce=True adds both",
                )
            have[c] = old | mask


def _sends(t: Transfer, c: int) -> str:
    return f"chip {t.source} sends chunk {c} to chip {t.destination}"


def _reached(
    plan: Plan, held: dict[int, set[int]], parts: dict[int, dict[int, int]], bit: dict[int, int]
) -> None:
    for group in plan.groups:
        everyone = sum(bit[chip] for chip in group)
        for chip in group:
            goal = plan.goal(chip)
            absent = [c for c in goal if c not in held[chip]]
            if absent:
                _wrong(
                    plan,
                    len(plan.steps),
                    f"after the last step chip {chip} does not hold chunk {absent[0]}, "
                    f"which {plan.collective} should give it",
                )
            for c in goal if parts else ():
                missing = everyone & ~parts[chip][c]
                if missing:
                    _wrong(
                        plan,
                        len(plan.steps),
                        f"after the last step chunk {c} on chip {chip} lacks the part of "
                        f"{_chips(plan, missing)}",
                    )


def _chunks(t: Transfer) -> str:
    return (
        f"chunk {t.chunk}"
        if not isinstance(t.chunk, (tuple, list))
        else f"chunks {', '.join(map(str, t.chunk))}"
    )


def _chips(plan: Plan, mask: int) -> str:
    chips = [chip for i, chip in enumerate(plan.topology.chips) if mask >> i & 1]
    return ("chip " if len(chips) == 1 else "chips ") + ", ".join(map(str, chips))


def _wrong(plan: Plan, number: int, rule: str, cure: str = "") -> NoReturn:
    fail(
        f"step {number} of {len(plan.steps)} of {plan.collective} on {plan.topology!r}", rule, cure
    )


def _no_cable(plan: Plan, number: int, t: Transfer) -> NoReturn:
    for what, chip in (("sends", t.source), ("gets", t.destination)):
        if chip not in plan.topology.place:
            _wrong(
                plan,
                number,
                f"chip {chip} {what} {_chunks(t)}, but there is no chip {chip}",
                f"one of {list(plan.topology.chips)}",
            )
    if t.source == t.destination:
        _wrong(
            plan,
            number,
            f"chip {t.source} sends {_chunks(t)} to itself",
            "leave it out: it holds the chunk",
        )
    ends = plan.topology.neighbours(t.source)
    rule = f"chip {t.source} sends {_chunks(t)} to chip {t.destination}, but no cable joins them"
    _wrong(
        plan,
        number,
        rule,
        f"a neighbour of chip {t.source}: {', '.join(map(str, ends)) or 'it has none'}",
    )


def _not_held(plan: Plan, number: int, t: Transfer, c: int) -> NoReturn:
    if c not in range(len(plan.sizes)):
        _wrong(
            plan,
            number,
            f"{_sends(t, c)}, but the chunks have the numbers 0 to {len(plan.sizes) - 1}",
        )
    _wrong(
        plan,
        number,
        f"{_sends(t, c)}, but does not hold it yet",
        "send it in an earlier step to this chip first",
    )


def _wrong_size(plan: Plan, number: int, t: Transfer) -> NoReturn:
    has = sum(plan.sizes[c] for c in t.chunks)
    _wrong(
        plan,
        number,
        f"the message of chip {t.source} to chip {t.destination} with {_chunks(t)} says "
        f"{t.bytes:,} bytes, but has {has:,}",
        "bytes=None",
    )


def _check_load(plan: Plan, number: int, step: Step, room: int) -> None:
    for (source, destination), n in Counter((t.source, t.destination) for t in step).items():
        if n > room:
            chunks = ", ".join(
                str(c)
                for t in step
                if (t.source, t.destination) == (source, destination)
                for c in t.chunks
            )
            rule = (
                f"chip {source} sends {n} messages (chunks {chunks}) to chip {destination}, "
                f"where {plan.topology.links} links"
            )
            rule += (
                f" carry {room} of them at a time"
                if plan.links == 1
                else f" carry {room}, each message taking {plan.links}"
            )
            _wrong(
                plan,
                number,
                rule,
                "another step for some of them, or one message with several chunks",
            )
