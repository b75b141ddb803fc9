"""Lesson 15: its exercise with right and with wrong answers."""

from answers import both

FIRST = "F0 F1 I0 W0 F2 I1 W1 I2 W2"

test_a_right_answer_passes, test_a_wrong_answer_is_told_where = both(
    {
        "15.halves": (
            [[FIRST, "F0 I0 F1 I1 W0 F2 I2 W1 W2"], (FIRST.split(), "F0 I0 F1 I1 W0 F2 I2 W2 W1")],
            {
                "stage 1 holds 3; there is room for 2": [FIRST, "F0 I0 F1 I1 F2 I2 W0 W1 W2"],
                "25.0% of the time": ["F0 F1 B0 F2 B1 B2", "F0 B0 F1 B1 F2 B2"],
            },
        )
    }
)
