"""Sockets of one mesh: each chip gets its neighbour's shard, in one copy at most; between submeshes
and ranks: test_fabric.py, test_ccl_mpi.py.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machine import mapper_over
from shards import put, same

import ttkit
from ttkit import ttnn
from ttkit.plans import shift, topology
from ttkit.plans.cost import cost

ASYNC = ttnn.experimental


def core(place):
    return ttnn.MeshCoreCoord(ttnn.MeshCoordinate(*place), ttnn.CoreCoord(0, 0))


def pair_of(mesh, pairs, to=None):
    """A socket of a mesh with connections {sender: receiver}."""
    joined = [ttnn.SocketConnection(core(a), core(b)) for a, b in pairs.items()]
    memory = ttnn.SocketMemoryConfig(ttnn.BufferType.DRAM, 1 << 20)
    return ttnn.create_socket_pair(mesh, to or mesh, ttnn.SocketConfig(joined, memory))


def ring(mesh, axis, step):
    shape = tuple(mesh.shape)

    def after(chip):
        return tuple(
            (c + step) % n if a == axis else c for a, (c, n) in enumerate(zip(chip, shape))
        )

    return {chip: after(chip) for chip in np.ndindex(shape)}


def sent(tensor, pair, into=None):
    into = ttnn.zeros_like(tensor) if into is None else into
    assert ASYNC.send_async(tensor, pair[0]) == []
    (got,) = ASYNC.recv_async(into, pair[1])
    assert got is into
    return got


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("step", [1, -1])
def test_each_chip_gets_its_neighbours_shard(chips, axis, step):
    if tuple(chips.shape)[axis] == 1:
        return
    pairs = ring(chips, axis, step)
    pair = pair_of(chips, pairs)
    for dtype in (ttnn.float32, ttnn.bfloat16, ttnn.bfloat8_b, ttnn.uint32):
        tensor, naive = put(chips, [1, 1, 32, 64], dtype if dtype != ttnn.uint32 else ttnn.int32)
        naive.parts = {pairs[chip]: naive.parts[chip] for chip in naive.parts}
        naive.parts = dict(sorted(naive.parts.items()))
        same(sent(tensor, pair), naive)
        plan = ttkit.last_plan().validate()
        assert (plan.collective, plan.axis) == ("shift", axis)
        # of two chips, the one before is the one after
        assert plan.backwards == (step < 0 and tuple(chips.shape)[axis] > 2)
        assert plan.shard_bytes == {"FLOAT32": 4, "INT32": 4, "BFLOAT16": 2}.get(
            dtype.name, 4 if dtype == ttnn.uint32 else 1088 / 1024
        ) * (32 * 64)


# what each mesh axis cuts, and how many copies the array of a tensor then has
PLACEMENTS = {(None, None): (1, 1), (0, None): (2, 1), (None, 3): (1, 4), (0, 3): (2, 4)}


@pytest.mark.parametrize("dims", PLACEMENTS, ids=str)
@pytest.mark.parametrize("axis", [0, 1])
def test_replicas_stay_one_copy(wide, dims, axis):
    values = np.random.default_rng(1).standard_normal((2, 1, 32, 256)).astype(np.float32)
    tensor = ttkit.from_numpy(values, device=wide, mesh_mapper=mapper_over(wide, dims))
    before = tensor.array.copy()
    got = sent(tensor, pair_of(wide, ring(wide, axis, 1)))
    assert got.array.shape[:2] == PLACEMENTS[dims]
    np.testing.assert_array_equal(got.full_array(), np.roll(tensor.full_array(), 1, axis))
    np.testing.assert_array_equal(tensor.array, before)
    if dims[axis] is None:
        assert got.array is tensor.array  # nothing to move, nothing copied


def test_what_was_sent_stays_what_it_was(wide):
    """Sends are received in order, with the values that they had."""
    pair = pair_of(wide, ring(wide, 1, 1))
    first, _ = put(wide, [1, 1, 32, 32])
    second, _ = put(wide, [1, 1, 32, 32], seed=1)
    want = [np.roll(t.full_array(), 1, 1) for t in (first, second)]
    ASYNC.send_async(first, pair[0])
    ASYNC.send_async(second, pair[0])
    ttnn.multiply_(first, 2.0)
    ttnn.deallocate(second)
    for values in want:
        (got,) = ASYNC.recv_async(ttnn.zeros_like(first), pair[1])
        np.testing.assert_array_equal(got.full_array(), values)


def test_the_profile_prices_a_shift(wide):
    tensor, _ = put(wide, [1, 1, 64, 64])
    into = ttnn.zeros_like(tensor)
    pairs = [pair_of(wide, ring(wide, axis, -1)) for axis in (0, 1)]
    with ttkit.profile() as profile:
        for pair in pairs:
            sent(tensor, pair, into)
    send, receive = profile.records[0::2], profile.records[1::2]
    for axis, record in enumerate(send):
        plan = shift(topology("t3000"), 64 * 64 * 2, axis, backwards=True)
        assert record.bytes_on_links == plan.total_bytes
        assert record.time_s == cost(plan).time_s
        assert len(record.chips) == 8 and record.bytes_read == plan.shard_bytes
    assert not any(r.time_s or r.bytes_on_links for r in receive)


def test_memory_is_that_of_the_tensors(wide):
    def used():
        return set(ttkit.memory(wide).used.values())

    tensor, _ = put(wide, [1, 1, 64, 64])
    pair, one = pair_of(wide, ring(wide, 1, 1)), 64 * 64 * 2
    assert used() == {one}
    got = sent(tensor, pair)
    assert used() == {2 * one}
    del tensor
    assert used() == {one}
    del got
    assert used() == {0}


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_other_sockets(data):
    """Any connections, on one mesh: only a shift has a plan, and other chips keep their values."""
    shape = data.draw(st.sampled_from([(2, 4), (1, 8), (4, 2)]))
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    with ttnn.open_mesh_device(ttnn.MeshShape(shape)) as mesh:
        places = list(np.ndindex(shape))
        senders = data.draw(st.lists(st.sampled_from(places), unique=True, min_size=1))
        receivers = data.draw(st.permutations(places))[: len(senders)]
        pairs = dict(zip(senders, receivers))
        tensor, naive = put(mesh, [1, 1, 32, 32])
        into, have = put(mesh, [1, 1, 32, 32], seed=1)
        ttnn.all_reduce(tensor)
        pair = pair_of(mesh, pairs)
        if any(pairs == ring(mesh, axis, step) for axis in (0, 1) for step in (1, -1)):
            return
        sent(tensor, pair, into)
        have.parts |= {to: naive.parts[of] for of, to in pairs.items()}
        same(into, have)
        assert ttkit.last_plan().collective == "all_reduce"
        with ttkit.profile() as profile:
            sent(tensor, pair, into)
        assert not any(r.time_s or r.bytes_on_links or r.bytes_read for r in profile.records)


def test_a_ring_of_another_mesh_is_no_shift(wide):
    first, second = wide.create_submeshes(ttnn.MeshShape(2, 2))
    tensor, _ = put(first, [1, 1, 32, 32])
    into, _ = put(second, [1, 1, 32, 32], seed=1)
    pair = pair_of(first, ring(first, 1, 1), second)
    sent(tensor, pair, into)
    np.testing.assert_array_equal(into.full_array(), np.roll(tensor.full_array(), 1, 1))
    assert pair[0].shift is None
    assert pair_of(first, ring(first, 1, -1))[0].shift == (1, 1)  # two chips
    assert pair_of(wide, ring(wide, 1, -1))[0].shift == (1, -1)
