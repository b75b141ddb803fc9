"""Async collectives: those of `ccl`, with semaphores and with buffers that the program keeps.

The simulator checks semaphores and writes results into persistent buffers; nothing overlaps. What
an operation takes stands in a table, what it does in a function of those arguments.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from ttkit.errors import fail
from ttkit.sim import ccl_checks as checks
from ttkit.sim import matmul, movement, shaping
from ttkit.sim.arguments import by_word, taken
from ttkit.sim.ccl import COLLECTIVES, _run
from ttkit.sim.ccl_checks import Call
from ttkit.sim.ccl_numpy import gathered
from ttkit.sim.enums import FabricConfig, Layout, Topology, UnaryWithParam
from ttkit.sim.hints import CLASSES
from ttkit.sim.operation import operation

# What ttnn has, hints included: "name=" is None by default, "name" must be given.
GATHER = """input_tensor persistent_output_buffer= dim= multi_device_global_semaphore= *
    cluster_axis= topology= num_links= persistent_output_tensor= mesh_device= memory_config=
    subdevice_id= barrier_semaphore= sub_core_grids= chunks_per_sync= num_workers_per_link=
    num_buffers_per_channel= use_optimal_ccl_for_llama= use_broadcast="""
SIGNATURES = {
    "all_gather_async": GATHER,
    "all_gather_async_reversed": GATHER,
    "strided_all_gather_async": """input_tensor persistent_output_buffer dim
        multi_device_global_semaphore * num_links= memory_config= topology= cluster_axis=
        num_workers_per_link= num_buffers_per_channel= mm_cores_y= mm_block_ht= mm_block_wt=""",
    "ring_attention_all_gather_async": """input_tensor persistent_output_buffer dim *
        multi_device_global_semaphore cluster_axis mesh_device topology num_links= memory_config=
        subdevice_id=""",
    "reduce_scatter_minimal_async": """input_tensor persistent_output_buffers= dim=
        multi_device_global_semaphore= * barrier_semaphore= num_links= memory_config=
        intermediate_memory_config= topology= subdevice_id= cluster_axis= chunks_per_sync=
        num_workers_per_link= num_buffers_per_channel= compute_kernel_config=""",
    "all_reduce_async": """input_tensor buffer_tensor= cluster_axis= mesh_device=
        barrier_semaphores= rs_global_semaphores= ag_global_semaphores= math_op= * num_devices=
        multi_device_global_semaphore= dtype= memory_config= topology= num_links= subdevice_id=
        use_noc1_only= use_optimal_ccl_for_llama= fp32_dest_acc=""",
    "llama_reduce_scatter": """input_tensor intermediate_packet_buffer dim cross_device_semaphore
        subdevice_id cluster_axis mesh_device * num_links= memory_config= topology=
        use_noc1_only=""",
    "deepseek_moe_reduce_scatter": """input_tensors output_memory_config dim * num_links=
        topology= cluster_axis=""",
    "all_gather_matmul_async": """input_tensor weight_tensor persistent_output_buffer= dim=
        multi_device_global_semaphore= all_gather_core_grid_offset= * bias= num_links=
        memory_config_ag= topology= barrier_semaphore= subdevice_id= memory_config_mm=
        transpose_a= transpose_b= dtype= program_config= activation= compute_kernel_config=
        core_grid= chunks_per_sync= num_workers_per_link= num_buffers_per_channel=""",
    "minimal_matmul": """input_tensor weight_tensor * bias_tensor= fused_activation= config=
        memory_config= dtype= compute_kernel_config=""",
    "strided_all_gather_minimal_matmul_async": """input_tensor weight_tensor
        persistent_output_buffer dim multi_device_global_semaphore
        strided_all_gather_core_grid_offset * num_links= memory_config_ag= topology=
        cluster_axis= bias= fused_activation= config= memory_config_mm= compute_kernel_config=
        num_workers_per_link= num_buffers_per_channel= read_local_slice_from_input=""",
}
ARGUMENTS = CLASSES | by_word(
    "int: num_devices\nint | list: cluster_axis num_links\nTopology: topology\n"
    "Tensor: intermediate_packet_buffer weight_tensor persistent_output_tensor buffer_tensor bias"
    " bias_tensor\nDataType: dtype\nMeshDevice: mesh_device\nReduceType: math_op\n"
    "MinimalMatmulConfig: config\nMemoryConfig: output_memory_config\n"
)
del ARGUMENTS["barrier_semaphore"]  # a list, where it is no hint
Given = Any  # the arguments of a call by name; `asked` names the operation


def entered(name: str, body: Callable[[Given], Any], text: str, kind: Any = "collective") -> Any:
    """Enter an operation whose parameters a table names."""
    short, places = name.split(".")[-1], text.partition("*")[0].split()
    own = [word for word in text.split() if word.rstrip("=") in CLASSES]
    plain = [word for word in text.split() if word not in own or word in places]
    parameters = [
        inspect.Parameter(
            word.rstrip("="),
            inspect.Parameter.POSITIONAL_OR_KEYWORD
            if word in places
            else inspect.Parameter.KEYWORD_ONLY,
            default=None if "=" in word else inspect.Parameter.empty,
        )
        for word in plain
        if word != "*"
    ]
    signature = inspect.Signature(parameters)

    def call(*args: Any, **kwargs: Any) -> Any:
        if len(args) > 1 and isinstance(args[1], int) and places[2:3] == ["dim="]:
            args = (args[0], None, *args[1:])  # the overload without a buffer
        try:
            given = signature.bind(*args, **kwargs)
        except TypeError as error:
            fail(
                short, f"incompatible function arguments: {error}", f"help(ttnn.{name})", TypeError
            )
        given.apply_defaults()
        for field, value in given.arguments.items():
            if field in ARGUMENTS and value is not None:
                taken(short, field, value, ARGUMENTS[field])
        return body(SimpleNamespace(asked=short, **given.arguments))

    call.__signature__ = signature  # type: ignore[attr-defined]
    call.__name__ = call.__qualname__ = short
    call.__doc__ = body.__doc__
    hints = " ".join(word.rstrip("=") for word in own if word not in places)
    return operation(name, kind, hints=hints)(call)


def run(g: Given, name: str = "", tensor: Any = None, output: Any = None, *others: Any) -> Any:
    """Carry out a collective of `COLLECTIVES` with these arguments, by default the one asked."""
    axis, how = getattr(g, "cluster_axis", None), (getattr(g, "topology", None), g.num_links)
    tensor = g.input_tensor if tensor is None else tensor
    dim = getattr(g, "dim", None)
    return _run(Call(name or g.asked, tensor, axis, dim, (), *how, output, others=others), {})


# ---------------------------------------------------------------- checks
def semaphores(g: Given, given: Any, *counts: int) -> None:
    """Check that there are semaphores, and as many as one of `counts`."""
    several = given if isinstance(given, (list, tuple)) else [given]
    for each in several:
        taken(g.asked, "semaphore", each, "global_semaphore")
    if counts and len(several) not in counts:
        rule = f"Default implementation requires {counts[0]} semaphores, {len(several)} are given"
        fail(g.asked, rule, "ttnn.create_global_semaphore(mesh, cores, 0) for each")


def ruled(rules: Callable[[Call], Any]) -> checks.Check:
    """A check that yields rules, each after what breaks it."""

    def check(call: Call) -> None:
        for broken, rule in rules(call):
            if broken:
                fail(call.asked, rule, "other arguments")

    return check


@ruled
def _joined(call: Call) -> Any:
    """There are several chips, which links join in a line."""
    shape, axis = call.mesh._shape, call.axis
    call.axes = list(range(len(shape))) if axis is None else [axis]
    yield call.chips == 1, f"{call.name} op will only work for num_devices > 1, but has 1"
    if axis is None and min(shape) > 1:
        ends = f"src (M0, D{shape[1] - 1}) to dst (M0, D{shape[1]})"
        rule = f"Could not find any forwarding direction from {ends}: name a cluster_axis"
        yield "1D" in call.mesh.fabric.name, rule


@ruled
def _alike(call: Call) -> Any:
    """A persistent buffer is of the tensor's type and layout."""
    for what in ("dtype", "layout") if call.output is not None else ():
        rule = f"Error, Output tensor {what} should be same as input tensor {what}"
        yield getattr(call.output, what) is not getattr(call.tensor, what), rule


