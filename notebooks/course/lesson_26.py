"""Lesson 26, serving a model: its exercise."""

from ttkit.lessons.exercises import Exercise


def _reads(heads: int, kv_heads: int, chips: int) -> list[list[int]]:
    each, sharing = heads // chips, heads // kv_heads
    starts = range(0, heads, each)
    return [sorted({head // sharing for head in range(i, i + each)}) for i in starts]


Exercise(
    "26.reads",
    asks="reads(heads, kv_heads, chips)",
    reference=_reads,
    cases=[(16, 4, 8), (32, 8, 32), (32, 8, 4), (12, 4, 6), (24, 8, 4), (71, 1, 71)],
    reads=lambda found, *_: [list(map(int, each)) for each in found],
    mistakes={
        "neighbouring chips share a head; they do not take turns": lambda heads, kv_heads, chips: [
            [chip % kv_heads] for chip in range(chips)
        ],
        "these are the query heads": lambda heads, kv_heads, chips: _reads(heads, heads, chips),
    },
    praise="each chip has the heads that its queries use",
    hints=[
        "How many query heads does a chip have? How many query heads share one head of keys?",
        "Query head h uses head h // (heads // kv_heads).",
        "For chip c, take the query heads from c * heads // chips on; a set keeps each once.",
    ],
)
