"""Lesson 12: its exercises with right and with wrong answers."""

from answers import both

from ttkit.plans import gpipe, one_at_a_time, one_f_one_b
from ttkit.visualize.widgets.builder import ScheduleEditor


def edited():
    editor = ScheduleEditor(one_f_one_b(4, 6), room=3)
    editor.move(0, "F3", 4).move(0, "F4", 6).move(0, "F5", 8)
    return editor.move(1, "B1", 4).move(1, "B2", 6).move(2, "B2", 5)


# GPipe of three micro-batches, and once more
TWICE = ["F0 F1 F2 B0 B1 B2 F3 F4 F5 B3 B4 B5"] * 4

test_a_right_answer_passes, test_a_wrong_answer_is_told_where = both(
    {
        "12.bubble": (
            [
                lambda p, m, v: (p - 1) / (v * m + p - 1),
                lambda p, m, v: 1 - v * m / (v * m + p - 1),
            ],
            {"bubble(2, 4, 1) should be 0.2, is 0.5": lambda p, m, v: (p - 1) / p},
        ),
        "12.budget": (
            [
                edited(),
                edited().schedule,
                [" ".join(map(str, row)) for row in edited().schedule.actions],
            ],
            {
                "after action 4, F3, it holds the activations of 4": one_f_one_b(4, 6),
                "the memory is for 3": gpipe(4, 6),
                "75.0% of the time is bubble; at most 40.0% may be": one_at_a_time(4, 6),
                "The longest wait: stage 0": TWICE,
                "4 stages and 6 micro-batches are asked for; yours has 4 and 5": gpipe(4, 5),
                "micro-batch 5": ["F0 F1 F2 B0 B1 B2 F3 F4 B3 B4"] * 4,
            },
        ),
        "12.repair": (
            [(2, "F0 B0 F1 B1 F2 B2 F3 B3"), [2, ["F0", "B0", "F1", "B1", "F2", "B2", "F3", "B3"]]],
            {
                "45.5% of the time is bubble; at most 33.3%": (2, "F1 B1 F0 B0 F2 B2 F3 B3"),
                "there is no stage 3": (3, "F0 B0 F1 B1 F2 B2 F3 B3"),
                "micro-batch 3 has no action": (2, "F0 B0 F1 B1 F2 B2"),
                "the memory is for 1": (2, "F0 F1 B0 F2 B1 F3 B2 B3"),
                "waits for": (0, "F0 B0 F1 B1 F2 B2 F3 B3"),
            },
        ),
    }
)
