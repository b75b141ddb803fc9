"""What a plan must keep to: real cables, chunks that are held, every contribution once, no more
messages than links.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NoReturn

from ttkit.errors import fail

Plan = Any  # of plans.plan, which imports this module
Step = Any
Transfer = Any


def validate(plan: Plan) -> None:
    """Raise at the first thing that is wrong in a plan, naming chip, chunk and step."""
    adds = plan.adds
    bit = {chip: 1 << i for i, chip in enumerate(plan.topology.chips)}
    # chip -> chunk -> whose contributions are in it, as bits
    parts = plan.before(lambda chip, c: bit[chip]) if adds else {}
    held = {chip: set(chunks) for chip, chunks in plan.before(lambda chip, c: True).items()}
    pairs, size_of = plan.topology.pairs, plan.sizes.__getitem__
    for number, step in enumerate(plan.steps, 1):
        ends = [(t.source, t.destination) for t in step]
        for t, pair in zip(step, ends, strict=True):
            chunks = t.chunks
            if (
                pair not in pairs
                or not chunks
                or not held[t.source].issuperset(chunks)
                or (t.bytes or 0) > sum(map(size_of, chunks))
                or (t.bytes != sum(map(size_of, chunks)) and plan.collective != "all_to_all")
                or (t.reduce and not adds)
            ):
                _refuse(plan, number, t, held)
        if len(set(ends)) < len(ends):
            _check_load(plan, number, step)
        if adds:
            _add_up(plan, number, step, parts)
        for t in step:
            held[t.destination].update(t.chunks)
    _check_goal(plan, held, parts, bit)


def _refuse(plan: Plan, number: int, t: Transfer, held: dict[int, set[int]]) -> NoReturn:
    """Fail with what is wrong with a transfer."""
    topology, numbers = plan.topology, range(len(plan.sizes))
    chunks = (
        f"chunk {t.chunk!r}" if len(t.chunks) < 2 else f"chunks {', '.join(map(str, t.chunks))}"
    )
    sends, cure = f"chip {t.source} sends {chunks} to chip {t.destination}", ""
    strangers = [chip for chip in (t.source, t.destination) if chip not in topology.place]
    if strangers:
        rule = f"{sends}, but there is no chip {strangers[0]}"
        cure = f"one of {list(topology.chips)}"
    elif t.source == t.destination:
        rule, cure = f"chip {t.source} sends {chunks} to itself", "leave it out: it holds the chunk"
    elif not topology.joined(t.source, t.destination):
        rule = f"{sends}, but no cable joins them"
        near = ", ".join(map(str, topology.neighbours(t.source)))
        cure = f"a neighbour of chip {t.source}: {near or 'it has none'}"
    elif not t.chunks or any(c not in numbers for c in t.chunks):
        rule = f"{sends}, but the chunks have the numbers 0 to {len(numbers) - 1}"
    elif not held[t.source].issuperset(t.chunks):
        missing = next(c for c in t.chunks if c not in held[t.source])
        rule = f"{_sends(t, missing)}, but does not hold it yet"
        cure = "send it in an earlier step to this chip first"
    elif t.reduce and not plan.adds:
        rule, cure = f"{sends} with reduce=True, but {plan.collective} adds nothing", "reduce=False"
    else:
        has = sum(plan.sizes[c] for c in t.chunks)
        rule, cure = f"{sends} as {t.bytes:,} bytes, but that has {has:,}", "bytes=None"
    _wrong(plan, number, rule, cure)


def _check_load(plan: Plan, number: int, step: Step) -> None:
    links, room = plan.topology.links, plan.topology.links // plan.links
    for (source, destination), n in Counter((t.source, t.destination) for t in step).items():
        if n > room:
            pair = [t for t in step if (t.source, t.destination) == (source, destination)]
            chunks = ", ".join(str(c) for t in pair for c in t.chunks)
            rule = (
                f"chip {source} sends {n} messages (chunks {chunks}) to chip {destination}; "
                f"{links} links carry {room} at a time, each over {plan.links}"
            )
            _wrong(plan, number, rule, "another step for some, or one message with several chunks")


def _add_up(plan: Plan, number: int, step: Step, parts: dict[int, dict[int, int]]) -> None:
    """Add what a step brings: no contribution twice, none lost."""
    # all read before any is added
    arrives = [(t, [parts[t.source][c] for c in t.chunks]) for t in step]
    written: dict[tuple[int, int], int] = {}
    for t, masks in arrives:
        have = parts[t.destination]
        for c, mask in zip(t.chunks, masks, strict=True):
            old = have.get(c, 0)
            rule = cure = ""
            if t.reduce and old & mask:
                rule = f"which would add the part of {_chips(plan, old & mask)} a second time"
            elif not t.reduce and old & ~mask:
                rule = f"where it would overwrite the part of {_chips(plan, old & ~mask)}"
                cure = "reduce=True adds it"
            elif not t.reduce and written.setdefault((t.destination, c), t.source) != t.source:
                rule = f"and so does chip {written[t.destination, c]}: one overwrites the other"
                cure = "reduce=True adds both"
            if rule:
                _wrong(plan, number, f"{_sends(t, c)}, {rule}", cure)
            have[c] = old | mask


def _check_goal(
    plan: Plan, held: dict[int, set[int]], parts: dict[int, dict[int, int]], bit: dict[int, int]
) -> None:
    last = len(plan.steps)
    for group in plan.groups:
        everyone = sum(bit[chip] for chip in group)
        for chip in group:
            for c in plan.goal(chip):
                if c not in held[chip]:
                    rule = f"after the last step chip {chip} does not hold chunk {c}"
                    _wrong(plan, last, f"{rule}, which {plan.collective} should give it")
                missing = everyone & ~parts[chip][c] if parts else 0
                if missing:
                    rule = f"after the last step chunk {c} on chip {chip} lacks the part of"
                    _wrong(plan, last, f"{rule} {_chips(plan, missing)}")


def _sends(t: Transfer, c: int) -> str:
    return f"chip {t.source} sends chunk {c} to chip {t.destination}"


def _chips(plan: Plan, mask: int) -> str:
    chips = [chip for i, chip in enumerate(plan.topology.chips) if mask >> i & 1]
    return ("chip " if len(chips) == 1 else "chips ") + ", ".join(map(str, chips))


def _wrong(plan: Plan, number: int, rule: str, cure: str = "") -> NoReturn:
    asked = f"step {number} of {len(plan.steps)} of {plan.collective} on {plan.topology!r}"
    fail(asked, rule, cure)
