"""Lesson 24, what binds: its exercise."""

import functools

from ttkit.layouts.search import plan_layouts
from ttkit.lessons.exercises import Exercise
from ttkit.lessons.folder import course


# ---------------------------------------------------------------- 24.layout
@functools.cache
def _planned(headroom: float = 0.1):
    """Return the planned layouts of exercise 24.layout."""
    return plan_layouts(
        str(course() / "configs/models/llama70b.yaml"),
        "galaxy_bh",
        batch=8,
        sequence=4096,
        precision="bfloat16",
        optimizer={"type": "AdamW", "master_weights": False},
        headroom=headroom,
        overlap=True,
    )


def _gains() -> dict[str, float]:
    """Return for each limit how many times as fast a step would be without this limit."""
    best = _planned().best
    spent, total = best.times, best.times.total
    # Communication that overlaps with computing would still take its time without computing, so
    # this time is not gained.
    waits = {
        "computing": spent.compute - spent.hidden,
        "links": spent.communication,
        "bubble": spent.bubble,
    }
    gains = {name: total / (total - wait) for name, wait in waits.items()}
    return gains | {"memory": _planned(headroom=-0.8).best.tokens_per_s / best.tokens_per_s}


def _broken(found) -> str:
    """Return what is wrong with an answer: with its layout, or with the limit that it names."""
    (mine, binding), plans = found, _planned()
    if mine.refused:
        return f"{mine.layout} cannot run: {mine.refused}"
    if not plans.ties(mine):
        return (
            f"{mine.layout} fits and trains {mine.tokens_per_s:,.0f} tokens/s; another one "
            f"that fits is {plans.best.tokens_per_s / mine.tokens_per_s:.2f} times as fast"
        )
    gains = _gains()
    if binding not in gains:
        return f"what binds must be one of {', '.join(gains)}, not {binding!r}"
    if gains[binding] == max(gains.values()):
        return ""
    return (
        f"the limit is not {binding}: without it a step would be "
        f"{gains[binding]:.2f} times as fast; without another one, faster still"
    )


Exercise(
    "24.layout",
    asks="layout, what binds",
    reads=lambda answer: (_planned().find(str(answer[0])), answer[1].strip().lower()),
    rules=_broken,
    praise=lambda found: f"{found[0].layout} is fastest, or ties with it; {found[1]} binds",
    hints=[
        "Which call makes the table? `CASE` has its options.",
        'ttkit.plan_layouts(LLAMA70B, "galaxy_bh", **CASE).best has .layout and .times.',
        "times.total / (times.total - times.bubble) says how many times as fast a step without its "
        "bubble would be. Do the same with times.communication and times.compute - times.hidden, "
        "and compare with tokens_per_s of a plan with headroom=-0.8.",
    ],
)
