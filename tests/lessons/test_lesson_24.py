"""Lessons 23 and 24: their exercises with right and with wrong answers."""

import pytest
from answers import both

from course import lesson_24
from ttkit.lessons import check
from ttkit.train.config.layout import Layout

BEST = "DP8 TP4 ZeRO-3 SP recompute"
SLOWER = "DP4 TP4 PP2 ZeRO-3 SP recompute interleaved-2 2 micro-batches"


@pytest.fixture(scope="module", autouse=True)
def planned():
    """The search of all layouts takes long and is made once: these tests share a process."""
    return lesson_24._planned()


LAYOUT = Layout(dp=8, tp=4, zero=3, sequence_parallel=True, recompute=True)


test_a_right_answer_passes, test_a_wrong_answer_is_told_where = both(
    {
        "23.longer": ([8, 8.0], {"twice as many tokens": 4, "divides the inputs, too": 16}),
        "24.layout": (
            [
                (BEST, "computing"),
                ["recompute SP ZeRO-3 TP4 DP8", "computing"],
                (LAYOUT, " Computing"),
                ("DP8 TP4 ZeRO-3 recompute", "computing"),
            ],
            {
                "what binds must be one of computing, links, bubble, memory": (BEST, "network"),
                "cannot run: tp 16 does not divide num_groups 8": ("DP2 TP16", "links"),
                f"{SLOWER} fits and trains": (SLOWER, "links"),
                "the limit is not bubble": (BEST, "bubble"),
                "the limit is not links": (BEST, "links"),
                "the limit is not memory": (BEST, "memory"),
            },
        ),
    }
)


def test_a_layout_that_is_not_in_the_table_is_named():
    with pytest.raises(RuntimeError, match=r"'DP16 SP'.*has this name"):
        check("24.layout", ("DP16 SP", "memory"))
