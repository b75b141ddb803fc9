"""Lesson 21: its exercise with right and with wrong answers."""

import itertools
from collections import Counter

import numpy as np
import pytest
from answers import both

from course.lesson_21 import link_bytes, uneven_traffic
from ttkit.plans import topology


def loads(traffic, chips, placed):
    return sorted(link_bytes(traffic, chips, placed).values(), reverse=True)


def in_order(traffic, chips):
    return np.arange(traffic.shape[1]).reshape(-1, 2).tolist()


def by_swaps(traffic, chips, score=loads):
    placed = in_order(traffic, chips)
    best, better = score(traffic, chips, placed), True
    slots = list(itertools.product(range(len(placed)), range(2)))
    while better:
        better = False
        for (i, a), (j, b) in itertools.combinations(slots, 2):
            placed[i][a], placed[j][b] = placed[j][b], placed[i][a]
            if (now := score(traffic, chips, placed)) < best:
                best, better = now, True
            else:
                placed[i][a], placed[j][b] = placed[j][b], placed[i][a]
    return placed


def by_squares(traffic, chips):
    placed = by_swaps(traffic, chips, lambda *given: sum(n * n for n in loads(*given)))
    return np.array(placed)


def even_work(traffic, chips):
    placed = [[] for _ in chips.chips]
    for expert in np.argsort(-traffic.sum(0)):
        free = [own for own in placed if len(own) < 2]
        min(free, key=lambda own: traffic[:, own].sum()).append(int(expert))
    return placed


def crowded(traffic, chips):
    """All experts where the whole way of their tokens is shortest, however many these are."""
    ways = [[len(chips.route(a, b)) for b in chips.chips] for a in chips.chips]
    home = np.argmin(np.array(ways).T @ traffic, 0)
    return [np.flatnonzero(home == chip).tolist() for chip in range(len(chips.chips))]


test_a_right_answer_passes, test_a_wrong_answer_is_told_where = both(
    {
        "21.place": (
            [by_swaps, by_squares],
            {
                "24,805,376 bytes; 17,363,763 are allowed": in_order,
                "are allowed": even_work,
                "experts; each has memory for 2": crowded,
                "expert 1 is on 0 chips": lambda *given: [[0, 2], *in_order(*given)[1:]],
                "you gave 4 lists of experts for 8 chips": lambda *given: in_order(*given)[:4],
            },
        )
    }
)


@pytest.mark.parametrize(("shape", "seed"), [((1, 8), 1), ((2, 4), 2)])
def test_bytes_on_links_are_those_of_each_tokens_way(shape, seed):
    """Counted otherwise: by link, all chips and experts whose way goes over it."""
    chips = topology("t3000", shape)
    traffic = uneven_traffic(chips, seed)
    placed = even_work(traffic, chips)
    home = {expert: chip for chip, own in zip(chips.chips, placed) for expert in own}
    wanted = Counter()
    for (row, expert), tokens in np.ndenumerate(traffic):
        way = chips.route(chips.chips[row], home[expert])
        wanted.update({link: int(tokens) * 8192 for link in itertools.pairwise(way)})
    assert link_bytes(traffic, chips, placed) == wanted
    assert traffic.shape == (8, 16) and traffic.std(0).min() > 0