@ruled
def _wide(call: Call) -> Any:
    width = call.tensor.padded[-1] * (call.chips if call.dim == call.rank - 1 else 1)
    rule = f"When reverse_order=true, tensor width ({width}) must be divisible by"
    yield width % (32 * call.chips), f"{rule} 32*num_devices (32*{call.chips})"


# ---------------------------------------------------------------- what they are
def here(call: Call, tensor: Any = None) -> np.ndarray:
    """The values on all chips, which must be of this process."""
    tensor = tensor or call.tensor
    if not tensor.grid.local:
        fail(call.asked, "the simulator has no such collective between ranks", "one process")
    return tensor.full_array()  # type: ignore[no-any-return]


def _reversed(call: Call) -> np.ndarray:
    return gathered(np.flip(here(call), tuple(call.axes)), call.mesh._shape, call.axes, call.dim)


def spec(base: str, *more: checks.Check, **changes: Any) -> Any:
    """A collective like `base` with checks of its own."""
    return replace(COLLECTIVES[base], checks=(checks.fabric, _joined, *more), **changes)


_gathers: Any = checks.dim("Dimension input should be in between -{rank} and {last}, has {dim}")
_gathers = (_gathers, checks.enough_links, _alike, checks.result_fits)
_rule = "Number of tiles at dimension {dim} must be divisible by ring_size {chips}"
in_range = checks.dim("ShapeBase[] index out of range. {dim} not in [{least}, {rank})")
_scatters = (in_range, checks.enough_links, checks.divides(_rule))
COLLECTIVES |= {
    "all_gather_async": spec("all_gather", *_gathers),
    "strided_all_gather_async": spec("all_gather", *_gathers),
    "all_gather_async_reversed": spec("all_gather", *_gathers, _wide, moves=_reversed),
    "reduce_scatter_minimal_async": spec("reduce_scatter", *_scatters),
    "all_reduce_async": spec("all_reduce", checks.some_links),
}


