"""Pictures of messages between ranks, and of who waits for whom."""

import re

import pytest

from ttkit.plans.messages import ANY, Call, exchange, ring_exchange
from ttkit.visualize.lanes import draw_exchange


def pages(run):
    return [figure._repr_html_() for figure in draw_exchange(run)]


def test_each_message_has_an_arrow_and_a_mark():
    (page,) = pages(ring_exchange(4))
    assert page.count("<polygon") == page.count("<circle") == 12
    assert all(f">rank {rank}</text>" in page for rank in range(4))
    assert all(f">{step}</text>" in page for step in (0, 1, 2, 3))


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
    run = exchange([[Call("Recv", source=ANY)], [Call("Recv", source=7)]])
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
