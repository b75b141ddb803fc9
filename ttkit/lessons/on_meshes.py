"""Exercises on meshes: fresh meshes of several shapes, and what a run sent and put on each chip."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ttkit import backend
from ttkit.lessons.comparing import CheckFailed, device_difference, values_mean_something
from ttkit.lessons.exercises import Run, parameters
from ttkit.records import Reader, Record, last_name
from ttkit.sim.mesh.mesh import opened_meshes
from ttkit.sim.tape import tape
from ttkit.sim.tensor.enums import DataType, Layout
from ttkit.sim.tensor.memory import bytes_of, padded
from ttkit.words import counted

Shape = Sequence[int]
Given = tuple[np.ndarray, Shape | None]


def numbers(*shape: int) -> np.ndarray:
    """Return [shape] float32 values between -8 and 8, no two alike."""
    size = math.prod(shape)
    order = np.random.default_rng(size).permutation(size).reshape(shape)
    return (order * np.float32(16 / size) - 8).astype(np.float32)


def split(mesh: Any, array: np.ndarray, dim: int) -> list[np.ndarray]:
    """Return what each device holds of an array that is cut over all devices."""
    return np.split(array, mesh.get_num_devices(), dim)


def replicas(mesh: Any, array: np.ndarray) -> list[np.ndarray]:
    """Return what each device holds of an array that all of them hold."""
    return [array] * mesh.get_num_devices()


@dataclass(frozen=True)
class Budget:
    """What an answer may use on a mesh: the bytes of the shards in `OnMeshes`, and so many sends.

    Args:
        sends: how many collectives, or a function from the mesh to how many. A reduce_scatter with
            an all_gather is one all_reduce. None: as many as one likes.
        computes: the devices compute something.
    """

    sends: int | Callable[[Any], int] | None = None
    computes: bool = True


@dataclass(frozen=True)
class OnMeshes:
    """Calls of an answer with a fresh mesh of each shape, and with arrays.

    On a card the mesh is the learner's own, and only values are looked at.

    Args:
        shapes: of the meshes.
        given: from rows and columns of a mesh to the arrays, each with the shape of the shard that
            a chip should get of it; None where this is free.
        fabric: the chips must be able to send.
    """

    shapes: Sequence[tuple[int, int]]
    given: Callable[[int, int], list[Given]]
    fabric: bool = False

    def runs(self, answer: Any, asks: str, mesh: Any) -> Iterator[MeshRun]:
        """Yield each call."""
        if not backend.is_simulated():
            if mesh is None:
                raise CheckFailed("on a card the check needs your open mesh: check(name, f, mesh)")
            yield self._run(answer, asks, mesh)
            return
        for shape in self.shapes:
            with _opened(shape, self.fabric) as fresh:
                yield self._run(answer, asks, fresh)

    def _run(self, answer: Any, asks: str, mesh: Any) -> MeshRun:
        given = self.given(*mesh.shape)
        arrays = [array for array, _ in given]
        with tape() if backend.is_simulated() else nullcontext() as calls:
            result = answer(mesh, *(array.copy() for array in arrays))
        records = Reader(calls).records if calls else []
        names = dict(zip(parameters(asks), (mesh, *arrays))) | {"n": mesh.get_num_devices()}
        shards = {name: shard for name, (_, shard) in zip(parameters(asks)[1:], given)}
        return MeshRun((mesh, *arrays), result, f"on {mesh!r}", names, asks, shards, records)


@dataclass
class MeshRun(Run):
    """A call of an answer with a mesh.

    Args:
        shards: for each array the shape that a chip should get of it.
        records: the calls that it made, as a profile has them; none on a card.
    """

    asks: str = ""
    shards: dict[str, Shape | None] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)

    def unlike(self, expected: Any, rtol: float) -> str:
        """Compare device by device where the reference gives a list."""
        shards = isinstance(expected, list) and isinstance(expected[0], np.ndarray)
        if not shards or self.result is None:
            found = super().unlike(expected, rtol)
            return f", {self.asks}{found}" if found else ""
        tensor, mesh = self.result, self.arguments[0]
        if not hasattr(tensor, "tensor_topology"):
            return f", {self.asks} should give a ttnn tensor, gave a {type(tensor).__name__}"
        if tensor.device() is None:
            return ", the tensor is still in host memory: device=mesh is missing"
        if backend.is_simulated() and tensor.device() is not mesh:
            return (
                f", the tensor is on another mesh, {tensor.device()!r}: take the parameter "
                "mesh, not the notebook's variable (helpers such as `place` use that one)"
            )
        largest = max(float(np.abs(array).max()) for array in expected)
        # A matrix may be written in four dimensions.
        ones = (1,) * (len(tensor.shape) - expected[0].ndim)
        arrays = [array.reshape(ones + array.shape) for array in expected]
        found = device_difference(arrays, tensor, rtol, rtol * largest)
        if found and tensor.dtype.name != "FLOAT32":
            found += f"; its values are {tensor.dtype.name}"
        return found and f", {found}"

    def _put(self) -> list[Record]:
        """Return the records of what came from the host; a single number is free."""
        come = (r for r in self.records if r.kind == "host" and r.bytes_written)
        return [r for r in come if math.prod(r.results[0].shape) > 1]

    def _wanted(self) -> str:
        return " and ".join(f"{name} as {list(s)}" for name, s in self.shards.items() if s)

    def clue(self) -> str:
        """Say which shards the chips got, where they should have got others."""
        have = [list(r.results[0].shape) for r in self._put()]
        lean = [[n for n in shape if n != 1] for shape in have]
        wanted = [[n for n in s if n != 1] for s in self.shards.values() if s]
        if not have or all(shape in lean for shape in wanted):
            return ""
        return f"each chip should get {self._wanted()}; yours got {' and '.join(map(str, have))}"

    def _bytes(self) -> tuple[int, int]:
        """Return how many bytes came to each chip, and how many its shards take."""
        shapes = [s for s in self.shards.values() if s]
        most = sum(bytes_of(padded(tuple(s), Layout.TILE), DataType.FLOAT32) for s in shapes)
        return sum(r.bytes_written for r in self._put()), most

    def over(self, budget: Budget | None) -> str:
        """Return in words how the run is over the budget; "" where it is not."""
        if budget is None or not backend.is_simulated():
            return ""
        if budget.computes and all(record.kind == "host" for record in self.records):
            return ", the devices computed nothing: NumPy did it on the host"
        sent = [last_name(r.name) for r in self.records if r.kind == "communication"]
        sends = budget.sends(self.arguments[0]) if callable(budget.sends) else budget.sends
        halves = min(sent.count("reduce_scatter"), sent.count("all_gather"))
        if sends is not None and len(sent) - halves > sends:
            enough = (
                f"{counted(sends, 'collective')} would do" if sends else "nothing needs to be sent"
            )
            return f" it is right, but you called {', '.join(sent)}: {enough}"
        if sends and not sent:
            return ", nothing was sent: the sum over the devices was made on the host"
        used, most = self._bytes()
        if most and not used:
            return f", nothing was put on it: each chip should get {self._wanted()}"
        if most and used > most:
            said = f"you put {used:,} bytes on each chip; the target is {most:,}"
            have = " and ".join(str(list(r.results[0].shape)) for r in self._put())
            return f", {said}: each chip should get {self._wanted()}; yours got {have}"
        return ""

    def used(self, budget: Budget | None) -> str:
        """Return how many bytes came to each chip, and how many may."""
        if not backend.is_simulated():
            mean = "values only: which calls made them is seen on the simulator"
            return f"({mean if values_mean_something() else 'shapes only'})"
        used, most = self._bytes()
        if budget is None or not most:
            return ""
        return f"{used:,} of {most:,} bytes allowed on each of {self.names['n']} chips"


@contextmanager
def _opened(shape: tuple[int, int], fabric: bool) -> Iterator[Any]:
    """Open a fresh mesh of the simulator; restore the open meshes and the fabric afterwards."""
    ttnn = backend.load()
    before, found = list(opened_meshes), ttnn.get_fabric_config()
    if fabric and found is ttnn.FabricConfig.DISABLED:
        if before:
            rule = "ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D) before you open the mesh"
            raise CheckFailed(f"your mesh is open without a fabric: {rule}")
        ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    try:
        yield ttnn.open_mesh_device(ttnn.MeshShape(*shape))
    finally:
        for mesh in list(opened_meshes):  # an answer may have opened some, too
            if mesh not in before:
                mesh.close()
        if not opened_meshes:  # closing the last one switched it off
            ttnn.set_fabric_config(found)
