"""Find the machine in use.

A call or the environment chooses it. A descriptor can change how a program sees it.
"""

import os

from ttkit.hardware.systems import System, system_named, visible_part

_in_use: list[System] = []


def use_system(system: str | System | None) -> System:
    """Choose the machine that is simulated, and return it; None restores the environment's choice.

    Args:
        system: a name of `SYSTEMS`, or a `System` of your own.

    Raises:
        TTKitError: the name is not known.

    Example:
        >>> use_system("galaxy").num_devices
        32
        >>> use_system(None).name
        't3000'
    """
    _in_use[:] = [] if system is None else [system_named(system)]
    return current_machine()


def descriptor_in_use():
    """Return the descriptor that `TT_MESH_GRAPH_DESC_PATH` names; None if that is not set.

    Raises:
        TTKitError: the descriptor is refused.
    """
    path = os.environ.get("TT_MESH_GRAPH_DESC_PATH")
    if not path:
        return None
    from ttkit.descriptors.placing import read_in_use  # This loads protobuf.

    return read_in_use(path)


def current_system() -> System:
    """Return the machine in use, as it looks through the descriptor in use if there is one.

    Raises:
        TTKitError: the descriptor is refused, or does not fit on the machine.
    """
    descriptor = descriptor_in_use()
    if descriptor is None:
        return current_machine()
    from ttkit.descriptors.placing import seen_through

    return seen_through(descriptor, current_machine())


def current_machine() -> System:
    """Return the machine in use; if `TT_VISIBLE_DEVICES` is set, only the chips that it selects.

    The machine is the one that `use_system` chose, else the one that `TTKIT_SYSTEM` names, else a
    T3000.
    """
    system = _in_use[0] if _in_use else system_named(os.environ.get("TTKIT_SYSTEM") or "t3000")
    visible = os.environ.get("TT_VISIBLE_DEVICES", "")
    return visible_part(system, visible) if visible.strip() else system
