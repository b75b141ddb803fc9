"""Parameters and the layers of models, plain and sharded over the tensor-parallel axis of a mesh
(ttml.modules).

A layer stores the *global* shapes of its parameters and how they are sharded. `init_weights` or a
checkpoint sets the values later, so a model that is too big for any machine can be constructed and
planned. The same seed gives the same model on every mesh."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator

import numpy as np

from ttkit import ttnn
from ttkit.errors import fail
from ttkit.train.autograd import Tensor, Value, ops
from ttkit.train.config.layout import Layout
from ttkit.train.context import AutoContext, DistributedConfig, ParallelismContext, current_layout
from ttkit.train.parallel.distributed import (
    enter,
    gathered,
    leave,
    local_slice,
    one_copy,
    scatter,
    used_on_shards,
)

Array = np.ndarray
Initializer = Callable[[np.random.Generator, tuple[int, ...]], Array]
# TABLE is the name of the token table. HEAD is the name of the head, which on the last stage of a
# pipeline is a copy of the table if the two are tied.
TABLE, HEAD = "vocabulary.table", "vocabulary.head"
EXPERTS = 1  # This is the dimension of the experts in their weights, [1, experts, out, in].


def uniform(fan_in: int) -> Initializer:
    """Return an initializer that draws uniformly between -1/sqrt(fan_in) and 1/sqrt(fan_in).

    ttml draws the initial values of its linear layers in this way.
    """
    bound = fan_in**-0.5
    return lambda generator, shape: generator.uniform(-bound, bound, shape)


def normal(deviation: float = 0.02) -> Initializer:
    """Return an initializer that draws from a Gaussian of mean 0, as GPT-2 does for its tables."""
    return lambda generator, shape: generator.standard_normal(shape) * deviation


def constant(value: float) -> Initializer:
    """Return an initializer that sets all elements to the same number."""
    return lambda generator, shape: np.full(shape, value)


class Parameter(Tensor):
    """A tensor that is trained.

    Attributes:
        global_shape: the shape of the whole parameter, as on a single device.
        local_shape: the shape of the weight that a chip computes with.
        shard_shape: the shape of the shard that a chip's optimizer updates.
        shard_dim: the dimension sharded over the tensor-parallel axis, or None.
        zero_dim: the dimension that ZeRO shards over `layout.replica_axes`, or None.
        is_sharded: whether each chip holds only a shard of the weight along `zero_dim` (ZeRO 3).
            The shards are gathered when the weight is used.
        has_sharded_grad: whether each chip has a shard of the gradient along `zero_dim`: with
            ZeRO 1 once it is averaged, with ZeRO 2 and 3 from the first micro-batch on.
        expert: whether it is a tensor of experts that are sharded over the data-parallel ranks.
        copy_of: the name of the parameter on another pipeline stage that has the same values; ""
            if it is no copy.
        owner: among the ranks that have replicas, the one that updates the parameter; None if each
            rank updates its own replica.
        name: the path of the parameter in the model; "" until the model has named it.
    """

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
        self.shard_dim = shard_dim if layout.tp > 1 else None
        # A vocabulary that does not fill whole tiles is padded with rows of zeros at the end.
        self.placed_rows = placed_rows or global_shape[2]
        self.expert = layout.ep > 1 and global_shape[EXPERTS] > 1
        local = [*global_shape[:2], self.placed_rows, *global_shape[3:]]
        if self.shard_dim is not None:
            what = "Output features" if self.shard_dim == 2 else "Input features"
            local[self.shard_dim] = layout.split(local[self.shard_dim], what)
        if self.expert:
            local[EXPERTS] //= layout.dp
        self.zero_dim = None if self.expert else layout.zero_dim(local)
        # These are the arguments (dimension, mesh axis) of a collective for each axis in turn.
        self._zero_cuts: list[tuple[int, int]] = []
        self.is_sharded = self.zero_dim is not None and layout.zero == 3
        shard = local.copy()
        if self.zero_dim is not None:
            shard[self.zero_dim] //= layout.zero_shards
            self._zero_cuts = [(self.zero_dim, axis) for axis in layout.replica_axes]
        self.local_shape, self.shard_shape = tuple(local), tuple(shard)
        self.has_sharded_grad = False
        self.owner: int | None = None
        self.name = self.copy_of = ""

    # ------------------------------------------------------------ values
    def shape(self) -> list[int]:
        """Return the shape of the weight that a chip computes with, as a list."""
        return list(self.local_shape)

    def get_value(self) -> Value:
        """Return the ttnn tensor that the chips keep: with ZeRO 3 a shard of the weight on each.

        Raises:
            TTKitError: the parameter has no values yet.
        """
        if self._value is None:
            fail(
                f"parameter {self.name or list(self.global_shape)}",
                "it has no values yet",
                "model.init_weights(seed), or load a checkpoint",
            )
        return self._value

    def full(self) -> Value:
        """Return the weight that a chip computes with: with ZeRO 3 an all-gather of its shards."""
        return self._gathered(self.get_value()) if self.is_sharded else self.get_value()

    def get_shard(self) -> Value:
        """Return the shard of the weight that each chip's optimizer updates: without ZeRO the whole
        weight. Nothing is sent.
        """
        value = self.get_value()
        return value if self.is_sharded else self._sharded(value)

    def set_shard(self, value: Value) -> None:
        """Replace the weight by the shards that the chips have updated. Below ZeRO 3, an all-gather
        of the shards gives each chip the whole weight.
        """
        self.set_value(value if self.is_sharded else self._gathered(value))

    def _sharded(self, value: Value) -> Value:
        """Return each chip's ZeRO shard of a tensor that all replicas hold in full."""
        for cut in self._zero_cuts:
            value = local_slice(value, *cut)
        return value

    def _gathered(self, value: Value) -> Value:
        """Return the all-gather of the replicas' ZeRO shards."""
        for dim, axis in reversed(self._zero_cuts):
            value = ttnn.all_gather(value, dim, cluster_axis=axis)
        return value

    def scattered(self, grad: Value) -> Value:
        """Return each chip's ZeRO shard of the sum of the replicas' gradients."""
        for dim, axis in self._zero_cuts:
            grad = ttnn.reduce_scatter(grad, dim, cluster_axis=axis)
        return grad

    # ------------------------------------------------------------ gradients
    def set_grad(self, grad: Value | None) -> None:
        """Replace the gradient; None removes it.

        Args:
            grad: the new gradient, in the form in which backward accumulates it: with ZeRO 2 and 3
                each chip has its shard.
        """
        self._grad = grad
        self.has_sharded_grad = self.zero_dim is not None and self.layout.zero >= 2

    def set_shard_grad(self, grad: Value) -> None:
        """Replace the gradient by the one that each chip's optimizer uses: with ZeRO a shard."""
        self._grad, self.has_sharded_grad = grad, self.zero_dim is not None

    def place_grad(self, array: Array) -> None:
        """Replace the gradient by a global array: each chip gets what its optimizer uses of it."""
        self.set_shard_grad(self.distribute(array, self.dtype, shard=True))

    def add_grad(self, grad: Value) -> None:
        """Add to the gradient accumulated so far.

        With ZeRO 2 and 3, a reduce-scatter first adds up the gradients of the chips and gives each
        its shard of the sum. Only `average_gradients` divides it, once a step, so that backward
        does not wait for the arrival of each sum.
        """
        super().add_grad(self.scattered(grad) if self.layout.zero >= 2 else grad)

    def gather_grad(self) -> Array:
        """Return the global float32 array of the gradient: zeros if there is none."""
        if self._grad is None:
            return np.zeros(self.global_shape, np.float32)
        return self.gather(self._grad, shard=self.has_sharded_grad)

    # ------------------------------------------------------------ global arrays
    def draw(self, seed: int) -> Array:
        """Return the initial values, a global array.

        They depend only on the seed and on the name (of a copy, the name of its original), so they
        are the same on every mesh and stage."""
        generator = np.random.default_rng([seed, zlib.crc32((self.copy_of or self.name).encode())])
        return self.initializer(generator, self.global_shape).astype(np.float32)

    def distribute(self, array: Array, dtype=None, *, shard: bool = False) -> Value:
        """Put a global array of this parameter's shape on the mesh, sharded as the parameter is.

        Args:
            shard: whether each chip gets only the shard that its optimizer updates.
        """
        if array.shape != self.global_shape:
            fail(
                f"parameter {self.name}",
                f"values of shape {list(array.shape)} for {list(self.global_shape)}",
                "the global shape, not a shard's",
            )
        below = self.placed_rows - self.global_shape[2]
        padded = np.pad(array, [(0, 0), (0, 0), (0, below), (0, 0)]) if below else array
        value = self.layout.place(
            np.asarray(padded, np.float32),
            dtype=dtype,
            tp_dim=self.shard_dim,
            dp_dim=EXPERTS if self.expert else None,
        )
        return self._sharded(value) if shard else value

    def place(self, array: Array) -> None:
        """Set the values from a global array."""
        self.set_value(self.distribute(array, shard=self.is_sharded))

    def gather(self, value: Value | None = None, *, shard: bool = False) -> Array:
        """Return the global float32 array of this parameter, or of a tensor that is sharded in the
        same way.

        Args:
            shard: whether each chip has only the shard that its optimizer updates.
        """
        value = self.full() if value is None else value
        if shard:
            value = self._gathered(value)
        if self.expert:
            value = ttnn.all_gather(value, EXPERTS, cluster_axis=self.layout.dp_axis)
        if self.shard_dim is not None:
            value = ttnn.all_gather(value, self.shard_dim, cluster_axis=self.layout.tp_axis)
        return np.asarray(one_copy(value)[:, :, : self.global_shape[2]], np.float32)


