"""How full the memory of each chip is: a report, and a chart."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ttkit import backend
from ttkit.visualize.chart import BLUE, Chart, entitle
from ttkit.words import short

NOT_KNOWN = math.nan  # a number, so that a difference of two reports is "not known" too


@dataclass(frozen=True, repr=False)
class MemoryReport(Chart):
    """DRAM of the chips of a mesh, in bytes:

    `used[device]`, and the `total` that each has; NaN on a card.
    """

    mesh: str
    total: float
    used: dict[int, float]

    @property
    def free(self) -> dict[int, float]:
        """What is left on each chip: {device: bytes}."""
        return {device: self.total - nbytes for device, nbytes in self.used.items()}

    @property
    def known(self) -> bool:
        """Whether these are numbers: the simulator counts, a card does not say."""
        return not math.isnan(self.total)

    def __repr__(self) -> str:
        if not self.known:
            return (
                f"DRAM of {self.mesh}: bytes in use are not known on a card; "
                "ttnn.dump_device_memory_state(device) writes reports"
            )
        head = (
            f"DRAM of {self.mesh}: {self.total:,} bytes a chip\n{'device':>8} {'used':>16} "
            f"{'free':>16}"
        )
        return "\n".join(
            [
                head,
                *(
                    f"{device:>8} {used:>16,} {self.total - used:>16,}"
                    for device, used in self.used.items()
                ),
            ]
        )

    @property
    def title(self) -> str:  # type: ignore[override]
        """What the chart shows, and how much there is."""
        known = f"of {short(self.total, 'B')} on each chip" if self.known else "not known on a card"
        return f"DRAM in use on {self.mesh}: {known}"

    @property
    def height(self) -> float:
        """Of the figure, in inches."""
        return 2.4 if self.known else 0.4

    def draw(self, ax: Any) -> None:
        """Draw a bar for each chip, up to the whole memory unless nearly all of it is free."""
        entitle(ax, self.title)
        if not self.known:
            ax.set_axis_off()
            return
        used = list(self.used.values())
        drawn = ax.bar(range(len(used)), used, 0.7, color=BLUE)
        ax.bar_label(
            drawn, [short(nbytes, "B") for nbytes in used], padding=2, rotation=90 * (len(used) > 8)
        )
        ax.set_xticks(range(len(used)), list(self.used))
        ax.set_xlabel("device")
        ax.yaxis.set_major_formatter(lambda nbytes, _: short(nbytes, "B"))
        ax.margins(y=0.4 if len(used) > 8 else 0.15)
        if not any(used) or max(used) > self.total / 50:
            ax.set_ylim(0, self.total)
        ax.grid(axis="y")
        ax.set_axisbelow(True)


def memory(mesh: Any) -> MemoryReport:
    """How many bytes of DRAM are in use on each chip of a mesh, tile padding included, by all
    tensors on these chips.

    Only the simulator counts them. On a card every number is NaN, so that what asks for them still
    runs, and the report says so.

    Example:
        >>> from ttkit import ttnn
        >>> with ttnn.open_mesh_device(ttnn.MeshShape(1, 2)) as mesh:
        ...     memory(mesh).used
        {4: 0, 0: 0}
    """
    if not backend.is_simulated():
        return MemoryReport(repr(mesh), NOT_KNOWN, dict.fromkeys(mesh.get_device_ids(), NOT_KNOWN))
    from ttkit.sim.memory import bytes_in_use

    used = bytes_in_use()
    return MemoryReport(
        repr(mesh),
        mesh.system.chip.dram_bytes,
        {device: used[device] for device in mesh.get_device_ids()},
    )
