"""The tape of a program as plain data: each ttnn call with its arguments and results.

tests/real repeats the same calls on the real library.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ttkit.hardware import current_system
from ttkit.sim import tape as calls
from ttkit.sim.hints import Record, global_semaphore
from ttkit.sim.mesh import MeshDevice, fabric_setting
from ttkit.sim.ranks.sockets import MeshSocket
from ttkit.sim.tensor.sharding import CoreCoord

Call = dict[str, Any]


class Machine:
    """Notes for each event the machine and the fabric when the call began."""

    def __init__(self) -> None:
        self.notes: list[dict[str, str]] = []

    def __call__(self, event: calls.Event) -> None:
        system = current_system()
        shape = "x".join(map(str, system.shape))
        self.notes.append({"system": f"{system.name} {shape}", "fabric": fabric_setting[0].name})


class Writer:
    """Writes events as dicts; tensors and meshes have numbers."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}

    def call(self, event: calls.Event) -> Call:
        """Return an event: operation, arguments, result, and the tensors in them."""
        return {
            "operation": event.name.removeprefix("MeshDevice."),
            "args": [self._written(value) for value in event.args],
            "kwargs": {key: self._written(value) for key, value in event.kwargs.items()},
            "result": self._written(event.result),
            "returned": event.returned,
        }

    def _number(self, thing: Any) -> int:
        return self._numbers.setdefault(id(thing), len(self._numbers))

    def _written(self, value: Any) -> Any:
        if isinstance(value, calls.DescribedTensor):
            return {
                "tensor": self._number(value.tensor),
                "shape": list(value.shard_shape),
                "padded": list(value.padded),
                "dtype": value.dtype.name,
                "layout": value.layout.name,
                "storage": "HOST" if value.mesh is None else "DEVICE",
                "mesh": None if value.mesh is None else self._number(value.mesh),
                "placements": [repr(p) for p in value.topology.placements()],
                "distribution": list(value.topology.distribution_shape()),
            }
        if isinstance(value, calls.HostArray):
            return {"array": list(value.shape), "dtype": value.dtype}
        if isinstance(value, MeshDevice):
            ids = value.get_device_ids()
            return {"mesh": self._number(value), "shape": list(value.shape), "ids": ids}
        if isinstance(value, CoreCoord):
            return [value.x, value.y]
        if isinstance(value, (list, tuple)):
            return [self._written(each) for each in value]
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, np.integer):
            return int(value)
        if isinstance(value, global_semaphore):
            return {"semaphore": self._written(value.cores.bounding_box().end)}
        if isinstance(value, MeshSocket) and value.shift:
            end = value.get_socket_endpoint_type().name
            return {"socket": list(value.shift), "end": end, "on": self._written(value._device)}
        if isinstance(value, Record):  # its repr, as in C++, is no Python
            given = {name: getattr(value, name) for name in value.fields}
            fields = {name: self._written(each) for name, each in given.items() if each is not None}
            return {"config": type(value).__name__, "fields": fields}
        config = value.unwrap() if hasattr(value, "unwrap") else value
        return {"value": repr(config.config()) if hasattr(config, "config") else repr(value)}


@contextmanager
def tape() -> Iterator[list[Call]]:
    """Record every ttnn call made inside the block, on the simulator; the list is full at its end.

    Example:
        >>> from ttkit import ttnn
        >>> with tape() as calls:
        ...     t = ttnn.zeros([2, 2])
        >>> calls[0]["operation"], calls[0]["result"]["shape"]
        ('zeros', [2, 2])
    """
    machine, writer, found = Machine(), Writer(), list[Call]()
    with calls.tape(before=machine) as recorded:
        try:
            yield found
        finally:
            for note, event in zip(machine.notes, recorded.events, strict=True):
                found.append(note | writer.call(event))
