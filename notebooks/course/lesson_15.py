"""Lesson 15, pipeline schedules: its exercises."""

from course.lesson_14 import worse
from ttkit.lessons import CheckFailed
from ttkit.lessons.exercises import Challenge, Exercise
from ttkit.plans import Schedule, zb_h1
from ttkit.visualize.widgets.builder import ScheduleEditor

STAGES, MICRO_BATCHES, ROOM = 4, 6, 3  # of the challenge 15.room


# ---------------------------------------------------------------- 15.halves
Exercise(
    "15.halves",
    asks="the schedule",
    reads=lambda rows: Schedule("yours", 2, 3, rows),
    rules=lambda schedule: worse(schedule, zb_h1),
    praise="the bubble is that of ZB-H1, and no stage holds more",
    hints=[
        "Stage 0 waits for I0 of stage 1. How early can stage 1 do it?",
        "Which stage should do I1 before W0? It holds two then: what must come before its F2?",
        "Stage 0 does F0 F1, then I0 W0, F2, I1 W1, I2 W2. Stage 1 does W0 only after I1.",
    ],
)


# ---------------------------------------------------------------- 15.room
def _schedule(answer) -> Schedule:
    """Return the schedule of an answer: a schedule, an editor of one, or a text for each stage."""
    found = getattr(answer, "schedule", answer)
    if not isinstance(found, Schedule):
        return Schedule("yours", STAGES, MICRO_BATCHES, found)
    if (found.stages, found.micro_batches) != (STAGES, MICRO_BATCHES):
        asked = f"{STAGES} stages and {MICRO_BATCHES} micro-batches are asked for"
        raise CheckFailed(f"{asked}; yours has {found.stages} and {found.micro_batches}")
    return found


def _bubble(answer) -> tuple[float, str]:
    schedule = _schedule(answer)
    if full := ScheduleEditor(schedule, ROOM).problem:
        raise CheckFailed(full)
    held = ", ".join(f"{most:g}" for most in schedule.peak_activations())
    return schedule.timeline().bubble_fraction, f"{schedule.name}: the stages hold {held}"


# Stage 0 waits for four slots before I0. Its F5 must come after W2, because there is room for only
# three micro-batches. W2 is at least the eleventh action of stage 0, so F5 ends after 16 slots at
# the earliest. I5 starts six slots later, and W5 follows it. So no schedule of this kind takes
# fewer than 24 slots.
HALVES = (
    "F0 F1 F2 I0 W0 F3 I1 I2 W1 F4 W2 F5 I3 W3 I4 W4 I5 W5",
    "F0 F1 F2 I0 W0 I1 I2 F3 W1 W2 F4 F5 I3 W3 I4 W4 I5 W5",
    "F0 F1 F2 I0 W0 I1 I2 W1 W2 F3 F4 I3 F5 I4 W3 I5 W4 W5",
    "F0 I0 F1 F2 I1 I2 W0 W1 W2 F3 I3 W3 F4 I4 F5 I5 W4 W5",
)

Challenge(
    "15.room",
    asks=f"{STAGES} stages, {MICRO_BATCHES} micro-batches, room for {ROOM}: the smallest bubble",
    score=_bubble,
    unit="{:.1%} bubble",
    reference=lambda: HALVES,
)
