"""Parameters and the layers that models are made of, plain and cut over the tensor-parallel axis
of a mesh (ttml.modules).

A layer knows its parameters' *global* shapes and how they are cut; values come with `init_weights`
or from a checkpoint. So a model too big for any machine can be constructed and planned, and the
same seed gives the same model on every mesh."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ttkit import ttnn
from ttkit.convert import from_numpy
from ttkit.errors import fail
from ttkit.train import ops
from ttkit.train.autograd import Tensor, Value
from ttkit.train.context import AutoContext
from ttkit.train.distributed import (
    GradOutputType,
    all_gather,
    all_reduce,
    broadcast,
    one_copy,
    scatter,
)

Initializer = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


class Layout(NamedTuple):
    """Where a model lies: a mesh, and which of its axes cut the weights and the batch.

    Without a device it can be planned only.

    Example:
        >>> Layout(tp_axis=1, tp_size=8).split(384, "embedding_dim")
        48
    """

    device: Any = None
    tp_axis: int | None = None
    tp_size: int = 1
    ddp_axis: int | None = None
    ddp_size: int = 1
    dtype: Any = None

    def split(self, n: int, what: str) -> int:
        """A tensor-parallel device's part of n.

        Raises:
            TTKitError: it is not a whole number.
        """
        if n % self.tp_size:
            rule = (
                f"{what} must be divisible by the number of devices. {what} = {n}, "
                f"devices = {self.tp_size}"
            )
            fail(
                "tensor parallelism",
                rule,
                f"{what} a multiple of {self.tp_size}, or another mesh shape",
            )
        return n // self.tp_size

    @property
    def ddp_axes(self) -> tuple[int, ...]:
        """The mesh axes that replicas lie along."""
        return () if self.ddp_axis is None else (self.ddp_axis,)

    def mapper(self, tp_dim: int | None = None, ddp_dim: int | None = None) -> Any:
        """Cuts tensor dimension `tp_dim` over the tensor-parallel axis and `ddp_dim` over the
        data-parallel one.
        """
        placements: list[Any] = [ttnn.PlacementReplicate() for _ in self.device.shape]
        for axis, dim in ((self.tp_axis, tp_dim), (self.ddp_axis, ddp_dim)):
            if axis is not None and dim is not None:
                placements[axis] = ttnn.PlacementShard(dim)
        return ttnn.create_mesh_mapper(self.device, ttnn.MeshMapperConfig(placements))

    def place(
        self,
        array: np.ndarray,
        *,
        dtype: Any,
        tp_dim: int | None = None,
        ddp_dim: int | None = None,
        layout: Any = None,
    ) -> Value:
        """An array [any shape] on the mesh."""
        return from_numpy(
            array,
            dtype=dtype,
            layout=layout or ttnn.TILE_LAYOUT,
            device=self.device,
            mesh_mapper=self.mapper(tp_dim, ddp_dim),
        )

    def tokens(self, ids: np.ndarray) -> Value:
        """Tokens [B, 1, 1, S] on the mesh, the batch cut over the data-parallel axis."""
        if ids.shape[0] % self.ddp_size:
            rule = (
                f"a batch of {ids.shape[0]} does not divide among {self.ddp_size} groups: "
                f"{ids.shape[0]} % {self.ddp_size} = {ids.shape[0] % self.ddp_size}"
            )
            fail("Layout.tokens", rule, f"batch_size a multiple of {self.ddp_size}")
        return self.place(
            ids.astype(np.uint32), dtype=ttnn.uint32, ddp_dim=0, layout=ttnn.ROW_MAJOR_LAYOUT
        )


def current_layout(dtype: Any = None) -> Layout:
    """The layout of the AutoContext: its device, and the axes of its parallelism context where
    there is one.
    """
    context = AutoContext.get_instance()
    device = context.get_device()
    if not context.is_parallelism_context_initialized():
        return Layout(device, dtype=dtype)
    axes = context.get_parallelism_context()
    return Layout(
        device,
        axes.get_tp_axis(),
        axes.get_tp_size(),
        axes.get_ddp_axis(),
        axes.get_ddp_size(),
        dtype,
    )


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
            fail(
                f"parameter {self.name or list(self.global_shape)}",
                "it has no values yet",
                "model.init_weights(seed), or load a checkpoint",
            )
        return self._value

    def draw(self, seed: int) -> np.ndarray:
        """Its first values, the global array: a function of the seed and the name alone, so the
        same on every mesh and stage.
        """
        generator = np.random.default_rng([seed, zlib.crc32(self.name.encode())])
        return self.initializer(generator, self.global_shape).astype(np.float32)

    def distribute(self, array: np.ndarray, dtype: Any = None) -> Value:
        """A global array of this parameter's shape as a tensor that lies as this parameter lies."""
        if array.shape != self.global_shape:
            fail(
                f"parameter {self.name}",
                f"values of shape {list(array.shape)} for {list(self.global_shape)}",
                "the global shape, not a shard's",
            )
        below = self.placed_rows - self.global_shape[2]
        padded = np.pad(array, [(0, 0), (0, 0), (0, below), (0, 0)]) if below else array
        return self.layout.place(
            np.asarray(padded, np.float32),
            dtype=dtype or self.layout.dtype or ttnn.float32,
            tp_dim=self.shard_dim,
        )

    def place(self, array: np.ndarray) -> None:
        """Take the values of a global array."""
        self.set_value(self.distribute(array))

    def gather(self, value: Value | None = None) -> np.ndarray:
        """The global float32 array of this parameter, or of another tensor that lies as it does:
        its gradient, its momentum.
        """
        value = self.get_value() if value is None else value
        if self.shard_dim is not None:
            value = ttnn.all_gather(value, self.shard_dim, cluster_axis=self.layout.tp_axis)
        return np.asarray(one_copy(value)[:, :, : self.global_shape[2]], np.float32)


