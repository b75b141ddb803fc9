"""The process-wide state of a training program: the device, the seed, the ranks and the sockets to
them, and the mesh axis of each strategy.

Names and messages are ttml's (tt-train/sources/ttml/autograd/auto_context)."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from enum import Enum
from os import environ
from typing import Any, NamedTuple

from ttkit import ttnn
from ttkit.errors import fail
from ttkit.hardware.current import current_machine, descriptor_in_use
from ttkit.hardware.device_order import transposed_warning
from ttkit.train.config.layout import Layout
from ttkit.train.config.settings import (
    STRATEGIES,
    DeviceConfig,
    Settings,
    enabled_strategies,
    parallel_axes,
)

VARIABLE = "TT_MESH_GRAPH_DESC_PATH"
FIFO_BYTES = 1 << 16  # The receiving buffer of a socket has this many bytes on each chip.


class DistributedContext:
    """The ranks that MPI started.

    Example:
        >>> context = DistributedContext()  # of one process on its own
        >>> context.rank(), context.size()
        (0, 1)
    """

    def __init__(self) -> None:
        ttnn.init_distributed_context()

    def size(self) -> int:
        """Return how many ranks there are."""
        return int(ttnn.distributed_context_get_size())

    def rank(self) -> int:
        """Return the number of this rank."""
        return int(ttnn.distributed_context_get_rank())

    def barrier(self) -> None:
        """Wait for all ranks."""
        ttnn.distributed_context_barrier()


def socket_config(mesh, memory, to: Callable = lambda chip: chip, **ranks: int):
    """Return the configuration of a socket from each chip of a mesh to the chip at `to(chip)`.

    Without `to`, that is the chip at the same coordinate on the mesh of another rank.
    """

    def core(chip):
        return ttnn.MeshCoreCoord(chip, ttnn.CoreCoord(0, 0))

    chips = ttnn.MeshCoordinateRange(mesh.shape)
    joined = [ttnn.SocketConnection(core(chip), core(to(chip))) for chip in chips]
    return ttnn.SocketConfig(joined, memory, **ranks)


def sockets(mesh, peer: int) -> dict[int, Any]:
    """Return the two sockets between this rank's mesh and a mesh of the same shape on rank `peer`.

    The key of a socket is the rank that sends. Each chip is joined to the chip at the same
    coordinate. Both ranks must make their sockets in the same order."""
    rank = int(ttnn.distributed_context_get_rank())
    memory = ttnn.SocketMemoryConfig(ttnn.BufferType.L1, FIFO_BYTES)
    found = {}
    for sender, receiver in sorted([(rank, peer), (peer, rank)]):
        config = socket_config(mesh, memory, sender_rank=sender, receiver_rank=receiver)
        found[sender] = ttnn.MeshSocket(mesh, config)
    return found


_kept = functools.cache(sockets)  # All tensors that `SocketManager` sends share these sockets.


class SocketManager:
    """A manager that sends ttml's tensors from rank to rank, between meshes of the same shape."""

    def send(self, tensor, distributed_ctx, rank: int, use_grad: bool = False) -> None:
        """Send the values of a tensor, or its gradient."""
        value = tensor.get_grad() if use_grad else tensor.get_value()
        mine = int(ttnn.distributed_context_get_rank())
        ttnn.experimental.send_async(value, _kept(value.device(), rank)[mine])

    def recv(self, tensor, distributed_ctx, rank: int, use_grad: bool = False):
        """Receive values into a tensor of the shape and type of the sent one, and return it."""
        like = ttnn.zeros_like(tensor.get_value())
        value = ttnn.experimental.recv_async(like, _kept(like.device(), rank)[rank])[0]
        (tensor.set_grad if use_grad else tensor.set_value)(value)
        return tensor


class SocketType(Enum):
    """How ttml sends tensors between ranks; here both kinds use sockets between meshes."""

    MPI = 0
    FABRIC = 1


class GradMode(Enum):
    """Whether operations are recorded for `backward`."""

    DISABLED = 0
    ENABLED = 1


recording = [True]
one_token = [False]  # This is True while a `Sampler` computes one token.


class DistributedConfig(NamedTuple):
    """Which strategies are on: data parallel shards the batch, tensor parallel the weights, context
    parallel the sequence.
    """

    enable_ddp: bool = False
    enable_tp: bool = False
    enable_cp: bool = False


