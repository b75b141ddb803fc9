"""The checks of the lessons' exercises, in the order of the lessons.

Each check tries an answer with different values on every device and, on the simulator, on meshes that are not square,
so that a swapped axis or a missing sum cannot pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ttkit import backend
from ttkit.lessons import CheckFailed, device_difference, difference, exercise, require


def _meshes(mesh: Any, *shapes: tuple[int, int]) -> Iterator[Any]:
    """Meshes to try an answer on: fresh ones of these shapes on the simulator, the learner's own on a card."""
    if not backend.is_simulated():
        require(mesh is not None, "on a card the check needs your open mesh: check(name, answer, mesh)")
        yield mesh
        return
    ttnn = backend.load()
    fabric = ttnn.get_fabric_config()
    for shape in shapes:
        ttnn.set_fabric_config(fabric)  # closing the last mesh has switched it off
        with ttnn.open_mesh_device(ttnn.MeshShape(*shape)) as fresh:
            yield fresh


def _numbers(*shape: int) -> np.ndarray:
    """Values that differ everywhere, small enough to be exact."""
    return np.random.default_rng(math.prod(shape)).integers(-8, 9, shape).astype(np.float32) + np.arange(math.prod(shape), dtype=np.float32).reshape(shape) / 64


def _tensor_on(mesh: Any, tensor: Any, what: str) -> Any:
    require(tensor is not None, f"{what} gave nothing back: does it end in `return`?")
    require(hasattr(tensor, "tensor_topology"), f"{what} should give a ttnn tensor, gave a {type(tensor).__name__}")
    require(tensor.device() is not None, f"the tensor is still in host memory: device={mesh!r} is missing")
    return tensor


def _compare(expected: list[np.ndarray], tensor: Any, mesh: Any, rtol: float = 1e-5) -> None:
    found = device_difference(expected, tensor, rtol, 1e-4)
    if found:
        raise CheckFailed(f"on {mesh!r}, {found}")


# ---------------------------------------------------------------- 00 start here
@exercise("00.double")
def _double(answer: Any, mesh: Any) -> str:
    for each in _meshes(mesh, (2, 4), (1, 3)):
        n = each.get_num_devices()
        x = _numbers(n * 2, 5)
        tensor = _tensor_on(each, answer(each, x), "double(mesh, x)")
        _compare(list(2 * x.reshape(n, 2, 5)), tensor, each)
    return "every device doubled its own rows"


