"""A plan of inference against what the simulator allocates, and rules that hold for every model.

How close it is to published figures: tests/course/test_published.py."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ttkit import ttnn
from ttkit.hardware.chips import BLACKHOLE
from ttkit.hardware.systems import SYSTEMS
from ttkit.layouts.inference import LAYER_S, SENT, WEIGHTS, InferencePlan
from ttkit.plans import all_reduce, cost, topology
from ttkit.sim.tensor.tensor import bytes_in_use
from ttkit.train.config.layout import Layout
from ttkit.train.config.settings import TransformerConfig
from ttkit.train.model.models import create_model

SMALL = TransformerConfig(
    model_type="llama", num_heads=8, num_groups=8, embedding_dim=256, intermediate_dim=320,
    num_blocks=3, vocab_size=100, max_sequence_length=96, dropout_prob=0.0,
)  # fmt: skip
GPT = TransformerConfig(num_heads=8, embedding_dim=256, num_blocks=2, vocab_size=100)
SIZES = [(1, 1), (1, 2), (2, 1), (2, 4)]


def plan(config=SMALL, dp=1, tp=1, system="t3000", batch=8, **more):
    layout, how = Layout(dp, tp, precision="bfloat16"), {"context": config.max_sequence_length}
    return InferencePlan(config, layout, SYSTEMS[system], batch, **(how | more))


def opened(dp, tp, dtype):
    """A mesh, and where a model lies on it."""
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(dp, tp))
    return mesh, Layout(dp=dp, tp=tp, precision=dtype).on(mesh)


# ---------------------------------------------------------------- memory, against the simulator
@pytest.mark.parametrize("config", [SMALL, GPT], ids=["llama", "gpt2"])
@pytest.mark.parametrize(("dp", "tp"), SIZES)
def test_bytes_of_weights_are_those_that_the_simulator_counts(config, dp, tp):
    for weights, types in WEIGHTS.items():
        counted = 0
        for dtype in set(types.values()):
            mesh, layout = opened(dp, tp, dtype)
            with mesh:
                model = create_model(config, layout)
                for name, parameter in model.parameters().items():
                    words = [key for key in types if key and key in name]
                    if types[words[0] if words else ""] == dtype:
                        parameter.place(np.zeros(parameter.global_shape, np.float32))
                used = set(bytes_in_use().values())
            assert len(used) <= 1  # each chip has as much
            counted += sum(used)
        assert plan(config, dp, tp, weights=weights).memory["weights"] == counted


@pytest.mark.parametrize(("dp", "tp"), SIZES)
@pytest.mark.parametrize("weights", ["mixed", "bfloat16"])
@pytest.mark.parametrize("context", [32, 90])
def test_bytes_of_the_cache_are_those_of_one(dp, tp, weights, context):
    mesh, layout = opened(dp, tp, WEIGHTS[weights][""])
    with mesh:
        empty = np.zeros((8, SMALL.num_groups, context, 32), np.float32)
        kept = [layout.place(empty, tp_dim=1, dp_dim=0) for _ in range(2 * SMALL.num_blocks)]
        (counted,) = set(bytes_in_use().values())
        del kept
    found = plan(dp=dp, tp=tp, weights=weights, context=context)
    assert found.memory["KV cache"] == counted


def test_fewer_keys_and_values_than_heads():
    four = plan(TransformerConfig(model_type="llama", num_heads=8, num_groups=4, embedding_dim=256))
    all_ = plan(TransformerConfig(model_type="llama", num_heads=8, num_groups=8, embedding_dim=256))
    assert 2 * four.memory["KV cache"] == all_.memory["KV cache"]


# ---------------------------------------------------------------- rules
MODELS = st.builds(
    lambda heads, blocks, inner: TransformerConfig(
        model_type="llama", num_heads=8 * heads, num_groups=8, embedding_dim=256 * heads,
        intermediate_dim=256 * inner, num_blocks=blocks, vocab_size=5000, max_sequence_length=256,
    ),
    st.integers(1, 4), st.integers(1, 4), st.integers(1, 8),
)  # fmt: skip
ROOM = st.sampled_from(["t3000", "galaxy", "loudbox_bh"])


@given(MODELS, ROOM, st.sampled_from(["mixed", "bfloat16"]))
def test_more_chips_never_need_more_memory_on_a_chip(config, system, weights):
    held = [plan(config, 1, tp, system, 32, weights=weights).memory for tp in (1, 2, 4, 8)]
    for fewer, more in itertools.pairwise(held):
        assert all(more[kind] <= fewer[kind] for kind in fewer)
    replicas = [plan(config, dp, 1, system, 32).memory for dp in (1, 2, 4, 8)]
    assert {memory["weights"] for memory in replicas} == {replicas[0]["weights"]}
    assert [memory["KV cache"] * n for memory, n in zip(replicas, (1, 2, 4, 8))] == [
        replicas[0]["KV cache"]
    ] * 4


@given(MODELS, ROOM, st.sampled_from([1, 2, 8]), st.integers(1, 200), st.integers(32, 4000))
def test_a_user_has_less_where_context_or_batch_grows(config, system, tp, batch, context):
    def speed(batch, context):
        return plan(config, 1, tp, system, batch, context=context).tokens_per_s_per_user

    assert speed(batch, context) > speed(batch, context + 32)
    assert speed(batch, context) > speed(batch + 1, context)


@given(MODELS, st.sampled_from([2, 4, 8]))
def test_replicas_multiply_tokens_and_leave_a_user_his_speed(config, dp):
    one, many = plan(config, 1, 1, batch=16), plan(config, dp, 1, batch=16 * dp)
    assert many.tokens_per_s == pytest.approx(dp * one.tokens_per_s)
    assert many.tokens_per_s_per_user == pytest.approx(one.tokens_per_s_per_user)
    assert many.time_to_first_token_s == pytest.approx(one.time_to_first_token_s)


@given(MODELS, st.integers(1, 20))
def test_a_longer_prompt_takes_longer(config, tiles):
    first = [plan(config, prompt=32 * n).time_to_first_token_s for n in (tiles, tiles + 1)]
    assert first[0] < first[1]


# ---------------------------------------------------------------- its parts
def test_a_short_prompt_leaves_rows_of_cores_idle():
    """Four tiles are at work on four of eight rows of cores, as long as eight tiles on all."""
    wide = replace(SMALL, intermediate_dim=2**18)  # so that attention counts for little
    four, eight = (plan(wide, prompt=32 * tiles).prefill_s["matmuls"] for tiles in (4, 8))
    assert four == pytest.approx(eight, rel=0.01)
    assert plan(wide, prompt=512).prefill_s["matmuls"] == pytest.approx(2 * eight, rel=0.01)


def test_two_collectives_a_layer_and_the_heads():
    found = plan(tp=8, batch=40)
    (blocks, times, reduce), (head, once, gather) = found.traffic(40)
    assert (blocks, times, head, once) == ("blocks", 2 * SMALL.num_blocks, "head", 1)
    nbytes = 64 * 256 * 1088 // 1024  # 40 rows fill two tiles of bfloat8_b
    assert (SENT, reduce.collective, reduce.shard_bytes) == ("bfloat8_b", "all_reduce", nbytes)
    assert (gather.collective, gather.shard_bytes) == ("all_gather", 32 * 32 * 1088 // 1024)
    assert reduce.links == gather.links == 1
    of = topology("t3000", (1, 8))
    assert reduce.bytes_sent == all_reduce(of, nbytes, 1, links=1).bytes_sent
    seconds = times * cost(reduce, "ring multicast").time_s + cost(gather, "ring multicast").time_s
    assert found.decode_s["collectives"] == pytest.approx(seconds)
    assert plan().traffic(8) == [] and plan().decode_s["collectives"] == 0


def test_a_decode_step_reads_what_it_needs():
    found = plan(batch=1, weights="bfloat16")
    rate = 288e9 * 0.866
    unread = 128 * 256 * 2  # the token table
    weights = found.decode_s["weights from DRAM"] * rate
    assert weights == pytest.approx(found.memory["weights"] - unread)
    tied = TransformerConfig(model_type="llama", num_groups=6, weight_tying=True)
    read = plan(tied, weights="bfloat16").decode_s["weights from DRAM"] * rate
    assert read == pytest.approx(plan(tied, weights="bfloat16").memory["weights"])
    cache = found.decode_s["KV cache from DRAM"] * rate
    assert cache == pytest.approx(found.memory["KV cache"])
    assert found.decode_s["latency of layers"] == pytest.approx(3 * LAYER_S["WORMHOLE_B0"].value)


def test_products_count_where_they_take_longer_than_their_weights():
    assert plan(batch=32).decode_s["matmuls"] == 0
    assert plan(batch=8192, context=32).decode_s["matmuls"] > 0


def test_types_of_weights():
    """Of one block's matrices, counted by hand: 256 x 256 four times, 256 x 320 three times."""
    block = replace(SMALL, num_blocks=2)
    rest = {"bfloat16": 2, "bfloat8_b": 1088 / 1024}
    attention, inner = 4 * 256 * 256, 256 * 320
    expected = {
        "bfloat16": 2 * (attention + 3 * inner),
        "bfloat8_b": rest["bfloat8_b"] * (attention + 3 * inner),
        "mixed": rest["bfloat8_b"] * (attention + inner) + 576 / 1024 * 2 * inner,
        "accuracy": 2 * attention + rest["bfloat8_b"] * 3 * inner,
    }
    norms = 2 * 2 * 32 * 256
    for weights, nbytes in expected.items():
        three, two = (plan(config, weights=weights).memory["weights"] for config in (SMALL, block))
        assert three - two == nbytes + norms, weights


def test_a_blackhole_is_another_chip():
    slow, fast = plan(system="n150"), plan(system="p150")
    assert fast.system.chip is BLACKHOLE
    ratio = slow.decode_s["weights from DRAM"] / fast.decode_s["weights from DRAM"]
    assert ratio == pytest.approx(512 / 288)


def test_each_architecture_has_its_figure():
    assert {system.chip.arch for system in SYSTEMS.values()} == set(LAYER_S)
