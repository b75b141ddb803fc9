"""The ttnn calls that an answer makes on the simulator, those that led to its result, and what they
sent and held.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ttkit.sim.memory import bytes_in_use
from ttkit.sim.mesh import MeshDevice
from ttkit.sim.operation import OPERATIONS, Watcher, noted, watchers
from ttkit.sim.tensor import Tensor
from ttkit.sim.trace import tensors_in


@dataclass
class Call:
    """One call, with its arguments and its result; a call that failed has not returned."""

    operation: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any = None
    returned: bool = False

    @property
    def kind(self) -> str:
        """The kind of its operation, such as "product"; "" where it is none, as opening a mesh."""
        record = OPERATIONS.get(self.operation)
        return record.kind if record else ""

    @property
    def operands(self) -> list[Tensor]:
        """The tensors among its arguments."""
        return tensors_in([*self.args, *self.kwargs.values()])


class _Recorder:
    """Appends each call to a list; a call that fails, too."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def before(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.calls.append(Call(name, args, kwargs))

    def after(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        self.calls[-1].result, self.calls[-1].returned = result, True


@contextmanager
def watched_by(watcher: Watcher) -> Iterator[None]:
    """Show a watcher every ttnn call that is made inside the block, also those about meshes."""
    for watching in (watchers, noted):
        watching.append(watcher)
    try:
        yield
    finally:
        for watching in (watchers, noted):
            watching.remove(watcher)


@contextmanager
def recorded() -> Iterator[list[Call]]:
    """Record every ttnn call that is made inside the block."""
    recorder = _Recorder()
    with watched_by(recorder):
        yield recorder.calls


def meshes_in(value: Any) -> list[MeshDevice]:
    """Return the meshes in an argument or a result, and those of its tensors."""
    if isinstance(value, MeshDevice):
        return [value]
    if isinstance(value, (list, tuple)):
        return [mesh for each in value for mesh in meshes_in(each)]
    return [value.mesh] if isinstance(value, Tensor) and value.mesh is not None else []


def put_on_mesh(calls: list[Call]) -> list[Tensor]:
    """Return the tensors that calls put from the host on a mesh."""
    put = [c.result for c in calls if c.operation in ("from_torch", "to_device") and c.returned]
    return [tensor for tensor in put if tensor.mesh is not None]


def made_on_host(calls: list[Call], given: list[np.ndarray], scaled: bool) -> str:
    """Return a number that NumPy made of the given arrays before it came to the mesh; "" for none.

    Their own numbers in any order may come, zeros, and one constant; with `scaled`, a whole array
    times a number, too.
    """
    size = np.abs if scaled else np.asarray  # by -1, too
    known = size(np.concatenate([[0.0], *(array.ravel() for array in given)]))
    for call in calls:
        if call.operation != "from_torch":
            continue
        put = size(np.asarray(call.args[0] if call.args else call.kwargs["tensor"]))
        new = put[~np.isin(put, known)]
        constant = new.size == np.count_nonzero(put) and np.unique(new).size == 1
        if not new.size or constant or (scaled and any(_alike(put, array) for array in given)):
            continue
        return f"{new[0]:g}"
    return ""


def _alike(one: np.ndarray, other: np.ndarray) -> bool:
    """Return whether two arrays have the same numbers but for their order, signs and a factor."""
    a, b = (np.sort(np.abs(array[array != 0])) for array in (one, other))
    return bool(a.size == b.size > 0) and np.allclose(a / a[-1], b / b[-1], 1e-5)


def history(calls: list[Call], tensor: Tensor) -> list[Call]:
    """Return the calls that led to a tensor.

    Where a tensor on the mesh came from a function that is not recorded, any call may have led to
    it.
    """
    wanted, made, on_device = {id(tensor)}, set[int](), set[int]()
    found = []
    for call in reversed(calls):
        results = set(map(id, tensors_in(call.result)))
        if results & wanted:
            found.append(call)
            made |= results
            wanted |= set(map(id, call.operands))
            on_device |= {id(operand) for operand in call.operands if operand.mesh is not None}
    return calls if not found or on_device - made else found[::-1]


def how_cut(whole: Sequence[int], shard: Sequence[int]) -> str:
    """Return which dimensions of `whole` were cut to get `shard`, in words.

    Example:
        >>> how_cut([16, 24], [8, 6])
        'dimension 0 in 2 and dimension 1 in 4'
        >>> how_cut([16, 24], [16, 24])
        'nothing'
    """
    if len(whole) != len(shard):
        return f"it to {list(shard)}"
    pairs = enumerate(zip(whole, shard, strict=True))
    cuts = [f"dimension {d} in {a // b if b else 0}" for d, (a, b) in pairs if a != b]
    return " and ".join(cuts) or "nothing"


def lean(shape: Sequence[int]) -> list[int]:
    """Return a shape without its ones: a matrix may be written in four dimensions."""
    return [n for n in shape if n != 1]


class Peak:
    """Watches, inside `with`, what the fullest chip holds after each operation: `most` bytes.

    An operation's operands are alive when it returns, so nothing higher is missed.
    """

    def __init__(self) -> None:
        self.most = 0

    def before(self, name: str, args: Any, kwargs: Any) -> None:
        """Do nothing."""

    def after(self, name: str, args: Any, kwargs: Any, result: Any) -> None:
        """Note what the fullest chip holds."""
        self.most = max(self.most, max(bytes_in_use().values(), default=0))

    def __enter__(self) -> Peak:
        watchers.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        watchers.remove(self)


def bytes_by_collective(records: Iterable[Any]) -> Counter[str]:
    """Return the bytes over links of the collectives among a profile's records, by name."""
    found: Counter[str] = Counter()
    for record in records:
        if record.kind == "communication":
            found[record.name.rpartition(".")[2]] += record.bytes_on_links
    return found
