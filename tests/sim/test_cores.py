"""Cores, ranges and sets of ranges: what holds of every set, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ttkit import ttnn
from ttkit.sim.tensor.sharding import cores_of

rectangle = st.tuples(*[st.integers(0, 6)] * 4).map(
    lambda n: ttnn.CoreRange((min(n[0], n[1]), min(n[2], n[3])), (max(n[0], n[1]), max(n[2], n[3])))
)


def one(core_range):
    return ttnn.CoreRangeSet([core_range])


@given(st.lists(rectangle, min_size=2, max_size=4))
def test_merge_subtract_and_contains_agree_with_sets_of_cores(ranges):
    merged = one(ranges[0])
    for other in ranges[1:]:
        merged = merged.merge(one(other))
    together = {core for r in ranges for core in cores_of(r)}
    assert set(cores_of(merged)) == together and merged.num_cores() == len(together)
    rest = merged.subtract(one(ranges[0]))
    assert set(cores_of(rest)) == together - set(cores_of(ranges[0]))
    assert merged.contains(rest) and all(merged.contains(r) for r in ranges)
    assert not rest.core_ranges or not rest.contains(ranges[0].start)


@given(rectangle, st.booleans(), st.data())
def test_the_first_cores_of_a_set_come_in_order(box, row_wise, data):
    cores = cores_of(box, row_wise)
    place = data.draw(st.integers(0, len(cores) - 1))
    count = data.draw(st.integers(1, len(cores) - place))
    call = ttnn.num_cores_to_corerangeset_in_subcoregrids
    got = call(ttnn.CoreCoord(*cores[place]), count, one(box), row_wise)
    assert set(cores_of(got)) == set(cores[place : place + count]) and got.size() <= 3


@given(st.integers(1, 8), st.integers(1, 9), st.data())
def test_the_first_cores_of_a_grid_fill_rows_or_columns(x, y, data):
    count, row_wise = data.draw(st.integers(0, x * y)), data.draw(st.booleans())
    got = ttnn.num_cores_to_corerangeset(count, ttnn.CoreCoord(x, y), row_wise)
    want = [(i % x, i // x) if row_wise else (i // y, i % y) for i in range(count)]
    assert sorted(cores_of(got)) == sorted(want) and got.size() <= 2


def test_a_coordinate_does_not_unpack_as_on_a_card():
    with pytest.raises(TypeError, match="not iterable"):
        _x, _y = ttnn.CoreCoord(8, 8)


def test_what_is_no_place_for_cores_is_refused():
    square = ttnn.CoreRange((0, 0), (1, 1))
    for call, phrase in (
        (lambda: ttnn.CoreRange((1, 0), (0, 0)), "Invalid core range for start_coord: 1-0"),
        (lambda: square.contains(3), "incompatible function arguments"),
        (lambda: ttnn.CoreRangeSet([(0, 0)]), "incompatible function arguments"),
        (lambda: ttnn.CoreRangeSet([square, square]), "overlap!"),
        (lambda: ttnn.CoreGrid(x=-1, y=2), "incompatible function arguments"),
        (lambda: ttnn.num_cores_to_corerangeset(65, (8, 8)), "available cores 64"),
    ):
        with pytest.raises((RuntimeError, TypeError)) as error:
            call()
        assert phrase in str(error.value)
