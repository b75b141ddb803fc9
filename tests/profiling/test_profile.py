"""ttkit.profile: flops, bytes and modelled times against formulas worked out here, and what is
made of them.
"""

import inspect
import weakref
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machine import mapper_over

import ttkit
from ttkit import backend, ttnn
from ttkit.hardware.roofline import DRAM_SHARE, LAUNCH, MATMUL_SHARE, operation_s
from ttkit.plans import all_gather, all_reduce, topology
from ttkit.plans.cost import cost
from ttkit.profiling import Profile
from ttkit.sim.tape import Tape, running
from ttkit.sim.tensor.tensor import bytes_in_use
from ttkit.train.parallel.distributed import shifted
from ttkit.visualize.lanes import COMMUNICATION, COMPUTE

MESHES = [("t3000", (2, 4)), ("galaxy", (8, 4))]


@pytest.fixture(autouse=True)
def fabric():
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    yield
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)
    ttkit.use_system(None)
    assert not running


@pytest.fixture(params=MESHES, ids=lambda m: "x".join(map(str, m[1])))
def mesh(request):
    ttkit.use_system(request.param[0])
    with ttnn.open_mesh_device(ttnn.MeshShape(*request.param[1])) as opened:
        yield opened


def put(mesh, shape, kinds="R R", dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT):
    """A tensor whose shard has `shape` on every chip, cut over the mesh as the letters say."""
    whole, dims = list(shape), [None if kind == "R" else int(kind[1:]) for kind in kinds.split()]
    for dim, length in zip(dims, tuple(mesh.shape)):
        if dim is not None:
            whole[dim] *= length
    how = {"device": mesh, "mesh_mapper": mapper_over(mesh, dims)}
    return ttkit.from_numpy(np.zeros(whole, np.float32), dtype=dtype, layout=layout, **how)


def only(prof):
    (record,) = prof.records
    return record


# ---------------------------------------------------------------- flops, bytes, time
@pytest.mark.parametrize("kinds", ["R R", "R S1", "S0 R"])
def test_a_matmul_counts_what_each_chip_multiplies(mesh, kinds):
    a = put(mesh, (3, 64, 96), kinds.replace("S1", "R").replace("S0", "S1"))
    b = put(mesh, (96, 160), kinds.replace("S0", "R"))
    with ttkit.profile() as prof:
        ttnn.matmul(a, b)
    record = only(prof)
    # replicated work counts on every chip, sharded work by its shard
    assert record.flops == 2 * 3 * 64 * 96 * 160
    assert record.bytes_read == 2 * (3 * 64 * 96 + 96 * 160)
    assert record.bytes_written == 2 * 3 * 64 * 160
    assert sorted(record.chips) == sorted(mesh.get_device_ids()) and record.bytes_on_links == 0
    assert [tuple(p.shard_shape) for p in record.operands] == [(3, 64, 96), (96, 160)]
    assert [tuple(p.shard_shape) for p in record.results] == [(3, 64, 160)]
    assert record.time_s == prof.time_s


@pytest.mark.parametrize(
    "fidelity, passes", [("LoFi", 1), ("HiFi2", 2), ("HiFi3", 3), ("HiFi4", 4)]
)
@pytest.mark.parametrize("inner", [32, 2048])
def test_the_slower_of_computing_and_moving_counts(mesh, fidelity, passes, inner):
    a, math = put(mesh, (2048, inner)), getattr(ttnn.MathFidelity, fidelity)
    config = ttnn.WormholeComputeKernelConfig(math_fidelity=math)
    with ttkit.profile() as prof:
        ttnn.matmul(a, a, transpose_b=True, compute_kernel_config=config)
    record, chip = only(prof), mesh.system.chip
    assert record.flops == 2 * 2048 * 2048 * inner
    peak = chip.cores.value * chip.clock.value * 4096
    compute = passes * record.flops / peak / MATMUL_SHARE.value
    moved = record.bytes_read + record.bytes_written
    memory = moved / (chip.dram_bandwidth.value * 1e9) / DRAM_SHARE.value
    assert record.time_s == pytest.approx(LAUNCH.value + max(compute, memory))