@exercise("00.share")
def _share(answer: Any, mesh: Any) -> str:
    require(isinstance(answer, int), f"a whole number of elements, please, not {answer!r}")
    require(answer != 48 * 64, "that is the whole tensor; eight devices share it")
    require(answer == 48 * 64 // 8, f"48 x 64 elements over 8 devices are not {answer} each")
    return f"{answer} elements on each device"


# ---------------------------------------------------------------- 01 mesh devices
@exercise("01.second_row")
def _second_row(answer: Any, mesh: Any) -> str:
    for each in _meshes(mesh, (2, 4), (4, 2)):
        row = answer(each)
        require(hasattr(row, "get_device_ids"), f"second_row(mesh) should give a mesh, gave a {type(row).__name__}")
        columns = tuple(each.shape)[1]
        wanted = each.get_device_ids()[columns : 2 * columns]
        for place, (want, have) in enumerate(zip(wanted, row.get_device_ids(), strict=False)):
            require(want == have, f"on {each!r} place {place} of the second row is device {want}, your mesh has device {have} there")
        require(tuple(row.shape) == (1, columns), f"the row has shape (1, {columns}), yours has {tuple(row.shape)}")
    return "the second row, in order"


@exercise("01.neighbours")
def _neighbours(answer: Any, mesh: Any) -> str:
    from ttkit.hardware import SYSTEMS

    for name in ("t3000", "galaxy", "galaxy_torus"):
        system = SYSTEMS[name]
        for device in (system.ids[0][0], system.ids[1][1], system.ids[-1][-1]):
            wanted = {other for other in system.coordinate_of if other != device and system.linked(device, other)}
            have = set(answer(system, device))
            for other in sorted(wanted - have):
                raise CheckFailed(f"on {name}, device {device} is cabled to device {other}: your answer misses it")
            for other in sorted(have - wanted):
                raise CheckFailed(f"on {name}, no cable joins device {device} and device {other}")
    return "no cable missing, none invented, wrap-around included"


@exercise("01.pairs")
def _pairs(answer: Any, mesh: Any) -> str:
    for each in _meshes(mesh, (2, 4), (4, 2)):
        ids, columns = each.get_device_ids(), tuple(each.shape)[1]
        found = answer(each)
        require(isinstance(found, list) and len(found) == len(ids) // 2, f"on {each!r} there are {len(ids) // 2} pairs, you made {len(found)}")
        for i, pair in enumerate(found):
            row, column = divmod(i, columns)
            wanted = [ids[2 * row * columns + column], ids[(2 * row + 1) * columns + column]]
            require(pair.get_device_ids() == wanted, f"on {each!r} pair {i} should hold devices {wanted}, holds {pair.get_device_ids()}")
    return "each chip with the one below it"


# ---------------------------------------------------------------- 02 distributing tensors
@exercise("02.columns")
def _columns(answer: Any, mesh: Any) -> str:
    for each in _meshes(mesh, (2, 4), (4, 2)):
        rows, columns = tuple(each.shape)
        x = _numbers(6, 8 * columns)
        tensor = _tensor_on(each, answer(each, x), "columns(mesh, x)")
        pieces = np.split(x, columns, 1)
        _compare([pieces[c] for _ in range(rows) for c in range(columns)], tensor, each)
    return "columns of the tensor on columns of the mesh, every row of it a replica"


@exercise("02.round_trip")
def _round_trip(answer: Any, mesh: Any) -> str:
    for each in _meshes(mesh, (2, 4), (4, 2)):
        rows, columns = tuple(each.shape)
        x = _numbers(2 * rows, 3 * columns)
        have = answer(each, x)
        require(isinstance(have, np.ndarray), f"round_trip(mesh, x) should give a NumPy array, gave a {type(have).__name__}")
        found = difference(x, have)
        require(not found, f"on {each!r} what comes back is not what went out: {found}")
    return "what went out came back"


@exercise("02.bytes")
def _bytes(answer: Any, mesh: Any) -> str:
    for shape, devices, dim in (((256, 512), 8, 1), ((100, 200), 4, 0), ((8, 16), 8, 0), ((2, 64, 64), 2, 0)):
        shard = list(shape)
        shard[dim] //= devices
        *front, height, width = shard
        wanted = math.prod(front) * -(-height // 32) * -(-width // 32) * 1024 * 2
        have = answer(shape, devices, dim)
        plain = math.prod(shard) * 2
        hint = " (that counts the elements, but a chip stores whole tiles of 32 x 32)" if have == plain != wanted else ""
        require(have == wanted, f"bytes_per_chip({shape}, {devices}, {dim}) should be {wanted:,}, is {have:,}{hint}")
    return "tiles counted, not elements"


# ---------------------------------------------------------------- 03 SPMD execution
def _mlp(x: np.ndarray, w1: np.ndarray, w2: np.ndarray) -> np.ndarray:
    return np.maximum(x @ w1, 0) @ w2


@exercise("03.data_parallel")
def _data_parallel(answer: Any, mesh: Any) -> str:
    for each in _meshes(mesh, (2, 4), (1, 3)):
        n = each.get_num_devices()
        x, w1, w2 = _numbers(4 * n, 6), _numbers(6, 10), _numbers(10, 5)
        tensor = _tensor_on(each, answer(each, x, w1, w2), "data_parallel(mesh, x, w1, w2)")
        _compare(list(_mlp(x, w1, w2).reshape(n, 4, 5)), tensor, each)
    return "each device did its own rows, and all of them the same program"


@exercise("03.column_parallel")
def _column_parallel(answer: Any, mesh: Any) -> str:
    for each in _meshes(mesh, (2, 4), (1, 3)):
        n = each.get_num_devices()
        x, w, b = _numbers(5, 6), _numbers(6, 32 * n), _numbers(1, 32 * n)
        tensor = _tensor_on(each, answer(each, x, w, b), "column_parallel(mesh, x, w, b)")
        _compare(np.split(x @ w + b, n, 1), tensor, each)
    return "weights and bias cut alike, nothing sent"


@exercise("03.row_parallel")
def _row_parallel(answer: Any, mesh: Any) -> str:
    for each in _meshes(mesh, (1, 4), (1, 3)):
        n = each.get_num_devices()
        x, w = _numbers(5, 4 * n), _numbers(4 * n, 7)
        tensor = _tensor_on(each, answer(each, x, w), "row_parallel(mesh, x, w)")
        parts = [a @ b for a, b in zip(np.split(x, n, 1), np.split(w, n, 0), strict=True)]
        if not device_difference(parts, tensor, 1e-4, 1e-3):
            raise CheckFailed(f"on {each!r} each device holds its partial sum only: the sum over the devices is missing")
        _compare([x @ w] * n, tensor, each, rtol=1e-4)
    return "partial sums added, the same result everywhere"