Parameters = dict[str, Parameter]  # The keys are the paths of the parameters in the model.


class Module:
    """A part of a model: it has parameters of its own, and those of the modules inside it."""

    training = True

    def modules(self, path: str = "") -> Iterator[tuple[str, Module]]:
        """Yield (path, module) for this module and all modules inside it, in the order of
        construction.
        """
        yield path, self
        for name, value in vars(self).items():
            if isinstance(value, Module):
                yield from value.modules(f"{path}{name}.")
            elif isinstance(value, dict):
                for key, item in value.items():
                    if isinstance(item, Module):
                        yield from item.modules(f"{path}{name}.{key}.")

    def parameters(self) -> Parameters:
        """Return {name: parameter} in the order of construction.

        A parameter that two layers share appears once, under its first name."""
        names: dict[Parameter, str] = {}
        for path, module in self.modules():
            for name, value in vars(module).items():
                if isinstance(value, Parameter):
                    value.name = names.setdefault(value, path + name)
        return {name: parameter for parameter, name in names.items()}

    def init_weights(self, seed: int) -> None:
        """Give every parameter its initial values, the same on every mesh for the same seed."""
        for parameter in self.parameters().values():
            parameter.place(parameter.draw(seed))

    def train(self, mode: bool = True) -> None:
        """Switch training mode on or off: dropout, recomputation, and the experts' balance loss."""
        for _, module in self.modules():
            module.training = mode

    def eval(self) -> None:
        """Switch training mode off."""
        self.train(False)

    def __call__(self, *args, **kwargs):
        return self.forward(*args, **kwargs)  # type: ignore[attr-defined]


