"""Machines, and where the parts of a layout lie on them."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ttkit.hardware import System
from ttkit.hardware.device_order import transposed_warning
from ttkit.train.config.layout import Layout

# This rate of a host's network, in GB/s, is an assumption: 100 Gbit/s Ethernet. Pass the rate of
# your own network.
NETWORK = 12.5


class Place(NamedTuple):
    """Where a layout lies: the mesh of a stage, its axes, and how hosts share the layout.

    Attributes:
        shape: rows and columns of the mesh of each stage.
        axes: the mesh axis of each of "dp", "cp" and "tp" that is above 1 on the mesh.
        replicas: the number of hosts that the replicas are divided over.
        stages: the number of hosts that the stages are divided over.
        warning: why collectives may hang on this mesh, or "" where they do not.
    """

    shape: tuple[int, int]
    axes: tuple[tuple[str, int], ...]
    replicas: int = 1
    stages: int = 1
    warning: str = ""


class Machine(NamedTuple):
    """Hosts that a network joins. Each host has one system of chips.

    Attributes:
        system: the system of each host.
        hosts: the number of hosts.
        headroom: the fraction of DRAM that stays free.
        overlap: whether communication overlaps with compute where it can.
        network_gb_per_s: the rate of the network of each host.
    """

    system: System
    hosts: int = 1
    headroom: float = 0.1
    overlap: bool = False
    network_gb_per_s: float = NETWORK

    @property
    def chips(self) -> int:
        """The number of chips on all hosts."""
        return self.hosts * self.system.num_devices

    @property
    def room(self) -> float:
        """The bytes of a chip's DRAM that a layout may use."""
        return self.system.chip.dram_bytes * (1 - self.headroom)


def room_for(system: System, shape: Sequence[int]) -> int:
    """Return how many meshes of a shape fit on a system, as they are or with rows and columns
    exchanged."""
    rows, columns = system.shape
    return max((rows // n) * (columns // m) for n, m in (shape, shape[::-1]))


def place_of(system: System, layout: Layout, hosts: tuple[int, int]) -> Place | str:
    """Return where a layout lies on each host's system, or why it does not fit there.

    Args:
        hosts: the number of hosts that the replicas are divided over, and the number that the
            stages are divided over.
    """
    replicas, split = hosts
    dp = layout.dp // replicas
    pp = layout.pp // split
    on = {name: n for name, n in (("dp", dp), ("cp", layout.cp), ("tp", layout.tp)) if n > 1}
    if len(on) > 2:
        return "dp, cp and tp are all above 1, and a mesh has axes for two of them"
    rows, columns = system.shape
    if len(on) < 2:
        n = math.prod(on.values())
        for axis, line in ((1, (1, n)), (0, (n, 1))):
            # With one stage, the line may be longer than a row of the grid. ttnn then opens it
            # around the rim (the perimeter) of the grid.
            if pp == 1 or (rows // line[0]) * (columns // line[1]) >= pp:
                return Place(line, tuple((name, axis) for name in on), *hosts)
        return f"{rows}x{columns} chips have no room for {pp} lines of {n}"
    shape = tuple(on.values())
    if room_for(system, shape) < pp:
        what = f"{pp} meshes" if pp > 1 else "a mesh"
        return f"{rows}x{columns} chips have no room for {what} of {shape[0]}x{shape[1]}"
    warning = transposed_warning(system.shape, shape)
    return Place(shape, tuple(zip(on, (0, 1))), *hosts, warning)  # type: ignore[arg-type]


def why_not_memory(memory: Mapping[str, int], machine: Machine) -> str:
    """Return why these bytes, {kind: bytes}, do not fit in a chip's memory; "" where they do."""
    total = sum(memory.values())
    if total <= machine.room:
        return ""
    kind, most = max(memory.items(), key=lambda item: item[1])
    dram = machine.system.chip.dram_bytes
    used = f"{machine.room / 1e9:.1f} of {dram / 1e9:g} may be used"
    return f"needs {total / 1e9:.1f} GB; {used}: {kind} {most / 1e9:.1f}"


def divisors(n: int) -> list[int]:
    """Return the numbers that divide n, the smallest first."""
    return [d for d in range(1, n + 1) if n % d == 0]


def sizes_of(machine: Machine) -> Iterator[tuple[Layout, tuple[int, int]]]:
    """Yield each layout that uses all chips, without its details, and two numbers of hosts: over
    how many its replicas are divided, and over how many its stages are."""
    chips = machine.system.num_devices
    for replicas in divisors(machine.hosts):
        split = machine.hosts // replicas
        for tp, pp, cp in itertools.product(divisors(chips), repeat=3):
            dp, rest = divmod(chips, tp * pp * cp)
            if not rest:
                yield Layout(replicas * dp, tp, split * pp, cp), (replicas, split)