def _gather(g: Given) -> Any:
    """Return `all_gather` along `cluster_axis`, in a persistent buffer where one is given."""
    semaphores(g, g.multi_device_global_semaphore, 2)
    given = g.persistent_output_buffer or getattr(g, "persistent_output_tensor", None)
    return run(g, output=given)


def _ring_attention(g: Given) -> Any:
    """Return `all_gather` of each tensor of a list, as of the keys and of the values."""
    tensors, buffers = g.input_tensor, g.persistent_output_buffer or [None] * len(g.input_tensor)
    semaphores(g, g.multi_device_global_semaphore, 2)
    if len(tensors) != len(buffers):
        rule = f"Number of output tensors ({len(buffers)}) must match number of input tensors"
        fail(g.asked, f"{rule} ({len(tensors)})", "a buffer for each")
    return [run(g, "all_gather_async", t, b) for t, b in zip(tensors, buffers, strict=True)]


def _reduce_scatter(g: Given) -> Any:
    """Return `reduce_scatter`; the second persistent buffer gets the result."""
    ring = getattr(g.input_tensor.mesh, "fabric", None) is FabricConfig.FABRIC_1D_RING
    ring = ring and g.topology is not Topology.Linear
    taken(g.asked, "semaphores", g.multi_device_global_semaphore, "list | tuple")
    semaphores(g, g.multi_device_global_semaphore, 3, *(() if ring else (2,)))
    buffers = [*(g.persistent_output_buffers or ()), None, None]
    return run(g, output=buffers[1])


def _all_reduce(g: Given) -> Any:
    """Return `all_reduce`: one of three overloads.

    With a mesh or `num_devices` it takes `math_op` and three lists of semaphores, with a buffer one
    semaphore.
    """
    if g.buffer_tensor is not None:
        semaphores(g, g.multi_device_global_semaphore)
    else:
        taken(g.asked, "math_op", g.math_op, "ReduceType")
        lists = [g.barrier_semaphores, g.rs_global_semaphores, g.ag_global_semaphores]
        if g.num_devices is not None or any(lists):
            for given, count in zip(lists, (2, 3, 2), strict=True):
                semaphores(g, given, count, 2)
        if g.math_op.name != "Sum":
            fail(g.asked, f"chips add, and do not take {g.math_op}", "ttnn.ReduceType.Sum")
    total = run(g)
    return total if g.dtype is None else movement.typecast(total, g.dtype)


