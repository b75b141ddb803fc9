"""ttnn without values: tensors that know shape, type and bytes, and a tape of what was done.

In `without_values` the modules of `ttkit.train` get these operations in place of ttnn's. A model's
own code then runs in milliseconds, however large the model is, and the tape says which bytes it
held when, which collectives it called and which products. So a plan counts what runs."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from ttkit.errors import fail
from ttkit.hardware.chips import ELEMENT_BYTES
from ttkit.train.config.layout import TILE
from ttkit.train.context import recording


class Dtype(NamedTuple):
    """A type of elements, under the name that ttnn gives it."""

    name: str
    nbytes: int


DTYPES = {name.upper(): Dtype(name.upper(), nbytes) for name, nbytes in ELEMENT_BYTES.items()}


def dtype_named(of: Any) -> Dtype:
    """Return a type by its name, or by ttnn's own type."""
    return DTYPES[str(getattr(of, "name", of)).upper()]


# operations whose result has the shape of their operands, small ones repeated
ALIKE = set(
    "add addcdiv addcmul clone cumsum div divide dropout empty_like eq exp ge gelu gt le log "
    "logical_and logical_not lt maximum minimum multiply ne neg ones_like pow reciprocal relu "
    "rsqrt sigmoid sign silu sin softmax sqrt square subtract where zeros_like "
    "full_like rsub layer_norm rms_norm".split()
)
GRADIENTS = {"gelu_bw", "relu_bw", "silu_bw"}  # these return a list
FOLDS = {"max", "mean", "min", "sum"}


class Sent(NamedTuple):
    """A collective that was called: in which part of a step, its plan, and a chip's bytes."""

    part: str
    collective: str
    axis: int
    nbytes: int


class Multiplied(NamedTuple):
    """A product that was called: in which part of a step, its flops, and its operands' bytes."""

    part: str
    flops: int
    first: int
    second: int
    result: int


class Tape:
    """What a dry run did.

    Attributes:
        events: (part of a step, bytes) of each allocation, and of each end of one, below 0.
        at: how many events there were when each part began.
        part: the part of the step that runs, set by `begin`.
    """

    def __init__(self) -> None:
        self.part = ""
        self.events: list[tuple[str, int]] = []
        self.at: dict[str, int] = {}
        self.sent: list[Sent] = []
        self.products: list[Multiplied] = []

    def begin(self, part: str) -> None:
        """Name the part of a step that follows; where it began first counts."""
        self.part = part
        self.at.setdefault(part, len(self.events))


class Mesh:
    """A mesh of which only the shape is known."""

    def __init__(self, shape: Sequence[int], tape: Tape):
        self.shape, self.tape = tuple(shape), tape


