"""Lesson 19: its exercises with right and with wrong answers."""

import pytest
from answers import both

from course import lesson_19
from ttkit.lessons import check
from ttkit.train.config.layout import Layout

SLOWER = "DP8 TP4 PP2 ZeRO-3 SP recompute 16 micro-batches"
BEST = "TP8 PP8 SP recompute interleaved-2 32 micro-batches"


@pytest.fixture(scope="module", autouse=True)
def planned():
    """The search of all layouts takes long and is made once: these tests share a process."""
    return lesson_19._planned()


SIZES = {"tp": 8, "pp": 8, "chunks": 2, "micro_batches": 32}
LAYOUT = Layout(**SIZES, sequence_parallel=True, recompute=True, schedule="interleaved")


test_a_right_answer_passes, test_a_wrong_answer_is_told_where = both(
    {
        "19.layout": (
            [
                (BEST, "pp", "chip links"),
                ["32 micro-batches recompute interleaved-2 SP PP8 TP8", "pp", "chip links"],
                (LAYOUT, "PP ", "Chip links"),
            ],
            {
                "is not 'tp': the tensor-parallel sums": (BEST, "tp", "chip links"),
                "the hosts have no replicas of their own": (BEST, "dp", "chip links"),
                "between the hosts lies one of pp, dp, tp, cp": (BEST, "host", "chip links"),
                "what binds is one of chip links, ": (BEST, "pp", "memory"),
                "cannot run: tp 16 does not divide num_groups 8": ("TP16 PP4", "pp", "optimizer"),
                f"{SLOWER} fits and trains": (SLOWER, "pp", "optimizer"),
                "weights is not the limit: of a chip's GB": (BEST, "pp", "weights"),
                "bubble is not the limit": (BEST, "pp", "bubble"),
                "a step would be 1.01 times as fast": (BEST, "pp", "network"),
                "64 micro-batches would be 1.22 times": (BEST, "pp", "optimizer"),
            },
        )
    }
)


def test_the_praise_names_what_binds(capsys):
    check("19.layout", (BEST, "pp", "chip links"))
    assert "chip links 1.31, network 1.01, bubble 1.11: chip links binds" in " ".join(
        capsys.readouterr().out.split()
    )


def test_a_layout_that_is_not_in_the_table_is_named():
    with pytest.raises(RuntimeError, match=r"'TP8 PP8'.*begin with TP8 PP8 SP"):
        check("19.layout", ("TP8 PP8", "pp", "optimizer"))
