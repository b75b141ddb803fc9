"""Lesson 05, what collectives cost: exercises that ask for a number and for a function."""

import dataclasses
import functools
from collections.abc import Callable

from course.lesson_04 import ROWS
from ttkit import plans
from ttkit.lessons.exercises import Exercise
from ttkit.lessons.predicting import as_number

# ---------------------------------------------------------------- 05.crossover
BAND = 0.1  # An answer may differ from the cross-over by 10 %.


def _all_reduce(size: float, algorithm: str) -> plans.Plan:
    return plans.all_reduce(ROWS[1], int(size), 1, algorithm=algorithm)


def _times(size) -> str:
    tree, pair = (1e6 * plans.cost(_all_reduce(size, name)).time_s for name in ("tree", "line"))
    return (
        f"at {int(size):,} bytes a chip the tree takes {tree:.2f} µs, "
        f"scatter and gather {pair:.2f} µs (modelled)"
    )


def _off(answer) -> str:
    """Return why a number of bytes is not the cross-over."""
    size = as_number(answer)
    if size is None or size < 1:
        return f"expected a number of bytes, at least 1, got {answer!r}"
    # Each algorithm is faster at some size, so there is a cross-over.
    want = plans.crossover(lambda n: _all_reduce(n, "tree"), lambda n: _all_reduce(n, "line")) or 0
    if abs(size - want) <= BAND * want:
        return ""
    return f"{_times(size)}: the cross-over is {'higher' if size < want else 'lower'}"


Exercise(
    "05.crossover",
    asks="the number of bytes",
    rules=_off,
    praise=lambda size: f"{_times(size)}; the cross-over is within a tenth of this",
    hints=[
        "Which is faster for 64 bytes, and which for a million?",
        "Print both times for 1024 << i, with i from 0 to 9. Between which sizes does the winner "
        "change?",
        "ttkit.plans.crossover(small, large) finds it; both arguments are functions that build a "
        "plan for n bytes.",
    ],
)


# ---------------------------------------------------------------- 05.price
# No real link has this latency and rate, so an answer must use its arguments.
LATENCY_S, BYTES_PER_S = 2e-6, 4e9
Sizes = list[int]


def _price(plan: plans.Plan, latency_s: float, rate: float) -> float:
    return _priced(max, plan, latency_s, rate)


def _priced(of: Callable[[Sizes], float], plan: plans.Plan, latency_s: float, rate: float) -> float:
    """Return the seconds of a plan: for each step the latency and the time to send its size.

    Args:
        of: a function from the bytes of a step's transfers to the size of the step.
    """
    sizes = [of([t.bytes for t in step]) for step in plan.steps]
    return latency_s * len(sizes) + sum(sizes) / plan.links / rate


def _plans() -> list[plans.Plan]:
    t3000 = plans.topology("t3000")
    rim = plans.topology("t3000", (1, 8))
    # In two steps of the turned plan the largest transfer is neither the first nor the last, so an
    # answer must take the maximum.
    uneven = plans.all_to_all(t3000, 240_000)
    turned = [[*step][2:] + [*step][:2] for step in uneven.steps]
    return [
        plans.all_gather(t3000, 240_000),
        plans.all_gather(rim, 240_000, 1, links=1),
        plans.all_reduce(ROWS[0], 240_000, 1, algorithm="tree"),
        dataclasses.replace(uneven, steps=turned),  # type: ignore[arg-type]
    ]


SLOWEST = "a step ends with its slowest pair, the one with the largest transfer"

Exercise(
    "05.price",
    asks="my_price(plan, latency_s, bytes_per_s)",
    reference=_price,
    cases=[(plan, LATENCY_S, BYTES_PER_S) for plan in _plans()],
    mistakes={
        "the latency is paid in each step": lambda plan, latency_s, rate: (
            _price(plan, 0, rate) + latency_s
        ),
        "the latency is missing": lambda plan, latency_s, rate: _price(plan, 0, rate),
        "a transfer uses plan.links links at once": lambda plan, latency_s, rate: _price(
            plan, latency_s, rate / plan.links
        ),
        "transfers of a step happen at the same time": functools.partial(_priced, sum),
        SLOWEST: functools.partial(_priced, lambda sizes: sum(sizes) / len(sizes)),
        "the busiest pair of the whole plan may be idle in a step: each step has its own": (
            lambda plan, latency_s, rate: (
                latency_s * len(plan.steps) + max(plan.bytes_per_link.values()) / plan.links / rate
            )
        ),
        "latency_s and bytes_per_s are swapped": lambda plan, latency_s, rate: _price(
            plan, rate, latency_s
        ),
    },
    rtol=1e-6,
    praise="four plans are priced as sums of steps, each step as slow as its slowest pair",
    hints=[
        "Which transfer of a step takes longest? Do the others make the step longer?",
        "For each step, divide the largest t.bytes by plan.links and by bytes_per_s. Where does "
        "the latency come in?",
        "for step in plan.steps: seconds += latency_s + max(...) / plan.links / bytes_per_s",
    ],
)
