"""Lesson 14: its exercises with right and with wrong answers."""

from answers import both

test_a_right_answer_passes, test_a_wrong_answer_is_told_where = both(
    {
        "15.bubble": (
            [
                lambda p, m, v: (p - 1) / (v * m + p - 1),
                lambda p, m, v: 1 - v * m / (v * m + p - 1),
            ],
            {"bubble(2, 4, 1) should be 0.2, but is 0.5": lambda p, m, v: (p - 1) / p},
        ),
        "14.repair": (
            [(2, "F0 B0 F1 B1 F2 B2 F3 B3"), [2, ["F0", "B0", "F1", "B1", "F2", "B2", "F3", "B3"]]],
            {
                "the bubble is 45.5% of the time; the limit is 33.3%": (
                    2,
                    "F1 B1 F0 B0 F2 B2 F3 B3",
                ),
                "there is no stage 3": (3, "F0 B0 F1 B1 F2 B2 F3 B3"),
                "micro-batch 3 has no action": (2, "F0 B0 F1 B1 F2 B2"),
                "stage 2 holds 2; there is room for 1": (2, "F0 F1 B0 F2 B1 F3 B2 B3"),
                "waits for": (0, "F0 B0 F1 B1 F2 B2 F3 B3"),
            },
        ),
    }
)
