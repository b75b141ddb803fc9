"""Parameters: what a model learns, and how the chips of a mesh share it."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ttkit import ttnn
from ttkit.errors import fail
from ttkit.train.autograd import Tensor, Value
from ttkit.train.config.layout import TILE, Layout
from ttkit.train.parallel.distributed import local_slice, one_copy, reduce_scatter_mean

Initializer = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]
EXPERTS = 1  # The experts' dimension in their weights [1, experts, out, in] is this one.


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


def tiled(shape: Sequence[int]) -> int:
    """Return the elements of a tensor in whole tiles: 32 divides its last two dimensions.

    Example:
        >>> tiled((1, 1, 1, 384)), tiled((1, 1, 384, 96))
        (12288, 36864)
    """
    *front, rows, columns = shape
    return math.prod(front) * -(-rows // TILE) * TILE * -(-columns // TILE) * TILE


class Parameter(Tensor):
    """A tensor that is trained.

    Attributes:
        global_shape: its shape as one device would have it.
        shard_dim: the dimension sharded over the tensor-parallel axis, or None.
        zero_dim: the dimension that ZeRO shards over the data-parallel axis, or None.
        has_sharded_grad: whether each chip has a shard of the gradient along `zero_dim`: with
            ZeRO 1 once it is averaged, with ZeRO 2 and 3 from the first micro-batch on.
        expert: whether it is a tensor of experts that are sharded over the data-parallel ranks.
        name: its path in the model, once the model has named it.
    """

    __slots__ = (
        "expert",
        "global_shape",
        "has_sharded_grad",
        "initializer",
        "layout",
        "name",
        "placed_rows",
        "shard_dim",
        "zero_dim",
    )

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
        # A vocabulary that must fill its tiles gets rows of zeros at the end.
        self.placed_rows = placed_rows or global_shape[2]
        self.expert = layout.ep > 1 and global_shape[EXPERTS] > 1
        self.zero_dim = None if self.expert else layout.zero_dim(self.local_shape)
        self.has_sharded_grad = False
        self.name = ""

    @property
    def local_shape(self) -> tuple[int, ...]:
        """The shape of the weight that a chip computes with."""
        shape = list(self.global_shape)
        shape[2] = self.placed_rows
        if self.shard_dim is not None:
            shape[self.shard_dim] //= self.layout.tp
        if self.expert:
            shape[EXPERTS] //= self.layout.dp
        return tuple(shape)

    @property
    def shard_shape(self) -> tuple[int, ...]:
        """The shape of the shard that a chip's optimizer updates."""
        shape = list(self.local_shape)
        if self.zero_dim is not None:
            shape[self.zero_dim] //= self.layout.dp
        return tuple(shape)

    # ------------------------------------------------------------ values
    def shape(self) -> list[int]:
        """The shape of the local shard on one device."""
        return list(self.local_shape)

    @property
    def is_sharded(self) -> bool:
        """Whether each chip holds a shard of the weight, gathered when it is used: ZeRO 3."""
        return self.zero_dim is not None and self.layout.zero == 3

    @property
    def dtype(self) -> Any:
        """The type of the values."""
        return self.get_value().dtype

    def get_value(self) -> Value:
        """The ttnn tensor that the chips keep: with ZeRO 3 a shard of the weight on each.

        Raises:
            TTKitError: it has no values yet.
        """
        if self._value is None:
            asked = f"parameter {self.name or list(self.global_shape)}"
            fail(asked, "it has no values yet", "model.init_weights(seed), or load a checkpoint")
        return self._value

    def full(self) -> Value:
        """Return the weight that a chip computes with: with ZeRO 3 an all-gather of its shards."""
        return self._gathered(self.get_value()) if self.is_sharded else self.get_value()

    def get_shard(self) -> Value:
        """Return the shard of the weight that each chip's optimizer updates; all of it without
        ZeRO. Nothing is sent.
        """
        value = self.get_value()
        return value if self.is_sharded else self._sharded(value)

    def set_shard(self, value: Value) -> None:
        """Replace the weight, of which each chip has updated its shard: below ZeRO 3 an all-gather
        of the shards.
        """
        self.set_value(value if self.is_sharded else self._gathered(value))

    def _sharded(self, value: Value) -> Value:
        """Return each chip's ZeRO shard of a tensor that all replicas hold in full."""
        if self.zero_dim is None:
            return value
        return local_slice(value, self.zero_dim, self.layout.dp_axis)

    def _gathered(self, value: Value) -> Value:
        """Return the all-gather of the replicas' ZeRO shards."""
        if self.zero_dim is None:
            return value
        return ttnn.all_gather(value, self.zero_dim, cluster_axis=self.layout.dp_axis)

    # ------------------------------------------------------------ gradients
    def set_grad(self, grad: Value | None) -> None:
        """Replace the gradient by one as backward accumulates it, with ZeRO 2 and 3 each chip's
        shard of it; None forgets it.
        """
        self.has_sharded_grad = self.zero_dim is not None and self.layout.zero >= 2
        if self.has_sharded_grad:
            self._grad = grad
        else:
            super().set_grad(grad)

    def set_shard_grad(self, grad: Value) -> None:
        """Replace the gradient by what each chip's optimizer takes: with ZeRO a shard of it."""
        self._grad, self.has_sharded_grad = grad, self.zero_dim is not None

    def add_grad(self, grad: Value) -> None:
        """Add to the gradient accumulated so far: with ZeRO 2 and 3 the mean of the data-parallel
        replicas, of which each chip gets its shard.
        """
        if self.zero_dim is not None and self.layout.zero >= 2:
            grad = reduce_scatter_mean(grad, self.zero_dim, self.layout.dp_axis)
        super().add_grad(grad)

    def scale_grad(self, factor: float) -> None:
        """Multiply the gradient, if there is one."""
        if self._grad is not None:
            self._grad = ttnn.multiply(self._grad, factor)

    def gather_grad(self) -> np.ndarray:
        """Return the global float32 array of the gradient."""
        return self.gather(self._grad, shard=self.has_sharded_grad)

    # ------------------------------------------------------------ from and to one device
    def draw(self, seed: int) -> np.ndarray:
        """Return the initial values, a global array.

        They depend on the seed and the name alone, so they are the same on every mesh and stage."""
        generator = np.random.default_rng([seed, zlib.crc32(self.name.encode())])
        return self.initializer(generator, self.global_shape).astype(np.float32)

    def distribute(self, array: np.ndarray, dtype: Any = None, *, shard: bool = False) -> Value:
        """Put a global array of this parameter's shape on the mesh, sharded as the parameter is.

        Args:
            shard: each chip gets the shard that its optimizer updates.
        """
        if array.shape != self.global_shape:
            rule = f"values of shape {list(array.shape)} for {list(self.global_shape)}"
            fail(f"parameter {self.name}", rule, "the global shape, not a shard's")
        below = self.placed_rows - self.global_shape[2]
        padded = np.pad(array, [(0, 0), (0, 0), (0, below), (0, 0)]) if below else array
        value = self.layout.place(
            np.asarray(padded, np.float32),
            dtype=dtype,
            tp_dim=self.shard_dim,
            dp_dim=EXPERTS if self.expert else None,
        )
        return self._sharded(value) if shard else value

    def place(self, array: np.ndarray) -> None:
        """Set the values from a global array."""
        self.set_value(self.distribute(array, shard=self.is_sharded))

    def gather(self, value: Value | None = None, *, shard: bool = False) -> np.ndarray:
        """Return the global float32 array of this parameter, or of a tensor that is sharded alike.

        Args:
            shard: each chip has the shard that its optimizer updates.
        """
        value = self.full() if value is None else value
        if shard:
            value = self._gathered(value)
        if self.expert:
            value = ttnn.all_gather(value, EXPERTS, cluster_axis=self.layout.dp_axis)
        if self.shard_dim is not None:
            value = ttnn.all_gather(value, self.shard_dim, cluster_axis=self.layout.tp_axis)
        return np.asarray(one_copy(value)[:, :, : self.global_shape[2]], np.float32)
