"""The same program on one chip and on a mesh: the first operation that gives something else."""

import difflib
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ttkit.errors import fail
from ttkit.profiling.records import last_name
from ttkit.profiling.traffic import note_line
from ttkit.sim.mesh.opening import get_fabric_config, open_mesh_device, set_fabric_config
from ttkit.sim.tape import Event, described, tape, tensors_in
from ttkit.sim.tensor import FabricConfig, MeshShape
from ttkit.sim.tensor.dtypes import widened

Values = tuple[np.ndarray, int]  # An array, and the number of its leading axes over chips.


def run_recorded(
    program: Callable, shape: Sequence[int], fabric: FabricConfig
) -> list[tuple[Event, list[Values]]]:
    """Run a program on a mesh with a fabric; return its calls and their results."""
    calls: list[tuple[Event, list[Values]]] = []

    def note(event: Event, result) -> None:
        calls.append((event, [(t._array, len(t.grid.shape)) for t in tensors_in(result)]))

    set_fabric_config(fabric)
    with open_mesh_device(MeshShape(*shape)) as mesh, tape(before=note_line, after=note):
        mesh.is_reference = fabric is FabricConfig.DISABLED
        result = program(mesh)
        end = described(result)
        note(Event("result", (end,), {}, "", end, where="the end"), result)
    return calls


def readings(
    array: np.ndarray, axes: int, shape: tuple[int, ...], adds: bool, how: str = ""
) -> Iterator[tuple[np.ndarray, str]]:
    """Yield every way to read shards as one array of a shape, with the placement that it assumes.

    A placement has for each mesh axis R (replicated), S1 (sharded along dim 1) or P (parts of a
    sum).

    Args:
        adds: add up shards that differ; otherwise take the first one, as a program does that
            forgets its all-reduce.
    """
    if axes == 0:
        if array.shape == shape:
            yield array, how
        return
    shards = np.moveaxis(array, axes - 1, 0)
    if (shards == shards[0]).all():
        yield from readings(shards[0], axes - 1, shape, adds, f" R{how}")
    else:
        first = shards.sum(0) if adds else shards[0]
        yield from readings(first, axes - 1, shape, adds, f" P{how}")
    for dim in range(array.ndim - axes) if len(shards) > 1 else ():
        joined = np.concatenate(shards, axis=axes - 1 + dim)
        yield from readings(joined, axes - 1, shape, adds, f" S{dim}{how}")


def relative_error(wanted: np.ndarray, found: np.ndarray) -> float:
    """Return the largest difference divided by the largest expected value."""
    finite = np.isfinite(wanted)  # An attention mask has infinities, which are not compared.
    most = np.abs(wanted[finite]).max(initial=0)
    error = np.abs(np.subtract(found, wanted, where=finite, out=np.zeros(wanted.shape)))
    return float(np.nan_to_num(error, nan=np.inf).max(initial=0) / (most or 1))


def best_reading(right: Values | None, made: Values, adds: bool) -> tuple[float, str]:
    """Return how far shards are off, and the placement that gives it; NaN if none fits."""
    if right is None:
        return np.nan, ""
    array, axes = right
    wanted = widened(array.reshape(array.shape[axes:]))
    ways = readings(widened(made[0]), made[1], wanted.shape, adds)
    return min(((relative_error(wanted, found), how) for found, how in ways), default=(np.nan, ""))


def check_on_one_chip(program: Callable, mesh_shape: Sequence[int], tolerance: float = 0.05) -> str:
    """Run a program on one chip and on a mesh, and fail at the first operation that parts them.

    Calls are matched by name and line. The shards of a result must give one chip's result in one
    way: replicated, sharded along a dimension, or parts of a sum, along each mesh axis. A result
    that differs is accepted where something computed from it later matches: the queries, keys and
    values of a chip may lie side by side in one tensor. What the program returns must not be parts
    of a sum. Results whose shape cannot be one chip's are skipped.

    Args:
        program: a function of a mesh that makes a model from weights that are the same each time,
            runs it, and returns its result: a tensor, several in a list, or none.
        mesh_shape: rows and columns. The fabric is FABRIC_1D where none is set.
        tolerance: the largest difference, as a part of the largest value.

    Returns:
        How many results are those of one chip.

    Raises:
        TTKitError: the values differ. The message has the operation, its line, the shapes, the
            largest difference, and where its operands come from.

    Example:
        >>> from ttkit import ttnn
        >>> def program(mesh):
        ...     across = ttnn.ShardTensorToMesh(mesh, 1)
        ...     x = ttnn.from_torch(np.ones((2, 64), "f"), device=mesh, mesh_mapper=across)
        ...     return ttnn.exp(x)
        >>> check_on_one_chip(program, (1, 2))
        '3 results are those of one chip'
    """
    fabric, off = get_fabric_config(), FabricConfig.DISABLED
    one = run_recorded(program, (1, 1), off)
    other = run_recorded(program, mesh_shape, FabricConfig.FABRIC_1D if fabric is off else fabric)
    calls = [[(event.name, event.where) for event, _ in each] for each in (one, other)]
    matched = difflib.SequenceMatcher(a=calls[0], b=calls[1], autojunk=False).get_matching_blocks()
    partners = {b + k: one[a + k][1] for a, b, size in matched for k in range(size)}
    made_by: dict[int, int] = {}  # The index in `results` of the call that made a tensor.
    results: list[tuple[list[int], float, str]] = []
    for number, (event, made) in enumerate(other):
        keys = (id(held.tensor) for held in event.operands)
        operands = [made_by[key] for key in keys if key in made_by]
        references = partners.get(number, [None] * len(made))
        for held, found, right in zip(event.results, made, references, strict=False):
            error, how = best_reading(right, found, adds=event.name != "result")
            text = f"{last_name(event.name)} {list(held.shard_shape)}{how} at {event.where}"
            made_by[id(held.tensor)] = len(results)
            results.append((operands, error, text))
    accepted: set[int] = set()
    for number, (operands, error, _) in reversed([*enumerate(results)]):
        if error <= tolerance or number in accepted:
            accepted.update([number, *operands])
    for number, (operands, error, text) in enumerate(results):
        if error > tolerance and number not in accepted:
            name = getattr(program, "__name__", "program")
            asked = f"check_on_one_chip({name}, {'x'.join(map(str, mesh_shape))})"
            given = "".join(f"\n  given {results[operand][2]}" for operand in operands)
            cure = "add up what is P; gather S where all of that dimension is needed"
            fail(asked, f"{error:.0%} of one chip's largest value off is {text}{given}", cure)
    compared = sum(error <= tolerance for _, error, _ in results)
    return f"{compared} results are those of one chip"
