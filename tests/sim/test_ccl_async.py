"""Async collectives against loops over the chips, on 2x4, 1x8 and 8x4: values, buffers, plans."""

import numpy as np
import pytest
from naive import Naive
from shards import ASYNC, hint, put, same, semaphores

import ttkit
from ttkit import TTKitError, ttnn


@pytest.mark.parametrize("dtype", [ttnn.bfloat16, ttnn.float32])
def test_gathers(chips, dtype):
    two = semaphores(chips, 2)
    for axis in (a for a in (0, 1) if chips.shape[a] > 1):
        t, naive = put(chips, [1, 1, 32, 64], dtype)
        want = naive.all_gather(3, axis)
        how = {"cluster_axis": axis, "multi_device_global_semaphore": two}
        same(ASYNC.all_gather_async(t, dim=3, num_links=1, **how), want)
        same(ASYNC.all_gather_async(t, None, 3, two, cluster_axis=axis), want)
        ring = ttnn.Topology.Ring
        same(ASYNC.all_gather_async(t, 3, axis, chips, ring, two), want)
        same(ASYNC.strided_all_gather_async(t, None, 3, two, cluster_axis=axis, mm_cores_y=2), want)
        turned = {c: np.flip(v.reshape(1, 1, 32, -1, 64), 3) for c, v in want.parts.items()}
        turned = {c: v.reshape(want.parts[c].shape) for c, v in turned.items()}
        got = ASYNC.all_gather_async_reversed(t, dim=3, **how)
        same(got, Naive(naive.mesh, turned))
        buffer = ttnn.zeros_like(got)
        assert ASYNC.all_gather_async(t, buffer, 3, two, cluster_axis=axis) is buffer
        same(buffer, want)
        into, ring = [buffer, ttnn.zeros_like(got)], {"mesh_device": chips, "topology": ring}
        pair = ASYNC.ring_attention_all_gather_async([t, t], into, 3, **ring, **how)
        assert pair[0] is buffer
        others = {c: v * (np.arange(v.shape[3]) // 64 != c[axis]) for c, v in want.parts.items()}
        same(pair[0], want)  # It had a chip's own shard, which stays.
        same(pair[1], Naive(naive.mesh, others))
        assert repr(ttkit.last_plan()).startswith(f"Plan(all_gather along axis {axis}")


@pytest.mark.parametrize("dtype", [ttnn.bfloat16, ttnn.float32])
def test_sums(chips, dtype):
    two, three = semaphores(chips, 2), semaphores(chips, 3)
    for axis in (a for a in (0, 1) if chips.shape[a] > 1):
        t, naive = put(chips, [1, 1, 32, 256], dtype)
        want, how = naive.reduce_scatter(3, axis), {"cluster_axis": axis}
        part = ASYNC.reduce_scatter_minimal_async(t, None, 3, three, **how)
        same(part, want)
        buffers = [ttnn.zeros_like(t), ttnn.zeros_like(part)]
        given = {"persistent_output_buffers": buffers, "multi_device_global_semaphore": three}
        assert ASYNC.reduce_scatter_minimal_async(t, dim=3, **given, **how) is buffers[1]
        same(buffers[1], want)
        packets = ttnn.zeros_like(t)
        of = two[0], ttnn.SubDeviceId(0), axis, chips
        part = ASYNC.llama_reduce_scatter(t, packets, 3, *of, num_links=1)
        same(part, want)
        assert ttkit.last_plan().collective == "reduce_scatter"
        want, adds = naive.all_reduce(axis), ttnn.ReduceType.Sum
        same(ASYNC.all_reduce_async(t, **how, mesh_device=chips, math_op=adds), want)
        lists = {"barrier_semaphores": two, "rs_global_semaphores": three}
        lists |= {"ag_global_semaphores": two, "math_op": adds, "mesh_device": chips}
        same(ASYNC.all_reduce_async(t, **how, **lists), want)
        buffer = ttnn.zeros_like(t)
        how |= {"multi_device_global_semaphore": two[0], "mesh_device": chips}
        total = ASYNC.all_reduce_async(t, buffer, dtype=ttnn.float32, **how)
        assert total.dtype is ttnn.float32
        same(total, want)
        assert ttkit.last_plan().collective == "all_reduce"


def test_eight_parts_are_summed_around_a_ring():
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D_RING)
    with ttnn.open_mesh_device(ttnn.MeshShape(1, 8)) as mesh:
        parts = [put(mesh, [1, 1, 32, 32], seed=i) for i in range(8)]
        whole = {c: np.concatenate([n.parts[c] for _, n in parts], 3) for c in parts[0][1].parts}
        want = Naive((1, 8), whole).reduce_scatter(3, 1)
        tensors, config = [t for t, _ in parts], ttnn.L1_MEMORY_CONFIG
        same(ASYNC.deepseek_moe_reduce_scatter(tensors, config, 3, cluster_axis=1), want)


def test_products_of_gathered_tensors():
    with ttnn.open_mesh_device(ttnn.MeshShape(1, 8)) as mesh:
        two, offset = semaphores(mesh, 2), ttnn.CoreCoord(0, 6)
        (t, naive), (w, weights) = put(mesh, [1, 1, 32, 32]), put(mesh, [1, 1, 256, 64], seed=1)
        gathered = naive.all_gather(3, 1)
        product = gathered.each(np.matmul, weights)
        blocks = hint("MatmulMultiCoreReuseMultiCastProgramConfig")
        how = {"program_config": blocks, "dtype": ttnn.float32}
        both = ASYNC.all_gather_matmul_async(t, w, None, 3, two, offset, **how)
        for got, want in zip(both, (gathered, product), strict=True):
            same(got, want)
        name = ASYNC.strided_all_gather_minimal_matmul_async
        same(name(t, w, None, 3, two, offset, cluster_axis=1)[0], gathered)
        same(ASYNC.minimal_matmul(both[0], w, dtype=ttnn.float32), product)


def test_what_is_refused(wide):
    two, (t, _) = semaphores(wide, 2), put(wide, [1, 1, 32, 64])
    how = {"dim": 3, "cluster_axis": 1, "multi_device_global_semaphore": two}
    with pytest.raises(TTKitError, match=r"the result has shape \[1, 1, 32, 256\]"):
        ASYNC.all_gather_async(t, persistent_output_buffer=ttnn.zeros_like(t), **how)
    with pytest.raises(
        TTKitError, match="this collective only adds; it does not support ReduceType"
    ):
        ASYNC.all_reduce_async(t, cluster_axis=1, mesh_device=wide, math_op=ttnn.ReduceType.Max)


def test_the_profile_knows_them(wide):
    (t, _), two = put(wide, [1, 1, 32, 64]), semaphores(wide, 2)
    with ttkit.profile() as profile:
        ASYNC.all_gather_async(t, dim=3, cluster_axis=1, multi_device_global_semaphore=two)
        ASYNC.all_to_all_async_generic(t, 3, 2, cluster_axis=0)
    names = [record.name for record in profile.records]
    assert any("all_gather_async" in name for name in names)
    assert all(record.time_s > 0 for record in profile.records)
