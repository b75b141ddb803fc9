"""The modelled time of a training step: matmuls, communication, bubble, optimizer."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from ttkit.hardware.chips import Chip, Fact
from ttkit.hardware.roofline import default_fidelity, roofline
from ttkit.layouts.dry_run import REPEATED
from ttkit.layouts.memory import Memory, schedule_of
from ttkit.layouts.step import Job, Stage, one_pass
from ttkit.layouts.traffic import Traffic
from ttkit.train.config.layout import Layout

# Training without gradient all-reduces reaches this share of the matrix engines' peak; elementwise
# operations, norms and launches take the rest.
EFFICIENCY = Fact(0.218, "of the peak", "fitted on tenstorrent/tt-metal issue #39193: 21.8 %")
FORWARD = ("start", "block")


class Times(NamedTuple):
    """Modelled seconds of a step, one after the other.

    Attributes:
        products: the matmuls of all micro-batches.
        communication: exposed, not overlapped with compute.
        hidden: communication that is overlapped with compute; not in the total.
        bubble: the stages of a pipeline wait.
        optimizer: weights and optimizer state are read and written.
    """

    products: float
    communication: float
    hidden: float
    bubble: float
    optimizer: float

    @property
    def total(self) -> float:
        """The seconds of a step, without hidden communication."""
        return self.products + self.communication + self.bubble + self.optimizer


def products_s(
    job: Job, layout: Layout, stage: Stage, chip: Chip, efficiency: float = EFFICIENCY.value
) -> tuple[float, float]:
    """Return the seconds of the matmuls of a micro-batch, forward and backward.

    Each takes the longer of two times: its flops at `efficiency` of the peak, or its bytes at the
    bandwidth of DRAM.
    """
    step = one_pass(job, layout, stage)
    fidelity = default_fidelity(chip, [layout.precision.upper()] * 2)
    compute = step.flops / (chip.peak_flops(fidelity) * efficiency)
    seconds = np.maximum(compute, step.moved / (chip.dram_bandwidth.value * 1e9))
    times, forward = _repeats(step.multiplied, stage.others)
    return float(seconds @ (times * forward)), float(seconds @ (times * ~forward))


@functools.lru_cache(maxsize=1024)
def _repeats(parts: tuple[str, ...], others: int) -> tuple[np.ndarray, np.ndarray]:
    times = np.array([1 + others if part in REPEATED else 1 for part in parts])
    return times, np.array([part in FORWARD for part in parts])


def flops(job: Job, layout: Layout, stage: Stage) -> int:
    """Return the floating-point operations of the matmuls of a step on a chip."""
    step = one_pass(job, layout, stage)
    times, _ = _repeats(step.multiplied, stage.others)
    return int(step.flops @ times) * layout.micro_batches


@functools.lru_cache(maxsize=1024)
def bubble_fraction(schedule: str, stages: int, micro_batches: int) -> float:
    """Return the part of a step in which stages wait, for a backward twice as long as a forward.

    Example:
        >>> bubble_fraction("1f1b", 4, 8) == bubble_fraction("gpipe", 4, 8) == 3 / (8 + 3)
        True
    """
    if schedule == "1f1b":  # The formula is faster than building a schedule of many stages.
        return (stages - 1) / (micro_batches + stages - 1)
    return float(schedule_of(schedule, stages, micro_batches).timeline().bubble_fraction)


def optimizer_s(memory: Memory, chip: Chip) -> float:
    """Return the seconds in which weights and state are read and written, and gradients read."""
    moved = 2 * (memory.weights + memory.optimizer) + memory.gradients
    return roofline(chip, 0, moved, "HiFi4").time_s


def times_of(
    job: Job,
    layout: Layout,
    stage: Stage,
    chip: Chip,
    memory: Memory,
    talk: list[Traffic],
    overlap: bool = False,
) -> Times:
    """Return the modelled time of a step whose slowest stage is this one.

    Args:
        talk: its collectives.
        overlap: overlap communication with compute: gradients with the last backward, and the
            all-gathers of weights with the first forward, or with ZeRO-3 with all matmuls, since
            each of them needs the weights again.
    """
    forward, backward = products_s(job, layout, stage, chip)
    products = layout.micro_batches * (forward + backward)
    sent = sum(each.time_s for each in talk)
    hidden = 0.0
    if overlap:
        gathering = products if layout.zero == 3 else forward
        room = {"DDP gradients": backward, "DDP weights": gathering}
        for what, most in room.items():
            hidden += min(sum(each.time_s for each in talk if each.what == what), most)
        hidden = min(hidden, products)
    once = ("DDP gradients", "DDP optimizer", "DDP norm", "hosts gradients")
    waits = sum(each.time_s for each in talk if each.what not in once) + products
    fraction = bubble_fraction(layout.schedule, layout.pp, layout.micro_batches)
    bubble = waits * fraction / (1 - fraction) if layout.pp > 1 else 0.0
    return Times(products, sent - hidden, hidden, bubble, optimizer_s(memory, chip))
