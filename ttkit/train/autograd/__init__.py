"""Reverse-mode differentiation over ttnn tensors: a tensor that records how it was computed, and
the backward pass.

The names are those of ttml.autograd. The module makes only ttnn calls, so it runs on cards as well
as on the simulator."""

from __future__ import annotations

import contextlib
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ttkit import ttnn
from ttkit.backend import Array, from_numpy, to_numpy
from ttkit.errors import fail
from ttkit.train.context import AutoContext, recording

Value = Any  # A value is a ttnn.Tensor of the simulator or of the real library.
Gradients = list[Value]  # There is one for each input of an operation.
# A `Backward` takes the gradient of a result, and returns a gradient, or None, for each input.
Backward = Callable[[Value], Sequence[Value | None]]


class Node(NamedTuple):
    """One recorded operation: its inputs, and the function that returns their gradients."""

    name: str
    inputs: Sequence[Tensor]
    backward: Backward


# This node replaces one that a backward pass has used and freed.
FREED = Node("an operation that backward has freed", (), lambda grad: ())
# ttml makes tensors of arrays in these types only.
OF_ARRAYS = (None, ttnn.bfloat16, ttnn.float32, ttnn.int32, ttnn.uint32)


class Values(np.ndarray):
    """An array that `float` converts if it has one element, whatever its shape.

    NumPy 2.4 does not convert an array that has dimensions.
    """

    def __float__(self) -> float:
        return float(self.item())