class Linear(Module):
    """A linear layer, x W^T + b, with the same weights on every device."""

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
        self.bias = Parameter(bias_shape, start, self.layout, self.shards[1]) if has_bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Return [..., out] for x [..., in]."""
        return ops.linear(x, self.weight, self.bias)


def sharded_layout() -> Layout:
    """Return the AutoContext's layout for a layer that is always tensor-parallel. Without a
    parallelism context, the layer is sharded over all chips of a line, as in ttml.

    Raises:
        TTKitError: there is no parallelism context, and the mesh is not a line.
    """
    context = AutoContext.get_instance()
    if context.is_parallelism_context_initialized():
        return current_layout()
    return ParallelismContext(context.get_device(), DistributedConfig(enable_tp=True)).layout


class ColumnParallelLinear(Linear):
    """A linear layer, x W^T + b, with sharded output features: each device computes its shard of
    the output from the full input.

    Args:
        gather_output: whether to all-gather the shards, so that every device has all outputs.
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

    def forward(self, x: Tensor) -> Tensor:
        """Return [B, 1, S, out on this device], or all outputs with `gather_output`."""
        y = super().forward(enter(x, self.layout))
        return gathered(y, self.layout) if self.gather_output else y


class RowParallelLinear(Linear):
    """A linear layer, x W^T + b, with sharded input features: each device multiplies its local
    shards, and an all-reduce adds the partial sums.

    Args:
        input_is_parallel: whether x is already this device's shard of the features.
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

    def forward(self, x: Tensor) -> Tensor:
        """Return [B, 1, S, out] for x [B, 1, S, in on this device]."""
        if not self.input_is_parallel and self.layout.tp_axis is not None:
            x = scatter(x, 3, self.layout.tp_axis)
        y = leave(ops.linear(x, self.weight), self.layout)
        return y + used_on_shards(self.bias, self.layout) if self.bias else y


class LayerNorm(Module):
    """A layer norm: it normalizes the features to mean 0 and variance 1, then multiplies by a
    weight and, with `has_bias`, adds a bias.
    """

    def __init__(self, features: int, has_bias: bool = True, layout: Layout | None = None):
        self.layout = layout = layout or current_layout()
        shape = (1, 1, 1, features)
        self.weight = Parameter(shape, constant(1.0), layout)
        self.bias = Parameter(shape, constant(0.0), layout) if has_bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalized x [B, 1, S, E], in the same shape."""
        weight = used_on_shards(self.weight, self.layout)
        return ops.layernorm(x, weight, self.bias and used_on_shards(self.bias, self.layout))


class RMSNorm(Module):
    """An RMS norm: it scales the features to mean square 1, then multiplies by a weight."""

    def __init__(self, features: int, epsilon: float = 1e-5, layout: Layout | None = None):
        self.epsilon, self.layout = epsilon, layout or current_layout()
        self.weight = Parameter((1, 1, 1, features), constant(1.0), self.layout)

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalized x [B, 1, S, E], in the same shape."""
        return ops.rmsnorm(x, used_on_shards(self.weight, self.layout), self.epsilon)


class Dropout(Module):
    """A layer that sets elements to zero with the given probability, in training only.

    The seed and the count of calls determine which positions of a device's shard are zeroed.
    """

    def __init__(self, probability: float, seed: int = 0):
        self.probability = probability
        self.seed = seed
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        """Return x with some elements set to zero, in the same shape."""
        if not (self.training and self.probability):
            return x
        self.calls += 1
        return ops.dropout(
            x, self.probability, zlib.crc32(f"{self.seed} {self.calls}".encode()) >> 1
        )
