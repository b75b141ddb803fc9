"""A chip's roofline: the flops of an operation, counted by its name, and the modelled time that flops and bytes take.

The time is that of the slower of two: the matrix engines at their peak, or DRAM at its bandwidth. Launch, tile layout
changes and what cores say to each other cost nothing here, so a card is slower, most of all in small operations: tt-metal's
GEMM_FLOPS report has 13 Tflop/s for a traced 512x512x512 product on an n150, and 68 for 4096x4096x4096 at HiFi2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ttkit.errors import fail
from ttkit.hardware.chips import CYCLES_PER_TILE, Chip

Shape = tuple[int, ...]
Count = Callable[[Mapping[str, Any], Sequence[Any], Callable[[Any], Shape]], int]


# ---------------------------------------------------------------- flops
def _product(first: str, transposed: str = "") -> Count:
    """2 m n k for each product of a batch: k is the length that `first` brings; a fused bias or activation is not counted."""

    def count(given: Mapping[str, Any], results: Sequence[Any], shape: Callable[[Any], Shape]) -> int:
        a = shape(given[first])
        return 2 * math.prod(shape(results[0])) * (a[-2] if given.get(transposed) and len(a) > 1 else a[-1])

    return count


def _attention(given: Mapping[str, Any], results: Sequence[Any], shape: Callable[[Any], Shape]) -> int:
    """Two products for every pair of a query and a key that it sees."""
    batch, heads, queries, size = shape(given["input_tensor_q"])
    keys = shape(given["input_tensor_k"])[2]
    pairs = queries * keys
    if given.get("is_causal", True):
        seen = min(given.get("sliding_window_size") or keys, keys)
        pairs = seen * (seen + 1) // 2 + (queries - seen) * seen
    return 4 * batch * heads * pairs * size


COUNTED: dict[str, Count] = {
    "matmul": _product("input_tensor_a", "transpose_a"),
    "linear": _product("input_tensor_a", "transpose_a"),
    "transformer.scaled_dot_product_attention": _attention,
}
# For each element of the first operand: an addition, a product or a function is one flop.
OF_INPUT = dict.fromkeys(("sum", "mean", "max", "min", "prod", "argmax", "cumsum"), 1)
OF_INPUT |= dict.fromkeys(("var", "std"), 4)  # add up; subtract, square, add up
OF_INPUT |= dict.fromkeys(("softmax", "softmax_in_place"), 5)  # maximum, subtract, exp, add up, divide
OF_INPUT |= dict.fromkeys(("scale_mask_softmax", "scale_mask_softmax_in_place", "transformer.attention_softmax", "transformer.attention_softmax_"), 7)
OF_INPUT |= {"layer_norm": 7, "rms_norm": 4}  # var's four; divide, weight, bias; no mean: 4
OF_INPUT |= dict.fromkeys(("experimental.rotary_embedding", "experimental.rotary_embedding_llama"), 3)  # two products and their sum
# What moves or makes values and computes nothing; collectives too, whose additions are made on the way.
MOVES = frozenset(
    """
    all_broadcast all_gather all_reduce arange assign broadcast chunk clone concat copy copy_device_to_host_tensor copy_host_to_device_tensor deallocate
    embedding empty empty_like expand experimental.nlp_concat_heads experimental.nlp_create_qkv_heads from_device from_torch full full_like identity
    mesh_partition ones ones_like pad permute point_to_point rand randn reallocate reduce_scatter repeat repeat_interleave reshape slice split squeeze stack
    tilize to_device to_dtype to_layout to_memory_config to_numpy transformer.concatenate_heads transformer.split_query_key_value_and_split_heads
    transpose tril triu typecast unsqueeze unsqueeze_to_4D untilize view zeros zeros_like
    """.split()
)


def flops(name: str, given: Mapping[str, Any], operands: Sequence[Any], results: Sequence[Any], shape: Callable[[Any], Shape]) -> int:
    """The floating-point operations of a call on one chip: by formula for products and attention, else so many an element; 1 an output element by default.

    Args:
        name: ttnn's name of the operation.
        given: its arguments by name.
        operands, results: the tensors among them, and what came back.
        shape: which shape of a tensor counts: that of the values, or the padded one that the engine works on.
    """
    if name in MOVES:
        return 0
    if name in COUNTED:
        return COUNTED[name](given, results, shape)
    if name in OF_INPUT and operands:
        return OF_INPUT[name] * math.prod(shape(operands[0]))
    return sum(math.prod(shape(result)) for result in results)


# ---------------------------------------------------------------- time
class Price(NamedTuple):
    """A modelled time, and what it is spent on: "compute" or "memory"."""

    time_s: float
    bound: str


def roofline(chip: Chip, flops: float, nbytes: float, fidelity: str) -> Price:
    """The modelled time of work on one chip: the longer of computing and moving, which overlap.

    Args:
        flops: floating-point operations on this chip.
        nbytes: bytes read from and written to its DRAM.
        fidelity: "LoFi", "HiFi2", "HiFi3" or "HiFi4".

    Example:
        >>> from ttkit.hardware.chips import WORMHOLE
        >>> roofline(WORMHOLE, flops=2 * 4096**3, nbytes=3 * 4096**2 * 2, fidelity="HiFi2")
        Price(time_s=0.001048576, bound='compute')
    """
    compute, memory = flops / chip.peak_flops(fidelity), nbytes / (chip.dram_bandwidth.value * 1e9)
    return Price(compute, "compute") if compute > memory else Price(memory, "memory")


def default_fidelity(chip: Chip, dtypes: Sequence[str], *, configured: bool = False) -> str:
    """The math fidelity that ttnn takes for a product when none is given; the kit takes it for every operation.

    LoFi for two block floats, and where a program or a core grid is given; HiFi4 for two float32 (HiFi3 on Wormhole, whose
    HiFi4 may err); else HiFi2. Source: tt-metal, ttnn/cpp/ttnn/operations/matmul/device, the attributes of a matmul.

    Args:
        dtypes: names of the operands' types, the first two count.
        configured: the call has a program_config or a core_grid.

    Example:
        >>> from ttkit.hardware.chips import WORMHOLE
        >>> default_fidelity(WORMHOLE, ["BFLOAT16", "BFLOAT8_B"]), default_fidelity(WORMHOLE, ["BFLOAT8_B", "BFLOAT4_B"])
        ('HiFi2', 'LoFi')
    """
    two = set(dtypes[:2])
    if two == {"FLOAT32"}:
        return "HiFi3" if chip.arch == "WORMHOLE_B0" else "HiFi4"
    return "LoFi" if configured or (two and two <= {"BFLOAT8_B", "BFLOAT4_B"}) else "HiFi2"


def known_fidelity(fidelity: Any, asked: str) -> str:
    """The name of a fidelity given as "HiFi2" or `ttnn.MathFidelity.HiFi2`.

    Raises:
        TTKitError: there is no such fidelity.
    """
    name = fidelity if isinstance(fidelity, str) else getattr(fidelity, "name", repr(fidelity))
    if name not in CYCLES_PER_TILE:
        fail(f"{asked}(fidelity={fidelity!r})", f"the matrix engine knows {', '.join(CYCLES_PER_TILE)}", 'fidelity="HiFi2"')
    return name
