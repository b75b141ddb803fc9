"""The call tape: each ttnn call of a program with its arguments and results, as plain data.

tests/real repeats the same calls on the real library.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ttkit.hardware import current_system
from ttkit.sim.hints import Record, global_semaphore
from ttkit.sim.mesh.cores import CoreCoord
from ttkit.sim.mesh.mesh import MeshDevice, fabric_setting
from ttkit.sim.ops.operation import noted, watchers
from ttkit.sim.ranks.sockets import MeshSocket
from ttkit.sim.tensor.tensor import Tensor

Call = dict[str, Any]


class Tape(list[Call]):
    """Calls in order, each a dict: operation, arguments, result, and the tensors in them."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers: dict[int, int] = {}
        self._kept: list[Any] = []

    def before(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Record a call before it runs, so that a call which fails is recorded too."""
        system = current_system()
        call = {
            "system": f"{system.name} {'x'.join(map(str, system.shape))}",
            "fabric": fabric_setting[0].name,
            "operation": name,
            "args": [self._written(value) for value in args],
            "kwargs": {key: self._written(value) for key, value in kwargs.items()},
            "result": None,
            "returned": False,
        }
        self.append(call)

    def after(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Add the result to the last call."""
        self[-1].update(result=self._written(result), returned=True)

    def number(self, thing: Any) -> int:
        """Return the number of a tensor or a mesh on the tape."""
        if id(thing) not in self._numbers:
            self._numbers[id(thing)] = len(self._numbers)
            self._kept.append(thing)  # so that no other object gets its id
        return self._numbers[id(thing)]

    def _written(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            topology = value.tensor_topology()
            return {
                "tensor": self.number(value),
                "shape": list(value.shape),
                "padded": list(value.padded_shape),
                "dtype": value.dtype.name,
                "layout": value.layout.name,
                "storage": value.storage_type().name,
                "mesh": None if value.mesh is None else self.number(value.mesh),
                "placements": [repr(p) for p in topology.placements()],
                "distribution": list(topology.distribution_shape()),
            }
        if isinstance(value, MeshDevice):
            ids = value.get_device_ids()
            return {"mesh": self.number(value), "shape": list(value.shape), "ids": ids}
        if isinstance(value, CoreCoord):
            return [value.x, value.y]
        if isinstance(value, (list, tuple)):
            return [self._written(each) for each in value]
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, np.integer):
            return int(value)
        array = type(value).__module__.partition(".")[0] in ("numpy", "torch")
        if array and hasattr(value, "shape"):
            return {"array": list(value.shape), "dtype": str(value.dtype).removeprefix("torch.")}
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
def tape() -> Iterator[Tape]:
    """Record every ttnn call made inside the block, on the simulator.

    Example:
        >>> from ttkit import ttnn
        >>> with tape() as calls:
        ...     t = ttnn.zeros([2, 2])
        >>> calls[0]["operation"], calls[0]["result"]["shape"]
        ('zeros', [2, 2])
    """
    recorder = Tape()
    for watching in (watchers, noted):
        watching.append(recorder)
    try:
        yield recorder
    finally:
        for watching in (watchers, noted):
            # a tape around this one may be equal to it
            watching[:] = [each for each in watching if each is not recorder]
