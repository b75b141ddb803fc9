"""What each chip's memory holds: a report, and bars."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ttkit import backend
from ttkit.errors import fail
from ttkit.visualize.drawing import Drawing

BAR_W, BAR_H, STEP = 420, 14, 22


@dataclass(frozen=True)
class MemoryReport:
    """DRAM of the chips of a mesh, in bytes: `used[device]`, and the `total` that each has."""

    mesh: str
    total: int
    used: dict[int, int]

    @property
    def free(self) -> dict[int, int]:
        """What is left on each chip: {device: bytes}."""
        return {device: self.total - nbytes for device, nbytes in self.used.items()}

    def __repr__(self) -> str:
        head = f"DRAM of {self.mesh}: {self.total:,} bytes a chip\n{'device':>8} {'used':>16} {'free':>16}"
        return "\n".join([head, *(f"{device:>8} {used:>16,} {self.total - used:>16,}" for device, used in self.used.items())])

    def _repr_html_(self) -> str:
        return draw_memory(self).html()


def memory(mesh: Any) -> MemoryReport:
    """How many bytes of DRAM are in use on each chip of a mesh, tile padding included, by all tensors on these chips.

    Raises:
        TTKitError: not on the simulator; there `ttnn.dump_device_memory_state` writes reports.
    """
    if not backend.is_simulated():
        fail("ttkit.memory", "bytes in use are known on the simulator only", "ttnn.dump_device_memory_state(device) on a card")
    from ttkit.sim.memory import bytes_in_use

    used = bytes_in_use()
    return MemoryReport(repr(mesh), mesh.system.chip.dram_bytes, {device: used[device] for device in mesh.get_device_ids()})


def _short(nbytes: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if nbytes >= size:
            return f"{nbytes / size:.3g} {unit}"
    return f"{nbytes} B"


def draw_memory(report: MemoryReport) -> Drawing:
    """A bar for each chip; the scale ends at the fullest chip where all are nearly empty."""
    fullest = max(report.used.values(), default=0)
    scale = report.total if fullest > report.total / 50 else max(fullest, 1)
    drawing = Drawing(BAR_W + 260, STEP * len(report.used) + 52, "memory")
    drawing.words(4, 18, f"DRAM in use on {report.mesh}", size=13, anchor="start", bold=True)
    for i, (device, used) in enumerate(report.used.items()):
        y = 30 + i * STEP
        drawing.words(78, y + 11, f"device {device}", size=12, anchor="end")
        drawing.box(88, y, BAR_W, BAR_H, fill="var(--empty)", edge="none", round=3)
        if used:
            drawing.box(88, y, max(2, BAR_W * used / scale), BAR_H, fill="var(--wire)", edge="none", round=3)
        drawing.words(96 + BAR_W, y + 11, f"{_short(used)} of {_short(report.total)}", size=12, anchor="start", colour="var(--soft)")
    drawing.words(88, 30 + len(report.used) * STEP + 12, f"a full bar is {_short(scale)}", size=11, anchor="start", colour="var(--soft)")
    return drawing
