"""Keep one record for each operation, and let every call go through one point.

`OPERATIONS` has these records. Traces, the profiler, the roofline and the exercises read them.
While a tape runs (`ttkit.sim.tape`), each outermost call is an event on that tape.
"""

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np

from ttkit.errors import TTKitError
from ttkit.sim import blocks, tape
from ttkit.sim.arguments import describe, refuse, translate
from ttkit.sim.signatures import QUEUES, Signature, Way
from ttkit.sim.tensor import DataType, Layout, TensorTopology
from ttkit.sim.tensor import dtypes as rounding
from ttkit.sim.tensor.absent import absent
from ttkit.sim.tensor.grid import merged, restricted
from ttkit.sim.tensor.sharding import DRAM_MEMORY_CONFIG, MemoryConfig
from ttkit.sim.tensor.tensor import Tensor, keep_in, new_tensor

Array = np.ndarray
F = TypeVar("F", bound=Callable)
Shapes = Callable[[Any], tuple[int, ...]]
Flops = Callable[[Mapping[str, Any], Sequence, Sequence, Shapes], int]
Kind = Literal["compute", "product", "collective", "write", "read", "store", "arrange"]
Moves = Literal["all", "part", "shape", "none"]


# ---------------------------------------------------------------- the record
def each_result(given, operands, results: Sequence, shape: Shapes) -> int:
    """Count one flop for each element of the results."""
    return sum(math.prod(shape(result)) for result in results)


def each_element(flops: int = 1) -> Flops:
    """Return a function that counts `flops` for each element of the first operand."""
    return lambda given, operands, results, shape: flops * math.prod(shape(operands[0]))


def no_flops(given, operands, results, shape) -> int:
    """Count nothing, for an operation that moves or makes values."""
    return 0


class Operation(NamedTuple):
    """The record of an operation.

    Args:
        name: ttnn's name, with the name of its module, such as "transformer.concatenate_heads".
        call: the function with its checks.
        takes: the parameters of the function, and those of ttnn's function.
        kind: "product" (matrix product), "compute" (all other arithmetic), "collective" (chips send
            each other values), "write" and "read" (values go from the host to chips, or back),
            "store" (the same values in another place, layout or type), "arrange" (elements of each
            shard are rearranged, or made by a rule).
        flops: a function that counts a call's floating-point operations on one chip.
        moves: what a call reads and writes in a chip's DRAM. "all": all operands and
            results. "part": the results, and in all at most as many bytes of the operands; an
            embedding also reads its indices. "shape": all, but nothing where every element stays in
            its place. "none": nothing.
    """

    name: str
    call: Callable
    takes: Signature
    kind: Kind = "compute"
    flops: Flops = each_result
    moves: Moves = "all"


OPERATIONS: dict[str, Operation] = {}


def operation(
    name: str, kind: Kind = "compute", *, flops: Flops | None = None, moves: Moves = "all"
) -> Callable[[F], F]:
    """Enter a function into `OPERATIONS` under ttnn's `name`, and check each of its calls.

    A call takes the arguments of ttnn's function (`ttkit.sim.signatures`); `memory_config` places
    the result.

    Args:
        name: one name, or several with spaces between them where ttnn has several for the same
            operation. The returned function has the first one.
    """
    count = flops or (each_result if kind in ("compute", "product") else no_flops)

    def enter(function: F) -> F:
        for each in reversed(name.split()):
            # Many operations are inner functions that are all named `call`, so this sets the name.
            function.__name__ = function.__qualname__ = each.rpartition(".")[2]
            call, takes = _guarded(each, function, True, kind)
            vars(call)["python_fully_qualified_name"] = f"ttnn.{each}"
            OPERATIONS[each] = Operation(each, call, takes, kind, count, moves)
        return call

    return enter


def checked(function: F, name: str = "", *, note: bool = False) -> F:
    """Check the arguments of a function that is not an operation.

    Args:
        name: ttnn's name, where the function has another name.
        note: whether tapes record its calls.
    """
    return _guarded(name or function.__name__, function, note)[0]


# ---------------------------------------------------------------- tapes
_inside = [False]


def _on_tapes(name: str, call, args: tuple, kwargs: dict[str, Any]):
    """Make a call that is an event on each running tape."""
    _inside[0] = True
    try:
        for each in tape.running:
            call = functools.partial(each.record, name, call)
        return call(*args, **kwargs)
    finally:
        _inside[0] = False


