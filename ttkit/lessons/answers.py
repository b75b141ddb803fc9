"""What checks are written with: an answer, a run of it on a mesh, and what the call tape says of
that run.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from ttkit import backend
from ttkit.errors import learners_lines
from ttkit.lessons import (
    Check,
    CheckFailed,
    NotDone,
    as_number,
    device_difference,
    require,
    values_mean_something,
)
from ttkit.lessons.tape import tape

Shape = Sequence[int]
Call = dict[str, Any]


def kind_of(call: Call) -> str:
    """What a call on the tape does, as `ttkit.sim.operation.Operation` has it: "product",
    "collective", ...

    "" for what is no operation, such as opening a mesh.
    """
    from ttkit.sim.operation import OPERATIONS

    record = OPERATIONS.get(call["operation"])
    return record.kind if record else ""


def numbers(*shape: int) -> np.ndarray:
    """[shape] float32 values between -8 and 8, no two alike."""
    size = math.prod(shape)
    return (
        np.random.default_rng(size).permutation(size).reshape(shape) * np.float32(16 / size) - 8
    ).astype(np.float32)


def whole_number(value: Any, what: str) -> int:
    """The answer as an int, whatever kind of number it is, or `CheckFailed`."""
    number = as_number(value)
    if not isinstance(number, int):
        raise CheckFailed(f"{what} should be a whole number, is {value!r}")
    return number


def tile_bytes(*shapes: Shape) -> int:
    """Bytes of float32 tensors of these shapes in tiles."""
    return sum(
        4 * math.prod(shape[:-2]) * math.prod(-(-n // 32) * 32 for n in shape[-2:])
        for shape in shapes
    )


def how_cut(whole: Shape, shard: Shape) -> str:
    """Which dimensions of `whole` were cut to get `shard`, in words.

    Example:
        >>> how_cut([16, 24], [8, 6])
        'dimension 0 in 2 and dimension 1 in 4'
        >>> how_cut([16, 24], [16, 24])
        'nothing'
    """
    if len(whole) != len(shard):
        return f"it to {list(shard)}"
    return (
        " and ".join(
            f"dimension {d} in {a // b if b else 0}"
            for d, (a, b) in enumerate(zip(whole, shard, strict=True))
            if a != b
        )
        or "nothing"
    )


def is_a(value: Any, attribute: str) -> bool:
    """True of an object, not a class, that has this attribute: tensors and meshes of both
    backends are known by theirs.
    """
    return hasattr(value, attribute) and not isinstance(value, type)


def lean(shape: Shape) -> list[int]:
    """A shape without its ones: a matrix may be written in four dimensions."""
    return [n for n in shape if n != 1]


def _tensors(value: Any) -> Iterator[Call]:
    """What the tape says of each tensor in a value."""
    if isinstance(value, dict):
        if isinstance(value.get("tensor"), int):
            yield value
            return
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _tensors(each)


def _meshes(value: Any) -> set[int]:
    """The numbers of the meshes in what the tape says of a value."""
    if isinstance(value, dict):
        return (
            {value["mesh"]} if isinstance(value.get("mesh"), int) else _meshes(list(value.values()))
        )
    return set().union(*map(_meshes, value)) if isinstance(value, list) else set()


def history(calls: list[Call], number: int) -> list[Call]:
    """The calls that led to the tensor with this number.

    Where a tensor on the mesh came from a function that is not on the tape, any call may have led
    to it."""
    wanted, made, found = {number}, set(), []
    on_device = set()
    for call in reversed(calls):
        results = {t["tensor"] for t in _tensors(call["result"])}
        if results & wanted:
            found.append(call)
            made |= results
            operands = list(_tensors([call["args"], call["kwargs"]]))
            wanted |= {t["tensor"] for t in operands}
            on_device |= {t["tensor"] for t in operands if t["storage"] == "DEVICE"}
    return calls if not found or on_device - made else found[::-1]


class Run:
    """What an answer did on one mesh.

    Each method is one thing to check; those that read the tape pass on a card.
    """

    def __init__(self, answer: Answer, mesh: Any, arrays: tuple[np.ndarray, ...]):
        self.answer, self.mesh = answer, mesh
        self.error: CheckFailed | None = None
        self.result: Any = None
        self.calls: list[Call] = []
        self.led: list[Call] = []  # those that led to the tensor which came back
        given = [array.copy() for array in arrays]  # an answer may write into them
        with tape() if backend.is_simulated() else nullcontext() as calls:
            try:
                self.result = answer(mesh, *given)
            except CheckFailed as error:
                self.error = error
        if calls is None:
            return
        self.calls = list(calls)
        require(not self._strange_meshes(calls.number(mesh)), self._strange())
        require(mesh.is_open, f"your {answer.name} closes the mesh that it was given")
        self.untouched = isinstance(self.result, np.ndarray) and any(
            np.shares_memory(self.result, array) for array in given
        )
        if is_a(self.result, "tensor_topology"):
            self.led = history(self.calls, calls.number(self.result))

    def _strange(self) -> str:
        return (
            f"your {self.answer.name} uses another mesh than the one it is given: "
            "take its parameter, "
            "not the notebook's variable (helpers such as `place` use the notebook's mesh)"
        )

    def _strange_meshes(self, own: int) -> set[int]:
        known, found = {own}, set()
        for call in self.calls:
            found |= _meshes([call["args"], call["kwargs"]]) - known
            known |= _meshes(call["result"])
        return found

    def ok(self) -> Any:
        """What came back; raises what stopped the answer."""
        if self.error:
            raise self.error from None
        return self.result

    def tensor(self) -> Any:
        """The tensor that came back, on the mesh that was given."""
        tensor, call = self.ok(), self.answer.asks
        require(tensor is not None, f"{call} gave nothing back: does it end in `return`?")
        require(
            is_a(tensor, "tensor_topology"),
            f"{call} should give a ttnn tensor, gave a {type(tensor).__name__}",
        )
        require(tensor.is_allocated(), "the tensor that came back was deallocated")
        require(
            tensor.device() is not None,
            "the tensor is still in host memory: device=mesh is missing",
        )
        require(not backend.is_simulated() or tensor.device() is self.mesh, self._strange())
        return tensor

    def cut(self, name: str, whole: Shape, *shards: Shape) -> None:
        """The array of shape `whole`, wherever it was made a tensor, was cut into shards of one
        of these shapes.
        """
        for call in self.calls:
            array = call["args"][0] if call["args"] else call["kwargs"].get("tensor")
            if (
                call["operation"] != "from_torch"
                or not call["returned"]
                or not isinstance(array, dict)
                or lean(array.get("array", [])) != lean(whole)
            ):
                continue
            have = call["result"]["shape"]
            if call["result"]["distribution"] == [1] and call["result"]["storage"] == "HOST":
                continue  # not given out yet
            if lean(have) not in map(lean, shards):
                yours = (
                    f"you cut {how_cut(lean(whole), lean(have))}, so that each device holds {have}"
                )
                asked = f"the exercise cuts {how_cut(whole, shards[0])}, into {list(shards[0])}"
                raise CheckFailed(f"on {self.mesh!r}, {name} is {list(whole)}: {yours}; {asked}")

    def equals(self, expected: list[np.ndarray], rtol: float = 1e-5) -> None:
        """Each device holds its array of `expected`."""
        tensor = self.tensor()
        found = device_difference(
            expected, tensor, rtol, rtol * max(float(np.abs(e).max()) for e in expected)
        )
        if found:
            raise CheckFailed(f"on {self.mesh!r}, {found}")

    def computed(self, what: str) -> None:
        """Some operation of the mesh led to the tensor."""
        if self.calls and all(kind_of(call) in ("write", "read", "store") for call in self.led):
            raise CheckFailed(
                f"{what} was not done on the devices: no operation of ttnn led to your tensor, "
                "so NumPy did it on the host"
            )

    def multiplied(self, *products: tuple[Shape, Shape]) -> None:
        """The tensor was led to by these products, and no device had larger operands than these."""
        if not self.calls:
            return
        found = [call for call in self.led if kind_of(call) == "product"]
        if len(found) < len(products):
            if not any(kind_of(call) == "product" for call in self.calls):
                raise CheckFailed(
                    "the product was not made on the mesh: no ttnn.matmul or ttnn.linear among "
                    "your calls"
                )
            rule = (
                f"{len(products)} product{'s' if len(products) > 1 else ''} on the mesh should "
                f"lead to your tensor, {len(found)} did"
            )
            raise CheckFailed(f"{rule}: the rest went through the host")
        most = sum(math.prod(shape) for pair in products for shape in pair)
        have = [
            t["shape"] for call in found for t in list(_tensors([call["args"], call["kwargs"]]))[:2]
        ]
        used = sum(map(math.prod, have))
        shapes = " and ".join(f"{list(a)} @ {list(b)}" for a, b in products)
        require(
            used <= most,
            f"each operand's shard should be no larger than in {shapes}; "
            f"on each device you multiplied {' and '.join(map(str, have))}",
        )

    def summed(self) -> None:
        """The devices sent each other what led to the tensor; that the sum is right is seen in
        its values.
        """
        if any(kind_of(c) == "product" for c in self.calls) and not any(
            kind_of(c) == "collective" for c in self.led
        ):
            raise CheckFailed(
                "no all_reduce (or reduce_scatter and all_gather) led to your tensor: "
                "your sum over the devices was made on the host"
            )

    def nothing_sent(self) -> None:
        """No collective was called."""
        sent = [call["operation"] for call in self.calls if kind_of(call) == "collective"]
        require(not sent, f"nothing needs to be sent here, but you called {', '.join(sent)}")

    def given(self, *shapes: Shape) -> str:
        """Each chip was given no more bytes than tensors of these shapes take in tiles; says how
        many.
        """
        if not self.calls:
            return "bytes not counted"
        from ttkit.sim.enums import DataType
        from ttkit.sim.memory import bytes_of

        put = [
            c["result"]
            for c in self.calls
            if c["operation"] in ("from_torch", "to_device")
            and c["returned"]
            and c["result"]["storage"] == "DEVICE"
        ]
        used, most = (
            sum(bytes_of(tuple(t["padded"]), DataType[t["dtype"]]) for t in put),
            tile_bytes(*shapes),
        )
        require(
            used <= most,
            f"on {self.mesh!r} you put {used:,} bytes on each chip; the target is {most:,}, "
            f"for {' and '.join(str(list(s)) for s in shapes)}",
        )
        return f"{used:,} of {most:,} bytes allowed on each of {self.mesh.get_num_devices()} chips"


class Answer:
    """A learner's function: what goes wrong in it is told as the learner's, with the line of the
    cell.
    """

    def __init__(self, function: Callable[..., Any], asks: str):
        self.function, self.asks, self.name = function, asks, asks.partition("(")[0]

    def __call__(self, *args: Any) -> Any:
        try:
            result = self.function(*args)
            # it would run, and fail, in the check
            return list(result) if isinstance(result, Generator) else result
        except (NotDone, CheckFailed):
            raise
        except Exception as error:
            lines = learners_lines(error.__traceback__)
            # the answer's own line, not that of a helper in another cell
            where = f" in {lines[0][0]}" if lines else ""
            never_began = (
                isinstance(error, TypeError)
                and error.__traceback__ is not None
                and error.__traceback__.tb_next is None
            )
            call = f"; it is called as {self.asks}" if never_began else ""
            text = f"{error}" if len(f"{error}") <= 600 else f"{error}"[:600] + " ..."
            raise CheckFailed(
                f"your {self.name} stopped with {type(error).__name__}{where}: {text}{call}"
            ) from None

    def on(self, mesh: Any, *arrays: np.ndarray) -> Run:
        """Run it on a mesh."""
        return Run(self, mesh, arrays)


@contextmanager
def _opened(shape: tuple[int, int], fabric: bool) -> Iterator[Any]:
    """A fresh mesh of the simulator; afterwards the meshes that were open are open, and the
    fabric is as it was.
    """
    from ttkit.sim.mesh import opened_meshes

    ttnn = backend.load()
    before, found = list(opened_meshes), ttnn.get_fabric_config()
    if fabric and found is ttnn.FabricConfig.DISABLED:
        if before:
            raise CheckFailed(
                "your mesh is open without a fabric: "
                "ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D) before you open the "
                "mesh"
            )
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
    """Make a check of a function that looks at one `Answer`, on one mesh at a time where `on`
    names their shapes.

    Args:
        form: how the learner's function is called, as "double(mesh, x)".
        on: shapes of the fresh meshes on the simulator; on a card it is the learner's own mesh.
        fabric: chips must be able to send.
    """

    def make(look: Callable[..., str]) -> Check:
        @functools.wraps(look)
        def check(answer: Any, mesh: Any) -> str:
            rule = f"the function {form} is asked for, without brackets after its name"
            require(callable(answer), f"{rule}; what you gave is a {type(answer).__name__}")
            praise = ""
            if not on:
                return look(Answer(answer, form))
            if not backend.is_simulated():
                require(
                    mesh is not None,
                    "on a card the check needs your open mesh: check(name, answer, mesh)",
                )
                seen = (
                    "values only: which calls made them is seen on the simulator"
                    if values_mean_something()
                    else "shapes only"
                )
                return f"{look(Answer(answer, form), mesh)} ({seen})"
            for shape in on:
                with _opened(shape, fabric) as fresh:
                    praise = look(Answer(answer, form), fresh)
            return praise

        return check

    return make
