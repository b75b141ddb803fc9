"""What checks are written with: an answer, a run of it on a mesh, and what that run did."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ttkit import backend
from ttkit.errors import learners_lines
from ttkit.lessons import (
    MANY,
    Check,
    CheckFailed,
    NotDone,
    device_difference,
    drawn,
    require,
    said_by,
    values_mean_something,
)
from ttkit.lessons.calls import (
    Call,
    history,
    how_cut,
    lean,
    made_on_host,
    meshes_in,
    put_on_mesh,
    recorded,
)
from ttkit.lessons.predicting import as_number, brief
from ttkit.sim.enums import DataType, Layout
from ttkit.sim.memory import bytes_of, padded
from ttkit.sim.mesh import opened_meshes

LARGEST = 10**18  # more than any count in the lessons
Shape = Sequence[int]
Cut = tuple[Any, ...]  # an array, and shapes of its shards


def numbers(*shape: int) -> np.ndarray:
    """Return [shape] float32 values between -8 and 8, no two alike."""
    size = math.prod(shape)
    order = np.random.default_rng(size).permutation(size).reshape(shape)
    return (order * np.float32(16 / size) - 8).astype(np.float32)


def whole_number(value: Any, what: str) -> int:
    """Return the answer as an int, whatever kind of number it is, or raise `CheckFailed`."""
    number = as_number(value)
    if isinstance(number, int) and abs(number) < LARGEST:
        return number
    ends = ": does it end in `return`?" if value is None else ""
    below = f" below {LARGEST:g}" if int in (type(value), type(number)) else ""
    raise CheckFailed(f"{what} should be a whole number{below}, is {brief(value)}{ends}")


def row_of(mesh: Any) -> int:
    """Return the number of devices of a mesh with one row, or raise `CheckFailed`."""
    rows, columns = mesh.shape
    require(rows == 1, f"the exercise is for a mesh of one row, not {mesh!r}")
    return int(columns)


class Run:
    """What an answer did on one mesh.

    Each method checks one thing and raises `CheckFailed`; those that read the calls pass on a card,
    where none are recorded.
    """

    def __init__(self, answer: Answer, mesh: Any, cuts: tuple[Cut, ...]):
        self.answer, self.mesh = answer, mesh
        self.arrays = [array for array, *_ in cuts]
        self.shards = [shards[0] for _, *shards in cuts]
        self.calls: list[Call] = []
        self.led: list[Call] = []  # those that led to the tensor which came back
        given = [array.copy() for array, *_ in cuts]  # an answer may write into them
        if not backend.is_simulated():
            self.result, self.error = self._call(given)
            return
        with recorded() as self.calls:
            self.result, self.error = self._call(given)
        known = [mesh]
        for call in self.calls:
            used = meshes_in([*call.args, *call.kwargs.values()])
            require(all(each in known for each in used), self._another_mesh())
            known += meshes_in(call.result)
        require(mesh.is_open, f"your {answer.name} closes the mesh that it was given")
        if is_a(self.result, "tensor_topology"):
            self.led = history(self.calls, self.result)
        names = answer.asks.rstrip(")").split(", ")[1:]
        for name, (array, *shards) in zip(names, cuts):
            self._check_cut(name, array.shape, shards)

    def _call(self, given: list[np.ndarray]) -> tuple[Any, CheckFailed | None]:
        try:
            return self.answer(self.mesh, *given), None
        except CheckFailed as error:
            return None, error

    def _another_mesh(self) -> str:
        return (
            f"your {self.answer.name} uses another mesh than the one it is given: take its "
            "parameter, not the notebook's variable (helpers such as `place` use that one)"
        )

    def ok(self) -> Any:
        """Return the result; raise what stopped the answer."""
        if self.error:
            raise self.error from None
        return self.result

    def tensor(self) -> Any:
        """Return the resulting tensor, which must be on the mesh."""
        tensor = self.ok()
        self.answer.must_give("a ttnn tensor", is_a(tensor, "tensor_topology"), tensor)
        require(tensor.is_allocated(), "the tensor that came back was deallocated")
        in_host = "the tensor is still in host memory: device=mesh is missing"
        require(tensor.device() is not None, in_host)
        here = not backend.is_simulated() or tensor.device() is self.mesh
        require(here, self._another_mesh())
        return tensor

    def _check_cut(self, name: str, whole: Shape, shards: list[Shape]) -> None:
        for call in self.calls:
            array = call.args[0] if call.args else call.kwargs.get("tensor")
            made = call.operation == "from_torch" and call.returned
            if not made or lean(getattr(array, "shape", ())) != lean(whole):
                continue
            have = list(call.result.shape)
            shards_made = math.prod(call.result.tensor_topology().distribution_shape())
            if call.result.mesh is None and shards_made == 1:
                continue  # not distributed yet
            if lean(have) not in map(lean, shards):
                cut = how_cut(lean(whole), lean(have))
                yours = f"you cut {cut}, so that each device holds {have}"
                dims = [getattr(p, "dim", None) for p in call.result.tensor_topology().placements()]
                for dim in (d for d in dims if d is not None and cut == "nothing"):
                    yours = (
                        f"you cut dimension {dim}, which has size {whole[dim]}: the first device "
                        "holds all of it, the other devices hold nothing"
                    )
                asked = f"the exercise cuts {how_cut(whole, shards[0])}, into {list(shards[0])}"
                raise CheckFailed(f"on {self.mesh!r}, {name} is {list(whole)}: {yours}; {asked}")

    def equals(self, expected: list[np.ndarray], rtol: float = 1e-5) -> None:
        """Check that each device holds its array of `expected`."""
        if found := self._apart(expected, rtol):
            kind = self.tensor().dtype.name
            coarse = "" if kind == "FLOAT32" else f"; its values are {kind}"
            raise CheckFailed(f"on {self.mesh!r}, {found}{coarse}")

    def differs(self, *wrong: tuple[list[np.ndarray], str], rtol: float = 1e-4) -> None:
        """Check that the devices do not hold what a usual mistake gives: (arrays, message)."""
        for values, message in wrong if values_mean_something() else ():
            if not self._apart(values, rtol):
                raise CheckFailed(f"on {self.mesh!r} {message}")

    def _apart(self, arrays: list[np.ndarray], rtol: float) -> str:
        largest = max(float(np.abs(array).max()) for array in arrays)
        ones = (1,) * (len(self.tensor().shape) - arrays[0].ndim)  # a matrix in four dimensions
        arrays = [array.reshape(ones + array.shape) for array in arrays]
        return device_difference(arrays, self.tensor(), rtol, rtol * largest)

    def computed(self, what: str) -> None:
        """Check that an operation of the mesh led to the tensor."""
        if self.calls and all(call.kind in ("write", "read", "store") for call in self.led):
            raise CheckFailed(
                f"{what} was not done on the devices: no operation of ttnn led to your tensor, "
                "so NumPy did it on the host"
            )

    def put_as_given(self, scaled: bool = True) -> None:
        """Check that the arrays came to the mesh as they were given, or times a number."""
        if made := made_on_host(self.calls, self.arrays, scaled):
            raise CheckFailed(
                f"on {self.mesh!r} you put other numbers than the given ones on the devices, such "
                f"as {made}: NumPy computed on the host; put arrays as they are, and let the "
                "devices compute"
            )

    def multiplied(self, *products: tuple[Shape, Shape]) -> None:
        """Check that these products led to the tensor, and that no device had larger operands."""
        if not self.calls:
            return
        found = [call for call in self.led if call.kind == "product"]
        require(
            any(call.kind == "product" for call in self.calls),
            "the product was not made on the mesh: no ttnn.matmul or ttnn.linear among your calls",
        )
        several = f"{len(products)} product{'s' if len(products) > 1 else ''}"
        rule = f"{several} on the mesh should lead to your tensor, {len(found)} did"
        require(len(found) >= len(products), f"{rule}: the rest went through the host")
        have = [list(tensor.shape) for call in found for tensor in call.operands[:2]]
        most = sum(math.prod(shape) for pair in products for shape in pair)
        shapes = " and ".join(f"{list(a)} @ {list(b)}" for a, b in products)
        require(
            sum(map(math.prod, have)) <= most,
            f"each operand's shard should be no larger than in {shapes}; "
            f"on each device you multiplied {' and '.join(map(str, have))}",
        )

    def sent(self, calls: list[Call] | None = None) -> list[str]:
        """Return the names of the collectives among these calls, or among all."""
        among = self.calls if calls is None else calls
        return [call.operation for call in among if call.kind == "collective"]

    def summed(self) -> None:
        """Check that a collective led to the tensor; its values show that the sum is right."""
        multiplied = any(call.kind == "product" for call in self.calls)
        require(
            bool(self.sent(self.led)) or not multiplied,
            "no all_reduce (or reduce_scatter and all_gather) led to your tensor: "
            "your sum over the devices was made on the host",
        )

    def nothing_sent(self) -> None:
        """Check that no collective was called."""
        sent = self.sent()
        require(not sent, f"nothing needs to be sent here, but you called {', '.join(sent)}")

    def given(self) -> str:
        """Check that no chip got more bytes than the shards take in tiles; return both in words."""
        if not self.calls:
            return "bytes not counted"
        put = [t for t in put_on_mesh(self.calls) if math.prod(t.shape) > 1]  # a number is free
        used = sum(bytes_of(t.padded, t.dtype) for t in put)
        most = sum(bytes_of(padded(tuple(s), Layout.TILE), DataType.FLOAT32) for s in self.shards)
        require(
            used <= most,
            f"on {self.mesh!r} you put {used:,} bytes on each chip; the target is {most:,}, "
            f"for {' and '.join(str(list(shard)) for shard in self.shards)}",
        )
        return f"{used:,} of {most:,} bytes allowed on each of {self.mesh.get_num_devices()} chips"


def is_a(value: Any, attribute: str) -> bool:
    """Return whether a value is an object, not a class, with this attribute.

    Tensors and meshes of both backends are recognized by an attribute.
    """
    return hasattr(value, attribute) and not isinstance(value, type)


class Answer:
    """A learner's function; an error in it names the line of the learner's cell."""

    def __init__(self, function: Callable[..., Any], asks: str):
        self.function, self.asks, self.name = function, asks, asks.partition("(")[0]

    def __call__(self, *args: Any) -> Any:
        try:
            result = self.function(*args)
            given = drawn(result)
            endless = given is not result and len(given) == MANY
            require(not endless, f"{self.asks} gives values without end")
            return given
        except (NotDone, CheckFailed):
            raise
        except (Exception, SystemExit) as error:
            trace = error.__traceback__
            lines = learners_lines(trace)
            # the answer's own line, not that of a helper in another cell
            where = f"{type(error).__name__}{f' in {lines[0][0]}' if lines else ''}"
            never_began = isinstance(error, TypeError) and trace and trace.tb_next is None
            call = f"; it is called as {self.asks}" if never_began else ""
            raise CheckFailed(
                f"your {self.name} stopped with {where}: {said_by(error)}{call}"
            ) from None

    def on(self, mesh: Any, *cuts: Cut) -> Run:
        """Run it on a mesh.

        Args:
            cuts: for each array that it is called with, the array and the shapes of the shards into
                which it may be cut.
        """
        return Run(self, mesh, cuts)

    def must_give(self, what: str, fine: bool, value: Any) -> None:
        """Raise `CheckFailed` unless its result is fine."""
        require(value is not None, f"{self.asks} gave nothing back: does it end in `return`?")
        require(fine, f"{self.asks} should give {what}, gave a {type(value).__name__}")


@contextmanager
def _opened(shape: tuple[int, int], fabric: bool) -> Iterator[Any]:
    """Open a fresh mesh of the simulator; restore the open meshes and the fabric afterwards."""
    ttnn = backend.load()
    before, found = list(opened_meshes), ttnn.get_fabric_config()
    if fabric and found is ttnn.FabricConfig.DISABLED:
        no_fabric = (
            "your mesh is open without a fabric: "
            "ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D) before you open the mesh"
        )
        require(not before, no_fabric)
        ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    try:
        yield ttnn.open_mesh_device(ttnn.MeshShape(*shape))
    finally:
        for mesh in list(opened_meshes):  # an answer may have opened some, too
            if mesh not in before:
                mesh.close()
        if not opened_meshes:  # closing the last one switched it off
            ttnn.set_fabric_config(found)


def asks(
    form: str, *on: tuple[int, int], fabric: bool = False
) -> Callable[[Callable[..., str]], Check]:
    """Make a check of a function that looks at one `Answer`, on one mesh after the other.

    Args:
        form: how the learner's function is called, as "double(mesh, x)".
        on: shapes of the fresh meshes on the simulator; on a card it is the learner's own mesh.
            Without shapes the answer needs no mesh.
        fabric: chips must be able to send.
    """

    def make(look: Callable[..., str]) -> Check:
        @functools.wraps(look)
        def check(answer: Any, mesh: Any) -> str:
            rule = f"the function {form} is asked for, without brackets after its name"
            require(callable(answer), f"{rule}; what you gave is a {type(answer).__name__}")
            if not on:
                return look(Answer(answer, form))
            if backend.is_simulated():
                praise = ""
                for shape in on:
                    with _opened(shape, fabric) as fresh:
                        praise = look(Answer(answer, form), fresh)
                return praise
            own = "on a card the check needs your open mesh: check(name, answer, mesh)"
            require(mesh is not None, own)
            praise = look(Answer(answer, form), mesh)
            if values_mean_something():
                return f"{praise} (values only: which calls made them is seen on the simulator)"
            return f"{praise} (shapes only)"

        return check

    return make