# ---------------------------------------------------------------- checks of a call
UNEXPECTED = (MemoryError, ValueError, ArithmeticError, TypeError, AttributeError, LookupError)


def _guarded(
    name: str, function: F, is_event: bool, kind: Kind | None = None
) -> tuple[F, Signature]:
    """Return `function` with checks of its arguments, and its signature.

    NumPy gives no warning where a card gives none, for example for a division by zero. Unexpected
    errors become errors of the kit.

    Args:
        kind: the kind of an operation, which also takes ttnn's queues; None for other functions.
    """
    takes = Signature(function, name, *(QUEUES if kind else ()))
    compiles = kind not in (None, "write", "read")  # Such calls run no program on the mesh.
    # A result lies where the first operand does, but matmuls and dot-product attention write to
    # DRAM when no memory is named.
    inherits = compiles and kind != "product" and "dot_product" not in name
    silent = np.errstate(all="ignore")(function)
    # A key has the classes of a call's arguments and the names of its keywords. The value says
    # how to sort the arguments; None means that they stay as they are.
    ways: dict[tuple, Way | None] = {}
    tapes = tape.running

    @functools.wraps(function, updated=())
    def call(*args, **kwargs):
        if tapes and is_event and not _inside[0]:
            return _on_tapes(name, call, args, kwargs)
        operands = (*args, *kwargs.values()) if kwargs else args
        classes = (*map(type, operands), *kwargs)
        hint = output = None
        if classes not in ways:
            ways[classes] = takes.way(describe(name, args, kwargs))
        way = ways[classes]
        try:
            if way is not None:
                args, kwargs, output, hint = way.sort(args, kwargs)
                operands = (*args, *kwargs.values()) if kwargs else args
            result = silent(*args, **kwargs)
            if output is not None:
                result = _all_written(result, output)
        except (TTKitError, *UNEXPECTED) as error:
            translate(error, describe(name, args, kwargs))
            raise
        first = operands[0] if operands else None
        lies = getattr(first, "plain_memory_config", DRAM_MEMORY_CONFIG)
        stays = inherits and lies is not DRAM_MEMORY_CONFIG
        if hint is not None or (stays and "memory_config" not in takes.own):
            _settle(result, hint, operands)
        made = result[0] if type(result) is list and result else result
        if compiles and type(made) is Tensor and made.mesh is not None:
            made.mesh.programs.add((name, *map(_kind, operands)))
        return result

    # `help` reads the signature from `__wrapped__`.
    call.__wrapped__ = takes  # type: ignore[assignment,attr-defined]
    return call, takes  # type: ignore[return-value]


def _settle(result, hint: MemoryConfig | None, operands: tuple) -> None:
    """Place new results as the hint says; without a hint, place them as the first operand.

    A sharded first operand counts only for results of its shape. With a sharded configuration but
    no shard specification, a chip chooses the shards of a computed result. The simulator does not
    choose them: the result only gets the configuration.
    """
    for tensor in tape.tensors_in(result):
        if any(tensor is given for given in operands):
            continue
        config = hint
        if config is None:
            config = operands[0].plain_memory_config
            alike = config.interleaved or tensor.padded == operands[0].padded
            if not alike or tensor.plain_memory_config is not DRAM_MEMORY_CONFIG:
                continue
        computed = type(operands[0]) is Tensor
        if config.interleaved or config.shard_spec or config.nd_shard_spec or not computed:
            keep_in(tensor, config)
        else:
            tensor.plain_memory_config = config


def _kind(value):
    """Return the part of an argument that selects a program: no values, floats or enumerations."""
    if type(value) is Tensor:
        return value.shard_shape, value.dtype
    # A named tuple, such as a `CoreCoord`, selects no program here.
    if type(value) in (list, tuple):
        return tuple(map(_kind, value))
    return value if isinstance(value, (int, str)) else None


# ---------------------------------------------------------------- operands and results
def on_mesh(*tensors):
    """Return the mesh of all operands; fail if one is on the host, freed, or on another mesh."""
    mesh = tensors[0].mesh
    for number, tensor in enumerate(tensors):
        if tensor.mesh is None:
            rule = f"Input tensor {chr(65 + number)} must be on device, got storage type: "
            refuse(f"{rule}StorageType::HOST", "ttnn.to_device(tensor, mesh)")
        if tensor._array is None:
            rule = f"Input Tensor {chr(65 + number)} is not allocated"
            refuse(rule, "use it before ttnn.deallocate")
        if tensor.mesh is not mesh:
            rule = f"operands lie on different meshes: {mesh!r} and {tensor.mesh!r}"
            refuse(rule, "move one with ttnn.to_device(ttnn.from_device(tensor), mesh)")
    if not mesh.is_open:  # type: ignore[union-attr]
        mesh.check_open()  # type: ignore[union-attr]
    return mesh


