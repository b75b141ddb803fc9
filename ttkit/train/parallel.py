"""Which mesh axis each parallel strategy takes, and where a model and its batch lie as a result.

The rule is ttml's newest: on a line of chips, the one strategy that is on has the axis that is
longer than 1, as the training guide promises for [1, 32]."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ttkit import backend  # loaded late: the linter asks for the axes alone
from ttkit.convert import from_numpy
from ttkit.errors import fail

STRATEGIES = ("ddp", "cp", "tp")  # in the order in which they take axes
# the words that the guide has people search for
GUIDES_RULE = (
    "The number of parallelization axes must be equal to the number of mesh shape dimensions"
)
GUIDES_CURE = (
    "a line [1, N] or [N, 1]: only one of enable_ddp and enable_tp; a 2D mesh [M, N]: both; "
    "enable_cp can take the place of either"
)
TILE = 32


def parallel_axes(shape: Sequence[int], enabled: Collection[str]) -> dict[str, int]:
    """Return the mesh axis of each strategy that is on: {"ddp": 0, "tp": 1}.

    Args:
        shape: rows and columns of the mesh.
        enabled: those of "ddp", "tp" and "cp" that are on.

    Raises:
        TTKitError: the wrong number of strategies for the shape, in ttml's words.

    Example:
        >>> parallel_axes((4, 8), ("ddp", "tp")), parallel_axes((1, 32), ("tp",))
        ({'ddp': 0, 'tp': 1}, {'tp': 1})
    """
    on = [name for name in STRATEGIES if name in enabled]
    mesh = f"MeshShape({list(shape)})"
    asked = f"{' and '.join(f'enable_{name}' for name in on) or 'no parallelism'} on {mesh}"
    wide = [axis for axis, size in enumerate(shape) if size > 1]
    if not wide and not on:  # ttml's programs make no context for one chip
        return {}
    if len(wide) < 2 and len(on) != 1:
        got = ", ".join(f"{name}={str(name in on).lower()}" for name in ("ddp", "tp", "cp"))
        rule = (
            f"For line mesh topology (shape {mesh}), exactly one parallelism type must be enabled."
        )
        fail(asked, f"{rule} Got: {got} ({GUIDES_RULE})", GUIDES_CURE)
    if len(wide) == 2 and len(on) != 2:
        rule = f"For 2D mesh (shape {mesh}), number of enabled parallelization axes ({len(on)})"
        fail(asked, f"{rule} must equal mesh dimensions (2). ({GUIDES_RULE})", GUIDES_CURE)
    return dict(zip(on, wide or [0]))


def check_divisible(what: str, size: int, by: str, parts: int, of: str = "") -> None:
    """Raise unless `parts` divides `size`.

    Args:
        what, by, of: their names, for the message.

    Raises:
        TTKitError: with the equation and the nearest sizes that are divisible.

    Example:
        >>> check_divisible("batch_size", 8, "the DDP size", 4)
        >>> check_divisible("batch_size", 6, "the DDP size", 4)
        Traceback (most recent call last):
        ttkit.errors.TTKitError: cut batch_size into 4: batch_size 6 is not divisible by the DDP ...
          try: batch_size 4 or 8
    """
    if size % parts:
        near = [n for n in (size // parts * parts, (size // parts + 1) * parts) if n]
        rule = f"{what} {size} is not divisible by {by} {parts}{of}"
        cure = f"{what} {' or '.join(map(str, near))}"
        fail(f"cut {what} into {parts}", f"{rule}: {size} % {parts} = {size % parts}", cure)


def check_experts(experts: int, chosen: int, layout: MeshLayout) -> None:
    """Raise unless so many experts, of which a token chooses some, fit a layout."""
    if layout.ep and not experts:
        rule = "num_experts is 0: the model has none to share"
        fail("expert_parallel", rule, "num_experts: a multiple of the DDP size")
    if experts and chosen > experts:
        rule = f"experts_per_token {chosen} is more than num_experts {experts}"
        fail("choose experts", rule, f"experts_per_token: {experts} at most")
    if experts and layout.cp_size > 1:
        rule = f"all tokens of a sequence share its experts' places, and {layout.cp_size} chips"
        fail(f"num_experts {experts}", f"{rule} have a part of it each", "enable_cp: false")
    if layout.ep:
        check_divisible("num_experts", experts, "the DDP size", layout.ddp_size)


@dataclass(frozen=True)
class DistributedConfig:
    """Which strategies are on: data parallel shards the batch, tensor parallel the weights, context
    parallel the sequence.
    """

    enable_ddp: bool = False
    enable_tp: bool = False
    enable_cp: bool = False


class ParallelismContext:
    """Which mesh axis each strategy has.

    Args:
        device: an open mesh.
        config: which strategies are on.

    Raises:
        TTKitError: the number of strategies does not fit the mesh.

    Example:
        >>> from ttkit import ttnn
        >>> with ttnn.open_mesh_device(ttnn.MeshShape(1, 8)) as mesh:
        ...     context = ParallelismContext(mesh, DistributedConfig(enable_tp=True))
        >>> context.get_tp_axis(), context.get_tp_size()
        (1, 8)
        >>> context.get_ddp_axis(), context.get_ddp_size()
        (None, 1)
    """

    def __init__(self, device: Any, config: DistributedConfig):
        on = [name for name in STRATEGIES if getattr(config, f"enable_{name}")]
        self._axes = parallel_axes(device.shape, on)
        self.layout = MeshLayout.of(device.shape, self._axes, device)

    def __repr__(self) -> str:
        shape = tuple(self.layout.device.shape)
        axes = [f"{name}: axis {axis}, {shape[axis]} chips" for name, axis in self._axes.items()]
        mesh = "x".join(map(str, shape))
        return f"ParallelismContext({mesh} mesh; {', '.join(axes) or 'no parallelism'})"

    def get_ddp_axis(self) -> int | None:
        """The mesh axis along which replicas of the model share a batch; None when off."""
        return self.layout.ddp_axis

    def get_tp_axis(self) -> int | None:
        """The mesh axis along which chips share each layer; None when off."""
        return self.layout.tp_axis

    def get_cp_axis(self) -> int | None:
        """The mesh axis along which chips share each sequence; None when off."""
        return self.layout.cp_axis

    def get_ddp_size(self) -> int:
        """How many replicas share a batch; 1 when off."""
        return self.layout.ddp_size

    def get_tp_size(self) -> int:
        """How many chips share a layer; 1 when off."""
        return self.layout.tp_size

    def get_cp_size(self) -> int:
        """How many chips share a sequence; 1 when off."""
        return self.layout.cp_size

    def is_ddp_enabled(self) -> bool:
        """Whether data parallelism is on."""
        return "ddp" in self._axes

    def is_tp_enabled(self) -> bool:
        """Whether tensor parallelism is on."""
        return "tp" in self._axes

    def is_cp_enabled(self) -> bool:
        """Whether context parallelism is on."""
        return "cp" in self._axes


def zigzag(length: int, parts: int) -> np.ndarray:
    """Return the order in which `parts` chips share `length` positions: first those of chip 0.

    The sequence is cut into 2 x parts chunks. Chip i has chunk i and, of those at the end, chunk
    2 x parts - 1 - i, so that causal attention costs all chips the same.

    Example:
        >>> zigzag(8, 2)
        array([0, 1, 6, 7, 2, 3, 4, 5])
    """
    chunks = np.arange(length).reshape(2 * parts, -1)
    return np.concatenate([chunks[[i, 2 * parts - 1 - i]].ravel() for i in range(parts)])


class MeshLayout(NamedTuple):
    """Where a model lies: a mesh, which of its axes share the weights, the batch and the sequence,
    and what else the chips along these axes share.

    Without a device it can only be planned.

    Attributes:
        tp_axis, tp_size: the chips that share each layer.
        ddp_axis, ddp_size: the groups that share the batch.
        dtype: of weights and activations.
        cp_axis, cp_size: the chips that share each sequence.
        zero: what the data-parallel groups share beside the batch: 1 the optimizer's state, 2 the
            gradients too, 3 the weights too (see `ttkit.train.zero`).
        sequence_parallel: between the layers the tensor-parallel chips share the sequence.
        ep: the data-parallel groups share the experts.

    Example:
        >>> MeshLayout(tp_axis=1, tp_size=8).split(384, "embedding_dim")
        48
    """

    device: Any = None
    tp_axis: int | None = None
    tp_size: int = 1
    ddp_axis: int | None = None
    ddp_size: int = 1
    dtype: Any = None
    cp_axis: int | None = None
    cp_size: int = 1
    zero: int = 0
    sequence_parallel: bool = False
    ep: bool = False

    @classmethod
    def of(
        cls,
        shape: Sequence[int],
        axes: Mapping[str, int],
        device: Any = None,
        dtype: Any = None,
        **more: Any,
    ) -> MeshLayout:
        """Return the layout on a mesh of this shape whose strategies have these axes.

        Args:
            more: zero, sequence_parallel, ep.
        """
        found = {f"{name}_axis": axis for name, axis in axes.items()}
        found |= {f"{name}_size": shape[axis] for name, axis in axes.items()}
        return cls(device=device, dtype=dtype, **found, **more)  # type: ignore[arg-type]

    @property
    def replica_axes(self) -> list[int]:
        """The mesh axes along which chips have the same weights and other tokens."""
        return [axis for axis in (self.ddp_axis, self.cp_axis) if axis is not None]

    def split(self, n: int, what: str) -> int:
        """Return a tensor-parallel device's part of n.

        Raises:
            TTKitError: it is not a whole number.
        """
        if n % self.tp_size:
            rule = f"{what} must be divisible by the number of devices. {what} = {n}, "
            cure = f"{what} a multiple of {self.tp_size}, or another mesh shape"
            fail("tensor parallelism", f"{rule}devices = {self.tp_size}", cure)
        return n // self.tp_size

    def check_sequence(self, what: str, length: int) -> None:
        """Raise unless the context-parallel chips can share a sequence in whole tiles."""
        if self.cp_size > 1:
            by = f"{2 * self.cp_size} chunks of whole tiles of {TILE}:"
            check_divisible(what, length, by, 2 * self.cp_size * TILE)

    def mapper(
        self, tp_dim: int | None = None, ddp_dim: int | None = None, cp_dim: int | None = None
    ) -> Any:
        """Return the mapper that shards one tensor dimension over the tensor-parallel axis, one
        over the data-parallel and one over the context-parallel axis.
        """
        ttnn = backend.load()
        placements: list[Any] = [ttnn.PlacementReplicate() for _ in self.device.shape]
        cuts = (self.tp_axis, tp_dim), (self.ddp_axis, ddp_dim), (self.cp_axis, cp_dim)
        for axis, dim in cuts:
            if axis is not None and dim is not None:
                placements[axis] = ttnn.PlacementShard(dim)
        return ttnn.create_mesh_mapper(self.device, ttnn.MeshMapperConfig(placements))

    def place(
        self,
        array: np.ndarray,
        *,
        dtype: Any = None,
        tp_dim: int | None = None,
        ddp_dim: int | None = None,
        cp_dim: int | None = None,
        layout: Any = None,
    ) -> Any:
        """Put an array [any shape] on the mesh, tiled and of the layout's type unless given.

        Positions along `cp_dim` are shared in `zigzag` order."""
        ttnn = backend.load()
        if cp_dim is not None and self.cp_size > 1:
            array = np.take(array, zigzag(array.shape[cp_dim], self.cp_size), axis=cp_dim)
        return from_numpy(
            array,
            dtype=dtype or self.dtype or ttnn.float32,
            layout=layout or ttnn.TILE_LAYOUT,
            device=self.device,
            mesh_mapper=self.mapper(tp_dim, ddp_dim, cp_dim),
        )

    def tokens(self, ids: np.ndarray) -> Any:
        """Put tokens [B, 1, 1, S] on the mesh, the batch sharded over the data-parallel axis, the
        sequence over the context-parallel one.
        """
        check_divisible("batch_size", ids.shape[0], "the number of groups", self.ddp_size)
        self.check_sequence("the sequence", ids.shape[3])
        ttnn = backend.load()
        where = {"ddp_dim": 0, "cp_dim": 3, "layout": ttnn.ROW_MAJOR_LAYOUT}
        return self.place(ids.astype(np.uint32), dtype=ttnn.uint32, **where)
