"""The state that a training program has one of: its device, its seed, its ranks, and which mesh
axis is for what.

Names and messages are ttml's (tt-train/sources/ttml/autograd/auto_context); the axis rule is its
newest one."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from os import environ
from pathlib import Path
from typing import Any, ClassVar

from ttkit import backend
from ttkit.errors import fail
from ttkit.hardware.device_order import opens_transposed
from ttkit.train import autograd
from ttkit.train.axes import STRATEGIES, parallel_axes
from ttkit.train.sockets import DistributedContext, SocketManager, SocketType

VARIABLE = "TT_MESH_GRAPH_DESC_PATH"


@dataclass(frozen=True)
class DistributedConfig:
    """Which strategies are on: data parallel shards the batch, tensor parallel the weights.

    `enable_cp`, context parallel, is ttml's name and is refused where a context is made of it.
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
        TTKitError: the number of strategies does not go with the mesh, or context parallelism.

    Example:
        >>> from ttkit import ttnn
        >>> with ttnn.open_mesh_device(ttnn.MeshShape(1, 8)) as mesh:
        ...     context = ParallelismContext(mesh, DistributedConfig(enable_tp=True))
        >>> context.get_tp_axis(), context.get_tp_size(), context.get_ddp_axis(), context.get_ddp_size()
        (1, 8, None, 1)
    """

    def __init__(self, device: Any, config: DistributedConfig):
        on = [name for name in STRATEGIES if getattr(config, f"enable_{name}")]
        self._shape = tuple(device.shape)
        self._axes = parallel_axes(self._shape, on)

    def __repr__(self) -> str:
        axes = ", ".join(
            f"{name}: axis {axis}, {self._size(name)} chips" for name, axis in self._axes.items()
        )
        return (
            f"ParallelismContext({'x'.join(map(str, self._shape))} mesh; "
            f"{axes or 'no parallelism'})"
        )

    def _size(self, name: str) -> int:
        return self._shape[self._axes[name]] if name in self._axes else 1

    def get_ddp_axis(self) -> int | None:
        """The mesh axis along which replicas of the model share a batch; None when off."""
        return self._axes.get("ddp")

    def get_tp_axis(self) -> int | None:
        """The mesh axis along which chips share each layer; None when off."""
        return self._axes.get("tp")

    def get_ddp_size(self) -> int:
        """How many replicas share a batch; 1 when off."""
        return self._size("ddp")

    def get_tp_size(self) -> int:
        """How many chips share a layer; 1 when off."""
        return self._size("tp")

    def is_ddp_enabled(self) -> bool:
        """Whether data parallelism is on."""
        return "ddp" in self._axes

    def is_tp_enabled(self) -> bool:
        """Whether tensor parallelism is on."""
        return "tp" in self._axes


class AutoContext:
    """What a training program has one of; `AutoContext.get_instance()` gives it.

    Example:
        >>> context = AutoContext.get_instance()
        >>> context.open_device([2, 4])
        >>> context.initialize_parallelism_context(DistributedConfig(enable_ddp=True, enable_tp=True))
        >>> context.get_parallelism_context()
        ParallelismContext(2x4 mesh; ddp: axis 0, 2 chips, tp: axis 1, 4 chips)
        >>> context.close_device()
    """

    _instance: ClassVar[AutoContext | None] = None

    def __init__(self) -> None:
        self._seed = 5489
        self._device: Any = None
        # whether open_device switched the fabric on, so that close_device switches it off
        self._own_fabric = False
        self._ranks: DistributedContext | None = None
        self._sockets: SocketManager | None = None
        self._parallelism: ParallelismContext | None = None

    @classmethod
    def get_instance(cls) -> AutoContext:
        """The one there is."""
        if cls._instance is None:
            cls._instance = cls()
        return cls._instance

    # ------------------------------------------------------------ numbers and gradients
    def set_seed(self, seed: int) -> None:
        """The number that initial weights and samples are drawn from."""
        self._seed = int(seed)

    def get_seed(self) -> int:
        """The seed; 5489 unless set."""
        return self._seed

    def set_gradient_mode(self, mode: autograd.GradMode) -> None:
        """Record operations for `backward`, or do not."""
        autograd.set_gradient_mode(mode)

    def get_gradient_mode(self) -> autograd.GradMode:
        """Whether operations are recorded."""
        return autograd.get_gradient_mode()

    def reset_graph(self) -> None:
        """ttml's programs call this after each step.

        Here nothing is left to forget: a graph lives as long as the tensor it led to.
        """

    # ------------------------------------------------------------ the device
    def open_device(
        self, mesh_shape: Sequence[int] | None = None, device_ids: Sequence[int] | None = None
    ) -> None:
        """Open the mesh to train on; for several chips with a fabric between them unless one is
        set:

        FABRIC_1D, or FABRIC_2D where the descriptor of TT_MESH_GRAPH_DESC_PATH has several meshes,
        which FABRIC_1D does not join.

        A shape that the machine has only turned is opened so, with a warning. A shape that the
        descriptor of TT_MESH_GRAPH_DESC_PATH does not have is refused: with ttml, opening it hangs,
        or a collective does later.

        Args:
            mesh_shape: [rows, columns]; [1, 1] when left out.
            device_ids: these chips in this order; none are named by None or [].

        Raises:
            TTKitError: not two numbers; a device is open; the shape is not the descriptor's; what
            `ttnn.open_mesh_device` refuses.
        """
        shape = (
            (1, 1)
            if mesh_shape is None
            else tuple(mesh_shape)
            if isinstance(mesh_shape, (list, tuple))
            else ()
        )
        asked = f"open_device({mesh_shape!r})"
        if len(shape) != 2 or not all(
            isinstance(n, int) and not isinstance(n, bool) for n in shape
        ):
            fail(
                asked,
                "mesh_shape must be a list/tuple of 2 integers: [rows, cols]",
                "mesh_shape=[2, 4]",
            )
        if self._device is not None:
            fail(
                asked,
                "open_device was called after the device was created.",
                "close_device() first; get_device() without open_device opens one chip",
            )
        ttnn = backend.load()
        off = ttnn.FabricConfig.DISABLED
        own_fabric = shape[0] * shape[1] > 1 and ttnn.get_fabric_config() == off
        if own_fabric:
            ttnn.set_fabric_config(
                ttnn.FabricConfig.FABRIC_2D if _several_meshes() else ttnn.FabricConfig.FABRIC_1D
            )
        try:
            if shape[0] * shape[1] > 1 and not device_ids:
                self._check_shape(shape, asked)
            self._device = ttnn.open_mesh_device(
                ttnn.MeshShape(*shape), physical_device_ids=list(device_ids or [])
            )
        except BaseException:
            if own_fabric:
                ttnn.set_fabric_config(off)
            raise
        self._own_fabric = own_fabric

    @staticmethod
    def _check_shape(shape: tuple[int, ...], asked: str) -> None:
        """Refuse a shape that the descriptor in use does not have; warn of one that opens
        turned.
        """
        whole = tuple(backend.load()._ttnn.multi_device.SystemMeshDescriptor().shape())
        fits = any(
            all(n <= m for n, m in zip(shape, size, strict=True)) for size in (whole, whole[::-1])
        )
        if environ.get(VARIABLE) and not fits:
            rule = (
                f"Mesh shape mismatch!\nRequested mesh_shape: {list(shape)}\nMGD "
                f"device_topology dims: {list(whole)}\n"
            )
            cure = (
                f"mesh_shape {list(whole)}, or a descriptor whose device_topology has dims "
                f"{list(shape)} in {VARIABLE}"
            )
            fail(
                asked,
                f"{rule}The two must match: ttml hangs or crashes here, or in a collective later.",
                cure,
            )
        turned = opens_transposed(whole, shape)
        if turned and 1 not in shape:  # a line opens around the rim
            warnings.warn(f"{asked}: {turned}\n  try: mesh_shape {list(shape[::-1])}", stacklevel=3)

    def is_device_open(self) -> bool:
        """Whether there is a device; `get_device` would open a single chip where there is none."""
        return self._device is not None

    def get_device(self) -> Any:
        """The open mesh; one chip, opened now, where none is open."""
        if self._device is None:
            self.open_device()
        return self._device

    def close_device(self) -> None:
        """Close the mesh, with the fabric that `open_device` switched on; the parallelism
        context and sockets, which are about it, go too.
        """
        if self._device is None:
            return
        ttnn = backend.load()
        device, self._device = self._device, None
        self._parallelism = self._sockets = None
        ttnn.close_mesh_device(device)
        if self._own_fabric:
            ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)
            self._own_fabric = False

    # ------------------------------------------------------------ ranks
    def initialize_distributed_context(self, *argv: str) -> None:
        """Find the other ranks; all ranks must call.

        The arguments are ttml's, for MPI, which here needs none.

        Raises:
            TTKitError: it was called before.
        """
        if self._ranks is not None:
            fail(
                "initialize_distributed_context",
                "MPIContext is already initialized.",
                "call it once; get_distributed_context() gives it",
            )
        self._ranks = DistributedContext()

    def get_distributed_context(self) -> DistributedContext:
        """The ranks.

        Raises:
            TTKitError: `initialize_distributed_context` was not called.
        """
        if self._ranks is None:
            fail(
                "get_distributed_context",
                "DistributedContext is not initialized.",
                "initialize_distributed_context(*sys.argv) first",
            )
        return self._ranks

    def initialize_socket_manager(self, socket_type: SocketType) -> None:
        """Choose how tensors go from rank to rank, for the open device."""
        self._sockets = SocketManager(self.get_device(), SocketType(socket_type))

    def get_socket_manager(self) -> SocketManager:
        """What sends and takes tensors.

        Raises:
            TTKitError: `initialize_socket_manager` was not called.
        """
        if self._sockets is None:
            rule = (
                "SocketManager is not initialized. Do not forget to call initialize_socket_manager."
            )
            fail(
                "get_socket_manager",
                rule,
                "initialize_socket_manager(SocketType.MPI) after open_device",
            )
        return self._sockets

    def is_socket_manager_initialized(self) -> bool:
        """Whether there is one."""
        return self._sockets is not None

    # ------------------------------------------------------------ parallelism
    def initialize_parallelism_context(self, config: DistributedConfig) -> None:
        """Give the axes of the open mesh to the strategies that are on.

        Args:
            config: which those are.

        Raises:
            TTKitError: it was called before; what `ParallelismContext` refuses.
        """
        if self._parallelism is not None:
            cure = (
                "call it once, right after open_device; reset_parallelism_context() to choose again"
            )
            fail(
                f"initialize_parallelism_context({config!r})",
                "ParallelismContext is already initialized.",
                cure,
            )
        self._parallelism = ParallelismContext(self.get_device(), config)

    def get_parallelism_context(self) -> ParallelismContext:
        """Which axis is for what.

        Raises:
            TTKitError: `initialize_parallelism_context` was not called.
        """
        if self._parallelism is None:
            cure = (
                "initialize_parallelism_context(DistributedConfig(...)) after open_device and "
                "before the model is made"
            )
            fail("get_parallelism_context", "ParallelismContext is not initialized.", cure)
        return self._parallelism

    def is_parallelism_context_initialized(self) -> bool:
        """Whether there is one."""
        return self._parallelism is not None

    def reset_parallelism_context(self) -> None:
        """Forget it, so that another can be made."""
        self._parallelism = None


def _several_meshes() -> bool:
    path = environ.get(VARIABLE)
    if not path or not Path(path).is_file():  # opening says what is wrong with it
        return False
    from ttkit.descriptors import read_descriptor  # imports protobuf

    return len(read_descriptor(path).meshes) > 1
