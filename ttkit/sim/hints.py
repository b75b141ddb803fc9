"""Hints are values that tell the hardware how to work.

In the simulator they change no result, with one exception: `matmul` and `linear` apply
the `fused_activation` of a program configuration.

Hints are records: a program builds them by keyword with ttnn's defaults, prints them and passes
them on. Nothing checks whether a chip could follow a hint, such as the block sizes of a matmul, the
chunk sizes of attention, or a choice of cores.
"""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple

from ttkit.errors import fail
from ttkit.sim import tensor
from ttkit.sim.ranks import NamedInt, visible
from ttkit.sim.signatures import bind, known, recorded
from ttkit.sim.tensor import BufferType, DispatchCoreAxis, DispatchCoreType, MathFidelity


# ---------------------------------------------------------------- records with ttnn's fields
class Record(SimpleNamespace):
    """A hint: it has the fields that the constructor of ttnn's class takes."""

    takes: ClassVar[inspect.Signature]
    usual: ClassVar[dict]

    def __init__(self, **given):
        fields = self.usual | given
        if len(fields) > len(self.usual) or inspect.Parameter.empty in fields.values():
            cure = f"by name: {', '.join(self.takes.parameters)}"
            rule = f"incompatible function arguments: {bind(self.takes, (), given)[1]}"
            fail(type(self).__name__, rule, cure, TypeError)
        super().__init__(**fields)


def _record(name: str) -> type[Record]:
    """Return the class of a configuration; the last overload of its constructor has all fields."""
    fields = []
    for field in recorded(name)[-1].parameters.values():
        members = getattr(getattr(tensor, field.annotation, None), "__members__", {})
        fields.append(field.replace(default=members.get(field.default, field.default)))
    usual = {field.name: field.default for field in fields}
    return type(name, (Record,), {"takes": inspect.Signature(fields), "usual": usual})


RECORDS = {name: _record(name) for name in known() if name.endswith("Config")}


def init_device_compute_kernel_config(arch, device_kernel_config=None, **fields):
    """Return `device_kernel_config`, else a new WormholeComputeKernelConfig with these fields."""
    fields = {"math_fidelity": MathFidelity.LoFi} | fields
    return device_kernel_config or RECORDS["WormholeComputeKernelConfig"](**fields)


@dataclass
class DispatchCoreConfig:
    """The choice of the dispatch cores, which start programs on the other cores."""

    type: Any = DispatchCoreType["WORKER"]
    axis: Any = DispatchCoreAxis["ROW"]
    fabric_tensix_config: Any = None


def get_arch_name() -> str:
    """Return the generation of the machine's chips, for example "wormhole_b0"."""
    return visible().chip.arch.lower()


# ---------------------------------------------------------------- cores, semaphores and events
class SubDeviceId(NamedInt):
    """The number of a sub-device."""


class SubDevice(NamedTuple):
    """A group of cores: a set of core ranges for each type of core."""

    cores: Sequence


@dataclass(eq=False)
class global_semaphore:
    """A counter in the L1 of cores, at one address on every chip."""

    cores: Any
    value: int


def create_global_semaphore(
    mesh_device, cores, initial_value: int, buffer_type: BufferType = BufferType.L1
) -> global_semaphore:
    """Return a semaphore for the async collectives."""
    return global_semaphore(cores, initial_value)


def get_global_semaphore_address(global_semaphore) -> int:
    """Return a number that no other semaphore has."""
    return id(global_semaphore)


def reset_global_semaphore_value(global_semaphore: global_semaphore, reset_value: int) -> None:
    """Set the semaphore's counter."""
    global_semaphore.value = reset_value


class global_circular_buffer(NamedTuple):
    """A buffer in the L1 of cores, for the data that `dram_prefetcher` reads ahead."""

    sender_receiver_core_mapping: Any
    size: int


def create_global_circular_buffer(
    mesh_device, sender_receiver_core_mapping, size: int, buffer_type=BufferType.L1
):
    """Return a buffer that cores share: each sender core shares it with its receiver cores."""
    return global_circular_buffer(sender_receiver_core_mapping, size)


def nothing(*args, **kwargs) -> None:
    """Do nothing: every operation has ended when it returns. `ttkit.profile` has the times."""


record_event = event_synchronize = wait_for_event = ReadDeviceProfiler = nothing


def apply_device_delay(mesh_device: Any, delays: Any, *, subdevice_id: Any = None) -> None:
    """Count a program, as a card does; nothing waits here."""
    mesh_device.programs.add("apply_device_delay")
