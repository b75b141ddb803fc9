"""Lesson 14: its exercises with right and with wrong answers."""

from answers import both

from ttkit.plans import one_f_one_b

test_a_right_answer_passes, test_a_wrong_answer_is_told_where = both(
    {
        "14.loop": (
            [lambda p, m, s, a=a: a(map(str, one_f_one_b(p, m).actions[s])) for a in (list, tuple)],
            {"should be a list of 16": lambda *_: "F0 F1 F2 B0"},
        ),
        "14.repair": (
            [(2, "F0 B0 F1 B1 F2 B2 F3 B3"), [2, ["F0", "B0", "F1", "B1", "F2", "B2", "F3", "B3"]]],
            {
                "is 45.5% of the time; the limit is 33.3%": (2, "F1 B1 F0 B0 F2 B2 F3 B3"),
                "there is no stage 3": (3, "F0 B0 F1 B1 F2 B2 F3 B3"),
                "micro-batch 3 has no action": (2, "F0 B0 F1 B1 F2 B2"),
                "stage 2 holds 2; there is room for 1": (2, "F0 F1 B0 F2 B1 F3 B2 B3"),
                "waits for": (0, "F0 B0 F1 B1 F2 B2 F3 B3"),
            },
        ),
    }
)
