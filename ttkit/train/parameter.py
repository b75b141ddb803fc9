"""Parameters: what a model learns, and how the chips of a mesh share it."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from ttkit import ttnn
from ttkit.errors import fail
from ttkit.train import zero
from ttkit.train.autograd import Tensor, Value
from ttkit.train.distributed import averaged, gathered, one_copy
from ttkit.train.parallel import MeshLayout

Initializer = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]
EXPERTS = 1  # the dimension of [1, experts, out, in]


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
        cut: the dimension cut over the data-parallel axis by ZeRO, or None.
        grad_cut: the same of the gradient as it is now: with ZeRO 1 it is cut when it is averaged.
        expert: whether the data-parallel groups have other experts of it each.
        name: its place in the model, once the model has named it.
    """

    __slots__ = (
        "cut",
        "expert",
        "global_shape",
        "grad_cut",
        "initializer",
        "layout",
        "name",
        "placed_rows",
        "shard_dim",
    )

    def __init__(
        self,
        global_shape: tuple[int, ...],
        initializer: Initializer,
        layout: MeshLayout,
        shard_dim: int | None = None,
        placed_rows: int = 0,
    ):
        super().__init__(None)
        self.global_shape, self.initializer, self.layout = global_shape, initializer, layout
        self.shard_dim = shard_dim if layout.tp_size > 1 else None
        # with rows of zeros below, where a vocabulary must fill its tiles
        self.placed_rows = placed_rows or global_shape[2]
        self.expert = layout.ep and global_shape[EXPERTS] > 1
        self.cut = None if self.expert else zero.cut_dim(self.local_shape, layout)
        self.grad_cut: int | None = None
        self.name = ""

    @property
    def local_shape(self) -> tuple[int, ...]:
        """The shape of the weight that a chip computes with."""
        shape = list(self.global_shape)
        shape[2] = self.placed_rows
        if self.shard_dim is not None:
            shape[self.shard_dim] //= self.layout.tp_size
        if self.expert:
            shape[EXPERTS] //= self.layout.ddp_size
        return tuple(shape)

    @property
    def own_shape(self) -> tuple[int, ...]:
        """The shape of the shard that a chip's optimizer updates."""
        shape = list(self.local_shape)
        if self.cut is not None:
            shape[self.cut] //= self.layout.ddp_size
        return tuple(shape)

    # ------------------------------------------------------------ values
    def shape(self) -> list[int]:
        """The shape on one device, which may have only a part of it."""
        return list(self.local_shape)

    @property
    def is_kept_in_parts(self) -> bool:
        """Whether the chips hold parts of the weight, gathered when it is used: ZeRO 3."""
        return self.cut is not None and self.layout.zero == 3

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
        if self.cut is not None and self.is_kept_in_parts:
            return zero.whole(self.get_value(), self.cut, self.layout)
        return self.get_value()

    def own(self) -> Value:
        """Return the shard of the weight that each chip's optimizer updates; all of it without
        ZeRO.
        """
        if self.cut is None or self.is_kept_in_parts:
            return self.get_value()
        return zero.part(self.get_value(), self.cut, self.layout)

    def set_own(self, value: Value) -> None:
        """Replace the weight, of which each chip has updated its shard."""
        if self.cut is not None and not self.is_kept_in_parts:
            value = zero.whole(value, self.cut, self.layout)
        self.set_value(value)

    # ------------------------------------------------------------ gradients
    def set_grad(self, grad: Value | None) -> None:
        """Replace the gradient by one as backward accumulates it, with ZeRO 2 and 3 each chip's
        shard of it; None forgets it.
        """
        self.grad_cut = self.cut if self.layout.zero >= 2 else None
        if self.grad_cut is None:
            super().set_grad(grad)
        else:
            self._grad = grad

    def set_own_grad(self, grad: Value) -> None:
        """Replace the gradient by what each chip's optimizer takes: with ZeRO a shard of it."""
        self._grad, self.grad_cut = grad, self.cut

    def add_grad(self, grad: Value) -> None:
        """Add to the gradient accumulated so far: with ZeRO 2 and 3 the mean of the data-parallel
        replicas, of which each chip gets its shard.
        """
        if self.cut is not None and self.layout.zero >= 2:
            grad = zero.mean_part(grad, self.cut, self.layout)
        super().add_grad(grad)

    def average_grad(self) -> None:
        """Replace the gradient by its mean over the chips that have other tokens; with ZeRO, by
        each chip's shard of it.
        """
        grad, layout = self._grad, self.layout
        if grad is None:
            return
        if self.expert:  # its tokens came from all groups
            grad = ttnn.multiply(grad, 1 / layout.ddp_size)
        elif self.cut is None:
            grad = averaged(grad, layout.ddp_axis)
        elif self.grad_cut is None:
            grad = zero.mean_part(grad, self.cut, layout)
        self.set_own_grad(averaged(grad, layout.cp_axis))

    def scale_grad(self, factor: float) -> None:
        """Multiply the gradient, if there is one."""
        if self._grad is not None:
            self._grad = ttnn.multiply(self._grad, factor)

    def gather_grad(self) -> np.ndarray:
        """Return the global float32 array of the gradient."""
        return self.gather(self._grad, own=self.grad_cut is not None)

    # ------------------------------------------------------------ from and to one device
    def draw(self, seed: int) -> np.ndarray:
        """Return the initial values, a global array.

        They depend on the seed and the name alone, so they are the same on every mesh and stage."""
        generator = np.random.default_rng([seed, zlib.crc32(self.name.encode())])
        return self.initializer(generator, self.global_shape).astype(np.float32)

    def distribute(self, array: np.ndarray, dtype: Any = None, *, own: bool = False) -> Value:
        """Put a global array of this parameter's shape on the mesh, sharded as the parameter is.

        Args:
            own: each chip gets the shard that its optimizer updates.
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
            ddp_dim=EXPERTS if self.expert else None,
        )
        return zero.part(value, self.cut, self.layout) if own and self.cut is not None else value

    def place(self, array: np.ndarray) -> None:
        """Set the values from a global array."""
        self.set_value(self.distribute(array, own=self.is_kept_in_parts))

    def gather(self, value: Value | None = None, *, own: bool = False) -> np.ndarray:
        """Return the global float32 array of this parameter, or of a tensor that is sharded alike.

        Args:
            own: each chip has the shard that its optimizer updates.
        """
        value = self.full() if value is None else value
        if self.cut is not None and own:
            value = zero.whole(value, self.cut, self.layout)
        if self.expert:
            value = gathered(value, EXPERTS, self.layout.ddp_axis)
        if self.shard_dim is not None:
            value = gathered(value, self.shard_dim, self.layout.tp_axis)
        return np.asarray(one_copy(value)[:, :, : self.global_shape[2]], np.float32)
