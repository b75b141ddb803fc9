"""Parameters and the layers of models, plain and sharded over the tensor-parallel axis of a mesh
(ttml.modules).

A layer knows its parameters' *global* shapes and how they are sharded; values come with
`init_weights` or from a checkpoint. So a model that is too big for any machine can be constructed
and planned, and the same seed gives the same model on every mesh."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ttkit import ttnn
from ttkit.errors import fail
from ttkit.train import ops
from ttkit.train.autograd import Tensor, Value
from ttkit.train.context import current_layout
from ttkit.train.distributed import (
    GradOutputType,
    all_gather,
    all_reduce,
    broadcast,
    one_copy,
    scatter,
)
from ttkit.train.parallel import Layout

Initializer = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


def uniform(fan_in: int) -> Initializer:
    """Between -1/sqrt(fan_in) and 1/sqrt(fan_in), as ttml starts its linear layers."""
    bound = fan_in**-0.5
    return lambda generator, shape: generator.uniform(-bound, bound, shape)


def normal(deviation: float = 0.02) -> Initializer:
    """Gaussian, as GPT-2 starts its tables."""
    return lambda generator, shape: generator.standard_normal(shape) * deviation


def constant(value: float) -> Initializer:
    """The same number everywhere."""
    return lambda generator, shape: np.full(shape, value)


class Parameter(Tensor):
    """A tensor that is trained.

    Attributes:
        global_shape: its shape as one device would have it.
        shard_dim: the dimension cut over the tensor-parallel axis, or None.
        name: its place in the model, once the model has named it.
    """

    __slots__ = ("global_shape", "initializer", "layout", "name", "placed_rows", "shard_dim")

    def __init__(
        self,
        global_shape: tuple[int, ...],
        initializer: Initializer,
        layout: Layout,
        shard_dim: int | None = None,
        placed_rows: int = 0,
    ):
        super().__init__(None)
        self.global_shape, self.initializer, self.layout = global_shape, initializer, layout
        self.shard_dim = shard_dim if layout.tp_size > 1 else None
        # with rows of zeros below, where a vocabulary must fill its tiles
        self.placed_rows = placed_rows or global_shape[2]
        self.name = ""

    def get_value(self) -> Value:
        """The ttnn tensor.

        Raises:
            TTKitError: it has no values yet.
        """
        if self._value is None:
            asked = f"parameter {self.name or list(self.global_shape)}"
            fail(asked, "it has no values yet", "model.init_weights(seed), or load a checkpoint")
        return self._value

    def draw(self, seed: int) -> np.ndarray:
        """Return the initial values, a global array.

        They depend on the seed and the name alone, so they are the same on every mesh and stage."""
        generator = np.random.default_rng([seed, zlib.crc32(self.name.encode())])
        return self.initializer(generator, self.global_shape).astype(np.float32)

    def distribute(self, array: np.ndarray, dtype: Any = None) -> Value:
        """Put a global array of this parameter's shape on the mesh, sharded as the parameter is."""
        if array.shape != self.global_shape:
            rule = f"values of shape {list(array.shape)} for {list(self.global_shape)}"
            fail(f"parameter {self.name}", rule, "the global shape, not a shard's")
        below = self.placed_rows - self.global_shape[2]
        padded = np.pad(array, [(0, 0), (0, 0), (0, below), (0, 0)]) if below else array
        return self.layout.place(np.asarray(padded, np.float32), dtype=dtype, tp_dim=self.shard_dim)

    def place(self, array: np.ndarray) -> None:
        """Set the values from a global array."""
        self.set_value(self.distribute(array))

    def gather(self, value: Value | None = None) -> np.ndarray:
        """Return the global float32 array of this parameter, or of a tensor that is sharded alike,
        such as its gradient.
        """
        value = self.get_value() if value is None else value
        if self.shard_dim is not None:
            value = ttnn.all_gather(value, self.shard_dim, cluster_axis=self.layout.tp_axis)
        return np.asarray(one_copy(value)[:, :, : self.global_shape[2]], np.float32)


