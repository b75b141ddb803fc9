"""Exercises on meshes: calls of an answer on fresh meshes of several shapes, and checks of the
bytes that each call sent and put on each chip."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ttkit import backend
from ttkit.errors import TTKitError
from ttkit.lessons.comparing import CheckFailed, device_difference, values_mean_something
from ttkit.lessons.exercises import Run, parameters
from ttkit.profiling import Reader, Record, last_name
from ttkit.sim.mesh import opened_meshes
from ttkit.sim.tape import tape
from ttkit.sim.tensor import DataType, Layout
from ttkit.sim.tensor.dtypes import bytes_of, padded
from ttkit.words import counted

Shape = Sequence[int]
Given = tuple[np.ndarray, Shape | None]


class Budget(NamedTuple):
    """The most that an answer may use on a mesh. In addition, each chip may get only as many bytes
    from the host as the shards in `OnMeshes` take.

    Args:
        sends: how many collectives, or a function from the mesh to this number. A reduce_scatter
            with an all_gather counts as one collective. None allows any number.
        link_bytes: a function from the arguments to the most bytes that may go over links.
    """

    sends: int | Callable[[Any], int] | None = None
    link_bytes: Callable[..., int] | None = None


class OnMeshes(NamedTuple):
    """Calls of an answer with a fresh mesh of each shape, and with arrays.

    On a card the mesh is the learner's own, and only the values of the result are checked.

    Args:
        shapes: the rows and columns of the meshes.
        given: a function from rows and columns of a mesh to the arrays, each with the shape of the
            shard that a chip should get; None where any shape is allowed.
        fabric: whether the chips need a fabric, over which they can send.
        more: tuples of further arguments, which must be strings; each is tried on each mesh.
        call: a function that calls the answer in another way than with the mesh, the arrays and the
            further arguments. It gets the answer first, and then all of these.
    """

    shapes: Sequence[Shape]
    given: Callable[[int, int], list[Given]]
    fabric: bool = False
    more: Sequence[tuple] = ((),)
    call: Callable | None = None

    def runs(self, answer, asks: str, mesh) -> Iterator[MeshRun]:
        """Call the answer on each mesh with each tuple of `more`, and yield each call."""
        __tracebackhide__ = True
        simulated = backend.is_simulated()
        if mesh is None and not simulated:
            raise CheckFailed("on a card the check needs your open mesh: check(name, f, mesh)")
        for shape in self.shapes if simulated else self.shapes[:1]:
            for more in self.more:
                with _opened(shape, self.fabric) if simulated else nullcontext(mesh) as on:
                    yield self._run(answer, asks, on, more)

    def _run(self, answer, asks: str, mesh, more: tuple) -> MeshRun:
        __tracebackhide__ = True
        given = self.given(*mesh.shape)
        arrays = [array for array, _ in given]
        call = answer if self.call is None else partial(self.call, answer)
        with tape() if backend.is_simulated() else nullcontext() as calls:
            try:
                result = call(mesh, *(array.copy() for array in arrays), *more)
            except TTKitError:
                print(f"on the check's own {mesh!r}:")
                raise
        records = Reader(calls).records if calls else []
        names = dict(zip(parameters(asks), (mesh, *arrays))) | {"n": mesh.get_num_devices()}
        shards = {name: shard for name, (_, shard) in zip(parameters(asks)[1:], given)}
        where = ", ".join([f"on {mesh!r}", *more])
        return MeshRun((mesh, *arrays, *more), result, where, names, asks, shards, records)


@dataclass
class MeshRun(Run):
    """A call of an answer with a mesh.

    Args:
        asks: the call of the learner's function, as in `Exercise`.
        shards: {name of an array: the shape of the shard that each chip should get, or None}.
        records: the operations that the answer called, as records of a profile; empty on a card.
    """

    asks: str = ""
    shards: dict[str, Shape | None] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)

    def result_difference(self, expected, rtol: float) -> str:
        """Return where the result differs from what is expected, in words. If the reference gives a
        list of arrays, the devices are compared one by one."""
        shards = isinstance(expected, list) and isinstance(expected[0], np.ndarray)
        if not shards or self.result is None:
            found = super().result_difference(expected, rtol)
            return f", {self.asks}{found}" if found else ""
        tensor = self.result
        mesh = self.arguments[0]
        if not hasattr(tensor, "tensor_topology"):
            return f", {self.asks} should give a ttnn tensor, but gave a {type(tensor).__name__}"
        if tensor.device() is None:
            return ", the tensor is still in host memory: device=mesh is missing"
        if backend.is_simulated() and tensor.device() is not mesh:
            return (
                f", the tensor is on another mesh, {tensor.device()!r}: use the parameter "
                "mesh, not the notebook's variable, which helpers such as `place` use"
            )
        largest = max(float(np.abs(array).max()) for array in expected)
        # The tensor may have more dimensions than the reference, such as a matrix with four.
        ones = (1,) * (len(tensor.shape) - expected[0].ndim)
        arrays = [array.reshape(ones + array.shape) for array in expected]
        found = device_difference(arrays, tensor, rtol, rtol * largest)
        if found and tensor.dtype.name != "FLOAT32":
            found += f"; its values are {tensor.dtype.name}"
        return found and f", {found}"

    def _put(self) -> list[Record]:
        """Return the records of tensors that came from the host, but not those of one element."""
        come = (r for r in self.records if r.kind == "host" and r.bytes_written)
        return [r for r in come if math.prod(r.results[0].shard_shape) > 1]

    def _shapes(self) -> str:
        """Return which shards each chip should get, and which it got."""
        wanted = [f"{name} as {list(s)}" for name, s in self.shards.items() if s]
        have = [str(list(r.results[0].shard_shape)) for r in self._put()]
        return f"each chip should get {' and '.join(wanted)}; yours got {' and '.join(have)}"

    def clue(self) -> str:
        """Return which shards the chips got if they should have got others, else ""."""
        have = [[n for n in r.results[0].shard_shape if n != 1] for r in self._put()]
        wanted = [[n for n in s if n != 1] for s in self.shards.values() if s]
        return "" if not have or all(shape in have for shape in wanted) else self._shapes()

    def _bytes(self) -> tuple[int, int]:
        """Return how many bytes each chip got from the host, and how many it should get at most."""
        shapes = [s for s in self.shards.values() if s]
        most = sum(bytes_of(padded(tuple(s), Layout.TILE), DataType.FLOAT32) for s in shapes)
        return sum(r.bytes_written for r in self._put()), most

    def _sent_too_much(self, budget: Budget) -> str:
        """Return in words that too much was sent, or that nothing was sent where
        something must be sent; "" if neither is so."""
        sent = [last_name(r.name) for r in self.records if r.kind == "communication"]
        sends = budget.sends(self.arguments[0]) if callable(budget.sends) else budget.sends
        halves = min(sent.count("reduce_scatter"), sent.count("all_gather"))
        right = f" it is right, but you called {', '.join(sent)}"
        if sends is not None and len(sent) - halves > sends:
            enough = f"{counted(sends, 'collective')} would do"
            return f"{right}: {enough if sends else 'nothing needs to be sent'}"
        used = sum(record.bytes_on_links for record in self.records)
        most = budget.link_bytes(*self.arguments) if budget.link_bytes else None
        if most is not None and used > most:
            return f"{right}: {used:,} bytes on links; the budget is {most:,}"
        if (sends or most) and not sent:
            return ", nothing was sent: each device computed it all, or the host added it up"
        return ""

    def over_budget(self, budget: Budget | None) -> str:
        """Return in words how the run is over the budget; "" where it is not."""
        if budget is None or not backend.is_simulated():
            return ""
        if all(record.kind == "host" for record in self.records):
            return ", the devices computed nothing: NumPy did it on the host"
        if wrong := self._sent_too_much(budget):
            return wrong
        used, most = self._bytes()
        if most and not used:
            return f", nothing was put on it: {self._shapes().partition(';')[0]}"
        if most and used > most:
            said = f"you put {used:,} bytes on each chip; the target is {most:,}"
            return f", {said}: {self._shapes()}"
        return ""

    def budget_used(self, budget: Budget | None) -> str:
        """Return in words how many bytes each chip got from the host, and how many it
        may get; "" without a budget for them. On a card the words say that only values,
        or on a mock cluster only shapes, were checked."""
        if not backend.is_simulated():
            mean = "values only: the simulator also shows which calls made them"
            return f"({mean if values_mean_something() else 'shapes only'})"
        used, most = self._bytes()
        if budget is None or not most:
            return ""
        where = f"on each of the check's {self.names['n']} chips (limit {most:,})"
        return f"the host put {used:,} bytes {where}"


@contextmanager
def _opened(shape: Shape, fabric: bool) -> Iterator:
    """Open a fresh mesh of the simulator. Afterwards close it and every other mesh that
    was not open before, and restore the fabric."""
    ttnn = backend.load()
    before = list(opened_meshes)
    found = ttnn.get_fabric_config()
    if fabric and found is ttnn.FabricConfig.DISABLED:
        if before:
            rule = "ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D) before you open the mesh"
            raise CheckFailed(f"your mesh is open without a fabric: {rule}")
        ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    try:
        yield ttnn.open_mesh_device(ttnn.MeshShape(*shape))
    finally:
        for mesh in list(opened_meshes):  # The answer may have opened meshes, too.
            if mesh not in before:
                mesh.close()
        if not opened_meshes:  # Closing the last mesh has reset the fabric.
            ttnn.set_fabric_config(found)
