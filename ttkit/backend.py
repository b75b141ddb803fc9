"""The backend of `from ttkit import ttnn`: the real library, or without a device the simulator.

This module also converts NumPy arrays to tensors of the backend and back, and computes the
correlation of two results.
"""

import glob
import importlib
import importlib.util
import os
import platform
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from types import ModuleType
from typing import NamedTuple

import numpy as np

from ttkit.errors import fail, is_strict

Array = np.ndarray


class Backend(NamedTuple):
    """The backend and the reason for it."""

    name: str  # It is "sim" or "ttnn".
    why: str


@cache
def chosen_backend() -> Backend:
    """Choose the backend once: the one that `TTKIT_BACKEND` names, if it is set.

    Otherwise this chooses ttnn if it is installed and there is a device, and else the simulator.

    Raises:
        TTKitError: `TTKIT_BACKEND` is neither sim nor ttnn.
    """
    forced = os.environ.get("TTKIT_BACKEND", "").strip().lower()
    if forced not in ("", "sim", "ttnn"):
        fail(
            f"TTKIT_BACKEND={forced!r}",
            "it must be sim or ttnn",
            "leave it unset to let ttkit decide",
        )
    if forced:
        return Backend(forced, f"TTKIT_BACKEND={forced}")
    device = _device()
    if device and importlib.util.find_spec("ttnn"):
        return Backend("ttnn", f"ttnn is installed and {device}")
    return Backend("sim", "ttnn is not installed" if device else "there is no Tenstorrent device")


def _device() -> str:
    """Return a clause that names the device, or "" if there is none."""
    mock = os.environ.get("TT_METAL_MOCK_CLUSTER_DESC_PATH")
    if mock and os.path.exists(mock):
        return f"a mock cluster is described in {mock}"
    devices = sorted(glob.glob("/dev/tenstorrent/*"))
    return f"there is {devices[0]}" if devices else ""


@cache
def load() -> ModuleType:
    """Return the ttnn module.

    Raises:
        TTKitError: the real library is chosen and does not import.
    """
    if is_simulated():
        return importlib.import_module("ttkit.sim.ttnn")
    try:
        return importlib.import_module("ttnn")
    except Exception as error:
        fail(
            "from ttkit import ttnn",
            f"the real ttnn does not import: {type(error).__name__}: {error}",
            "pip install ttnn (Python 3.10 or 3.12), or TTKIT_BACKEND=sim",
        )


def __getattr__(name: str) -> ModuleType:
    """Load the ttnn module on the first use of the name `ttnn`, and return it."""
    if name != "ttnn":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return load()


@cache
def is_simulated() -> bool:
    """Return whether `ttkit.ttnn` is the simulator."""
    return chosen_backend().name == "sim"


def about() -> None:
    """Print the backend with the reason for it, the system, and the dialect.

    Example:
        >>> about()
        ttkit 0.2.0 on the simulator (there is no Tenstorrent device)
        system   t3000: 2x4 Wormhole chips, 2 links between neighbours, 12 GB of DRAM each
        dialect  default: ttnn 0.81.1 and the older forms of the guide
    """
    from importlib.metadata import version  # This import is slow, so only this function makes it.

    chosen = chosen_backend()
    ours = version("ttkit")
    if is_simulated():
        from ttkit.sim.ranks import machine

        system = machine()
        print(f"ttkit {ours} on the simulator ({chosen.why})")
        generation = {"WORMHOLE_B0": "Wormhole", "BLACKHOLE": "Blackhole"}[system.chip.arch]
        joined = (
            f", {system.links_per_pair} links between neighbours" if system.num_devices > 1 else ""
        )
        rows, columns = system.shape
        print(
            f"system   {system.name}: {rows}x{columns} {generation} chips{joined}, "
            f"{system.chip.dram.value:g} GB of DRAM each"
        )
    else:
        ttnn = load()
        print(f"ttkit {ours} on ttnn, Python {platform.python_version()} ({chosen.why})")
        print(f"system   {ttnn.get_num_devices()} devices: {ttnn.get_device_ids()}")
    older = "default: ttnn 0.81.1 and the older forms of the guide"
    print("dialect  " + ("strict: ttnn 0.81.1" if is_strict() else older))


