"""Whose plan is it? What checks of plans look at: steps that the library made are no answer."""

from __future__ import annotations

import dis
import functools
from collections.abc import Iterator
from contextlib import contextmanager
from types import CellType, CodeType, FunctionType
from typing import Any
from unittest.mock import patch

from ttkit import plans
from ttkit.lessons import CheckFailed, require
from ttkit.lessons.answers import Answer
from ttkit.plans import collectives


@contextmanager
def library_plans() -> Iterator[list[plans.Plan]]:
    """Record the plans that the library makes inside the block, whoever asks for them."""
    made: list[plans.Plan] = []
    finish = collectives._finished

    def recorded(*args: Any) -> plans.Plan:
        made.append(finish(*args))
        return made[-1]

    with patch.object(collectives, "_finished", recorded):
        yield made


def _shape(steps: Any) -> list[list[tuple[int, int, tuple[int, ...]]]]:
    """Return steps with the chips numbered as they appear, so that relabelled copies are alike."""
    number: dict[int, int] = {}
    return [
        [
            (*(number.setdefault(c, len(number)) for c in (t.source, t.destination)), t.chunks)
            for t in s
        ]
        for s in steps
    ]


def _globals_of(code: CodeType) -> Iterator[str]:
    """Yield the names of the global variables that code reads."""
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield step.argval
        if isinstance(step.argval, CodeType):
            yield from _globals_of(step.argval)


def _content(cell: CellType) -> list[Any]:
    """Return what a variable of an enclosing function holds; nothing before it has a value."""
    try:
        return [cell.cell_contents]
    except ValueError:
        return []


def _used(value: Any, seen: set[int], home: str) -> Iterator[Any]:
    """Yield what an answer uses from outside: in variables, defaults, helpers and containers.

    Args:
        home: the module of the answer, whose classes and objects are looked into.
    """
    if id(value) in seen:
        return
    seen.add(id(value))
    yield value
    inner: list[Any] = []
    if isinstance(value, FunctionType) and not f"{value.__module__}".startswith("ttkit."):
        cells = [each for cell in value.__closure__ or () for each in _content(cell)]
        named = [value.__globals__.get(name) for name in _globals_of(value.__code__)]
        inner = [
            *cells,
            *named,
            *(value.__defaults__ or ()),
            *(value.__kwdefaults__ or {}).values(),
        ]
        inner += value.__dict__.values()
    elif isinstance(value, functools.partial):
        inner = [value.func, *value.args, *value.keywords.values()]
    elif isinstance(value, (list, tuple, set)):
        inner = list(value)
    elif isinstance(value, dict):
        inner = list(value.values())
    elif getattr(value, "__module__", None) == home:  # a class, its object, a method or a cache
        inner = [getattr(value, name, None) for name in ("__self__", "__func__", "__wrapped__")]
        inner += [type(value), *getattr(value, "__dict__", {}).values()]
    for one in inner:
        yield from _used(one, seen, home)


def _copied(steps: Any) -> bool:
    """Return whether these are steps of a library's plan: its transfers, in its order.

    Written by hand, a transfer has no bytes before it is in a plan.
    """
    if not isinstance(steps, (tuple, list)) or not steps:
        return False
    rows = [list(s) if isinstance(s, (plans.Step, tuple, list)) else [] for s in steps]
    planned = [isinstance(t, plans.Transfer) and t.bytes is not None for row in rows for t in row]
    return all(rows) and all(planned) and _shape(rows) in _library_shapes()


def require_own(answer: Answer, given: list[Any], made: list[plans.Plan]) -> None:
    """Refuse a plan whose steps the library made, while the answer ran or before."""
    own = "write the steps yourself, as lists of Transfer"
    if made:
        raise CheckFailed(
            f"while {answer.name} ran, the library made a plan for {made[0].collective}: {own}"
        )
    for used in _used(answer.function, set(), getattr(answer.function, "__module__", "")):
        if isinstance(used, plans.Plan) and used.algorithm != "by hand":
            raise CheckFailed(f"{answer.name} uses a plan of the library, {used!r}: {own}")
        require(not _copied(used), f"{answer.name} uses the steps of a plan of the library: {own}")
    copied = any(map(_copied, given))
    require(not copied, f"the steps were copied from a plan of the library: {own}")


@functools.cache
def _library_shapes() -> list[Any]:
    """Return the steps that the library has for a row of four, forwards and backwards."""
    row, found = plans.topology("t3000", (1, 4)), []
    made = [plans.all_gather(row, 64, 1), plans.reduce_scatter(row, 64, 1)]
    made += [plans.broadcast(row, 64, root, 1) for root in range(4)]
    for plan in made:
        found += [_shape(plan.steps), _shape(plan.steps[::-1])]
    return found


@contextmanager
def as_given() -> Iterator[list[Any]]:
    """Note the steps that plans are made of inside the block, as they were written."""
    given: list[Any] = []
    prepare = plans.Plan.__post_init__

    def noted(plan: plans.Plan) -> None:
        given.append(plan.steps)
        prepare(plan)

    with patch.object(plans.Plan, "__post_init__", noted):
        yield given
