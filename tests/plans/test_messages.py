"""Messages between ranks: steps, deadlocks, and orders of sending around a ring."""

import pytest

from course.ranks import ORDERS, ring_exchange
from ttkit.plans.messages import ANY_SOURCE, Call, exchange

DEADLOCKS = ("Send, then Recv", "Recv, then Send")


@pytest.mark.parametrize("ranks", [2, 3, 4, 7])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("small", [False, True])
def test_a_ring_ends_with_all_messages_or_in_a_cycle(ranks, order, small):
    run = ring_exchange(ranks, order, small)
    stuck = order in DEADLOCKS and not (small and order.startswith("Send"))
    if stuck:
        assert sorted(run.cycle) == list(range(ranks)) and not run.messages
    else:
        assert not run.waits and len(run.messages) == ranks * (ranks - 1)
        ways = {(m.sender, m.receiver) for m in run.messages}
        assert ways == {(rank, (rank + 1) % ranks) for rank in range(ranks)}
    assert all(m.sent < m.step for m in run.messages)


def test_steps_of_the_orders():
    steps = {order: ring_exchange(4, order).steps for order in ORDERS if order not in DEADLOCKS}
    assert steps == {
        "Sendrecv": 3,
        "Isend, then Recv": 3,
        "even ranks send first": 6,
        "rank 0 receives first": 12,
    }
    assert ring_exchange(4, "Send, then Recv", buffered=True).steps == 3


def test_messages_between_two_ranks_keep_their_order():
    a = [Call("Send", to=1, text="first"), Call("Send", to=1, text="second")]
    run = exchange([a, [Call("Recv", source=0), Call("Recv", source=0)]])
    assert [(m.step, m.text) for m in run.messages] == [(1, "first"), (2, "second")]


def test_a_message_that_does_not_wait_is_sent_before_it_arrives():
    late = [Call("Recv", source=2), Call("Recv", source=0)]
    run = exchange([[Call("Isend", to=1)], late, [Call("Send", to=1)]])
    assert {(m.sender, m.sent, m.step) for m in run.messages} == {(2, 0, 1), (0, 0, 2)}


def test_who_waits_for_a_rank_that_is_done():
    run = exchange([[], [Call("Recv", source=0, line="line 3: x")], [Call("Ssend", to=1)]])
    assert run.cycle == () and run.steps == 0
    assert [str(wait) for wait in run.waits] == [
        "rank 1 waits in Recv for rank 0 to send",
        "rank 2 waits in Ssend for rank 1 to receive",
    ]
    assert run.title == "3 ranks, 0 messages, then ranks 1 and 2 cannot go on"
    assert repr(run).splitlines()[1].endswith("to send, at line 3: x")


def test_a_rank_that_waits_for_any():
    run = exchange([[Call("Recv", source=ANY_SOURCE)], []])
    assert [str(wait) for wait in run.waits] == ["rank 0 waits in Recv for any rank to send"]


def test_a_cycle_of_some_ranks_only():
    two = [[Call("Recv", source=1)], [Call("Recv", source=0)], [Call("Recv", source=0)]]
    assert exchange(two).cycle == (0, 1)


def test_a_line_at_which_all_wait_is_said_once():
    run = exchange(
        [[Call("Recv", source=1, line="line 7")], [Call("Recv", source=0, line="line 7")]]
    )
    assert repr(run).count("line 7") == 1 and repr(run).endswith("each at line 7")