class Tensor:
    """A ttnn tensor in a computation that can be differentiated.

    The shapes of two operands of + - * may differ where a size is 1. The second operand may be a
    number.

    Args:
        value: the ttnn tensor, on a mesh.
        requires_grad: accumulate a gradient here in `backward`.

    Example:
        >>> from ttkit import ttnn
        >>> mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, 1))
        >>> w = Tensor.from_numpy(np.float32([[3.0]]), device=mesh)
        >>> (w * w).backward()
        >>> float(to_numpy(w.get_grad())[0, 0])
        6.0
        >>> ttnn.close_mesh_device(mesh)
    """

    __slots__ = ("__weakref__", "_grad", "_node", "_requires_grad", "_value")
    # A `Parameter` may be sharded, or the copy of another one.
    copy_of = ""
    shard_dim: int | None = None
    expert = has_sharded_grad = False

    def __init__(self, value: Value, requires_grad: bool = True):
        self._value = value
        self._requires_grad = requires_grad
        self._grad: Value | None = None
        self._node: Node | None = None

    @classmethod
    def from_numpy(
        cls,
        array: Array,
        layout=None,
        new_type=None,
        mapper=None,
        *,
        device=None,
        requires_grad: bool = True,
    ) -> Tensor:
        """Make a tensor of an array [any shape], tiled unless `layout` is given.

        Args:
            device: the mesh to put the tensor on, by default the mesh of the AutoContext, which
                opens one chip if no mesh is open.
        """
        if new_type not in OF_ARRAYS:
            fail("Tensor.from_numpy", f"Unsupported type: {new_type}", "bfloat16", TypeError)
        value = from_numpy(
            array,
            dtype=new_type,
            layout=layout or ttnn.TILE_LAYOUT,
            device=device or AutoContext.get_instance().get_device(),
            mesh_mapper=mapper,
        )
        return cls(value, requires_grad)

    def to_numpy(self, new_type=None, composer=None) -> Array:
        """Return the values, joined by `composer` if there are several shards."""
        value = self.get_value() if new_type is None else ttnn.typecast(self.get_value(), new_type)
        return to_numpy(value, mesh_composer=composer).view(Values)

    def get_value(self) -> Value:
        """Return the ttnn tensor."""
        return self._value

    def full(self) -> Value:
        """Return the ttnn tensor that operations compute with; see `Parameter.full`."""
        return self._value

    def set_value(self, value: Value) -> None:
        """Replace the ttnn tensor, as an optimizer does."""
        self._value = value

    def get_shard(self) -> Value:
        """Return the ttnn tensor that an optimizer updates; `Parameter` returns a shard of it."""
        return self.get_value()

    def set_shard(self, value: Value) -> None:
        """Replace the ttnn tensor that an optimizer updates."""
        self.set_value(value)

    def set_shard_grad(self, grad: Value) -> None:
        """Replace the gradient of what an optimizer updates."""
        self.set_grad(grad)

    @property
    def dtype(self):
        """The type of the values."""
        return self.get_value().dtype

    def shape(self) -> list[int]:
        """Return the shape on one device."""
        return list(self.get_value().shape)

    def get_requires_grad(self) -> bool:
        """Return whether `backward` accumulates a gradient here."""
        return self._requires_grad

    def set_requires_grad(self, requires_grad: bool) -> None:
        """Choose whether `backward` accumulates a gradient here."""
        self._requires_grad = requires_grad

    def get_grad(self) -> Value | None:
        """Return the gradient accumulated so far, of the value's shape, or None."""
        return self._grad

    def set_grad(self, grad: Value | None) -> None:
        """Replace the gradient; None removes it."""
        self._grad = grad

    def add_grad(self, grad: Value) -> None:
        """Add to the gradient accumulated so far."""
        self.set_grad(grad if self._grad is None else self._grad + grad)

    def is_grad_initialized(self) -> bool:
        """Return whether there is a gradient."""
        return self._grad is not None

    def backward(self, retain_graph: bool = False) -> None:
        """Add the gradient of this tensor's sum to every leaf that it depends on and that requires
        one.

        A leaf is a tensor that no recorded operation made. If this tensor has a gradient, backward
        starts from that gradient and not from ones.

        Args:
            retain_graph: keep the recorded operations for another backward.

        Raises:
            TTKitError: nothing was recorded, or an earlier backward freed it.
        """
        if self._node is None or self._node is FREED:
            fail(
                "Tensor.backward",
                "nothing that it was made from was recorded: it was made under no_grad, "
                "or from tensors that require no gradient, or its backward ran already",
                "compute it again, or backward(retain_graph=True) the first time",
            )
        seed = self._grad if self._grad is not None else ttnn.ones_like(self._value)
        self._grad = None
        _propagate(self, seed, retain_graph)

    def _with(self, name: str, other: Any, compute: Callable, *slopes: Callable) -> Tensor:
        """Record an operation with another operand.

        Args:
            compute: a function of two ttnn tensors, or of a ttnn tensor and a number.
            slopes: a function for each operand: it takes the gradient of the result and the two
                values, and returns the gradient of the operand.
        """
        x = self.full()
        y = other
        inputs = [self]
        if isinstance(other, Tensor):
            y, inputs = other.full(), [self, other]

        def backward(grad: Value) -> list[Value | None]:
            return [
                back_to(each, slope(grad, x, y)) if each._requires_grad else None
                for each, slope in zip(inputs, slopes)
            ]

        return recorded(name, compute(x, y), inputs, backward)

    def __add__(self, other: Tensor | float) -> Tensor:
        return self._with("add", other, operator.add, *2 * [lambda g, *_: g])

    def __sub__(self, other: Tensor | float) -> Tensor:
        return self._with("sub", other, operator.sub, lambda g, *_: g, lambda g, *_: ttnn.neg(g))

    def __mul__(self, other: Tensor | float) -> Tensor:
        return self._with("mul", other, operator.mul, lambda g, x, y: g * y, lambda g, x, y: g * x)

    # Python 3 does not call `__div__`: `a / b` raises a TypeError. The name is that of ttml.
    def __div__(self, other: Tensor | float) -> Tensor:
        return self._with(
            "div",
            other,
            operator.truediv,
            lambda g, x, y: g / y,
            lambda g, x, y: ttnn.neg(g * x / (y * y)),
        )

    __radd__, __rmul__ = __add__, __mul__

    def __matmul__(self, other: Tensor) -> Tensor:
        """Return the product over the last two dimensions.

        A leading dimension of `other` may be 1.
        """
        return self._with(
            "matmul",
            other,
            operator.matmul,
            lambda g, x, y: ttnn.matmul(g, y, transpose_b=True),
            lambda g, x, y: ttnn.matmul(x, g, transpose_a=True),
        )

    def __repr__(self) -> str:
        made = f", made by {self._node.name}" if self._node else ""
        grad = "there" if self._grad is not None else "none"
        return f"autograd.Tensor(shape={self.shape()}{made}, gradient {grad})"


