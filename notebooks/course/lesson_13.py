"""Lesson 13, fully sharded data parallel: its exercise."""

from ttkit.lessons.exercises import Exercise

# ---------------------------------------------------------------- 13.smallest
# A parameter takes these bytes for its weight, its gradient and the state of AdamW.
BYTES = {"float32": (4, 4, 8), "bfloat16": (2, 2, 12)}


def _stages(parameters: int, groups: int, parts: int, precision: str, room: float) -> list[int]:
    """Return the ZeRO stages with which the model fits in `room` bytes on each chip."""
    fits = []
    for stage in range(4):
        cuts = [groups if stage >= at else 1 for at in (3, 2, 1)]
        each = sum(size / cut for size, cut in zip(BYTES[precision], cuts))
        if parameters / parts * each <= room:
            fits.append(stage)
    return fits


def _smallest(*case) -> int | None:
    return min(_stages(*case), default=None)


Exercise(
    "13.smallest",
    asks="smallest(parameters, groups, parts, precision, room)",
    reference=_smallest,
    cases=[
        (7_500_000_000, 64, 1, "bfloat16", 32e9),
        (8_030_261_248, 4, 8, "float32", 10e9),
        (8_030_261_248, 4, 8, "float32", 11e9),
        (1_000_000_000, 8, 1, "float32", 16e9),  # Stage 0 needs exactly 16e9 bytes.
        (70_000_000_000, 4, 8, "bfloat16", 12e9),
        (1_000_000_000, 1, 8, "bfloat16", 1.5e9),
    ],
    mistakes={
        "no stage fits, so the answer is None": lambda *case: None if _stages(*case) else 3,
        "that one fits, but a smaller stage fits, too": lambda *case: max(
            _stages(*case), default=None
        ),
        "tensor parallelism also cuts the model into {parts} parts": lambda p, g, t, *more: (
            _smallest(p, g, 1, *more)
        ),
        "ZeRO divides over the {groups} replicas only": lambda p, g, t, *more: _smallest(
            p, g * t, t, *more
        ),
        "a model that needs exactly `room` bytes fits": lambda p, g, t, precision, room: _smallest(
            p, g, t, precision, room - 1
        ),
    },
    praise="the smallest stage in 6 cases",
    hints=[
        "What does tensor parallelism do to the weights, gradients and moments of a chip?",
        "bytes_each(stage, n, precision) is for one parameter. Which number of chips is n?",
        "for stage in range(4): does parameters / parts * bytes_each(stage, groups, precision) "
        "fit?",
    ],
)