class Module:
    """Something with parameters, its own and those of the modules inside it."""

    training = True

    def children(self) -> Iterator[tuple[str, Any]]:
        """(name, module) of the modules inside, in the order of their making."""
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
        """name -> parameter, in the order of their making; a parameter that two layers share
        comes once, under its first name.
        """
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
        """Give every parameter its first values: those of the same seed are the same on every
        mesh.
        """
        for parameter in self.parameters().values():
            parameter.place(parameter.draw(seed))

    def train(self, mode: bool = True) -> None:
        """Use dropout, or do not."""
        self.training = mode
        for _, module in self.children():
            module.train(mode)

    def eval(self) -> None:
        """Leave dropout out."""
        self.train(False)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)  # type: ignore[attr-defined]


class ColumnParallelLinear(Module):
    """x W^T + b with the output features cut: each device has whole inputs and makes its part of
    the outputs.

    Args:
        gather_output: join the parts, so that every device has all outputs.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        has_bias: bool = True,
        gather_output: bool = False,
        layout: Layout | None = None,
    ):
        self.layout, self.gather_output = layout or current_layout(), gather_output
        self.layout.split(out_features, "Output features")
        self.weight = Parameter(
            (1, 1, out_features, in_features), uniform(in_features), self.layout, 2
        )
        self.bias = (
            Parameter((1, 1, 1, out_features), uniform(in_features), self.layout, 3)
            if has_bias
            else None
        )

    def forward(self, x: Tensor) -> Tensor:
        """[B, 1, S, in] -> [B, 1, S, out on this device]."""
        y = ops.linear(broadcast(x, self.layout.tp_axis), self.weight, self.bias)
        return (
            all_gather(y, 3, self.layout.tp_axis, GradOutputType.REPLICATED)
            if self.gather_output
            else y
        )


class RowParallelLinear(Module):
    """x W^T + b with the input features cut: each device multiplies its part, and the products
    are summed.

    Args:
        input_is_parallel: x has this device's part of the features already.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        has_bias: bool = True,
        input_is_parallel: bool = True,
        layout: Layout | None = None,
    ):
        self.layout, self.input_is_parallel = layout or current_layout(), input_is_parallel
        self.layout.split(in_features, "Input features")
        self.weight = Parameter(
            (1, 1, out_features, in_features), uniform(in_features), self.layout, 3
        )
        self.bias = (
            Parameter((1, 1, 1, out_features), uniform(in_features), self.layout)
            if has_bias
            else None
        )

    def forward(self, x: Tensor) -> Tensor:
        """[B, 1, S, in on this device] -> [B, 1, S, out]."""
        x = x if self.input_is_parallel else scatter(x, 3, self.layout.tp_axis)
        y = all_reduce(
            ops.linear(x, self.weight), noop_backward=True, cluster_axis=self.layout.tp_axis
        )
        return ops.add(y, self.bias) if self.bias else y


class Linear(Module):
    """x W^T + b, the same on every device."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        has_bias: bool = True,
        layout: Layout | None = None,
    ):
        layout = layout or current_layout()
        self.weight = Parameter((1, 1, out_features, in_features), uniform(in_features), layout)
        self.bias = (
            Parameter((1, 1, 1, out_features), uniform(in_features), layout) if has_bias else None
        )

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] -> [..., out]."""
        return ops.linear(x, self.weight, self.bias)


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