def from_numpy(
    array: Array, *, dtype=None, layout=None, device=None, mesh_mapper=None, memory_config=None
):
    """Return a ttnn tensor with a copy of an array's values; the simulator does not need torch.

    Args:
        array: an array of any shape.
        dtype, layout, device, mesh_mapper, memory_config: the same as in `ttnn.from_torch`.

    Example:
        >>> from_numpy(np.float32([[1, 2]])).shape
        Shape([1, 2])
    """
    values = np.asanyarray(array)
    if not is_simulated():
        import torch

        values = torch.from_numpy(np.ascontiguousarray(array))
    return load().from_torch(
        values,
        dtype=dtype,
        layout=layout,
        device=device,
        mesh_mapper=mesh_mapper,
        memory_config=memory_config,
    )


def constant(shape: Sequence[int], make: Callable[[], Array], device) -> Array:
    """Return `make()`, a float32 array of this shape that the caller puts on a mesh.

    The planner uses a mesh without values. For such a mesh this computes nothing and returns an
    array without values.
    """
    if getattr(device, "has_values", True):
        return make()
    from ttkit.sim.tensor.absent import absent

    return absent(shape, np.float32)


def to_numpy(tensor, *, mesh_composer=None) -> Array:
    """Return a copy of a tensor's values; bfloat16 and block floats become float32.

    Args:
        mesh_composer: how to join several shards, the same as in `ttnn.to_torch`.

    Example:
        >>> to_numpy(from_numpy(np.arange(3, dtype=np.int32))).tolist()
        [0, 1, 2]
    """
    if is_simulated():
        return tensor.to_numpy(mesh_composer)
    values = load().to_torch(tensor, mesh_composer=mesh_composer)
    return values.float().numpy() if "bfloat16" in str(values.dtype) else values.numpy()


def plain_values(values) -> Array:
    """Return the NumPy array of an array, a torch tensor or a ttnn tensor of one shard."""
    if hasattr(values, "detach"):
        return np.asarray(values.detach().float().cpu().numpy())
    return to_numpy(values) if hasattr(values, "tensor_topology") else np.asarray(values)


def _in_float64(*results) -> Iterator[Array]:
    return (plain_values(each).astype(np.float64) for each in results)


def pcc(expected, actual) -> float:
    """Return the Pearson correlation of two results.

    It is 1.0 if the results are equal, or agree up to a shift and a positive scale. It is 0.0 if
    they differ and one of them is constant or has a value that is not finite.

    Args:
        expected, actual: arrays, torch tensors or ttnn tensors of one shard, of the same shape.

    Example:
        >>> pcc(np.arange(4.0), np.arange(4.0))
        1.0
    """
    a, b = _in_float64(expected, actual)
    if a.shape != b.shape:
        fail(
            "pcc",
            f"the shapes differ: {list(a.shape)} and {list(b.shape)}",
            "compose the shards, or squeeze",
        )
    a, b = a.ravel(), b.ravel()
    if np.array_equal(a, b, equal_nan=True):
        return 1.0
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return 0.0
    return float(np.corrcoef(a, b)[0, 1]) if a.std() and b.std() else 0.0


def assert_with_pcc(expected, actual, pcc: float = 0.9999) -> float:
    """Return the correlation of two results; raise an error if it is below `pcc`.

    Raises:
        AssertionError: the correlation is below `pcc`.
        TTKitError: the shapes differ.
    """
    found = globals()["pcc"](expected, actual)
    if found < pcc:
        a, b = _in_float64(expected, actual)
        raise AssertionError(
            f"pcc {found:.6f} is below {pcc}; the largest difference is {np.abs(a - b).max():.4g}"
        )
    return found
