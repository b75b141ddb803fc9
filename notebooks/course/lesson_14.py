"""Lesson 14, pipeline parallel: its exercise about a schedule."""

from typing import Any

from ttkit.lessons import CheckFailed
from ttkit.lessons.exercises import Exercise
from ttkit.plans import Schedule, one_f_one_b
from ttkit.visualize.widgets.builder import ScheduleEditor

FIRST = "F0 F1 F2 B0 F3 B1 B2 B3"  # The first and the last stage have this order.
BROKEN = (FIRST, "F0 F1 B0 F2 B1 F3 B2 B3", FIRST)


# ---------------------------------------------------------------- 14.repair
def _repaired(answer) -> Schedule:
    if not (isinstance(answer, (tuple, list)) and len(answer) == 2):
        raise CheckFailed("answer with a pair: the number of the stage, and its list of actions")
    stage, row = answer
    if stage not in range(len(BROKEN)):
        raise CheckFailed(f"there is no stage {stage!r}; the number of the stage is 0, 1 or 2")
    rows: Any = [*BROKEN[:stage], row, *BROKEN[stage + 1 :]]
    return Schedule("yours", 3, 4, rows)


def _worse(schedule: Schedule) -> str:
    """Return how a schedule is worse than 1F1B; "" if it is not worse."""
    good = one_f_one_b(3, 4)
    if problem := ScheduleEditor(schedule).problem:
        return problem
    both = zip(schedule.peak_activations(), good.peak_activations())
    for stage, (held, room) in enumerate(both):
        if held > room:
            return f"stage {stage} holds {held:g}; there is room for {room:g}"
    bubble, most = (each.timeline().bubble_fraction for each in (schedule, good))
    if bubble <= most + 1e-9:
        return ""
    return f"it is right, but the bubble is {bubble:.1%} of the time; the limit is {most:.1%}"


Exercise(
    "14.repair",
    asks="the pair",
    reads=_repaired,
    rules=_worse,
    praise="that was the faulty stage",
    hints=[
        "Look at the boxes with a red rim: what does each stage wait for, and which one sends it?",
        "How many forwards does the last stage do before B0? Does a stage follow it?",
        "The last stage can do B0 right after F0. Write its whole list in this way.",
    ],
)