def back_to(tensor: Tensor, grad: Value) -> Value:
    """Return a gradient in the shape of its operand: summed over the dimensions along which the
    operand was repeated.
    """
    own = tensor.shape()
    shape = [1] * (len(grad.shape) - len(own)) + own
    repeated = [i for i, (got, had) in enumerate(zip(grad.shape, shape)) if got != had]
    if repeated:
        grad = ttnn.sum(grad, dim=repeated, keepdim=True)
    return grad if list(grad.shape) == own else ttnn.reshape(grad, tuple(own))


def _propagate(root: Tensor, seed: Value, retain_graph: bool) -> None:
    """Go from the root to the leaves; each tensor passes its gradient on once all operations that
    used it have added theirs.
    """
    # For each tensor, `waits` counts the uses that have not yet added their gradient.
    waits: Counter[Tensor] = Counter()
    todo = [root]
    while todo:
        node = todo.pop()._node
        for source in node.inputs if node else ():
            if source._requires_grad:
                if source._node is FREED:
                    fail(
                        "Tensor.backward",
                        f"the backward of another tensor freed a tensor of shape {source.shape()} "
                        "that this one depends on",
                        "backward(retain_graph=True) there, or add the two, then one backward",
                    )
                if source not in waits:
                    todo.append(source)
                waits[source] += 1
    grads: dict[Tensor, Value] = {root: seed}
    ready = [root]
    while ready:
        tensor = ready.pop()
        grad = grads.pop(tensor, None)
        node = tensor._node
        assert node is not None  # A leaf has no node and never becomes ready.
        parts: Sequence[Value | None] = [None] * len(node.inputs)
        if grad is not None:
            parts = node.backward(grad)
        if not retain_graph:
            tensor._node = FREED
        for source, part in zip(node.inputs, parts):
            if not source._requires_grad:
                continue
            if part is not None:
                grads[source] = part if source not in grads else grads[source] + part
            waits[source] -= 1
            if waits[source] == 0:
                del waits[source]  # Otherwise `waits` would keep all activations until the end.
                if source._node is not None:
                    ready.append(source)
                elif source in grads:
                    source.add_grad(grads.pop(source))


def recorded(name: str, value: Value, inputs: Sequence[Tensor], backward: Backward) -> Tensor:
    """Return the result of an operation; record the operation if an input requires a gradient.

    Args:
        name: the operation's name for messages.
        value: the result.
        inputs: the tensors that get gradients.
        backward: a function that takes the gradient of the value and returns one gradient, or None,
            for each input.
    """
    wanted = recording[0] and any(tensor._requires_grad for tensor in inputs)
    out = Tensor(value, requires_grad=wanted)
    if wanted:
        out._node = Node(name, inputs, backward)
    return out


def recompute(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Return `function(x)` and keep only x: backward computes the rest again (Chen 2016).

    Args:
        function: a function that returns the same values in each call.
    """
    if not recording[0]:
        return function(x)
    with no_grad():
        value = function(x).get_value()

    def backward(grad: Value) -> list[Value | None]:
        start = Tensor(x.get_value())
        end = function(start)
        end.set_grad(grad)
        end.backward()
        return [start.get_grad(), None]

    # This input requires a gradient, so that backward runs for the function's weights even if x
    # requires none.
    weights = Tensor(x.get_value())
    return recorded("recompute", value, [x, weights], backward)


@contextlib.contextmanager
def no_grad() -> Iterator[None]:
    """Record no operations inside the block; validation and sampling need no gradients."""
    before, recording[0] = recording[0], False
    try:
        yield
    finally:
        recording[0] = before
