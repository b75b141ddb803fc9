"""Lesson 00, start here: the picture of a model on several chips, and its exercises."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ttkit.lessons import CheckFailed, exercise, require
from ttkit.lessons.answers import Answer, Run, asks, numbers, whole_number
from ttkit.visualize.chart import INK, Chart, entitle
from ttkit.visualize.charts import COLOURS
from ttkit.visualize.drawing import BAD
from ttkit.words import counted, short

HATCHES = ("", "//", "..")  # so that the parts of a bar are told without colour


# ---------------------------------------------------------------- a model on several chips
@dataclass(frozen=True, repr=False)
class Shares(Chart):
    """What one chip holds of a model: a bar for each number of chips, beside a chip's memory.

    Args:
        title: what the chart shows.
        held: {number of chips: {kind: bytes of one chip}}.
        room: a chip's memory, in bytes.
    """

    title: str
    held: Mapping[int, Mapping[str, float]]
    room: float

    def verdict(self, chips: int) -> str:
        """Return how much a chip holds, and whether that fits."""
        size = sum(self.held[chips].values())
        return f"{short(size, 'B')}, {'fits' if size <= self.room else 'does not fit'}"

    def __repr__(self) -> str:
        lines = [f"{self.title}; a chip has {short(self.room, 'B')}"]
        for chips, kinds in self.held.items():
            parts = ", ".join(f"{kind} {short(size, 'B')}" for kind, size in kinds.items())
            lines.append(f"  {counted(chips, 'chip')}: {self.verdict(chips)}: {parts}")
        return "\n".join(lines)

    @property
    def height(self) -> float:
        """Of the figure, in inches."""
        return 1.1 + 0.3 * len(self.held)

    def draw(self, ax: Any) -> None:
        """Draw the kinds side by side in each bar, and its verdict right of it and of the line."""
        from matplotlib.ticker import EngFormatter

        names = [counted(chips, "chip") for chips in self.held]
        left = np.zeros(len(names))
        for i, kind in enumerate(next(iter(self.held.values()))):
            sizes = np.array([kinds[kind] for kinds in self.held.values()])
            look = {"facecolor": COLOURS[i], "edgecolor": INK, "hatch": HATCHES[i % len(HATCHES)]}
            ax.barh(names, sizes, 0.7, left, label=kind, linewidth=0.6, **look)
            left += sizes
        for row, chips in enumerate(self.held):
            at, shift = (max(left[row], self.room), row), {"textcoords": "offset points"}
            ax.annotate(self.verdict(chips), at, (4, 0), va="center", **shift)
        ax.axvline(self.room, color=BAD, label=f"a chip has {short(self.room, 'B')}")
        ax.set_xlim(0, 1.25 * max([*left, self.room]))
        ax.invert_yaxis()
        ax.xaxis.set_major_formatter(EngFormatter("B"))
        entitle(ax, self.title)


def shares(plan: Any, chips: tuple[int, ...] = (1, 2, 4, 8, 16, 32)) -> Shares:
    """Return the picture of a model's training state, cut evenly over so many chips.

    Activations, which depend on the batch, are left out.

    Args:
        plan: what `training_plan` returns.

    Example:
        >>> from ttkit.train import Settings, training_plan
        >>> shares(training_plan(Settings(), "n150"), chips=(1, 2))
        11 million weights in training: what one chip holds (computed); a chip has 12 GB
          1 chip: 188 MB, fits: weights 46.9 MB, gradients 46.9 MB, optimizer 93.8 MB
          2 chips: 93.8 MB, fits: weights 23.4 MB, gradients 23.4 MB, optimizer 46.9 MB
    """
    state = {kind: plan.memory[kind] for kind in ("weights", "gradients", "optimizer")}
    title = f"{plan.parameters / 1e6:,.0f} million weights in training: what one chip holds"
    held = {n: {kind: size / n for kind, size in state.items()} for n in chips}
    return Shares(f"{title} (computed)", held, plan.system.chip.dram_bytes)


# ---------------------------------------------------------------- exercises
@exercise(
    "00.double",
    "The lesson cuts rows, which are dimension 0. Which dimension are columns?",
    "Three steps: a mapper that cuts that dimension over the mesh, a tensor on the mesh, an "
    "operation on the tensor. x itself stays as it is.",
    "mapper = ttnn.ShardTensorToMesh(mesh, dim=1); tensor = ttkit.from_numpy(x, device=mesh, "
    "layout=ttnn.TILE_LAYOUT, mesh_mapper=mapper). Then double the tensor, and return it.",
)
@asks("double(mesh, x)", (2, 4), (1, 3))
def _double(double: Answer, mesh: Any) -> str:
    n = mesh.get_num_devices()
    x = numbers(3 * n, 2 * n)
    run = double.on(mesh, (x, (3 * n, 2)))
    halves = np.split(x, n, axis=1)
    run.differs((halves, "the columns are there, but nothing doubled them"))
    run.differs(([4 * half for half in halves], "the columns were doubled twice"))
    run.equals([2 * half for half in halves])
    run.computed("the doubling")
    _put_as_given(run, x)
    return "every device doubled its own columns"


def _put_as_given(run: Run, x: np.ndarray) -> None:
    """Check that the numbers of x came to the mesh as they are; a constant may come, too."""
    for call in run.led:
        if call.operation != "from_torch":
            continue
        put = np.asarray(call.args[0] if call.args else call.kwargs["tensor"])
        known = np.isin(put, x).all() or np.unique(put).size == 1
        if not known:
            raise CheckFailed(
                f"on {run.mesh!r} you put other numbers than x's on the devices, such as "
                f"{put[~np.isin(put, x)][0]:g}: NumPy computed on the host; put x as it is, and "
                "let the devices double it"
            )


@exercise(
    "00.share",
    "How many rows does each chip hold?",
    "Each of these rows has all 64 elements. Multiply.",
)
def _share(answer: Any, mesh: Any) -> str:
    have = whole_number(answer, "the number of elements")
    hints = {
        48 * 64: ": that is the whole tensor; eight devices share it",
        48: ": that is how many rows the whole tensor has",
        48 // 8: ": that is how many rows a chip holds; each row has 64 elements",
        64: ": that is one row; a chip holds several",
        64 // 8: ": that cuts columns; rows are cut, and each row stays whole",
        48 * 64 // 4: ": that would be right for four devices; there are eight",
        48 * 64 // 8 * 4: ": those are the bytes in float32; elements are asked for",
    }
    wrong = f"48 x 64 elements over 8 devices are not {have:,} each{hints.get(have, '')}"
    require(have == 48 * 64 // 8, wrong)
    return f"{have} elements on each device"