def test_padding_is_moved_and_multiplied_but_is_no_result(mesh):
    a, b = put(mesh, (5, 33)), put(mesh, (33, 70), dtype=ttnn.bfloat8_b)
    with ttkit.profile() as prof:
        ttnn.matmul(a, b)
    record = only(prof)
    assert record.flops == 2 * 5 * 33 * 70
    assert record.bytes_read == 2 * 32 * 64 + 2 * 3 * 1088 and record.bytes_written == 2 * 32 * 96
    moved = record.bytes_read + record.bytes_written
    assert record.time_s == operation_s(mesh.system.chip, 2 * 32 * 64 * 96, moved, "HiFi2")


def gpt_block(x, weights, heads):
    hidden = ttnn.layer_norm(x, weight=weights["norm"])
    q, k, v = ttnn.transformer.split_query_key_value_and_split_heads(
        ttnn.linear(hidden, weights["qkv"]), num_heads=heads, transpose_key=False
    )
    attended = ttnn.transformer.concatenate_heads(
        ttnn.transformer.scaled_dot_product_attention(q, k, v, is_causal=True)
    )
    x = ttnn.add(x, ttnn.all_reduce(ttnn.linear(attended, weights["out"]), cluster_axis=1))
    up = ttnn.linear(ttnn.layer_norm(x, weight=weights["norm"]), weights["up"], activation="gelu")
    return ttnn.add(x, ttnn.all_reduce(ttnn.linear(up, weights["down"]), cluster_axis=1))