class Module:
    """Something with parameters, its own and those of the modules inside it."""

    training = True

    def children(self) -> Iterator[tuple[str, Any]]:
        """Yield (name, module) of the modules inside, in the order of their construction."""
        for name, value in vars(self).items():
            if isinstance(value, Module):
                yield name, value
            elif isinstance(value, dict):
                yield from (
                    (f"{name}.{key}", item)
                    for key, item in value.items()
                    if isinstance(item, Module)
                )

    def parameters(self) -> dict[str, Parameter]:
        """Return {name: parameter} in the order of construction.

        A parameter that two layers share comes once, under its first name."""
        found: dict[str, Parameter] = {}
        for name, parameter in self._walk(""):
            if all(parameter is not other for other in found.values()):
                found[name] = parameter
                parameter.name = name
        return found

    def _walk(self, prefix: str) -> Iterator[tuple[str, Parameter]]:
        for name, value in vars(self).items():
            if isinstance(value, Parameter):
                yield prefix + name, value
        for name, module in self.children():
            yield from module._walk(f"{prefix}{name}.")

    def init_weights(self, seed: int) -> None:
        """Give every parameter its initial values, the same on every mesh for the same seed."""
        for parameter in self.parameters().values():
            parameter.place(parameter.draw(seed))

    def train(self, mode: bool = True) -> None:
        """Switch dropout on or off."""
        self.training = mode
        for _, module in self.children():
            module.train(mode)

    def eval(self) -> None:
        """Switch dropout off."""
        self.train(False)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)  # type: ignore[attr-defined]


class Linear(Module):
    """x W^T + b, the same on every device."""

    shards: tuple[int | None, int | None] = None, None  # the dimensions of weight and bias cut

    def __init__(
        self,
        in_features: int,
        out_features: int,
        has_bias: bool = True,
        layout: Layout | None = None,
    ):
        self.layout, start = layout or current_layout(), uniform(in_features)
        shape, bias_shape = (1, 1, out_features, in_features), (1, 1, 1, out_features)
        self.weight = Parameter(shape, start, self.layout, self.shards[0])
        self.bias = None
        if has_bias:
            self.bias = Parameter(bias_shape, start, self.layout, self.shards[1])

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] -> [..., out]."""
        return ops.linear(x, self.weight, self.bias)


class ColumnParallelLinear(Linear):
    """x W^T + b with sharded output features: each device computes its part from whole inputs.

    Args:
        gather_output: join the parts, so that every device has all outputs.
    """

    shards = 2, 3

    def __init__(
        self,
        in_features: int,
        out_features: int,
        has_bias: bool = True,
        gather_output: bool = False,
        layout: Layout | None = None,
    ):
        super().__init__(in_features, out_features, has_bias, layout)
        self.gather_output = gather_output
        self.layout.split(out_features, "Output features")

    def forward(self, x: Tensor) -> Tensor:
        """[B, 1, S, in] -> [B, 1, S, out on this device]."""
        y = super().forward(broadcast(x, self.layout.tp_axis))
        if self.gather_output:
            y = all_gather(y, 3, self.layout.tp_axis, GradOutputType.REPLICATED)
        return y


class RowParallelLinear(Linear):
    """x W^T + b with sharded input features: each device multiplies its part, and the products are
    summed.

    Args:
        input_is_parallel: x has this device's part of the features already.
    """

    shards = 3, None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        has_bias: bool = True,
        input_is_parallel: bool = True,
        layout: Layout | None = None,
    ):
        super().__init__(in_features, out_features, has_bias, layout)
        self.input_is_parallel = input_is_parallel
        self.layout.split(in_features, "Input features")

    def forward(self, x: Tensor) -> Tensor:
        """[B, 1, S, in on this device] -> [B, 1, S, out]."""
        x = x if self.input_is_parallel else scatter(x, 3, self.layout.tp_axis)
        y = all_reduce(
            ops.linear(x, self.weight), noop_backward=True, cluster_axis=self.layout.tp_axis
        )
        return y + self.bias if self.bias else y


class LayerNorm(Module):
    """Mean 0 and variance 1 over the features, then scaled and shifted."""

    def __init__(self, features: int, has_bias: bool = True, layout: Layout | None = None):
        layout = layout or current_layout()
        self.weight = Parameter((1, 1, 1, features), constant(1.0), layout)
        self.bias = Parameter((1, 1, 1, features), constant(0.0), layout) if has_bias else None

    def forward(self, x: Tensor) -> Tensor:
        """[B, 1, S, E] -> the same shape."""
        return ops.layernorm(x, self.weight, self.bias)


class RMSNorm(Module):
    """Mean square 1 over the features, then scaled."""

    def __init__(self, features: int, epsilon: float = 1e-5, layout: Layout | None = None):
        self.epsilon = epsilon
        self.weight = Parameter((1, 1, 1, features), constant(1.0), layout or current_layout())

    def forward(self, x: Tensor) -> Tensor:
        """[B, 1, S, E] -> the same shape."""
        return ops.rmsnorm(x, self.weight, self.epsilon)


class Dropout(Module):
    """Zeros with the given probability while training.

    The places follow from the seed and the count of calls: the same on every mesh.
    """

    def __init__(self, probability: float, seed: int = 0):
        self.probability, self.seed, self.calls = probability, seed, 0

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        if not (self.training and self.probability):
            return x
        self.calls += 1
        return ops.dropout(
            x, self.probability, zlib.crc32(f"{self.seed} {self.calls}".encode()) >> 1
        )
