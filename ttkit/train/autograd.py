"""Reverse-mode differentiation over ttnn tensors: a tensor that remembers how it was made, and
the walk back.

Names are ttml's (ttml.autograd). Nothing here but ttnn calls, so it runs on cards as on the
simulator."""

from __future__ import annotations

import contextlib
import heapq
import itertools
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Any

import numpy as np

from ttkit import ttnn
from ttkit.convert import from_numpy, to_numpy
from ttkit.errors import fail

Value = Any  # a ttnn.Tensor, of the simulator or of the real library
Hook = Callable[[Value], "Value | None"]


class GradMode(Enum):
    """Whether operations are recorded."""

    ENABLED = "enabled"
    DISABLED = "disabled"


_mode = [GradMode.ENABLED]
_ages = itertools.count()


class Node:
    """One recorded operation: what went in, and how a gradient of what came out becomes one of
    each input.
    """

    __slots__ = ("backward", "inputs", "name")

    def __init__(
        self,
        name: str,
        inputs: Sequence[Tensor],
        backward: Callable[[Value], Sequence[Value | None]],
    ):
        self.name, self.inputs, self.backward = name, tuple(inputs), backward


# in place of one that a backward pass went through and freed
PASSED = Node("an operation that was passed", (), lambda grad: ())


class Tensor:
    """A ttnn tensor in a computation that can be differentiated.

    Args:
        value: the ttnn tensor, on a mesh.
        requires_grad: gather a gradient here when `backward` passes.

    Example:
        >>> from ttkit import ttnn
        >>> mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, 1))
        >>> w = Tensor.from_numpy(np.float32([[3.0]]), device=mesh)
        >>> (w * w).backward()
        >>> float(to_numpy(w.get_grad())[0, 0])
        6.0
        >>> ttnn.close_mesh_device(mesh)
    """

    __slots__ = ("__weakref__", "_age", "_grad", "_hooks", "_node", "_requires_grad", "_value")

    def __init__(self, value: Value, requires_grad: bool = True):
        self._value, self._requires_grad = value, requires_grad
        self._grad: Value | None = None
        self._node: Node | None = None
        self._hooks: list[Hook] = []
        self._age = next(_ages)

    @classmethod
    def from_numpy(
        cls,
        array: np.ndarray,
        layout: Any = None,
        new_type: Any = None,
        mapper: Any = None,
        *,
        device: Any = None,
        requires_grad: bool = True,
    ) -> Tensor:
        """A tensor with the values of an array [any shape], tiled unless `layout` says
        otherwise.
        """
        value = from_numpy(
            array,
            dtype=new_type,
            layout=layout or ttnn.TILE_LAYOUT,
            device=device,
            mesh_mapper=mapper,
        )
        return cls(value, requires_grad)

    def to_numpy(self, new_type: Any = None, composer: Any = None) -> np.ndarray:
        """The values, joined by `composer` where there are several shards."""
        value = self.get_value() if new_type is None else ttnn.typecast(self.get_value(), new_type)
        return to_numpy(value, mesh_composer=composer)

    def get_value(self) -> Value:
        """The ttnn tensor."""
        return self._value

    def set_value(self, value: Value) -> None:
        """Put another ttnn tensor in its place: what an optimizer does."""
        self._value = value

    def shape(self) -> list[int]:
        """The shape on one device."""
        return list(self.get_value().shape)

    def get_requires_grad(self) -> bool:
        """Whether a gradient is gathered here."""
        return self._requires_grad

    def set_requires_grad(self, requires_grad: bool) -> None:
        """Choose whether a gradient is gathered here."""
        self._requires_grad = requires_grad

    def get_grad(self) -> Value | None:
        """The gradient gathered so far, of the value's shape, or None."""
        return self._grad

    def set_grad(self, grad: Value | None) -> None:
        """Replace the gradient; None forgets it.

        Raises:
            TTKitError: its shape is not the value's.
        """
        if grad is not None and list(grad.shape) != self.shape():
            fail(
                "Tensor.set_grad",
                f"the gradient's shape {list(grad.shape)} is not the value's, {self.shape()}",
                "reshape it, or gather its shards",
            )
        self._grad = grad

    def add_grad(self, grad: Value) -> None:
        """Add to the gradient gathered so far."""
        self.set_grad(grad if self._grad is None else ttnn.add(self._grad, grad))

    def is_grad_initialized(self) -> bool:
        """Whether there is a gradient."""
        return self._grad is not None

    def register_hook(self, hook: Hook) -> Callable[[], None]:
        """Call `hook(gradient)` once a pass has this tensor's whole gradient; what it gives,
        unless None, takes its place.

        Returns:
            A function that removes the hook.
        """
        self._hooks.append(hook)
        return lambda: self._hooks.remove(hook)

    def backward(self, retain_graph: bool = False) -> None:
        """Add the gradient of this tensor's sum to every tensor that it was made from and that
        requires one.

        Args:
            retain_graph: keep what was recorded, to pass again.

        Raises:
            TTKitError: nothing was recorded, or it was passed already.
        """
        if self._node is None or self._node is PASSED:
            rule = (
                "nothing that it was made from was recorded: it was made under no_grad, "
                "of tensors without gradients, or its backward ran already"
            )
            fail(
                "Tensor.backward",
                rule,
                "compute it again, or backward(retain_graph=True) the first time",
            )
        seed = self._grad if self._grad is not None else ttnn.ones_like(self._value)
        self._grad = None
        _walk(self, seed, retain_graph)

    def __add__(self, other: Any) -> Tensor:
        return _ops().add(self, other)

    def __sub__(self, other: Any) -> Tensor:
        return _ops().sub(self, other)

    def __mul__(self, other: Any) -> Tensor:
        return _ops().mul(self, other)

    __radd__, __rmul__ = __add__, __mul__

    def __matmul__(self, other: Tensor) -> Tensor:
        return _ops().matmul(self, other)

    def __repr__(self) -> str:
        made = f", made by {self._node.name}" if self._node else ""
        return (
            f"autograd.Tensor(shape={self.shape()}{made}, gradient "
            f"{'there' if self._grad is not None else 'none'})"
        )


