"""Pictures of messages between ranks, and of who waits for whom."""

import re

import pytest
from motion import parts

from course.ranks import ring_exchange
from ttkit.plans.messages import ANY_SOURCE, Call, exchange
from ttkit.visualize.drawing import STEP_S
from ttkit.visualize.lanes import BOX, LANE, LEFT, WIDTH, draw_exchange


def pages(run):
    return [figure._repr_html_() for figure in draw_exchange(run)]


def test_each_message_has_an_arrow_and_a_mark():
    (page,) = pages(ring_exchange(4))
    assert page.count("<polygon") == 12
    assert all(f">rank {rank}</text>" in page for rank in range(4))
    assert all(f">{step}</text>" in page for step in (0, 1, 2, 3))


@pytest.mark.parametrize("order", ["Sendrecv", "rank 0 receives first"])
def test_a_message_glides_from_its_sender_to_its_receiver_at_its_times(order):
    run = ring_exchange(3, order)
    drawing = next(iter(draw_exchange(run))).drawings[0]
    line, *dots = [part for part in parts(drawing.svg()) if not part.ghost]
    for second in (0, 0.5 * STEP_S, STEP_S * run.steps - 1e-6):
        x = float(line.node[0].get("x1")) + line.off(second)[0]
        assert x == pytest.approx(LEFT + WIDTH * second / (STEP_S * run.steps), abs=0.2)
    assert len(dots) == len(run.messages) and not any(dot.rests for dot in dots)
    expected = sorted((m.sent, m.sender, m.step, m.receiver) for m in run.messages)
    ways = []
    for dot in dots:
        start, end = dot.at, dot.at + dot.stay
        assert not dot.shown(start - 0.01) and not dot.shown(end + 0.01) and dot.loops
        row = [
            (float(dot.node[0].get("cy")) + dot.off(s)[1] - drawing.head - 2 - BOX / 2) / LANE
            for s in (start, end - 1e-6)
        ]
        ways.append((start / STEP_S, row[0], end / STEP_S, row[1]))
    assert sorted(ways) == [pytest.approx(way, abs=0.01) for way in expected]


def test_an_arrow_is_pale_until_its_message_is_sent_and_nothing_moves_without_messages():
    run = ring_exchange(4)
    ghosts = [
        part for part in parts(next(iter(draw_exchange(run))).drawings[0].svg()) if part.ghost
    ]
    assert sorted(ghost.at / STEP_S for ghost in ghosts) == sorted(m.sent for m in run.messages)
    assert all(ghost.shown(STEP_S * run.steps) and ghost.rests for ghost in ghosts)
    stuck = next(iter(draw_exchange(ring_exchange(4, "Send, then Recv"))))
    assert not parts(stuck.drawings[0].svg())


def test_the_value_of_a_short_message_is_written():
    run = exchange([[Call("Send", to=1, nbytes=8, text="568")], [Call("Recv", source=0)]])
    (page,) = pages(run)
    assert ">568</text>" in page


def test_a_deadlock_has_a_picture_of_the_cycle():
    run = ring_exchange(4, "Send, then Recv")
    time, waits = pages(run)
    assert time.count(">waits for rank ") == 4
    assert waits.count("<polygon") == 4 and "form a cycle" in waits
    assert "rank 3 waits in Send for rank 0 to receive" in waits


def test_a_wait_for_nobody_has_no_arrow():
    run = exchange([[Call("Recv", source=ANY_SOURCE)], [Call("Recv", source=7)]])
    assert "<polygon" not in pages(run)[1] and "is done" not in pages(run)[1]
    assert "form a cycle" not in pages(run)[1]


@pytest.mark.parametrize("ranks", [2, 6, 8])
@pytest.mark.parametrize("order", ["Sendrecv", "rank 0 receives first", "Recv, then Send"])
def test_a_drawing_fits_the_page_and_its_words_are_large_enough(ranks, order):
    for page in pages(ring_exchange(ranks, order)):
        widths = [float(w) for w in re.findall(r'viewBox="0 0 ([\d.]+)', page)]
        sizes = [float(s) for s in re.findall(r'font-size="([\d.]+)"', page)]
        assert max(widths) <= 760
        assert min(sizes) >= 11


def test_the_text_has_the_data():
    run = ring_exchange(3)
    assert repr(next(iter(draw_exchange(run)))) == repr(run)
