"""Cores, ranges and sets of ranges: what holds of every set."""

from hypothesis import given
from hypothesis import strategies as st

from ttkit import ttnn

rectangle = st.tuples(*[st.integers(0, 6)] * 4).map(
    lambda n: ttnn.CoreRange(
        ttnn.CoreCoord(min(n[0], n[1]), min(n[2], n[3])),
        ttnn.CoreCoord(max(n[0], n[1]), max(n[2], n[3])),
    )
)


@given(st.lists(rectangle, min_size=1, max_size=4))
def test_a_set_has_the_cores_of_its_ranges(ranges):
    cores, box = ttnn.CoreRangeSet(ranges), ttnn.CoreRangeSet(ranges).bounding_box()
    assert cores.num_cores() == sum(x * y for x, y in (r.grid_size() for r in ranges))
    assert set(cores.cores()) <= set(box.cores())
    assert {box.start.x, box.end.x} <= {core.x for core in cores.cores()}
    assert ttnn.CoreRangeSet({*ranges}) == ttnn.CoreRangeSet(sorted({*ranges}))


@given(st.lists(rectangle, max_size=3), st.lists(rectangle, max_size=3))
def test_the_cores_that_another_set_has_not(ranges, others):
    cores, taken = ttnn.CoreRangeSet(ranges), ttnn.CoreRangeSet(others)
    left = cores.subtract(taken)
    assert {*left.cores()} == {*cores.cores()} - {*taken.cores()}
    assert left.num_cores() == len({*left.cores()}) and [*left.ranges()] == [*left.core_ranges]


@given(rectangle, st.booleans(), st.data())
def test_the_first_cores_of_a_set_come_in_order(box, row_wise, data):
    cores = box.cores(row_wise)
    place = data.draw(st.integers(0, len(cores) - 1))
    count = data.draw(st.integers(1, len(cores) - place))
    call = ttnn.num_cores_to_corerangeset_in_subcoregrids
    got = call(cores[place], count, ttnn.CoreRangeSet([box]), row_wise)
    assert set(got.cores()) == set(cores[place : place + count]) and len(got.core_ranges) <= 3


@given(st.integers(1, 8), st.integers(1, 9), st.data())
def test_the_first_cores_of_a_grid_fill_rows_or_columns(x, y, data):
    count, row_wise = data.draw(st.integers(0, x * y)), data.draw(st.booleans())
    got = ttnn.num_cores_to_corerangeset(count, ttnn.CoreCoord(x, y), row_wise)
    want = [(i % x, i // x) if row_wise else (i // y, i % y) for i in range(count)]
    assert sorted(got.cores()) == sorted(want) and len(got.core_ranges) <= 2