def _ops() -> Any:
    from ttkit.train import ops  # which is built on this module

    return ops


def _walk(root: Tensor, seed: Value, retain_graph: bool) -> None:
    """From the youngest tensor to the oldest; each passes its gradient on once all that used it
    have added theirs.
    """
    waits: dict[Tensor, int] = {}  # how many uses have not yet given their gradient
    todo, seen = [root], {root}
    while todo:
        node = todo.pop()._node
        for source in node.inputs if node else ():
            if source._requires_grad:
                if source._node is PASSED:
                    rule = (
                        f"a tensor of shape {source.shape()} that it was made from was passed "
                        "already, by the backward of another tensor"
                    )
                    fail(
                        "Tensor.backward",
                        rule,
                        "backward(retain_graph=True) there, or add the two and pass once",
                    )
                waits[source] = waits.get(source, 0) + 1
                if source not in seen:
                    seen.add(source)
                    todo.append(source)
    grads: dict[Tensor, Value] = {root: seed}
    ready = [(-root._age, root)]
    while ready:
        tensor = heapq.heappop(ready)[1]
        grad = grads.pop(tensor, None)
        node = tensor._node
        assert node is not None  # leaves never wait here
        given = (
            node.backward(_hooked(tensor, grad)) if grad is not None else [None] * len(node.inputs)
        )
        if not retain_graph:
            tensor._node = PASSED
        for source, part in zip(node.inputs, given):
            if not source._requires_grad:
                continue
            if part is not None:
                grads[source] = part if source not in grads else ttnn.add(grads[source], part)
            waits[source] -= 1
            if waits[source] == 0:
                if source._node is not None:
                    heapq.heappush(ready, (-source._age, source))
                elif source in grads:  # a leaf has its whole gradient now, before the walk goes on
                    source.add_grad(_hooked(source, grads.pop(source)))


def _hooked(tensor: Tensor, grad: Value) -> Value:
    for hook in tuple(tensor._hooks):
        replaced = hook(grad)
        grad = grad if replaced is None else replaced
    return grad


def recorded(
    name: str,
    value: Value,
    inputs: Sequence[Tensor],
    backward: Callable[[Value], Sequence[Value | None]],
) -> Tensor:
    """The result of an operation, remembered unless gradients are off or no input requires one.

    Args:
        name: shown in messages.
        value: what the operation gave.
        inputs: the tensors that gradients go to.
        backward: gradient of the value -> one gradient, or None, for each input.
    """
    wanted = _mode[0] is GradMode.ENABLED and any(tensor._requires_grad for tensor in inputs)
    out = Tensor(value, requires_grad=wanted)
    if wanted:
        out._node = Node(name, inputs, backward)
    return out


def recompute(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """`function(x)`, of which nothing but x is kept: backward computes it again (Chen 2016,
    "sublinear memory cost").

    Args:
        function: must give the same each time.
    """
    if get_gradient_mode() is GradMode.DISABLED:
        return function(x)
    with no_grad():
        value = function(x).get_value()

    def backward(grad: Value) -> list[Value | None]:
        start = Tensor(x.get_value())
        end = function(start)
        end.set_grad(grad)
        end.backward()
        return [start.get_grad(), None]

    # stands for those in the function, which want gradients also where x does not
    weights = Tensor(x.get_value())
    return recorded("recompute", value, [x, weights], backward)


def get_gradient_mode() -> GradMode:
    """Whether operations are recorded now."""
    return _mode[0]


def set_gradient_mode(mode: GradMode) -> None:
    """Record operations from now on, or do not."""
    _mode[0] = mode


@contextlib.contextmanager
def no_grad() -> Iterator[None]:
    """Operations inside are not recorded: for validation and for sampling."""
    before = _mode[0]
    _mode[0] = GradMode.DISABLED
    try:
        yield
    finally:
        _mode[0] = before
