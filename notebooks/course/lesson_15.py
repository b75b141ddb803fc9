"""Lesson 15, pipeline schedules: its exercises."""

from ttkit.lessons import CheckFailed
from ttkit.lessons.exercises import Challenge, Exercise
from ttkit.plans import Schedule, interleaved
from ttkit.visualize.widgets.builder import ScheduleEditor

STAGES, MICRO_BATCHES, ROOM = 4, 6, 3  # of the challenge 15.room


# ---------------------------------------------------------------- 15.bubble
def _waits(stages: int, micro_batches: int, chunks: int) -> float:
    """Return the fraction of the time in which a pipeline waits, from its timetable."""
    schedule = interleaved(stages, micro_batches, chunks)  # With one chunk it waits as 1F1B does.
    return float(schedule.timeline().bubble_fraction)


def _of_the_work(*case: int) -> float:
    return _waits(*case) / (1 - _waits(*case))


Exercise(
    "15.bubble",
    asks="bubble(stages, micro_batches, chunks)",
    reference=_waits,
    cases=[(2, 1, 1), (2, 4, 1), (4, 8, 1), (3, 12, 1), (4, 8, 2), (2, 6, 3), (8, 16, 4)],
    mistakes={
        "that is idle time over work; give idle time over the whole time": _of_the_work,
        "give a fraction, not a percentage": lambda *case: 100 * _waits(*case),
        "chunks make the slots shorter": lambda stages, micro_batches, chunks: _waits(
            stages, micro_batches, 1
        ),
    },
    praise="the formula gives what the timetables of seven pipelines show",
    hints=[
        "A stage works for micro_batches slots. For how many slots does it wait while the "
        "pipeline fills, and while it empties?",
        "Chunks cut each slot into pieces: a stage works for chunks x micro_batches short slots. "
        "How long, in short slots, does it wait now?",
        "Idle slots over all slots: stages - 1 are idle. How many are there in all?",
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
