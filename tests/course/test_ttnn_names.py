"""docs/ttnn.md: made from the code and the names of the real library; and the names that
Tenstorrent's own multi-device programs use.
"""

import json
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "docs"))
import make_ttnn  # noqa: E402

USED = json.loads((ROOT / "tests" / "course" / "upstream_names.json").read_text())["names"]
# Names of USED that are still to come: remove each as it arrives.
EXPECTED_MISSING = set(
    """
BcastOpDim.H BcastOpMath.ADD BcastOpMath.MUL CoreGrid CoreRange CoreRangeSet DataType.INVALID
Device DispatchCoreAxis.COL DispatchCoreAxis.ROW DispatchCoreType.WORKER GetDefaultDevice
L1_BLOCK_SHARDED_MEMORY_CONFIG L1_HEIGHT_SHARDED_MEMORY_CONFIG L1_WIDTH_SHARDED_MEMORY_CONFIG
LayerNormShardedMultiCoreProgramConfig MatmulMultiCoreReuseMultiCast1DProgramConfig
MatmulMultiCoreReuseMultiCastDRAMShardedProgramConfig MatmulMultiCoreReuseMultiCastProgramConfig
MatmulMultiCoreReuseProgramConfig MinimalMatmulConfig NdShardSpec ReduceType.Sum SDPAProgramConfig
ShardDistributionStrategy.ROUND_ROBIN_1D ShardOrientation.ROW_MAJOR ShardSpec ShardStrategy.HEIGHT
ShardStrategy.WIDTH SoftmaxShardedMultiCoreProgramConfig SubDevice SubDeviceId Tile
WormholeComputeKernelConfig _ttnn.operations.point_to_point.p2p_compute_intermediate_tensor_spec
all_to_all_combine
all_to_all_dispatch allocate_tensor_on_device apply_device_delay bcast create_global_semaphore
create_sharded_memory_config device.DispatchCoreConfig experimental.all_gather_async
experimental.all_gather_async_reversed experimental.all_gather_matmul_async
experimental.all_reduce_async experimental.all_to_all_async experimental.all_to_all_async_generic
experimental.attn_matmul experimental.deepseek_moe_fast_reduce_nc
experimental.deepseek_moe_reduce_scatter experimental.fast_reduce_nc
experimental.group_attn_matmul experimental.llama_reduce_scatter experimental.minimal_matmul
experimental.neighbor_pad_async experimental.nlp_concat_heads_decode
experimental.nlp_create_qkv_heads_decode experimental.nlp_create_qkv_heads_falcon7b
experimental.paged_fill_cache experimental.paged_fused_update_cache
experimental.paged_update_cache experimental.reduce_scatter_minimal_async
experimental.ring_attention_all_gather_async experimental.rotary_embedding_llama_fused_qk
experimental.slice_reshard_async experimental.strided_all_gather_async
experimental.strided_all_gather_minimal_matmul_async experimental.typecast fill_cache from_buffer
get_arch_name init_device_compute_kernel_config interleaved_to_sharded
interleaved_to_sharded_partial kv_cache.fill_cache_for_user_ manual_seed moe
moe_expert_token_remap moe_routing_remap move num_cores_to_corerangeset
num_cores_to_corerangeset_in_subcoregrids plus_one record_event reshard rms_norm_post_all_gather
rms_norm_pre_all_gather sampling scale_causal_mask_hw_dims_softmax_in_place scatter_add
sharded_to_interleaved sharded_to_interleaved_partial sparse_matmul
transformer.chunked_scaled_dot_product_attention
transformer.paged_scaled_dot_product_attention_decode
transformer.scaled_dot_product_attention_decode update_cache
""".split()
)


def test_the_page_is_in_step():
    command = [sys.executable, str(ROOT / "docs" / "make_ttnn.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_names_of_tenstorrents_programs():
    assert len(USED) == 278
    missing = {n for n in USED if not make_ttnn.is_here(n) and not make_ttnn.out_of_scope(n)}
    assert missing == EXPECTED_MISSING


def test_what_is_out_of_scope_is_little():
    gone = {name for name in USED if not make_ttnn.is_here(name) and make_ttnn.out_of_scope(name)}
    assert gone == {
        "Conv2dConfig",
        "ReadDeviceProfiler",
        "conv2d",
        "create_global_circular_buffer",
        "dram_prefetcher",
        "graph.pretty_print",
        "graph.visualize",
        "max_pool2d",
        "prepare_conv_weights",
    }


@pytest.mark.parametrize(
    "name, kind",
    [
        ("add", "here"),
        ("experimental.nlp_concat_heads", "here"),
        ("DataType.BFLOAT16", "here"),
        ("MathFidelity.HiFi2", "a hint"),
        ("moreh_adam", "not here"),
        ("DataType.FP8_E4M3", "here"),
        ("generic_op", "out of scope"),
        ("avg_pool2d", "out of scope"),
        ("ReadDeviceProfiler", "out of scope"),
    ],
)
def test_kinds(name, kind):
    assert name in dict(make_ttnn.recorded())
    assert make_ttnn.kind_of(name) == kind


def test_every_name_of_the_simulator_is_the_librarys():
    """No public name of ours is unknown to the real library."""
    from ttkit.sim import ttnn

    known = {name for name, _ in make_ttnn.recorded()}
    ours = {name for name in vars(ttnn) if not name.startswith("_")}
    assert ours - known <= set(make_ttnn.SPACES)
