"""Traces: what was captured runs again on what its inputs hold then."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from places import (
    KINDS,
    ROWS,
    T3000,
    TILE,
    Place,
    compare,
    laid,
    many,
    numbers,
    opened,
    parts,
    put,
    refused,
)

import ttkit
from ttkit import ttnn


def refresh(tensor, other):
    ttnn.copy_host_to_device_tensor(ttnn.from_device(other), tensor)


@many(40)
@given(st.sampled_from(KINDS), st.lists(st.integers(0, 1), min_size=1, max_size=3))
def test_replayed_on_new_inputs(kind, order):
    place = Place(T3000, kind, [4, 6], ttnn.float32, TILE, 1)
    with laid(place) as (mesh, x):
        weight = put(mesh, place, seed=40)
        first = ttnn.begin_trace_capture(mesh)
        middle = ttnn.transpose(ttnn.multiply(x, weight), 0, 1)
        left, right = ttnn.split(ttnn.transpose(middle, 0, 1), 3, 1)
        out = ttnn.concat([right, left[:, ::2]], 1)
        ttnn.deallocate(left)
        ttnn.add_(out, 1.0)
        ttnn.end_trace_capture(mesh, first)
        second = ttnn.begin_trace_capture(mesh)
        doubled = ttnn.add(out, out)
        ttnn.end_trace_capture(mesh, second)
        reference = lambda x, w: np.concatenate([(x * w)[:, 3:], (x * w)[:, 0:3:2]], 1) + 1  # noqa: E731
        compare(out, reference, x, weight)
        for again in order:
            before = parts(out)
            refresh([x, weight][again], put(mesh, place, seed=60 + again))
            np.testing.assert_equal(parts(out), before)
            for trace in (first, second):
                ttnn.execute_trace(mesh, trace, blocking=False)
            compare(out, reference, x, weight)
            compare(doubled, lambda x, w: 2 * reference(x, w), x, weight)
        for trace in (first, second):
            ttnn.release_trace(mesh, trace)
        assert not left.is_allocated()


def test_a_list_may_change_after_the_call():
    with opened(T3000) as mesh:
        place = Place(T3000, "each", [2, 2], ttnn.float32, ROWS, 0)
        a, b = (put(mesh, place, seed=seed) for seed in (0, 50))
        trace = ttnn.begin_trace_capture(mesh)
        pair, start = [a, b], [0, 0]
        joined = ttnn.slice(ttnn.concat(pair, 0), start, [3, 2])
        pair.clear()
        start[0] = 2
        ttnn.end_trace_capture(mesh, trace)
        refresh(a, b)
        ttnn.execute_trace(mesh, trace)
        compare(joined, lambda y: np.concatenate([y, y])[:3], b)


def test_a_capture_left_open_goes_with_its_mesh():
    with pytest.raises(ZeroDivisionError), opened(T3000) as mesh:
        ttnn.begin_trace_capture(mesh)
        1 / 0  # noqa: B018
    with opened(T3000) as mesh:
        trace = ttnn.begin_trace_capture(mesh)
        ttnn.end_trace_capture(mesh, trace)


def test_refused():
    with opened(T3000) as mesh:
        t = put(mesh, Place(T3000, "both", [2, 6], ttnn.float32, ROWS, 0))
        host = ttkit.from_numpy(numbers((2, 6)))
        trace = ttnn.begin_trace_capture(mesh)
        writes = "Writes are not supported during trace capture"
        refused(lambda: ttkit.from_numpy(numbers(2), device=mesh), writes)
        refused(lambda: ttnn.to_device(host, mesh), writes)
        refused(lambda: ttnn.copy_host_to_device_tensor(host, t), writes)
        refused(lambda: ttnn.full([3], 1.0, device=mesh), writes)
        reads = "Reads are not supported during trace capture"
        refused(lambda: ttnn.from_device(t), reads)
        refused(lambda: ttkit.to_numpy(ttnn.get_device_tensors(t)[0]), reads)
        ttnn.reshape(host, [12])  # what stays on the host is no matter
        ttnn.end_trace_capture(mesh, trace)
        refused(lambda: ttnn.execute_trace(mesh, 3), "is a int, not MeshTraceId", TypeError)
        submesh = mesh.create_submesh(ttnn.MeshShape(1, 1))
        refused(lambda: ttnn.execute_trace(submesh, trace), "is not one of")
        ttnn.release_trace(mesh, trace)
        refused(lambda: ttnn.execute_trace(mesh, trace), "is not one of")
    refused(lambda: ttnn.begin_trace_capture(mesh), "is closed")


def test_a_copy_has_the_placements_of_its_source():
    with opened(T3000) as mesh:
        source = put(mesh, Place(T3000, "both", [2, 6], ttnn.float32, ROWS, 0))
        made = ttnn.allocate_tensor_on_device(ttnn.from_device(source).spec, mesh)
        refresh(made, source)
        assert made.tensor_topology() == source.tensor_topology()
