"""Conversion between NumPy and tensors on both backends, and the correlation of two results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ttkit import backend
from ttkit.errors import fail


def from_numpy(
    array: np.ndarray,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    mesh_mapper: Any = None,
    memory_config: Any = None,
) -> Any:
    """Return a ttnn tensor with a copy of an array's values; the simulator does not need torch.

    Args:
        array: [any shape].
        dtype, layout, device, mesh_mapper, memory_config: as for `ttnn.from_torch`.

    Example:
        >>> from_numpy(np.float32([[1, 2]])).shape
        Shape([1, 2])
    """
    ttnn = backend.load()
    options = {
        "dtype": dtype,
        "layout": layout,
        "device": device,
        "mesh_mapper": mesh_mapper,
        "memory_config": memory_config,
    }
    if not isinstance(array, (np.ndarray, np.generic)):
        fail(
            "ttkit.from_numpy",
            f"{type(array).__name__} is not a NumPy array",
            "np.asarray(...) it first",
            TypeError,
        )
    if backend.is_simulated():
        return ttnn.from_torch(np.asanyarray(array), **options)
    import torch

    return ttnn.from_torch(torch.from_numpy(np.ascontiguousarray(array)), **options)


def constant(shape: Sequence[int], make: Callable[[], np.ndarray], device: Any) -> np.ndarray:
    """Return `make()`, a float32 array [shape] to be put on a mesh.

    For a mesh without values, on which a plan is made, nothing is computed.
    """
    if getattr(device, "has_values", True):
        return make()
    from ttkit.sim.tensor.absent import absent

    return absent(shape, np.float32)


def to_numpy(tensor: Any, *, mesh_composer: Any = None) -> np.ndarray:
    """Return a copy of a tensor's values; bfloat16 and block floats become float32.

    Args:
        mesh_composer: how to join several shards, as for `ttnn.to_torch`.

    Example:
        >>> to_numpy(from_numpy(np.arange(3, dtype=np.int32))).tolist()
        [0, 1, 2]
    """
    if backend.is_simulated():
        return tensor.to_numpy(mesh_composer)
    values = backend.load().to_torch(tensor, mesh_composer=mesh_composer)
    return values.float().numpy() if "bfloat16" in str(values.dtype) else values.numpy()


def _plain(values: Any) -> np.ndarray:
    if hasattr(values, "detach"):
        values = values.detach().float().cpu().numpy()
    elif hasattr(values, "tensor_topology"):
        values = to_numpy(values)
    return np.asarray(values, dtype=np.float64)


def pcc(expected: Any, actual: Any) -> float:
    """Return the Pearson correlation of two results: 1.0 where they agree up to scale and shift.

    Args:
        expected, actual: arrays, torch tensors or ttnn tensors of one shard, of the same shape.

    Example:
        >>> pcc(np.arange(4.0), np.arange(4.0))
        1.0
    """
    a, b = _plain(expected), _plain(actual)
    if a.shape != b.shape:
        fail(
            "pcc",
            f"the shapes differ: {list(a.shape)} and {list(b.shape)}",
            "compose the shards, or squeeze",
        )
    a, b = a.ravel(), b.ravel()
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return 1.0 if np.array_equal(a, b, equal_nan=True) else 0.0
    if np.array_equal(a, b):
        return 1.0
    a, b = a - a.mean(), b - b.mean()
    scale = np.sqrt((a @ a) * (b @ b))
    return float(a @ b / scale) if scale else 0.0


def assert_with_pcc(expected: Any, actual: Any, pcc: float = 0.9999) -> float:
    """Return the correlation of two results; raise where it is below `pcc`.

    Raises:
        AssertionError: shapes differ or the correlation is lower.
    """
    found = globals()["pcc"](expected, actual)
    if found < pcc:
        worst = float(np.abs(_plain(expected) - _plain(actual)).max())
        raise AssertionError(
            f"pcc {found:.6f} is below {pcc}; the largest difference is {worst:.4g}"
        )
    return found
