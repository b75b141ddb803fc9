"""Waits between ranks: in time, too late, and interrupted."""

import signal
import weakref

import pytest

import ttkit
from ttkit.errors import TTKitError
from ttkit.waiting import interrupts, wait_for, wait_until


class Memory:
    """What a message may still be written into."""


@pytest.fixture(autouse=True)
def short():
    ttkit.rank_checks(timeout_s=0.01)
    yield
    ttkit.rank_checks(timeout_s=300)


def test_a_wait_ends_when_the_message_is_there():
    memory, answers = Memory(), iter([False, False, True])
    gone = weakref.ref(memory)
    assert wait_until(lambda: next(answers), memory, timeout_s=60)
    del memory
    assert gone() is None


def test_a_late_message_is_named_and_its_memory_is_kept():
    memory = Memory()
    still = weakref.ref(memory)
    with pytest.raises(TTKitError, match=r"wait for the weights: nothing came in 0.01 s"):
        wait_for("the weights", lambda: False, memory)
    with pytest.raises(TTKitError, match=r"nothing came in 0.03 s"):
        wait_for("the weights", lambda: False, timeout_factor=3)
    del memory
    assert still() is not None


def test_ctrl_c_interrupts_a_wait():
    ttkit.rank_checks(timeout_s=300)
    asked = []

    def never():
        asked.append(1)
        if len(asked) == 5:
            signal.raise_signal(signal.SIGINT)
        return False

    with pytest.raises(KeyboardInterrupt):
        wait_until(never)
    with pytest.raises(KeyboardInterrupt), interrupts():  # It remembers the first one only.
        asked.append([signal.raise_signal(signal.SIGINT) for _ in range(2)])
