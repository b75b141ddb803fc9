"""What every test of a lesson has: the simulator as the lessons set it up, and engines."""

import pytest
from answers import engines
from machine import strict_with_fabric


@pytest.fixture(autouse=True)
def as_in_a_lesson():
    with strict_with_fabric():
        yield


@pytest.fixture(scope="module")
def cluster():
    with engines(4) as cluster:
        yield cluster