def result(
    like: Tensor,
    array: Array,
    *,
    dtype: DataType | None = None,
    layout: Layout | None = None,
    topology: TensorTopology | None = None,
    owned: bool = True,
    exact: bool = False,
) -> Tensor:
    """Return a tensor of an operation's values on the chips of `like`, rounded to its dtype.

    Args:
        array: leading axes over the grid, then the shard's axes.
        topology: the topology of `like` when left out.
        owned: whether the array is new, so that the rounding may overwrite it.
        exact: whether the dtype can represent the values, so that they need no rounding.
    """
    dtype = dtype or like.dtype
    if not exact and (dtype is not DataType.FLOAT32 or array.dtype != np.float32):
        array = rounding.convert(array, dtype, owned)
    if topology is None:
        whole = like.mesh is None or like.grid is like.mesh.grid
        topology = like.topology if whole else merged(like.mesh.grid, like.topology)
    return new_tensor(array, dtype, layout or like.layout, like.grid, topology, like.mesh)


def moved(like: Tensor, array: Array, **how) -> Tensor:
    """Return a tensor of rearranged values of `like`; it is on the host if `like` is.

    Args:
        how: `layout` and `topology`, as `result` takes them.
    """
    # Elements of a block float share an exponent with their neighbours, so they are rounded again.
    exact = like.mesh is None or like.dtype not in rounding.BLOCK_FLOATS
    return result(like, array, owned=False, exact=exact, **how)


def written(made: Tensor, output: Tensor) -> Tensor:
    """Write the values and the topology of a result into `output`, as ttnn does; return it."""
    shape, there = made.shard_shape, output.grid
    if (output.mesh, there, output.shard_shape) != (made.mesh, made.grid, shape):
        refuse(
            f"the result has shape {list(shape)} on {len(made.grid.covers)} chips of {made.mesh}, "
            f"the output tensor {describe.show(output)} lies on {len(there.covers)}",
            "an output of that shape on those chips",
        )
    on_mesh(output)
    output.rebind(rounding.convert(made.array, output.dtype))
    output.topology = made.topology
    return output


def in_place(function: Callable) -> Callable:
    """Return a function that calls `function` and writes the result into the first argument."""

    @functools.wraps(function)
    def call(*args, **how):
        return written(function(*args, **how), [*args, *how.values()][0])

    call.__doc__ = f"{function.__doc__} The result is written into the first tensor."
    return call


def _all_written(made, output):
    """Write each result into its output. If there are more outputs, the last ones are used."""
    outputs = output if isinstance(output, (list, tuple)) else [output]
    if not isinstance(made, Tensor):
        pairs = itertools.zip_longest(made, outputs[-len(made) :])
        return [each if into is None else written(each, into) for each, into in pairs]
    return written(made, outputs[-1]) if outputs else made


