"""Lesson 15: its exercise with right and with wrong answers."""

from answers import both

test_a_right_answer_passes, test_a_wrong_answer_is_told_where = both(
    {
        "15.bubble": (
            [
                lambda p, m, v: (p - 1) / (v * m + p - 1),
                lambda p, m, v: 1 - v * m / (v * m + p - 1),
            ],
            {"bubble(2, 4, 1) should be 0.2, but is 0.5": lambda p, m, v: (p - 1) / p},
        )
    }
)