class ParallelismContext:
    """ttml's interface to a `Layout` on the open mesh: the mesh axis of each strategy.

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

    def __init__(self, device, config: DistributedConfig | DeviceConfig):
        axes = parallel_axes(device.shape, enabled_strategies(config))
        self.layout = Layout(axes=axes).on(device)

    def __repr__(self) -> str:
        layout = self.layout
        axes = [
            f"{STRATEGIES[name]}: axis {axis}, {getattr(layout, name)} chips"
            for name, axis in layout.axes or ()
        ]
        mesh = "x".join(map(str, layout.device.shape))
        return f"ParallelismContext({mesh} mesh; {', '.join(axes) or 'no parallelism'})"

    def get_ddp_axis(self) -> int | None:
        """Return the mesh axis along which replicas of the model share a batch; None when off."""
        return self.layout.dp_axis

    def get_tp_axis(self) -> int | None:
        """Return the mesh axis along which chips share each layer; None when off."""
        return self.layout.tp_axis

    def get_ddp_size(self) -> int:
        """Return how many replicas share a batch; 1 when off."""
        return self.layout.dp

    def get_tp_size(self) -> int:
        """Return how many chips share a layer; 1 when off."""
        return self.layout.tp

    def is_ddp_enabled(self) -> bool:
        """Return whether data parallelism is on."""
        return self.layout.dp_axis is not None

    def is_tp_enabled(self) -> bool:
        """Return whether tensor parallelism is on."""
        return self.layout.tp_axis is not None


class AutoContext:
    """The process-wide training context; `AutoContext.get_instance()` returns it.

    Example:
        >>> context = AutoContext.get_instance()
        >>> context.open_device([2, 4])
        >>> both = DistributedConfig(enable_ddp=True, enable_tp=True)
        >>> context.initialize_parallelism_context(both)
        >>> context.get_parallelism_context()
        ParallelismContext(2x4 mesh; ddp: axis 0, 2 chips, tp: axis 1, 4 chips)
        >>> context.close_device()
    """

    def __init__(self) -> None:
        self._seed = 5489
        self._device: Any = None
        self._own_fabric = False  # If open_device enabled the fabric, close_device disables it.
        self._ranks: DistributedContext | None = None
        self._parallelism: ParallelismContext | None = None

    @classmethod
    @functools.cache
    def get_instance(cls) -> AutoContext:
        """Return the one context of this process."""
        return cls()

    def set_seed(self, seed: int) -> None:
        """Set the seed of initial weights and samples."""
        self._seed = int(seed)

    def get_seed(self) -> int:
        """Return the seed; it is 5489 unless `set_seed` has set another one."""
        return self._seed

    # ------------------------------------------------------------ the device
    def open_device(
        self,
        mesh_shape: Sequence[int] | None = None,
        device_ids: Sequence[int] | None = None,
        *,
        ring: bool = False,
    ) -> None:
        """Open the mesh to train on.

        If the mesh has several chips and no fabric is configured, this configures one: FABRIC_1D,
        or FABRIC_1D_RING if cables close the rows and columns of the machine, or FABRIC_2D if the
        descriptor of TT_MESH_GRAPH_DESC_PATH has several meshes, which FABRIC_1D does not join.
        If only the transposed shape fits the machine, the mesh is opened with a warning. A shape
        that does not fit that descriptor is refused: with ttml, opening the mesh or a later
        collective hangs.

        Args:
            mesh_shape: [rows, columns]; [1, 1] unless given.
            device_ids: the ids of the chips in the order of the mesh; with None or [] ttnn chooses.
            ring: choose FABRIC_2D, which has a route from the last chip of a line to the first.
                Ring attention needs this route.

        Raises:
            TTKitError: a device is already open, the shape does not fit the descriptor, or
                `ttnn.open_mesh_device` refuses the mesh.
        """
        asked = f"open_device({mesh_shape!r})"
        shape = tuple(mesh_shape or (1, 1))
        if self._device is not None:
            fail(
                asked,
                "open_device was called after the device was created.",
                "close_device() first; get_device() alone opens one chip",
            )
        several = shape[0] * shape[1] > 1
        kinds = ttnn.FabricConfig
        self._own_fabric = several and ttnn.get_fabric_config() == kinds.DISABLED
        if self._own_fabric:
            fabric = kinds.FABRIC_1D
            descriptor = descriptor_in_use()
            if ring or (descriptor and len(descriptor.meshes) > 1):
                fabric = kinds.FABRIC_2D
            elif VARIABLE not in environ and all(current_machine().wraps):
                fabric = kinds.FABRIC_1D_RING
            ttnn.set_fabric_config(fabric)
        try:
            if several and not device_ids:
                _check_shape(shape, asked)
            self._device = ttnn.open_mesh_device(
                ttnn.MeshShape(*shape), physical_device_ids=list(device_ids or [])
            )
        except BaseException:
            self._disable_fabric()
            raise

    def _disable_fabric(self) -> None:
        if self._own_fabric:
            ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)
        self._own_fabric = False

    def is_device_open(self) -> bool:
        """Return whether a device is open; if none is open, `get_device` opens a single chip."""
        return self._device is not None

    def get_device(self):
        """Return the open mesh; open one chip if none is open."""
        if self._device is None:
            self.open_device()
        return self._device

    def close_device(self) -> None:
        """Close the mesh, disable the fabric if `open_device` enabled it, and forget the
        parallelism context.
        """
        if self._device is not None:
            ttnn.close_mesh_device(self._device)
            self._device = self._parallelism = None
            self._disable_fabric()

    # ------------------------------------------------------------ ranks
    def initialize_distributed_context(self, *argv: str) -> None:
        """Connect to the other ranks; all ranks must call it.

        ttml passes the arguments to MPI. Here they are ignored, because MPI does not need them."""
        self._ranks = DistributedContext()

    def get_distributed_context(self) -> DistributedContext:
        """Return the context of the ranks that MPI started.

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
        """Do nothing: the sockets between two ranks are made when the first tensor is sent."""

    def get_socket_manager(self) -> SocketManager:
        """Return the manager that sends tensors to other ranks and receives theirs."""
        return SocketManager()

    # ------------------------------------------------------------ gradients
    def set_gradient_mode(self, mode: GradMode) -> None:
        """Switch the recording of operations on or off."""
        recording[0] = mode is GradMode.ENABLED

    def get_gradient_mode(self) -> GradMode:
        """Return the gradient mode: ENABLED if operations are recorded, else DISABLED."""
        return GradMode(int(recording[0]))

    def reset_graph(self) -> None:
        """Do nothing: `backward` frees what it has used."""

    # ------------------------------------------------------------ parallelism
    def initialize_parallelism_context(self, config: DistributedConfig | DeviceConfig) -> None:
        """Assign the axes of the open mesh to the strategies that are on.

        Args:
            config: the strategies.

        Raises:
            TTKitError: there is a context already, or `ParallelismContext` refuses the strategies.
        """
        if self._parallelism is not None:
            fail(
                f"initialize_parallelism_context({config!r})",
                "ParallelismContext is already initialized.",
                "call it once, after open_device; reset_parallelism_context() to choose again",
            )
        self._parallelism = ParallelismContext(self.get_device(), config)

    def get_parallelism_context(self) -> ParallelismContext:
        """Return the context, which knows the mesh axis of each strategy.

        Raises:
            TTKitError: `initialize_parallelism_context` was not called.
        """
        if self._parallelism is None:
            fail(
                "get_parallelism_context",
                "ParallelismContext is not initialized.",
                "initialize_parallelism_context(DistributedConfig(...)) after open_device and "
                "before the model is made",
            )
        return self._parallelism

    def is_parallelism_context_initialized(self) -> bool:
        """Return whether there is a parallelism context."""
        return self._parallelism is not None

    def reset_parallelism_context(self) -> None:
        """Forget the parallelism context, so that another can be made."""
        self._parallelism = None