def test_a_gpt_block_in_tensor_and_data_parallel(mesh):
    # on each chip: its batch, its heads; 4 chips share a row's heads
    batch, s, d, heads, size = 3, 64, 256, 2, 32
    mine = heads * size
    weights = {
        "norm": put(mesh, (1, d)), "qkv": put(mesh, (d, 3 * mine), "R S1"), "out": put(mesh, (mine, d), "R S0"),
        "up": put(mesh, (d, d), "R S1"), "down": put(mesh, (d, d), "R S0"),
    }  # fmt: skip
    x = put(mesh, (batch, s, d), "S0 R")
    with ttkit.profile() as prof:
        gpt_block(x, weights, heads)
    tokens = batch * s
    products = 2 * tokens * d * 3 * mine + 2 * tokens * mine * d + 2 * 2 * tokens * d * d
    attention = 2 * 2 * batch * heads * (s * (s + 1) // 2) * size
    others = 2 * 7 * tokens * d + 2 * tokens * d  # two layer norms, two additions
    assert sum(r.flops for r in prof.records) == products + attention + others
    sums = [r for r in prof.records if r.kind == COMMUNICATION]
    plan = all_reduce(topology(mesh), 2 * tokens * d, axis=1)
    assert [r.bytes_on_links for r in sums] == [plan.total_bytes] * 2
    assert [r.time_s for r in sums] == [cost(plan).time_s] * 2
    assert prof.time_s == pytest.approx(sum(r.time_s for r in prof.records))
    (lane,) = prof.timeline().lanes
    assert lane.chips == tuple(sorted(mesh.get_device_ids()))
    assert f"chips 0-{mesh.get_num_devices() - 1} alike" in repr(prof.timeline())


SDPA, EMBED = ttnn.transformer.scaled_dot_product_attention, ttnn.embedding
TILES = {"dtype": ttnn.bfloat16, "layout": ttnn.TILE_LAYOUT}
# Shapes of operands on each chip, whose bytes are those of bfloat16, x in tiles of [64, 96].
OPERANDS = {
    "x": (2, 40, 70), "row": (1, 1, 70), "y": (64, 64), "out": (64, 64), "z": (2, 64, 96),
    "q": (2, 4, 64, 32), "k": (2, 2, 64, 32), "table": (1024, 64), "tokens": (1, 32),
}  # fmt: skip
X, ROW, Y, Z = 2 * 2 * 64 * 96, 2 * 32 * 96, 2 * 64 * 64, 2 * 2 * 64 * 96
N, Q, K = 2 * 40 * 70, 2 * 2 * 4 * 64 * 32, 2 * 2 * 2 * 64 * 32
# name: the call, its flops on each chip, the bytes that it reads and writes
COUNTS = {
    "add": (lambda x, row: ttnn.add(x, row), N, X + ROW, X),
    "gelu": (lambda x: ttnn.gelu(x), N, X, X),
    "sum": (lambda x: ttnn.sum(x, dim=-1, keepdim=True), N, X, 2 * 2 * 64 * 32),
    "softmax": (lambda x: ttnn.softmax(x, dim=-1), 5 * N, X, X),
    "rms_norm": (lambda x: ttnn.rms_norm(x), 4 * N, X, X),
    "concat": (lambda x: ttnn.concat([x, x], dim=0), 0, 2 * X, 2 * X),
    "ones": (lambda x: ttnn.ones([2, 40, 70], device=x.device(), **TILES), 0, 0, X),
    "in place": (lambda y, out: ttnn.add_(y, out), 64 * 64, 2 * Y, Y),
    "into an operand": (lambda y, out: ttnn.add(out, y, output_tensor=out), 64 * 64, 2 * Y, Y),
    "with itself": (lambda y: ttnn.add(y, y), 64 * 64, 2 * Y, Y),
    "a part": (lambda y: y[:32, :], 0, Y // 2, Y // 2),
    "embedding": (lambda tokens, table: EMBED(tokens, table), 0, 4 * 32 + 2 * 32 * 64, 2 * 32 * 64),
    "causal": (lambda q, k: SDPA(q, k, k), 1024 * (64 * 65 // 2), Q + 2 * K, Q),
    "of all": (lambda q, k: SDPA(q, k, k, is_causal=False), 1024 * 64 * 64, Q + 2 * K, Q),
    "windowed": (
        lambda q, k: SDPA(q, k, k, sliding_window_size=8),
        4 * 2 * 4 * 32 * sum(min(i + 1, 8) for i in range(64)), Q + 2 * K, Q,
    ),
    # another shape of the same bytes is free
    "flat": (lambda z: ttnn.reshape(z, [128, 96]), 0, 0, 0),
    "in front": (lambda z: ttnn.unsqueeze(z, 0), 0, 0, 0),
    "as it is": (lambda z: ttnn.to_layout(z, ttnn.TILE_LAYOUT), 0, 0, 0),
    "other tiles": (lambda z: ttnn.reshape(z, [64, 192]), 0, Z, Z),
    "given back": (lambda z: ttnn.deallocate(z), 0, 0, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", COUNTS)
def test_what_a_call_counts(mesh, name):
    call, *counts = COUNTS[name]
    rows = {"layout": ttnn.ROW_MAJOR_LAYOUT}
    how = {"table": rows, "tokens": {"dtype": ttnn.uint32, **rows}}
    names = inspect.signature(call).parameters
    given = [put(mesh, OPERANDS[each], **how.get(each, {})) for each in names]
    with ttkit.profile() as prof:
        call(*given)
    record = only(prof)
    assert [record.flops, record.bytes_read, record.bytes_written] == counts
    assert bool(record.time_s) == bool(record.bytes_read)


# ---------------------------------------------------------------- chips, collectives, what is
# recorded
def test_chips_without_a_shard_idle(mesh):
    chips = mesh.get_device_ids()
    one = ttnn.get_device_tensors(put(mesh, (64, 64), "S0 S1"))[1]
    with ttkit.profile() as prof:
        ttnn.exp(one)
    assert only(prof).chips == (chips[1],)
    busy, idle = sorted(prof.timeline().lanes, key=lambda lane: len(lane.chips))
    assert busy.chips == (chips[1],)
    assert len(busy.bars) == 1
    assert idle.chips == tuple(sorted(set(chips) - {chips[1]}))
    assert not idle.bars


def test_chips_run_on_their_own_until_they_meet(mesh):
    x = put(mesh, (64, 64), "S0 S1")
    first, second = ttnn.get_device_tensors(x)[:2]
    with ttkit.profile() as prof:
        ttnn.exp(first)
        ttnn.exp(first)
        ttnn.exp(second)
        ttnn.all_gather(x, 1, cluster_axis=1)
    (_, a), (r, b), (_, c), (gather, d) = prof.spans()
    assert (list(a.values()), list(b.values()), list(c.values())) == ([0], [r.time_s], [0])
    assert set(d) == set(mesh.get_device_ids()) and set(d.values()) == {2 * r.time_s}
    assert prof.time_s == 2 * r.time_s + gather.time_s and len(prof.timeline().lanes) == 3


@pytest.mark.parametrize("axis", [0, 1])
def test_collectives_cost_what_their_plans_say(mesh, axis):
    x, where, nbytes = put(mesh, (64, 256), "S0 S1"), topology(mesh), 2 * 64 * 256
    length = tuple(mesh.shape)[axis]
    at = ttnn.MeshCoordinate(1, 1)
    with ttkit.profile() as prof:
        ttnn.all_gather(x, 1, cluster_axis=axis)
        ttnn.all_gather(x, 1, cluster_axis=axis, num_links=1)
        ttnn.reduce_scatter(x, 1, cluster_axis=axis)
        ttnn.all_reduce(x, cluster_axis=axis)
        ttnn.all_broadcast(x, cluster_axis=axis)
        ttnn.broadcast(x, at, cluster_axis=axis)
        ttnn.point_to_point(x, at, ttnn.MeshCoordinate(0, 1))
    gathered = all_gather(where, nbytes, axis)
    whole, shard = gathered.total_bytes, gathered.total_bytes // length
    assert whole == len(where.groups(axis)) * length * (length - 1) * nbytes
    sent = [r.bytes_on_links for r in prof.records]
    assert sent == [whole, whole, shard, 2 * shard, whole, shard, nbytes]
    times = [r.time_s for r in prof.records]
    assert times[0] == cost(gathered).time_s
    assert times[1] == cost(all_gather(where, nbytes, axis, links=1)).time_s > times[0]
    assert {(r.kind, r.flops) for r in prof.records} == {(COMMUNICATION, 0)}


def test_a_collective_of_one_chip_takes_no_time():
    with ttnn.open_mesh_device(ttnn.MeshShape(1, 1)) as mesh, ttkit.profile() as prof:
        ttnn.all_reduce(put(mesh, (32, 32)), num_links=1)
    assert prof.records[-1].bytes_on_links == 0 and prof.time_s == 0


def test_host_transfers_are_listed_and_not_timed(mesh):
    with ttkit.profile() as prof:
        x = put(mesh, (64, 64))
        ttnn.zeros([2, 2])  # on the host alone
        ttnn.add(x, x)
        ttnn.from_device(x)
    assert [r.kind for r in prof.records] == ["host", COMPUTE, "host"]
    assert prof.time_s == prof.records[1].time_s
    assert repr(prof.summary()).count("not modelled") == 2 and "2 transfers" in repr(prof)


def test_a_call_is_recorded_once_and_a_refused_one_never(mesh):
    x, y = put(mesh, (64, 96)), put(mesh, (64, 96))
    with ttkit.profile() as prof:
        ttnn.linear(x, y, transpose_b=True, activation="gelu")
        # help() does not show this hint.
        ttnn.rms_norm(x, program_config=ttnn.LayerNormDefaultProgramConfig())
        with pytest.raises(RuntimeError):
            ttnn.matmul(x, y)
    assert [r.name for r in prof.records] == ["linear", "rms_norm"]


def test_nested_profiles_and_an_exception(mesh):
    x = put(mesh, (32, 32))
    with ttkit.profile() as outer:
        ttnn.exp(x)
        with pytest.raises(ZeroDivisionError), ttkit.profile() as inner:
            ttnn.exp(x)
            raise ZeroDivisionError
        ttnn.exp(x)
    ttnn.exp(x)
    assert len(outer.records) == 3 and len(inner.records) == 1 and not running
    assert "1 operations" in repr(inner) and len(inner.timeline().lanes) == 1


def test_two_meshes_at_once():
    with ttnn.open_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
        left, right = mesh.create_submeshes(ttnn.MeshShape(2, 2))
        with ttkit.profile() as prof:
            ttnn.exp(put(left, (32, 32)))
            ttnn.exp(put(right, (32, 32)))
        assert prof.time_s == prof.records[1].time_s  # at the same time, on chips of their own
        (lane,) = prof.timeline().lanes
        assert len(lane.chips) == 8


def test_a_card_measures(monkeypatch):
    monkeypatch.setattr(backend, "is_simulated", lambda: False)
    rule = r"ttkit.profile: times are modelled on the simulator only.*\n  try: python -m tracy"
    with pytest.raises(ttkit.TTKitError, match=rule), ttkit.profile():
        pass


# ---------------------------------------------------------------- tables, picture, file
@pytest.fixture
def busy(mesh):
    x, w = put(mesh, (64, 64), "S0 S1"), put(mesh, (64, 96))
    with ttkit.profile() as prof:
        ttnn.linear(x, w)
        ttnn.exp(ttnn.get_device_tensors(x)[2])
        ttnn.all_reduce(x, cluster_axis=1)
        ttnn.add(x, x)
    return prof


def test_the_table_says_that_it_is_modelled(busy):
    text, html = repr(busy.summary()), busy.summary()._repr_html_()
    assert "modelled" in text.split("\n")[0] and "modelled" in html and "…" not in text
    assert max(map(len, text.split("\n"))) <= 160
    assert busy.summary().rows[0][0] == "all_reduce"
    assert "modelled" in repr(busy) and "modelled" in busy._repr_html_()


def test_an_empty_profile():
    prof = Profile(Tape())
    assert prof.time_s == 0
    assert "0" in repr(prof)
    assert prof.summary().rows == []
    assert repr(prof.summary())
    assert "Nothing here takes modelled time" in prof.timeline()._repr_html_()


def test_the_timeline(busy):
    timeline = busy.timeline()
    ran_exp = busy.records[1].chips[0]
    lanes = {lane.chips: lane for lane in timeline.lanes}
    assert len(lanes) == 2
    assert [b.text for b in lanes[(ran_exp,)].bars] == ["linear", "exp", "all_reduce", "add"]
    other = next(lane for chips, lane in lanes.items() if ran_exp not in chips)
    assert [b.kind for b in other.bars] == [COMPUTE, COMMUNICATION, COMPUTE]
    # it waits
    assert other.bars[1].start == lanes[(ran_exp,)].bars[1].end > other.bars[0].end
    assert timeline.end_s == busy.time_s
    assert other.exposed == [(other.bars[1].start, other.bars[1].end)]
    page = timeline._repr_html_()
    assert ">modelled time<" in page and ">all_reduce<" in page
    assert all(f">{lane.label.split(',')[0].split()[0]}" in page for lane in timeline.lanes)


# ---------------------------------------------------------------- communication overlaps compute
def starts(prof):
    """When each record that takes time begins, on all of its chips at once."""
    timed = [number for number, record in enumerate(prof.records, 1) if record.time_s]
    return {
        n: start
        for n, (_, begin) in zip(timed, prof.spans(), strict=True)
        for start in set(begin.values())
    }


def test_all_reduces_after_a_backward_run_under_it(mesh):
    a = put(mesh, (512, 512))
    with ttkit.profile() as prof:
        grads = [ttnn.matmul(a, a) for _ in range(4)]
        sums = [ttnn.all_reduce(grad, cluster_axis=1) for grad in grads]
        for grad in sums:
            ttnn.multiply(grad, 0.25)
    product, reduce = prof.records[0].time_s, prof.records[4].time_s
    other = prof.overlapped()
    assert [r.after for r in prof.records] == [(), (), (), (), (1,), (2,), (3,), (4,), (5,), (6,), (7,), (8,)]  # fmt: skip
    begin = starts(other)
    assert begin[5] == begin[2] == product < starts(prof)[5]  # under the rest of the backward
    assert begin[6] == product + max(product, reduce)
    assert other.time_s < prof.time_s and other.records is prof.records
    # all of it is exposed without overlap; what is hidden is what the step gets shorter
    assert prof.exposed_s == pytest.approx(4 * reduce)
    hidden = prof.exposed_s - other.exposed_s
    assert 0 < hidden == pytest.approx(prof.time_s - other.time_s)
    # the other model says so wherever it is shown
    said = "communication overlaps compute"
    assert f"modelled, {said}" in repr(other)
    assert said in other.timeline().title and said in repr(other.summary())
    assert "beside" not in repr(prof) + prof.timeline().title and not prof.timeline().beside


def test_what_a_call_waits_for(mesh):
    x, y = put(mesh, (64, 64)), put(mesh, (64, 64))
    with ttkit.profile() as prof:
        a = ttnn.exp(x)  # 1
        same = ttnn.to_layout(a, ttnn.TILE_LAYOUT)  # 2: the tensor itself
        rows = ttnn.to_layout(a, ttnn.ROW_MAJOR_LAYOUT)  # 3: another one, of the same array
        ttnn.all_reduce(same, cluster_axis=1)  # 4
        ttnn.all_gather(rows, 0, cluster_axis=1)  # 5
        ttnn.add_(a, y)  # 6: overwrites what 2, 3 and 4 read
        flat = ttnn.reshape(a, [1, 64, 64])  # 7
        ttnn.exp(ttnn.get_device_tensors(flat)[1])  # 8: a shard in the memory of 7
        ttnn.add(a, a, output_tensor=x)  # 9: overwrites what 1 read
        host = ttnn.from_device(x)  # 10
        ttnn.copy_host_to_device_tensor(host, y)  # 11: overwrites what 6 read, with those of 10
        ttnn.mul(y, y)  # 12
        ttnn.deallocate(y)  # 13
        ttnn.exp(put(mesh, (64, 64)))  # 14 writes it, 15
    waits = [r.after for r in prof.records]
    assert waits[:7] == [(), (1,), (1,), (1,), (3,), (1, 2, 3, 4), (6,)]
    assert waits[7:] == [(7,), (1, 6), (9,), (6, 10), (11,), (11,), (), (14,)]


def test_calls_of_a_replayed_trace_wait_for_each_other(mesh):
    x = put(mesh, (64, 64))
    with ttkit.profile() as prof:
        trace = ttnn.begin_trace_capture(mesh, cq_id=0)
        ttnn.all_reduce(ttnn.exp(x), cluster_axis=1)
        ttnn.end_trace_capture(mesh, trace, cq_id=0)
        for _ in range(2):
            ttnn.execute_trace(mesh, trace, cq_id=0)
    assert [r.after for r in prof.records] == [(), (1,), (), (3,), (), (5,)]


def test_a_profile_keeps_no_tensor_alive(mesh):
    x = put(mesh, (64, 64))
    before = bytes_in_use()
    with ttkit.profile() as prof:
        y = ttnn.exp(x)
        seen = weakref.ref(y), weakref.ref(y.array)
        del y
        assert bytes_in_use() == before and not any(ref() is not None for ref in seen)
        for _ in range(50):  # ids come again
            ttnn.exp(x)
            ttnn.to_device(ttnn.zeros([64, 64]), mesh)
    assert len(prof.records) == 101 and {r.after for r in prof.records} == {()}


def test_what_comes_by_the_host_is_there_when_it_was_made(mesh):
    left, right = mesh.create_submeshes(ttnn.MeshShape(2, 2))[:2]
    x = put(left, (64, 64))
    with ttkit.profile() as prof:
        far = ttnn.to_device(ttnn.from_device(ttnn.exp(x)), right)
        ttnn.exp(far)
    assert [r.after for r in prof.records] == [(), (1,), (2,), (3,)]
    for model in (prof, prof.overlapped()):
        (first, _), (_, start) = model.spans()
        assert start == dict.fromkeys(right.get_device_ids(), first.time_s)


CALLS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 99), st.integers(0, 99)), max_size=16)


@given(CALLS)
@settings(max_examples=60, deadline=None)
def test_any_program_against_a_schedule_worked_out_here(calls):
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)  # a closed mesh takes it away
    with ttnn.open_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
        pool = [put(mesh, (64, 64)) for _ in range(3)]
        # of each tensor: the call that made it, and those that read it
        made, read, waits = [set() for _ in pool], [set() for _ in pool], []
        with ttkit.profile() as prof:
            for number, (kind, i, j) in enumerate(calls):
                i, j = i % len(pool), j % len(pool)
                a, b = pool[i], pool[j]
                used, written, new = {i}, None, None
                if kind == 0:
                    new, used = ttnn.matmul(a, b), {i, j}
                elif kind == 1:
                    new = ttnn.exp(a)
                elif kind in (2, 3):
                    new = ttnn.all_reduce(a, cluster_axis=kind - 2)
                elif kind == 4:
                    ttnn.add_(a, b)
                    used, written = {i, j}, i
                elif kind == 5:
                    ttnn.add(a, a, output_tensor=b)
                    used, written = {i, j}, j
                else:
                    assert ttnn.to_layout(a, ttnn.TILE_LAYOUT) is a
                waits.append(set.union(*(made[k] for k in used)))
                for k in used - {written}:
                    read[k].add(number)
                if written is not None:
                    waits[-1] |= read[written]
                    made[written], read[written] = {number}, set()
                if new is not None:
                    pool.append(new)
                    made.append({number})
                    read.append(set())
    other, free, ends = prof.overlapped(), Counter(), []
    for record, before in zip(prof.records, waits, strict=True):
        began = max([0.0, *(ends[k] for k in before)])
        if record.time_s:
            began = max(began, free[record.kind])
            free[record.kind] = began + record.time_s
        ends.append(began + record.time_s)
    assert other.time_s == pytest.approx(max(ends, default=0.0))
    busy = Counter()
    for record in prof.records:
        busy[record.kind] += record.time_s
    assert max(busy.values(), default=0) <= other.time_s * (1 + 1e-9)
    assert other.time_s <= prof.time_s * (1 + 1e-9)
    assert prof.time_s == pytest.approx(sum(busy.values()))
    assert other.records == prof.records


def test_what_comes_through_a_socket_is_waited_for():
    """A ring's next product begins when its operand has come, not before."""
    with ttnn.open_mesh_device(ttnn.MeshShape(1, 8)) as mesh:
        x = put(mesh, (1, 1, 512, 512), "R S2", ttnn.float32)
        with ttkit.profile() as prof:
            came = shifted(x, 1)
            ttnn.exp(x)
            ttnn.sqrt(came)
    names = [r.name.rpartition(".")[2] for r in prof.records]
    send = names.index("send_async")
    spans = {r.name: (r, start) for r, start in prof.overlapped().spans()}
    sent = prof.records[send]
    chip = sent.chips[0]
    assert sent.time_s > 0 and spans["exp"][1][chip] == 0
    assert spans["sqrt"][1][chip] >= sent.time_s
