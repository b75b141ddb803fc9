"""What each chip's memory holds: a report, and bars."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ttkit import backend
from ttkit.visualize.drawing import Drawing
from ttkit.words import short

NOT_KNOWN = math.nan  # a number, so that a difference of two reports is "not known" too
BAR_W, BAR_H, STEP, MARGIN = 420, 14, 22, 225


@dataclass(frozen=True)
class MemoryReport:
    """DRAM of the chips of a mesh, in bytes: `used[device]`, and the `total` that each has; NaN on a card."""

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
            return f"DRAM of {self.mesh}: bytes in use are not known on a card; ttnn.dump_device_memory_state(device) writes reports"
        head = f"DRAM of {self.mesh}: {self.total:,} bytes a chip\n{'device':>8} {'used':>16} {'free':>16}"
        return "\n".join([head, *(f"{device:>8} {used:>16,} {self.total - used:>16,}" for device, used in self.used.items())])

    def _repr_html_(self) -> str:
        return draw_memory(self).html()


def memory(mesh: Any) -> MemoryReport:
    """How many bytes of DRAM are in use on each chip of a mesh, tile padding included, by all tensors on these chips.

    Only the simulator counts them. On a card every number is NaN, so that what asks for them still runs, and the report says so.

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
    return MemoryReport(repr(mesh), mesh.system.chip.dram_bytes, {device: used[device] for device in mesh.get_device_ids()})


def _scale(report: MemoryReport) -> float:
    """What the bars' end stands for: the whole memory, or a round number above the fullest chip where all are nearly empty."""
    fullest = max(report.used.values(), default=0)
    if not fullest or fullest > report.total / 50:
        return report.total
    power = 10 ** (len(str(int(fullest))) - 1)
    return min(n * power for n in (2, 5, 10, 20) if n * power > 1.2 * fullest)


def draw_memory(report: MemoryReport) -> Drawing:
    """A bar for each chip, in two columns where chips are many; one line of words where nothing is known."""
    if not report.known:
        drawing = Drawing(BAR_W + MARGIN, 24, f"DRAM in use on {report.mesh}")
        drawing.words(3, 16, f"DRAM in use on {report.mesh}: not known on a card", size=13, anchor="start", bold=True)
        return drawing
    devices, scale = list(report.used), _scale(report)
    columns = 1 if len(devices) <= 16 else 2
    rows, bar = -(-len(devices) // columns), BAR_W // columns
    drawing = Drawing(columns * (bar + MARGIN), STEP * rows + 60, f"DRAM in use on {report.mesh}")
    drawing.words(3, 16, f"DRAM in use on {report.mesh}", size=13, anchor="start", bold=True)
    for i, device in enumerate(devices):
        column, row = divmod(i, rows)
        x, y, used = column * (bar + MARGIN) + 80, 30 + row * STEP, report.used[device]
        drawing.words(x - 10, y + 11, f"device {device}", size=12, anchor="end")
        drawing.box(x, y, bar, BAR_H, fill="var(--empty)", edge="var(--frame)", round=3)
        if used:
            drawing.box(x, y, max(2, bar * used / scale), BAR_H, fill="var(--wire)", edge="none", round=3)
        drawing.words(x + bar + 8, y + 11, f"{short(used, 'B')} of {short(report.total, 'B')}", size=12, anchor="start", colour="var(--soft)")
    note = (
        "The bars end at the whole memory of a chip."
        if scale == report.total
        else f"The bars end at {short(scale, 'B')}: nearly all of the {short(report.total, 'B')} is free."
    )
    drawing.words(3, 30 + rows * STEP + 16, note, size=11, anchor="start", colour="var(--soft)")
    return drawing
