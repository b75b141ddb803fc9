"""All-to-all, tokens to experts and back: against loops over the chips."""

import numpy as np
import pytest
from naive import Naive
from shards import ASYNC, put, same, semaphores

import ttkit
from ttkit import ttnn

ROWS = ttnn.ROW_MAJOR_LAYOUT


def of(naive, function):
    """Each chip's array by a function of the arrays along its row, in order, and its place."""
    row = {c: [naive.parts[g] for g in naive.group(c, 1)] for c in naive.parts}
    return Naive(naive.mesh, {c: function(row[c], c[1]) for c in naive.parts})


@pytest.mark.parametrize("dtype", [ttnn.bfloat16, ttnn.float32])
def test_all_to_all(chips, dtype):
    n = chips.shape[1]
    t, naive = put(chips, [1, 1, 64, 32 * n], dtype)

    def parts(row, i):
        return np.concatenate([np.split(shard, n, 3)[i] for shard in row], 2)

    got = ASYNC.all_to_all_async_generic(t, in_dim=2, out_dim=3, cluster_axis=1)
    same(got, of(naive, parts))
    plan = ttkit.last_plan().validate()
    assert plan.collective == "all_to_all"
    back = ASYNC.all_to_all_async_generic(got, in_dim=3, out_dim=2, cluster_axis=1)
    same(back, naive)
    buffer = ttnn.zeros_like(got)
    how = {"cluster_axis": 1, "persistent_output_buffer": buffer}
    assert ASYNC.all_to_all_async_generic(t, 2, 3, **how) is buffer


def test_all_to_all_into_a_buffer():
    with ttnn.open_mesh_device(ttnn.MeshShape(1, 8)) as mesh:
        t, naive = put(mesh, [1, 1, 32, 256])
        want = of(naive, lambda row, i: np.concatenate([np.split(s, 8, 3)[i] for s in row], 2))
        buffers = [put(mesh, [1, 1, 256, 32], seed=i)[0] for i in (1, 2)]
        got = ASYNC.all_to_all_async(t, *buffers, 2, 3, semaphores(mesh, 1)[0])
        assert got is buffers[1]
        same(got, want)


@pytest.mark.parametrize("concat", [1, 2])
@pytest.mark.parametrize("axis", [0, 1])
def test_tokens_go_to_experts_and_back(chips, axis, concat):
    rows, columns = chips.shape
    if (rows, columns)[axis] == 1:
        return
    devices, n = rows * columns, (rows, columns)[axis]
    batch, length, width, k, experts = 2, 3, 32, 4, 2 * devices
    random = np.random.default_rng(axis)
    tokens, naive = put(chips, [batch, 1, length, width], layout=ROWS)
    chosen = [random.permutation(experts)[:k] for _ in range(devices * batch * length)]
    chosen = np.array(chosen, np.int32).reshape(devices * batch, 1, length, k)
    owner = random.permutation(np.arange(experts) % devices)
    table = (owner[:, None] == np.arange(devices)).astype(np.int32)[None, None]
    everywhere = ttnn.ReplicateTensorToMesh(chips)
    how = {"dtype": ttnn.uint16, "device": chips, "layout": ROWS}
    mapping = ttkit.from_numpy(table, mesh_mapper=everywhere, **how)
    indices = ttkit.from_numpy(chosen, mesh_mapper=ttnn.ShardTensorToMesh(chips, 0), **how)
    choice = Naive(naive.mesh, dict(zip(naive.parts, np.split(chosen, devices))))
    along = {"cluster_axis": axis}
    sent, metadata = ttnn.all_to_all_dispatch(
        tokens, indices, mapping, output_concat_dim=concat, **along
    )
    dim = 2 * (concat - 1)
    wanted, all_chosen = {}, choice.all_gather(dim, axis)
    for chip, whole in naive.all_gather(dim, axis).parts.items():
        here = owner[all_chosen.parts[chip]] == chip[0] * columns + chip[1]
        wanted[chip] = np.moveaxis(whole * here.any(-1, keepdims=True), 1, 0)
    same(sent, Naive(naive.mesh, wanted))
    same(metadata, all_chosen.each(lambda v: np.moveaxis(v, 1, 0)))

    shape = [batch * n, length] if concat == 1 else [batch, length * n]
    made, values = put(chips, [2, *shape, width], layout=ROWS, seed=1)
    whole = ttnn.all_to_all_combine(made, metadata, mapping, output_shard_dim=concat, **along)
    first = ttnn.slice(made, [0, 0, 0, 0], [1, *shape, width])
    how = {"local_reduce": True, "output_shard_dim": concat}
    reduced = ttnn.all_to_all_combine(first, metadata, mapping, **how, **along)
    for result, local in ((whole, False), (reduced, True)):
        want = {}
        for chip in naive.parts:
            out = np.zeros((k, batch, length, width))
            for b, s in np.ndindex(batch, length):
                seen = set()
                at = list(chip)[axis]
                place = (b + at * batch, s) if concat == 1 else (b, s + at * length)
                picks = choice.parts[chip][b, 0, s]
                for j in np.argsort(picks):
                    device = owner[picks[j]]
                    source = divmod(int(device), columns)
                    number = list(np.flatnonzero(owner == device)).index(picks[j])
                    if source in naive.group(chip, axis) and not (local and device in seen):
                        out[j, b, s] = values.parts[source][(0 if local else number, *place)]
                        seen.add(device)
            want[chip] = out
        same(result, Naive(naive.mesh, want))
