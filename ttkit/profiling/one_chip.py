"""The same program on one chip and on a mesh: find the first operation whose results differ."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ttkit.errors import fail
from ttkit.profiling.traffic import note_line
from ttkit.sim.mesh.opening import get_fabric_config, open_mesh_device, set_fabric_config
from ttkit.sim.tape import Event, tape, tensors_in
from ttkit.sim.tensor import FabricConfig, MeshShape
from ttkit.sim.tensor.dtypes import Array, widened

# Each call has its event and its results. Each result has its array, and how many of the first axes
# of the array run over chips.
Calls = list[tuple[Event, list[tuple[Array, int]]]]
# This stands for the result of a call that the program makes on a mesh only.
NO_RESULT = np.empty(0)


@dataclass
class Result:
    """A result of a call on the mesh.

    Attributes:
        error: the relative error against the result on one chip; NaN if they cannot be compared.
        text: the operation, the shape of a shard, the placement of the shards, and the line.
        operands: the results from which this result was made.
        is_right: whether it equals the result on one chip, or a result made from it does.
    """

    error: float
    text: str
    operands: list[Result]
    is_right: bool


def run(program: Callable, shape: Sequence[int], fabric: FabricConfig) -> Calls:
    """Run a program on a mesh with a fabric; return its calls and their results."""
    calls: Calls = []

    def note(event: Event, result) -> None:
        calls.append((event, [(t._array, t.grid.lead) for t in tensors_in(result)]))

    set_fabric_config(fabric)
    with open_mesh_device(MeshShape(*shape)) as mesh, tape(before=note_line, after=note) as record:
        mesh.is_reference = fabric is FabricConfig.DISABLED
        record.record("result", lambda result: result, program(mesh))
        record.events[-1].where = "the end"
    return calls


def gathered(
    array: Array, axes: int, adds: bool = True, how: str = ""
) -> Iterator[tuple[Array, str]]:
    """Yield each array that the shards may stand for, with the placement that this assumes.

    A placement has for each mesh axis R (replicated), S1 (sharded along dim 1) or P (parts of a
    sum).

    Args:
        axes: how many of the first axes of the array run over chips.
        adds: whether shards that differ are added up. Otherwise only the first one is taken, as in
            a program that forgets its all-reduce.
        how: the placement along later axes.
    """
    array = widened(array)
    if axes == 0:
        yield array, how
        return
    shards = np.moveaxis(array, axes - 1, 0)
    same = (shards == shards[0]).all()
    ways = {"R" if same else "P": shards[0] if same or not adds else shards.sum(0)}
    for dim in range(array.ndim - axes) if len(shards) > 1 else ():
        ways[f"S{dim}"] = np.concatenate(shards, axis=axes - 1 + dim)
    for way, joined in ways.items():
        yield from gathered(joined, axes - 1, adds, f" {way}{how}")


def relative_error(wanted: Array, found: Array) -> float:
    """Return the largest difference divided by the largest expected value."""
    finite = np.isfinite(wanted)  # An attention mask has infinities, which are not compared.
    wanted, found = wanted[finite], found[finite]
    far = np.abs(found - wanted).max(initial=0)
    return float(np.nan_to_num(far / (np.abs(wanted).max(initial=0) or 1), nan=np.inf))


def check_on_one_chip(program: Callable, mesh_shape: Sequence[int], tolerance: float = 0.05) -> str:
    """Run a program on one chip and on a mesh; fail at the first operation whose results differ.

    Calls are matched by name and line. The shards of a result must give the result on one chip when
    they are read, along each mesh axis, as replicas, as shards along a dimension, or as parts of a
    sum. A result that differs still counts as right if a later result made from it is right; for
    example, the queries, keys and values of a chip may lie side by side in one tensor. The shards
    of what the program returns must not be parts of a sum. A result is not compared if its shards
    cannot give the shape of the result on one chip.

    Args:
        program: a function that gets a mesh, makes a model whose weights are the same
            each time, runs it, and returns its result: a tensor, several in a list, or
            none.
        mesh_shape: rows and columns. The fabric is FABRIC_1D where none is set. No mesh may be open
            at the call, and no fabric is set after it.
        tolerance: the largest difference, as a fraction of the largest value.

    Returns:
        A sentence with the number of results that equal those on one chip.

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
        '3 results equal those on one chip'
    """
    fabric = get_fabric_config()
    off = FabricConfig.DISABLED
    alone = defaultdict[tuple, list](list)
    for event, made in reversed(run(program, (1, 1), off)):
        alone[event.name, event.where].append([next(gathered(*each))[0] for each in made])
    latest: dict[int, Result] = {}  # The keys are the ids of tensors.
    results = []
    if fabric is off:
        fabric = FabricConfig.FABRIC_1D
    for event, made in run(program, mesh_shape, fabric):
        keys = (id(held.tensor) for held in event.operands)
        operands = [latest[key] for key in keys if key in latest]
        calls = alone[event.name, event.where] or [[NO_RESULT] * len(made)]
        for held, (array, axes), one in zip(event.results, made, calls.pop()):
            ways = gathered(array, axes, adds=event.name != "result")
            same = (
                (relative_error(one, each), how) for each, how in ways if each.shape == one.shape
            )
            error, how = min(same, default=(np.nan, ""))
            text = f"{event.name} {list(held.shard_shape)}{how} at {event.where}"
            results.append(Result(error, text, operands, error <= tolerance))
            latest[id(held.tensor)] = results[-1]
    for result in reversed(results):
        for operand in result.operands if result.is_right else ():
            operand.is_right = True
    for result in results:
        if result.error > tolerance and not result.is_right:
            name = getattr(program, "__name__", "program")
            asked = f"check_on_one_chip({name}, {'x'.join(map(str, mesh_shape))})"
            given = "".join(f"\n  given {operand.text}" for operand in result.operands)
            fail(
                asked,
                f"{result.text} differs by {result.error:.0%} of one chip's largest value{given}",
                "all_reduce partial sums (P); all_gather a shard (S) that must be whole",
            )
    return f"{sum(r.error <= tolerance for r in results)} results equal those on one chip"
