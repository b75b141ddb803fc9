"""Lesson 23, choosing a layout: its exercise and its open challenges."""

import functools
from collections.abc import Callable

from ttkit.layouts.search import plan_layouts
from ttkit.lessons import CheckFailed
from ttkit.lessons.exercises import Challenge, Exercise
from ttkit.lessons.folder import course

# ---------------------------------------------------------------- 23.longer
Exercise(
    "23.longer",
    asks="the number of chips",
    # 4.0 GB, and 33.7 of inputs and logits: with 4 chips 12.4 in all, with 8 chips 8.2.
    reference=lambda: 8,
    mistakes={
        "a sequence has twice as many tokens": lambda: 4,
        "CP divides the inputs, too": lambda: 16,
    },
    praise="with half as many, a chip would hold 12.4 GB",
    hints=[
        "Which of the three kinds of memory grow with a sequence? Which of them does CP divide?",
        "With n chips: state + 2 * (inputs + logits) / n, with the parts of DP32 ZeRO-3 above.",
    ],
)


# ---------------------------------------------------------------- the challenges
MODEL = str(course() / "configs/models/llama8b.yaml")
MOST = 64


def _scored(figure: Callable, answer) -> tuple[float, str]:
    """Return the score of an answer, a batch and a layout, and a text that names them.

    Args:
        figure: a function from the planner's figures of the layout to the score.
    """
    batch, layout = answer
    if batch not in range(1, MOST + 1):
        raise CheckFailed(f"the batch must be 1 to {MOST} sequences, not {batch!r}")
    plans = plan_layouts(MODEL, "galaxy", batch=batch, overlap=True)
    found = plans.find(str(layout))
    if found.refused:
        raise CheckFailed(f"{layout} cannot run: {found.refused}")
    return figure(plans.figures_of(found)), f"batch {batch}, {layout}"


Challenge(
    "23.speed",
    asks="Llama-8B on a Galaxy: the most tokens in a second",
    score=functools.partial(_scored, lambda found: found["tokens_per_s"]),
    unit="{:,.0f} tokens/s",
    reference=lambda: (32, "DP32 ZeRO-3 recompute"),
    higher=True,
)
Challenge(
    "23.bytes",
    asks="Llama-8B on a Galaxy: the fewest bytes that a chip sends for a token",
    score=functools.partial(
        _scored, lambda found: found["sent"] / found["step_s"] / found["tokens_per_s"]
    ),
    unit="{:,.0f} bytes",
    reference=lambda: (
        24,
        "TP2 PP8 CP2 ZeRO-2 SP recompute blocks-3+4+4+4+5+5+5+2 8 micro-batches",
    ),
)
