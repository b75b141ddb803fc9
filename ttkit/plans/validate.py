"""What a plan must keep to: real cables, chunks that are held, every contribution once, no more
messages than links.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NoReturn

from ttkit.errors import fail

Plan = Any  # It is that of plans.plan, which imports this module.
Step = Any
Transfer = Any


def validate(plan: Plan) -> None:
    """Raise at the first thing that is wrong in a plan, naming chip, chunk and step."""
    bit = {chip: 1 << i for i, chip in enumerate(plan.topology.chips)}
    # `parts` says whose contributions are in a chunk on a chip, with one bit for each chip.
    parts = plan.before(lambda chip, c: bit[chip]) if plan.adds else {}
    held = {chip: set(chunks) for chip, chunks in plan.before(lambda chip, c: True).items()}
    for number, step in enumerate(plan.steps, 1):
        for t in step:
            _check_transfer(plan, number, t, held)
        _check_load(plan, number, step)
        if plan.adds:
            _add_up(plan, number, step, parts)
        for t in step:
            held[t.destination].update(t.chunks)
    _check_goal(plan, held, parts, bit)


def _check_transfer(plan: Plan, number: int, t: Transfer, held: dict[int, set[int]]) -> None:
    """Fail where no cable leads there, or the chip does not have what it sends."""
    topology = plan.topology
    strangers = {t.source, t.destination} - topology.place.keys()
    if strangers:
        rule = f"{_sends(t, t.chunk)}, but there is no chip {strangers.pop()}"
        _wrong(plan, number, rule, f"one of {list(topology.chips)}")
    if not topology.joined(t.source, t.destination):
        rule = f"{_sends(t, t.chunk)}, but no cable joins them"
        near = ", ".join(map(str, topology.neighbours(t.source)))
        cure = f"a neighbour of chip {t.source}: {near}"
        _wrong(plan, number, rule, cure)
    if not held[t.source].issuperset(t.chunks):
        missing = next(c for c in t.chunks if c not in held[t.source])
        rule = f"{_sends(t, missing)}, but does not hold it yet"
        _wrong(plan, number, rule, "send it in an earlier step to this chip first")
    if t.reduce and not plan.adds:
        rule = f"{_sends(t, t.chunk)} with reduce=True, but {plan.collective} adds nothing"
        _wrong(plan, number, rule, "reduce=False")


def _check_load(plan: Plan, number: int, step: Step) -> None:
    links, room = plan.topology.links, plan.topology.links // plan.links
    for (source, destination), n in Counter((t.source, t.destination) for t in step).items():
        if n > room:
            rule = (
                f"chip {source} sends {n} messages to chip {destination}; "
                f"{links} links carry {room} at a time, each over {plan.links}"
            )
            _wrong(plan, number, rule, "another step for some, or one message with several chunks")


def _add_up(plan: Plan, number: int, step: Step, parts: dict[int, dict[int, int]]) -> None:
    """Add what a step brings: no contribution twice, none lost."""
    # Every chip reads what it sends before any chip adds.
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


def _sends(t: Transfer, c: object) -> str:
    return f"chip {t.source} sends chunk {c} to chip {t.destination}"


def _chips(plan: Plan, mask: int) -> str:
    chips = [chip for i, chip in enumerate(plan.topology.chips) if mask >> i & 1]
    return ("chip " if len(chips) == 1 else "chips ") + ", ".join(map(str, chips))


def _wrong(plan: Plan, number: int, rule: str, cure: str = "") -> NoReturn:
    asked = f"step {number} of {len(plan.steps)} of {plan.collective} on {plan.topology!r}"
    fail(asked, rule, cure)