class Operands:
    """The tensors of a call, on one mesh.

    Args:
        tensors: the operands; some may be None.
        narrow: whether an array may stay in the form that `dtypes.narrowed` returns.

    Attributes:
        arrays: the array of each tensor on the chips of `like`; None for a tensor that is None.
        like: the operand on the fewest chips; the result lies on the same chips.
        lead: how many axes of the arrays run over the chips.
    """

    __slots__ = "arrays lead like tensors topology".split()

    def __init__(self, *tensors: Tensor | None, narrow: bool = False):
        self.tensors = given = [t for t in tensors if t is not None]
        like = given[0]
        mesh, grid, topology = like.mesh, like.grid, like.topology
        alike = mesh is not None and mesh.is_open and grid is mesh.grid
        for t in given:
            alike = alike and t.mesh is mesh and t.grid is grid and t.topology is topology
            alike = alike and t._array is not None
        self.arrays: list = [None if t is None else t._array for t in tensors]
        if not alike:
            mesh, like = on_mesh(*given), min(given, key=lambda t: len(t.grid.covers))
            topology = merged(mesh.grid, *(t.topology for t in given))
            self.arrays = [None if t is None else _on_chips_of(t, like.grid) for t in tensors]
        if not narrow:
            self.arrays = [None if each is None else rounding.widened(each) for each in self.arrays]
        self.like, self.topology, self.lead = like, topology, like.grid.lead

    def broadcast(self) -> list[Array]:
        """Return the arrays with added axes of length 1, so that NumPy can broadcast the shards."""
        shapes = [t.shard_shape for t in self.tensors]
        if shapes.count(shapes[0]) == len(shapes):
            return self.arrays
        for shape in shapes[1:]:
            # This checks the last two dimensions. NumPy refuses all other shapes that
            # it cannot broadcast.
            one, other = (list((1, *sizes)[-2:]) for sizes in (shapes[0], shape))
            if one != other and 1 not in one + other:
                rule = f"Invalid subtile broadcast type: the last two dimensions {one} and {other}"
                refuse(f"{rule} differ and none is 1", "equal sizes, or 1 where one repeats")
        rank = max(map(len, shapes))
        return [with_rank(array, self.lead, rank) for array in self.arrays]

    def result(
        self,
        array: Array,
        dtype: DataType | None = None,
        *,
        layout: Layout | None = None,
        rearranged: bool = False,
    ) -> Tensor:
        """Return a tensor as the function `result` does, by default in the first operand's type.

        Args:
            rearranged: whether the values are the first operand's, only in another order.
        """
        first = self.tensors[0]
        return result(
            self.like,
            array,
            dtype=dtype or first.dtype,
            layout=layout or first.layout,
            topology=self.topology,
            owned=not rearranged,
            exact=rearranged and (dtype or first.dtype) not in rounding.BLOCK_FLOATS,
        )


def values_of(*given) -> tuple[Operands, list]:
    """Return the tensors among the operands, and all operands with an array for each tensor."""
    on = Operands(*(each for each in given if isinstance(each, Tensor)))
    arrays = iter(on.broadcast())
    return on, [next(arrays) if isinstance(each, Tensor) else each for each in given]


def _on_chips_of(tensor: Tensor, grid) -> Array:
    if not set(grid.covers) <= set(tensor.grid.covers):
        rule = f"operands lie on different chips: {list(grid.covers)} and"
        refuse(f"{rule} {list(tensor.grid.covers)}", "the same mapper for both")
    return restricted(tensor._array, tensor.grid, grid)


def axis_of(tensor: Tensor, dim: int, more: int = 0) -> int:
    """Return `dim` as a number from 0; a negative `dim` counts from the end.

    Args:
        more: the number of dimensions that a result has in addition; `dim` is then a
            dimension of the result.
    """
    rank = len(tensor.shard_shape) + more
    if not -rank <= dim < rank:
        refuse(
            f"Dimension out of range for {rank}D input tensor (index out of range): Index is out "
            f"of bounds for the rank, should be between {-rank} and {rank - 1} however is {dim}",
            f"a dim from {-rank} to {rank - 1}",
        )
    return dim % rank


def shaped(array: Array, keep: int, *shape: int) -> Array:
    """Return an array with its first axes as they are, and the others in another shape."""
    return array.reshape((*array.shape[:keep], *shape))


def with_rank(array: Array, lead: int, rank: int) -> Array:
    """Return an array over chips with sizes of 1 in front of its shards' shape, up to `rank`."""
    ones = (1,) * (lead + rank - array.ndim)
    return shaped(array, lead, *ones, *array.shape[lead:]) if ones else array


def in_whole_tiles(values: Array) -> Array:
    """Return values with zeros added until 32 divides each of the last two dimensions."""
    ends = [(0, -n % 32) for n in values.shape[-2:]]
    return np.pad(values, [(0, 0)] * (values.ndim - 2) + ends)


def spread(arrays: Sequence[Array], lead: int) -> list[Array]:
    """Broadcast arrays so that their first `lead` axes, which run over chips, are equally long."""
    lengths = np.broadcast_shapes(*(a.shape[:lead] for a in arrays))
    return [np.broadcast_to(a, lengths + a.shape[lead:]) for a in arrays]


def looked_up(array: Array, lead: int, places: Array) -> Array:
    """Return the entries of `array` at `places` [*chips, ...] of the axis after the leading ones.

    Each chip has its own places.
    """
    array, places = spread((array, places), lead)
    if blocks.idle[0]:
        return absent(places.shape + array.shape[lead + 1 :], array.dtype)
    return array[(*np.indices(places.shape, sparse=True)[:lead], places)]