def _llama(g: Given) -> Any:
    """Return `reduce_scatter`, through a buffer of packets."""
    semaphores(g, [g.cross_device_semaphore])
    return run(g, "reduce_scatter_minimal_async")


def _deepseek(g: Given) -> Any:
    """Return `reduce_scatter` of eight tensors, which are parts of one along `dim`."""
    tensors, rings = g.input_tensors, FabricConfig.FABRIC_1D_RING
    if tensors[0].mesh.fabric is not rings or g.topology is Topology.Linear:
        rule = f"{g.asked} is hardcoded for tt::tt_fabric::Topology::Ring"
        fail(g.asked, rule, "ttnn.FabricConfig.FABRIC_1D_RING")
    if len(tensors) != 8:
        fail(g.asked, f"{g.asked} requires 8 input tensors, but has {len(tensors)}", "ttnn.split")
    return run(g, "reduce_scatter_minimal_async", shaping.concat(tensors, g.dim))


def _gather_matmul(g: Given) -> Any:
    """Return the gathered tensor and its product with the weight."""
    if g.program_config is None:
        fail(g.asked, "bad optional access: a program_config is needed", "its grid and blocks")
    semaphores(g, g.multi_device_global_semaphore, 2)
    whole = run(g, "all_gather_async", output=g.persistent_output_buffer)
    turned: Any = {"transpose_a": bool(g.transpose_a), "transpose_b": bool(g.transpose_b)}
    how: Any = {"program_config": g.program_config, "dtype": g.dtype, "activation": g.activation}
    return [whole, matmul.linear(whole, g.weight_tensor, bias=g.bias, **turned, **how)]


def _minimal(g: Given) -> Any:
    """Return `linear` of [..., M, K] and [K, N]; a list of two tensors is joined along K."""
    a, b, c = g.input_tensor, g.weight_tensor, g.config
    a = shaping.concat(a, -1) if isinstance(a, list) else a
    inner, rows = a.shard_shape[-1], b.shard_shape[-2]
    rules = [
        (
            Layout.ROW_MAJOR in (a.layout, b.layout),
            "requires TILE layout for activation and weight",
        ),
        (max((1, *b.shard_shape[:-2])) > 1, "weight must have 1 in all dims < -2"),
        (inner != rows, f"inner dimensions must match, got K={inner} and K_w={rows}"),
    ]
    if c is not None:
        grid, have = c.compute_with_storage_grid_size, b.mesh.system.chip.core_grid
        rule = "compute_with_storage_grid_size must be"
        m, n, h, w = c.M_block_size, c.N_block_size, c.subblock_h, c.subblock_w
        rules += [
            (0 in (m, n, c.K_block_size, h, w), "Block sizes must be > 0"),
            (h and m % h, f"M_block_size ({m}) must be divisible by subblock_h ({h})"),
            (w and n % w, f"N_block_size ({n}) must be divisible by subblock_w ({w})"),
            (h * w > 8, "subblock_h * subblock_w must be <= max_dest_volume"),
            (grid.x < 2 or grid.y < 2, f"{rule} >= 2x2"),
            (grid.x > have[0] or grid.y > have[1], f"{rule} <= device grid size"),
        ]
    for broken, rule in rules:
        if broken:
            fail(g.asked, f"minimal_matmul {rule}", "ttnn.matmul, or other blocks")
    act = UnaryWithParam(g.fused_activation) if g.fused_activation else None
    bias = getattr(g, "bias_tensor", None)
    return matmul.linear(a, b, bias=bias, activation=act, dtype=g.dtype)


def _gather_minimal(g: Given) -> Any:
    """Return the gathered tensor and its product with the weight."""
    semaphores(g, g.multi_device_global_semaphore, 2)
    g.input_tensor = run(g, "all_gather_async", output=g.persistent_output_buffer)
    g.bias_tensor, g.dtype = g.bias, None
    return [g.input_tensor, _minimal(g)]


BODIES: Any = [_gather, _gather, _gather, _ring_attention, _reduce_scatter, _all_reduce, _llama]
BODIES += [_deepseek, _gather_matmul, _minimal, _gather_minimal]
for (_name, _text), _body in zip(SIGNATURES.items(), BODIES, strict=True):
    _kind = "product" if _name == "minimal_matmul" else "collective"
    entered(f"experimental.{_name}", _body, _text, _kind)
