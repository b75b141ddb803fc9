"""The exercises of lesson 17: right answers, wrong ones that are told what is wrong, and what its
pictures read.
"""

import itertools
from collections import Counter

import numpy as np
import pytest
from answers import right, wrong

import ttkit
from ttkit.lessons.lesson_17 import CASES, bars, filled, link_bytes, uneven_traffic, watched_choices
from ttkit.plans import topology
from ttkit.train import experts


def positions(tokens, capacity):
    turns, found = Counter(), []
    for expert in tokens:
        found.append(turns[expert] if turns[expert] < capacity else -1)
        turns[expert] += 1
    return found


def as_columns(tokens, capacity):
    """As the kit does it: a column for each expert, and sums down the columns."""
    if not tokens:
        return np.array([])
    chosen = np.eye(max(tokens) + 1)[tokens]
    turn = (np.cumsum(chosen, 0) * chosen).sum(1) - 1
    return np.where(turn < capacity, turn, -1)


def backwards(tokens, capacity):
    return positions(tokens[::-1], capacity)[::-1]


def one_queue(tokens, capacity):
    return [i if i < capacity else -1 for i in range(len(tokens))]


def of_eight_experts(tokens, capacity):
    turns, found = [0] * 8, []
    for expert in tokens:
        found.append(turns[expert] if turns[expert] < capacity else -1)
        turns[expert] += 1
    return found


def remembered(tokens, capacity, turns=Counter()):  # noqa: B006
    """Goes on where the call before it ended."""
    found = []
    for expert in tokens:
        found.append(turns[expert] if turns[expert] < capacity else -1)
        turns[expert] += 1
    return found


def beyond(tokens, capacity):
    return [place % capacity for place in positions(tokens, len(tokens))]


# ---------------------------------------------------------------- experts on chips
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


def by_the_busiest_alone(traffic, chips):
    return by_swaps(traffic, chips, lambda *given: max(link_bytes(*given).values()))


def by_squares(traffic, chips):
    placed = by_swaps(traffic, chips, lambda *given: sum(n * n for n in loads(*given)))
    return np.array(placed)


def even_work(traffic, chips):
    placed = [[] for _ in chips.chips]
    for expert in np.argsort(-traffic.sum(0)):
        free = [own for own in placed if len(own) < 2]
        min(free, key=lambda own: traffic[:, own].sum()).append(int(expert))
    return placed


def at_its_largest_user(traffic, chips):
    placed = [[] for _ in chips.chips]
    for expert in np.argsort(-traffic.max(0)):
        free = [chip for chip, own in enumerate(placed) if len(own) < 2]
        placed[max(free, key=lambda chip: traffic[chip, expert])].append(int(expert))
    return placed


def crowded(traffic, chips):
    """All experts where the whole way of their tokens is shortest, however many these are."""
    ways = [[len(chips.route(a, b)) for b in chips.chips] for a in chips.chips]
    home = np.argmin(np.array(ways).T @ traffic, 0)
    return [np.flatnonzero(home == chip).tolist() for chip in range(len(chips.chips))]


def changed(place):
    """The order of numbers with the first chip's experts as given."""
    return lambda traffic, chips: [place, *in_order(traffic, chips)[1:]]


def by_id(traffic, chips):
    """In the order of the chips' numbers, not of the mesh."""
    placed = by_swaps(traffic, chips)
    return [placed[chips.chips.index(chip)] for chip in range(len(placed))]


test_right_answers = right(
    [
        ("17.positions", positions),
        ("17.positions", as_columns),
        (
            "17.positions",
            lambda t, c: [k if (k := t[:i].count(e)) < c else -1 for i, e in enumerate(t)],
        ),
        ("17.positions", lambda t, c: map(float, positions(t, c))),
        ("17.place", lambda *given: ({*own} for own in by_swaps(*given))),
        ("17.place", by_swaps),
        ("17.place", by_squares),
        ("17.place", by_the_busiest_alone),
    ]
)

