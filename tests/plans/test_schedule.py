"""Schedules written by hand: twenty-odd wrong ones, each refused by stage, action and rule; and
that right ones run in any order of events.
"""

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ttkit.errors import TTKitError
from ttkit.plans import Action, Schedule, gpipe, interleaved, one_at_a_time, one_f_one_b, zb_h1


def by_hand(*rows, micro_batches=2, chunks=1):
    return Schedule("mine", len(rows), micro_batches, rows, chunks)


def changed(schedule, stage, change):
    """A schedule with one stage's list changed."""
    rows = [list(row) for row in schedule.actions]
    rows[stage] = change([str(action) for action in rows[stage]])
    return Schedule("mine", schedule.stages, schedule.micro_batches, rows, schedule.chunks)


def swapped(schedule, stage, one, other):
    return changed(
        schedule, stage, lambda row: [{one: other, other: one}.get(text, text) for text in row]
    )


def without(schedule, stage, *gone):
    return changed(schedule, stage, lambda row: [text for text in row if text not in gone])


ONE = one_f_one_b(4, 8)
ZERO = zb_h1(4, 8)
CHUNKED = interleaved(2, 4, 2)
RIGHT = "F0 B0 F1 B1"
CROSSED = by_hand("F0 B0 F1 B1", "F0 F1 B0 B1")
NEXT_ROUND = by_hand("F0 1F0 F1 1F1 1B0 B0 1B1 B1", "F1 F0 1F0 1F1 1B0 B0 1B1 B1", chunks=2)
ACTIVATIONS, GRADIENTS = (
    f"waits for the {what} of micro-batch" for what in ("activations", "gradients")
)
# name: the schedule, the stage that is named, and what is said
WRONG = {
    "a forward left out": (without(ONE, 2, "F5"), 2, "micro-batch 5 has B5; a stage does F5 and B5"),
    "a micro-batch left out": (without(ONE, 3, "F2", "B2"), 3, "micro-batch 2 has no action"),
    "a weight gradient left out": (without(ZERO, 1, "W3"), 1, "micro-batch 3 has F3 and I3;", "I3 and W3"),
    "a forward twice": (by_hand(RIGHT, "F0 F0 B0 F1 B1"), 1, "micro-batch 0 has F0 and F0 and B0"),
    "a backward and its part": (by_hand(RIGHT, "F0 B0 W0 F1 B1"), 1, "micro-batch 0 has F0 and B0 and W0"),
    "a backward before its forward": (swapped(ONE, 3, "F0", "B0"), 3, "B0 (backward of micro-batch 0) needs F0"),
    "a weight gradient before the input's": (
        swapped(ZERO, 0, "I2", "W2"), 0, "W2", "needs I2 (input gradient of micro-batch 2), which comes after it",
    ),
    "chunks the wrong way": (swapped(CHUNKED, 0, "F1", "1F1"), 0, "a deadlock", f"at 1F1 {ACTIVATIONS} 1 from stage 1"),
    "a micro-batch that is not there": (
        by_hand(RIGHT, RIGHT + " F2 B2"), 1, "F2 (forward of micro-batch 2)", "2 micro-batches and 1 chunk, counted from 0",
    ),
    "the lists of the stages the wrong way round": (
        Schedule("mine", 4, 8, ONE.actions[::-1]), 0,
        "a deadlock", f"stage 0 at B0 {GRADIENTS} 0 from stage 1", f"{ACTIVATIONS} 1 from stage 0",
    ),
    "two stages that wait for each other": (
        CROSSED, 0, f"stage 0 at B0 {GRADIENTS} 0 from stage 1; stage 1 at F1 {ACTIVATIONS} 1",
        "try: put B0 of stage 1 before its F1, or F1 of stage 0 before its B0",
    ),
    "chunks that wait for the next round": (
        NEXT_ROUND, 0, "a deadlock", f"stage 0 at 1F0 {ACTIVATIONS} 0 from stage 1", "stage 1 at F1 waits",
        "try: put F0 of stage 1 before its F1, or F1 of stage 0 before its 1F0",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_schedule_is_refused_with_stage_and_action(name):
    schedule, stage, *phrases = WRONG[name]
    for ask in (schedule.validate, schedule.timeline):
        with pytest.raises(TTKitError) as refused:
            ask()
        for phrase in (f"stage {stage}", *phrases):
            assert phrase in str(refused.value)


@pytest.mark.parametrize(
    ("ask", "phrase"),
    [
        (lambda: Schedule("mine", 2, 2, [RIGHT]), r"2 lists, one for each stage, this is \['F0 B0"),
        (lambda: Schedule("mine", 2, 2, RIGHT), "2 lists, one for each stage, this is 'F0 B0"),
        (lambda: by_hand("F0 X0"), "'X0'.*an action is one of F, B, I, W and a micro-batch's num"),
        (lambda: by_hand("f0"), "the action 'f0'"),
        (lambda: ONE.timeline(forward_s=-1), "forward_s=-1"),
        (lambda: ONE.timeline(forward_s=(1, 2)), r"forward_s=\(1, 2\) .* or 4 of them, one for"),
    ],
)
def test_what_is_no_schedule(ask, phrase):
    with pytest.raises(TTKitError, match=phrase):
        ask()


# ---------------------------------------------------------------- any right schedule
@st.composite
def right_schedules(draw):
    """What comes out when stages do, again and again, something that can be done."""
    stages, micro_batches, chunks = (draw(st.integers(1, most)) for most in (4, 5, 3))
    pick = random.Random(draw(st.integers(0, 2**32)))
    split = pick.choice((0, 0.5, 1))
    parts = stages * chunks
    rows, ready = [[] for _ in range(stages)], [("F", i, 0) for i in range(micro_batches)]
    while ready:
        kind, micro_batch, part = ready.pop(pick.randrange(len(ready)))
        if kind == "B" and pick.random() < split:
            kind = "I"
        rows[part % stages].append(Action(kind, micro_batch, part // stages))
        if kind == "F":
            last = part + 1 == parts
            ready.append(("B", micro_batch, part) if last else ("F", micro_batch, part + 1))
        elif kind in "BI" and part:
            ready.append(("B", micro_batch, part - 1))
        if kind == "I":
            ready.append(("W", micro_batch, part))
    return Schedule("random", stages, micro_batches, rows, chunks)


def comes_to_its_end(schedule, pick):
    """Stages as processes: whoever is not waiting may go on, in any order; a receive waits, a
    send does not.
    """
    at, mail, done = [0] * schedule.stages, set(), set()
    while True:
        free = []
        for stage in range(schedule.stages):
            if at[stage] < len(schedule.actions[stage]):
                action, receive, _ = schedule.tasks(stage)[at[stage]]
                own = {"F": None, "B": "F", "I": "F", "W": "I"}[action.kind]
                if (receive is None or receive in mail) and (
                    own is None or (stage, action._replace(kind=own)) in done
                ):
                    free.append(stage)
        if not free:
            return at == [len(row) for row in schedule.actions]
        stage = pick.choice(free)
        action, _, send = schedule.tasks(stage)[at[stage]]
        done.add((stage, action))
        mail |= {send}
        at[stage] += 1


@given(right_schedules(), st.randoms(use_true_random=False))
def test_a_right_schedule_never_hangs(schedule, pick):
    assert comes_to_its_end(schedule.validate(), pick)
    table = schedule.timeline(6, 18)  # so that a third of each is whole
    assert [tuple(slot.action for slot in row) for row in table.slots] == list(schedule.actions)
    for row in table.slots:
        assert all(one.end_s <= other.start_s for one, other in itertools.pairwise(row))
    work = schedule.micro_batches * 24
    assert table.time_s >= work
    assert table.bubbles == pytest.approx([1 - work / table.time_s] * schedule.stages)


@settings(max_examples=80)
@given(right_schedules(), st.randoms(use_true_random=False))
def test_a_swap_is_refused_where_and_only_where_it_stops(schedule, pick):
    rows = [list(row) for row in schedule.actions]
    for _ in range(pick.randrange(1, 4)):
        row = pick.choice(rows)
        i, j = pick.randrange(len(row)), pick.randrange(len(row))
        row[i], row[j] = row[j], row[i]
    other = Schedule("swapped", schedule.stages, schedule.micro_batches, rows, schedule.chunks)
    try:
        other.validate()
    except TTKitError as refused:
        assert not comes_to_its_end(other, pick) and "stage" in str(refused)
    else:
        assert comes_to_its_end(other, pick)


# ---------------------------------------------------------------- times
def test_stages_of_different_length():
    table = one_at_a_time(3, 2).timeline(forward_s=(1, 2, 3), backward_s=(2, 4, 6))
    assert table.time_s == 2 * 18
    assert table.bubbles == pytest.approx((1 - 3 / 18, 1 - 6 / 18, 1 - 9 / 18))
    assert table.bubble_fraction == pytest.approx(2 / 3)
    # the longest stage is hardly idle
    assert one_f_one_b(3, 64).timeline((6, 7, 5), (12, 14, 10)).bubbles[1] < 0.05


def test_nothing_takes_no_time():
    table = gpipe(2, 2).timeline(0, 0)
    assert table.time_s == 0 and table.bubble_fraction == 0