def current_layout() -> Layout:
    """Return the layout of the AutoContext: its device, and the axes of its parallelism context
    if there is one.
    """
    context = AutoContext.get_instance()
    found = context._parallelism
    return found.layout if found else Layout().on(context.get_device())


def open_layout(settings: Settings) -> Layout:
    """Open the mesh of a configuration in the AutoContext, and assign its axes to the strategies.

    If a mesh is already open, it is used.

    Raises:
        TTKitError: the open mesh has another shape.
    """
    context = AutoContext.get_instance()
    device = settings.device_config
    layout = Layout.of(settings)
    if not context.is_device_open():
        context.open_device(device.mesh_shape, device.device_ids, ring=device.enable_cp)
    opened = tuple(context.get_device().shape)
    wanted = device.mesh_shape
    if opened != wanted:
        fail(
            "Trainer",
            f"the open device is a {opened} mesh, the configuration's mesh_shape is {wanted}",
            "AutoContext.close_device() first",
        )
    # An earlier run may have made a parallelism context with other axes.
    context.reset_parallelism_context()
    if layout.axes:
        context.initialize_parallelism_context(device)
    return layout.on(context.get_device())


def _check_shape(shape: tuple[int, ...], asked: str) -> None:
    """Refuse a shape that does not fit the descriptor in use; warn if only the transposed fits."""
    whole = tuple(ttnn._ttnn.multi_device.SystemMeshDescriptor().shape())
    fits = any(all(n <= m for n, m in zip(shape, size)) for size in (whole, whole[::-1]))
    if environ.get(VARIABLE) and not fits:
        fail(
            asked,
            f"Mesh shape mismatch!\nRequested mesh_shape: {list(shape)}\nMGD device_topology "
            f"dims: {list(whole)}\nThe two must match: ttml hangs or crashes here, or in a "
            "collective later.",
            f"mesh_shape {list(whole)}, or a descriptor whose device_topology has dims "
            f"{list(shape)} in {VARIABLE}",
        )
    if turned := transposed_warning(whole, shape):
        warnings.warn(f"{asked}: {turned}\n  try: mesh_shape {list(shape[::-1])}", stacklevel=3)
