"""The call tape: what a program asked of ttnn, written down so that the same calls can be made
on the real library.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ttkit import backend
from ttkit.errors import fail


class Tape(list):  # type: ignore[type-arg]
    """Calls in order, each a dict: operation, arguments, and what every tensor among them and in
    the result is.
    """

    def __init__(self) -> None:
        super().__init__()
        self._names: dict[int, int] = {}
        self._kept: list[Any] = []

    def before(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Write down the call before it runs, so that a call which is refused is on the tape
        too.
        """
        from ttkit.hardware import current_system
        from ttkit.sim.mesh import fabric_setting

        system = current_system()
        self.append(
            {
                "system": f"{system.name} {'x'.join(map(str, system.shape))}",
                "fabric": fabric_setting[0].name,
                "operation": name,
                "args": [self._write(a) for a in args],
                "kwargs": {k: self._write(v) for k, v in kwargs.items()},
                "result": None,
                "returned": False,
            }
        )

    def after(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Add what came back."""
        self[-1].update(result=self._write(result), returned=True)

    def number(self, thing: Any) -> int:
        """The number under which a tensor or a mesh is on the tape."""
        if id(thing) not in self._names:
            self._names[id(thing)] = len(self._names)
            self._kept.append(thing)  # so that no other object gets its id
        return self._names[id(thing)]

    def _write(self, value: Any) -> Any:
        from ttkit.sim.mesh import MeshDevice
        from ttkit.sim.tensor import Tensor

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
            return {
                "mesh": self.number(value),
                "shape": list(value.shape),
                "ids": value.get_device_ids(),
            }
        if isinstance(value, (list, tuple)):
            return [self._write(v) for v in value]
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if type(value).__module__.partition(".")[0] in ("numpy", "torch") and hasattr(
            value, "shape"
        ):
            return {"array": list(value.shape), "dtype": str(value.dtype).removeprefix("torch.")}
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
    if not backend.is_simulated():
        fail("ttkit.tape", "calls are recorded on the simulator only", "TTKIT_BACKEND=sim")
    from ttkit.sim.operation import noted, watchers

    recorder = Tape()
    for watching in (watchers, noted):
        watching.append(recorder)
    try:
        yield recorder
    finally:
        for watching in (watchers, noted):
            # a tape around this one may be equal to it
            watching[:] = [each for each in watching if each is not recorder]
