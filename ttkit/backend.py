"""Which ttnn is behind `from ttkit import ttnn`: the real library where a Tenstorrent device is
found, the simulator elsewhere.
"""

from __future__ import annotations

import glob
import importlib
import importlib.util
import os
import platform
from functools import lru_cache
from types import ModuleType
from typing import NamedTuple

from ttkit.errors import fail


class Choice(NamedTuple):
    """The backend and why it was taken."""

    name: str  # "sim" or "ttnn"
    why: str


@lru_cache(maxsize=1)
def choice() -> Choice:
    """Decide once: `TTKIT_BACKEND` forces, else a device and the library together mean ttnn,
    else the simulator.

    Raises:
        TTKitError: `TTKIT_BACKEND` is neither sim nor ttnn, or a forced ttnn cannot be had.
    """
    forced = os.environ.get("TTKIT_BACKEND", "").strip().lower()
    if forced not in ("", "sim", "ttnn"):
        fail(
            f"TTKIT_BACKEND={forced!r}",
            "it must be sim or ttnn",
            "leave it unset to let ttkit decide",
        )
    if forced == "sim":
        return Choice("sim", "TTKIT_BACKEND=sim")
    library = importlib.util.find_spec("ttnn") is not None
    where = _device()
    if forced == "ttnn":
        if not library:
            fail(
                "TTKIT_BACKEND=ttnn",
                "the package ttnn is not installed here",
                "pip install ttnn (Python 3.10 or 3.12), or TTKIT_BACKEND=sim",
            )
        if not where:
            rule = (
                "no device: there is no /dev/tenstorrent/* and "
                "TT_METAL_MOCK_CLUSTER_DESC_PATH is not set to a file"
            )
            fail(
                "TTKIT_BACKEND=ttnn",
                rule,
                "install the kernel driver (tt-kmd), pass the device into the container, "
                "or TTKIT_BACKEND=sim",
            )
        return Choice("ttnn", f"TTKIT_BACKEND=ttnn, {where}")
    if library and where:
        return Choice("ttnn", f"ttnn is installed and {where}")
    missing = " and ".join(
        [
            *([] if library else ["ttnn is not installed"]),
            *([] if where else ["there is no Tenstorrent device"]),
        ]
    )
    return Choice("sim", missing)


def _device() -> str:
    """What there is to open: a sentence, or nothing."""
    mock = os.environ.get("TT_METAL_MOCK_CLUSTER_DESC_PATH")
    if mock and os.path.exists(mock):
        return f"a mock cluster is described in {mock}"
    devices = sorted(glob.glob("/dev/tenstorrent/*"))
    return f"there is {devices[0]}" if devices else ""


@lru_cache(maxsize=1)
def load() -> ModuleType:
    """The ttnn module itself.

    Raises:
        TTKitError: the real library was chosen but does not import.
    """
    if choice().name == "sim":
        return importlib.import_module("ttkit.sim.ttnn")
    try:
        return importlib.import_module("ttnn")
    except Exception as error:
        fail(
            "from ttkit import ttnn",
            f"the real ttnn does not import: {type(error).__name__}: {error}",
            "mend the installation, or TTKIT_BACKEND=sim",
        )


def is_simulated() -> bool:
    """True where `ttkit.ttnn` is the simulator."""
    return choice().name == "sim"


def about() -> None:
    """Print the backend and why it was chosen, the system, and the dialect: the same text on
    every machine like this one.

    Example:
        >>> about()
        ttkit 0.1.0 on the simulator (there is no Tenstorrent device)
        system   t3000: 2x4 Wormhole chips, 2 links between neighbours, 12 GB of DRAM each
        dialect  default: ttnn 0.81.1 and the older forms of the guide
    """
    from ttkit import __version__
    from ttkit.dialect import is_strict

    chosen = choice()
    if chosen.name == "sim":
        from ttkit.hardware import current_system

        system = current_system()
        print(f"ttkit {__version__} on the simulator ({chosen.why.split(' and ')[-1]})")
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
        print(f"ttkit {__version__} on ttnn, Python {platform.python_version()} ({chosen.why})")
        print(f"system   {ttnn.get_num_devices()} devices: {ttnn.get_device_ids()}")
    print(
        "dialect  "
        + (
            "strict: ttnn 0.81.1"
            if is_strict()
            else "default: ttnn 0.81.1 and the older forms of the guide"
        )
    )
