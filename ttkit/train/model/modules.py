"""Parameters and the layers of models, plain and sharded over the tensor-parallel axis of a mesh
(ttml.modules).

A layer knows its parameters' *global* shapes and how they are sharded; values come with
`init_weights` or from a checkpoint. So a model that is too big for any machine can be constructed
and planned, and the same seed gives the same model on every mesh."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

from ttkit.train.autograd import Tensor, ops
from ttkit.train.config.layout import Layout
from ttkit.train.context import (
    AutoContext,
    DistributedConfig,
    ParallelismContext,
    current_layout,
)
from ttkit.train.model.parameter import Parameter, constant, uniform
from ttkit.train.parallel.distributed import (
    GradOutputType,
    all_gather,
    enter,
    leave,
    scatter,
    used_on_shards,
)


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

    # Tensor parallelism shards weight and bias along these dimensions.
    shards: tuple[int | None, int | None] = None, None

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


def sharded_layout() -> Layout:
    """Return the AutoContext's layout for a layer that is always tensor-parallel. Without a
    parallelism context all chips of a line shard it, as in ttml.

    Raises:
        TTKitError: there is no context, and the mesh is no line.
    """
    context = AutoContext.get_instance()
    if context.is_parallelism_context_initialized():
        return current_layout()
    return ParallelismContext(context.get_device(), DistributedConfig(enable_tp=True)).layout


class ColumnParallelLinear(Linear):
    """x W^T + b with sharded output features: each device computes its shard of the output from the
    full input.

    Args:
        gather_output: all-gather the shards, so that every device has all outputs.
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
        super().__init__(in_features, out_features, has_bias, layout or sharded_layout())
        self.gather_output = gather_output
        self.layout.split(out_features, "Output features")

    def forward(self, x: Tensor) -> Tensor:
        """[B, 1, S, in] -> [B, 1, S, out on this device]."""
        y = super().forward(enter(x, self.layout))
        if self.gather_output:
            y = all_gather(y, 3, self.layout.tp_axis, GradOutputType.REPLICATED)
        return y


class RowParallelLinear(Linear):
    """x W^T + b with sharded input features: each device multiplies its local shards, and an
    all-reduce adds the partial sums.

    Args:
        input_is_parallel: x is this device's shard of the features already.
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
        super().__init__(in_features, out_features, has_bias, layout or sharded_layout())
        self.input_is_parallel = input_is_parallel
        self.layout.split(in_features, "Input features")

    def forward(self, x: Tensor) -> Tensor:
        """[B, 1, S, in on this device] -> [B, 1, S, out]."""
        x = x if self.input_is_parallel else scatter(x, 3, self.layout.tp_axis)
        y = leave(ops.linear(x, self.weight), self.layout)
        return y + used_on_shards(self.bias, self.layout) if self.bias else y


class LayerNorm(Module):
    """Mean 0 and variance 1 over the features, then scaled and shifted."""

    def __init__(self, features: int, has_bias: bool = True, layout: Layout | None = None):
        self.layout = layout = layout or current_layout()
        self.weight = Parameter((1, 1, 1, features), constant(1.0), layout)
        self.bias = Parameter((1, 1, 1, features), constant(0.0), layout) if has_bias else None

    def forward(self, x: Tensor) -> Tensor:
        """[B, 1, S, E] -> the same shape."""
        weight = used_on_shards(self.weight, self.layout)
        return ops.layernorm(x, weight, self.bias and used_on_shards(self.bias, self.layout))


class RMSNorm(Module):
    """Mean square 1 over the features, then scaled."""

    def __init__(self, features: int, epsilon: float = 1e-5, layout: Layout | None = None):
        self.epsilon, self.layout = epsilon, layout or current_layout()
        self.weight = Parameter((1, 1, 1, features), constant(1.0), self.layout)

    def forward(self, x: Tensor) -> Tensor:
        """[B, 1, S, E] -> the same shape."""
        return ops.rmsnorm(x, used_on_shards(self.weight, self.layout), self.epsilon)


class Dropout(Module):
    """Zeros with the given probability while training.

    The seed and the count of calls determine the zeroed elements: the same on every mesh.
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
