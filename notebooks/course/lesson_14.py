"""Lesson 14, pipeline parallel: its exercises."""

from typing import Any

from ttkit.lessons import CheckFailed
from ttkit.lessons.exercises import Exercise
from ttkit.plans import Schedule, one_f_one_b
from ttkit.visualize.widgets.builder import ScheduleEditor

FIRST = "F0 F1 F2 B0 F3 B1 B2 B3"  # The first and the last stage have this order.
BROKEN = (FIRST, "F0 F1 B0 F2 B1 F3 B2 B3", FIRST)


# ---------------------------------------------------------------- 14.loop
def _row(stages, micro_batches, stage) -> list[str]:
    """Return the actions of a stage, each as a text. More stages only make the warm-up longer."""
    return list(map(str, one_f_one_b(stages, micro_batches).actions[stage]))


Exercise(
    "14.loop",
    asks="actions(stages, micro_batches, stage)",
    reference=_row,
    cases=[(4, 8, 1), (4, 8, 3), (2, 5, 0), (4, 2, 0)],
    mistakes={
        "one warm-up forward too many: it holds too much": lambda p, *case: _row(p + 1, *case),
        "the first backward comes late, as in GPipe": lambda p, m, s: _row(p + m, m, s),
        "the cool-down is missing": lambda *case: _row(*case)[:-2],  # as in the first case
    },
    praise="these are the lists of 1F1B, also with fewer micro-batches than stages",
    hints=[
        "How many stages come after this one? How many forwards are in its warm-up?",
        "It does min(stages - 1 - stage, micro_batches) of them. Which B follows the next F?",
        "After `ahead` forwards, B(i) follows F(ahead + i). The last `ahead` backwards are left.",
    ],
)


# ---------------------------------------------------------------- 14.repair
def _repaired(answer) -> Schedule:
    if not (isinstance(answer, (tuple, list)) and len(answer) == 2):
        raise CheckFailed("answer with a pair: the number of the stage, and its list of actions")
    stage, row = answer
    if stage not in range(len(BROKEN)):
        raise CheckFailed(f"there is no stage {stage!r}; the number of the stage is 0, 1 or 2")
    rows: Any = [*BROKEN[:stage], row, *BROKEN[stage + 1 :]]
    return Schedule("yours", 3, 4, rows)


def worse(schedule: Schedule, build=one_f_one_b) -> str:
    """Return how a schedule is worse than the one that is built; "" if it is not worse."""
    good = build(schedule.stages, schedule.micro_batches)
    if problem := ScheduleEditor(schedule).problem:
        return problem
    both = zip(schedule.peak_activations(), good.peak_activations())
    for stage, (held, room) in enumerate(both):
        if held > room:
            return f"stage {stage} holds {held:g}; there is room for {room:g}"
    bubble, most = (each.timeline().bubble_fraction for each in (schedule, good))
    if bubble <= most + 1e-9:
        return ""
    return f"it works, but the bubble is {bubble:.1%} of the time; the limit is {most:.1%}"


Exercise(
    "14.repair",
    asks="the pair",
    reads=_repaired,
    rules=worse,
    praise="that was the faulty stage",
    hints=[
        "Look at the boxes outlined in red: what does each stage wait for, and which one sends it?",
        "How many forwards does the last stage do before B0? Does a stage follow it?",
        "The last stage can do B0 right after F0. Write its whole list in this way.",
    ],
)