class Value:
    """A tensor without values, [shape] on each chip; its bytes are on the tape while it lives."""

    __slots__ = ("dtype", "layout", "mesh", "nbytes", "shape")

    def __init__(self, mesh: Mesh, shape: Sequence[int], dtype: Dtype, layout: str = "TILE"):
        self.mesh, self.shape, self.dtype, self.layout = mesh, tuple(shape), dtype, layout
        elements = dtype.nbytes
        if layout == "TILE":
            *front, rows, columns = self.shape if len(shape) > 1 else (1, 1, *shape)
            elements *= -(-rows // TILE) * -(-columns // TILE) * TILE**2
            shape = front
        for n in shape:
            elements *= n
        self.nbytes = elements
        tape = mesh.tape
        tape.events.append((tape.part, elements))

    def __del__(self) -> None:
        tape = self.mesh.tape
        tape.events.append((tape.part, -self.nbytes))

    def device(self) -> Mesh:
        """The mesh."""
        return self.mesh

    def like(self, shape: Sequence[int], dtype: Dtype | None = None) -> Value:
        """Return a tensor of another shape or type on the same mesh."""
        return Value(self.mesh, shape, dtype or self.dtype, self.layout)


def _changed(shape: Sequence[int], dim: int, size: int) -> list[int]:
    found = list(shape)
    found[dim] = size
    return found


class Operations:
    """The operations that `ttkit.train` uses, under ttnn's names."""

    TILE_SIZE, TILE_LAYOUT, ROW_MAJOR_LAYOUT = TILE, "TILE", "ROW_MAJOR"

    class GeluVariant:
        """ttnn's name."""

        Tanh = "tanh"

    def __init__(self) -> None:
        self.experimental = self
        for name, dtype in DTYPES.items():
            setattr(self, name.lower(), dtype)
        rules = (ALIKE, self._alike), (GRADIENTS, self._gradients), (FOLDS, self._folded)
        for names, rule in rules:
            for name in names:
                setattr(self, name, rule)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        rule = f"ttnn.{name} has no rule for shapes"
        fail("plan a step without values", rule, "a row of ttkit/layouts/shapes.py")

    # ------------------------------------------------------------ on each chip
    def _alike(self, first: Value, *others: Any, **how: Any) -> Value:
        shape = first.shape
        for other in others:
            if isinstance(other, Value) and other.shape != shape:
                rank = max(len(shape), len(other.shape))
                pairs = zip(*((1,) * (rank - len(s)) + tuple(s) for s in (shape, other.shape)))
                shape = tuple(map(max, pairs))
        return first.like(shape)

    def _gradients(self, first: Value, *others: Any, **how: Any) -> list[Value]:
        return [self._alike(first)]

    def _folded(self, x: Value, dim: Any = None, keepdim: bool = False) -> Value:
        rank = len(x.shape)
        dims = range(rank) if dim is None else dim if isinstance(dim, (list, tuple)) else [dim]
        folded = {d % rank for d in dims}
        kept = [
            1 if d in folded else n for d, n in enumerate(x.shape) if keepdim or d not in folded
        ]
        return x.like(kept)

    def matmul(
        self, a: Value, b: Value, transpose_a: bool = False, transpose_b: bool = False, **how: Any
    ) -> Value:
        """[..., m, k] times [..., k, n]."""
        rows, inner = a.shape[-2:][::-1] if transpose_a else a.shape[-2:]
        columns = b.shape[-2] if transpose_b else b.shape[-1]
        batch = [max(pair) for pair in zip(a.shape[:-2], b.shape[:-2])]
        out = a.like([*batch, rows, columns])
        flops = 2 * math.prod(batch) * rows * inner * columns
        tape = a.mesh.tape
        tape.products.append(Multiplied(tape.part, flops, a.nbytes, b.nbytes, out.nbytes))
        return out

    linear = matmul

    def topk(self, x: Value, k: int, dim: int = -1, **how: Any) -> tuple[Value, Value]:
        """Values and their places."""
        shape = _changed(x.shape, dim, k)
        return x.like(shape), x.like(shape, DTYPES["UINT16"])

    def typecast(self, x: Value, dtype: Any) -> Value:
        """Another type."""
        return x.like(x.shape, dtype_named(dtype))

    def to_layout(self, x: Value, layout: Any) -> Value:
        """The tensor itself where it has that layout."""
        name = str(getattr(layout, "name", layout))
        return x if name == x.layout else Value(x.mesh, x.shape, x.dtype, name)

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        """The same elements; one size may be -1."""
        known = -math.prod(shape)
        return x.like([math.prod(x.shape) // known if n == -1 else n for n in shape])

    def transpose(self, x: Value, dim1: int, dim2: int) -> Value:
        """Two dimensions swapped."""
        shape = list(x.shape)
        shape[dim1], shape[dim2] = shape[dim2], shape[dim1]
        return x.like(shape)

    def concat(self, tensors: Sequence[Value], dim: int = 0, **how: Any) -> Value:
        """Joined along a dimension."""
        first = tensors[0]
        return first.like(_changed(first.shape, dim, sum(t.shape[dim] for t in tensors)))

    def slice(self, x: Value, starts: Sequence[int], ends: Sequence[int], **how: Any) -> Value:
        """From starts to ends."""
        return x.like([end - start for start, end in zip(starts, ends)])

    # ------------------------------------------------------------ between chips
    def _sent(self, collective: str, x: Value, axis: int) -> int:
        tape = x.mesh.tape
        tape.sent.append(Sent(tape.part, collective, axis, x.nbytes))
        return x.mesh.shape[axis]

    def all_reduce(self, x: Value, *, cluster_axis: int) -> Value:
        """The same shape."""
        self._sent("all_reduce", x, cluster_axis)
        return x.like(x.shape)

    def all_gather(self, x: Value, dim: int, *, cluster_axis: int) -> Value:
        """`dim` times the chips along the axis."""
        chips = self._sent("all_gather", x, cluster_axis)
        return x.like(_changed(x.shape, dim, x.shape[dim] * chips))

    def reduce_scatter(self, x: Value, dim: int, *, cluster_axis: int) -> Value:
        """`dim` divided by the chips along the axis."""
        chips = self._sent("reduce_scatter", x, cluster_axis)
        return x.like(_changed(x.shape, dim, x.shape[dim] // chips))

    def mesh_partition(self, x: Value, dim: int, cluster_axis: int) -> Value:
        """A part of `dim`; nothing is sent."""
        return x.like(_changed(x.shape, dim, x.shape[dim] // x.mesh.shape[cluster_axis]))

    def all_to_all_async_generic(
        self, x: Value, in_dim: int, out_dim: int, *, cluster_axis: int, **how: Any
    ) -> Value:
        """`in_dim` times the chips along the axis, `out_dim` divided by them."""
        chips = self._sent("all_to_all", x, cluster_axis)
        shape = _changed(x.shape, in_dim, x.shape[in_dim] * chips)
        return x.like(_changed(shape, out_dim, shape[out_dim] // chips))


# ---------------------------------------------------------------- in place of functions
def _from_numpy(
    array: np.ndarray, *, dtype: Any, layout: Any, device: Mesh, mesh_mapper: Any
) -> Value:
    """Return a tensor of an array's shape, cut as `Planned.mapper` says."""
    shape = list(array.shape)
    for dim, size in mesh_mapper:
        shape[dim] //= size
    return Value(device, shape, dtype_named(dtype), str(getattr(layout, "name", layout)))


def _shifted(value: Value, cluster_axis: int, backward: bool = False) -> Value:
    tape = value.mesh.tape
    tape.sent.append(Sent(tape.part, "shift", cluster_axis, value.nbytes))
    return value.like(value.shape)


INSTEAD = {
    "ttnn": Operations(),
    "from_numpy": _from_numpy,
    "one_copy": lambda value: np.full((1, 1, 1, 1), 1e6),
    "shifted": _shifted,
}
_one = threading.Lock()


@contextmanager
def without_values() -> Iterator[None]:
    """Let the modules of `ttkit.train` compute without values inside; one thread at a time."""
    with _one:
        modules = [vars(m) for name, m in sys.modules.items() if name.startswith("ttkit.train.")]
        swapped = [
            (module, key, module[key])
            for module in modules
            for key in INSTEAD.keys() & module.keys()
        ]
        for module, key, _ in swapped:
            module[key] = INSTEAD[key]
        before, recording[0] = recording[0], True  # also inside `no_grad`
        try:
            yield
        finally:
            recording[0] = before
            for module, key, real in swapped:
                module[key] = real