test_wrong_answers = wrong(
    [
        ("17.positions", backwards, "token 0 has place -1, should have 0: 0 tokens chose expert 2"),
        ("17.positions", one_queue, "token 1 has place 1, should have 0"),
        ("17.positions", beyond, "token 3 has place 0, should have -1: 2 tokens chose expert 2"),
        ("17.positions", lambda t, c: positions(t, c + 1), "token 3 has place 2, should have -1"),
        ("17.positions", lambda t, c: positions(t, c - 1), "token 2 has place -1, should have 1"),
        ("17.positions", lambda t, c: [p + 1 for p in positions(t, c)], "places count from 0"),
        ("17.positions", lambda t, c: positions(t, c)[:-1], "has 6 places for 7 tokens"),
        ("17.positions", of_eight_experts, "your positions stopped with IndexError"),
        ("17.positions", remembered, r"positions\(\[0, 0, 0\], 1\): token 0 has place -1"),
        ("17.positions", lambda t, c: [str(p) for p in positions(t, c)], "token 0 has place '0'"),
        ("17.positions", lambda t, c: [p >= 0 for p in positions(t, c)], "token 0 has place True"),
        ("17.place", lambda *given: np.transpose(by_swaps(*given)), "you gave 2 lists"),
        ("17.place", lambda *given: [[a, a] for a, _ in by_swaps(*given)], "is on chip 4 and on"),
        ("17.positions", lambda t, c: None, "gave nothing back"),
        ("17.place", in_order, "sends chip .* are allowed: these are the experts in the order"),
        ("17.place", lambda *given: in_order(*given)[::-1], r"bytes; [\d,]+ are allowed$"),
        ("17.place", even_work, "even work, .* what counts is how far the tokens travel"),
        ("17.place", at_its_largest_user, r"bytes; [\d,]+ are allowed$"),
        ("17.place", crowded, "experts; each has memory for 2"),
        ("17.place", changed([0, 2]), "on the 1x8 mesh expert 2 is on chip 4 and on chip 0"),
        ("17.place", changed([0]), r"no chip has the experts \[1\]"),
        ("17.place", changed([0, 16]), "chip 4 has expert 16; there are 0 to 15"),
        ("17.place", changed([0, "1"]), "chip 4 has expert '1'; there are 0 to 15"),
        ("17.place", by_id, r"in the order of ids; asked is that of chips.chips, \(4, 0, 2, 6"),
        ("17.place", lambda *given: in_order(*given)[:4], "you gave 4 lists .* for 8 chips"),
        ("17.place", lambda traffic, chips: 3, "a list of experts for each chip, gave a int"),
        ("17.place", lambda traffic, chips: [0] * 8, "each chip needs a list .*; one has 0"),
        ("17.place", lambda traffic, chips: "01234567", "each chip needs a list .*; one has '0'"),
        ("17.place", lambda *given: dict(enumerate(in_order(*given))), "gave a dict"),
    ]
)


@pytest.mark.parametrize(("shape", "seed"), CASES)
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


def test_choices_are_watched_only_inside(monkeypatch):
    monkeypatch.setattr(experts, "choices", lambda probs, k, numbers: probs)
    before = experts.choices
    with pytest.raises(ZeroDivisionError), watched_choices() as seen:
        experts.choices(ttkit.from_numpy(np.ones((2, 1, 3, 4), np.float32)), 2, None)
        assert seen[0].shape == (2, 3, 4)
        1 / 0  # noqa: B018
    assert experts.choices is before


def test_every_choice_is_kept_or_dropped_and_every_place_kept_or_empty():
    loads = np.random.default_rng(17).integers(0, 30, 8)
    kept, empty, dropped = filled(loads, places=12)
    assert (kept + dropped == loads).all() and (kept + empty == 12).all()
    assert dropped.sum() == sum(max(load - 12, 0) for load in loads.tolist())
    text = repr(bars("a title", filled([12, 3], places=10)))
    assert text.splitlines()[1:] == [
        "  expert 0: 10 kept, 2 dropped",
        "  expert 1: 3 kept, 7 empty",
    ]
