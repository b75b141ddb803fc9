"""A profile of a run on the simulator: flops, bytes and modelled times.

It is shown as a table or as a timeline; `records` reads the calls from the tape."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from ttkit import backend
from ttkit.errors import fail
from ttkit.profiling.records import HOST, Reader, Record, last_name
from ttkit.sim.tape import Tape, tape
from ttkit.visualize.lanes import COMMUNICATION, COMPUTE, Bar, ChipLane, Timeline, total
from ttkit.visualize.tables import Report
from ttkit.words import grouped, short

BY_OPERATION = tuple(  # These are column titles; "<" aligns a column to the left.
    "<operation|calls|flops, a chip|moved, a chip|on links|time, modelled|of the time".split("|")
)
OTHER_CHIPS = -1  # A chip that takes no part in a call waits for all that do, under this key.


class Profile:
    """The calls of a `ttkit.profile()` block, in order; all times are modelled.

    A chip does one thing after the other, in the program's order, and each when its operands are
    there. A collective begins when the last of its chips is ready. See `overlapped`, too.
    """

    _model = ""  # `overlapped` sets this; the title then names it.

    def __init__(self, tape: Tape):
        self._reader = Reader(tape)

    @property
    def records(self) -> list[Record]:
        """The calls so far, in order."""
        return self._reader.records

    def overlapped(self) -> Profile:
        """Return the same calls, modelled with communication overlapped with compute.

        Each chip has two queues: one for collectives, one for all else. A call begins when its
        queue is free and its operands are there, so the all-reduce of a gradient can run under the
        rest of the backward that is called before it. Neither queue slows the other down.

        Example:
            >>> from ttkit import ttnn
            >>> _ = ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
            >>> with ttnn.open_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
            ...     a = ttnn.ones([64, 96], device=mesh)
            ...     with profile() as prof:
            ...         b, c = ttnn.exp(a), ttnn.all_gather(a, 1, cluster_axis=1)
            >>> prof.overlapped().time_s == prof.records[1].time_s < prof.time_s
            True
        """
        other = copy.copy(self)
        other._model = ", communication beside compute"
        return other

    def spans(self) -> Iterator[tuple[Record, dict[int, float]]]:
        """Yield each record that takes time, with its modelled starts in seconds: {chip: start}."""
        free: dict[tuple[str, int], float] = {}  # A queue of a chip is free from this second on.
        ends: list[dict[int, float]] = [{}]  # Each call has the second of its end on each chip.
        for record in self.records:
            queue, start = record.kind if self._model else "", {}
            for chip in record.chips:
                idle = free.get((queue, chip), 0.0) if record.time_s else 0.0
                made = (ends[number] for number in record.after)
                start[chip] = max([idle, *(end.get(chip, end[OTHER_CHIPS]) for end in made)])
            if record.kind == COMMUNICATION:
                start = dict.fromkeys(start, max(start.values()))
            end = {chip: begin + record.time_s for chip, begin in start.items()}
            ends.append({OTHER_CHIPS: max(end.values(), default=0.0), **end})
            if record.time_s:
                free |= {(queue, chip): at for chip, at in end.items()}
                yield record, start

    @property
    def time_s(self) -> float:
        """Modelled seconds from the first operation's start to the last one's end."""
        ends = (max(start.values()) + record.time_s for record, start in self.spans())
        return max(ends, default=0.0)

    @property
    def exposed_s(self) -> float:
        """Modelled seconds in which a chip communicates without computing, on the chip with most.

        All communication is exposed but what `overlapped` hides.
        """
        return max((total(lane.exposed) for lane in self.timeline(join=True).lanes), default=0.0)

    def __repr__(self) -> str:
        kinds = Counter(record.kind for record in self.records)
        calls = f"{kinds[COMPUTE]} operations, {kinds[COMMUNICATION]} collectives"
        calls += f", {kinds[HOST]} transfers to or from the host"
        return f"Profile({calls}; {short(self.time_s, 's')} modelled{self._model})"

    def _repr_html_(self) -> str:
        return self.timeline(join=True)._repr_html_() + self.summary()._repr_html_()

    def summary(self) -> Report:
        """Return the calls grouped by operation, the longest first."""
        groups = grouped(self.records, lambda record: record.name)
        spent = {name: sum(r.time_s for r in records) for name, records in groups.items()}
        rows = []
        for name, time in sorted(spent.items(), key=lambda pair: -pair[1]):
            records, one = groups[name], groups[name][0]
            shown, share = "not modelled", ""
            if one.kind != HOST:
                shown = short(time, "s")
                share = f"{100 * time / (sum(spent.values()) or 1):.0f} %"
            counts = (
                short(sum(r.flops for r in records)),
                short(sum(r.bytes_read + r.bytes_written for r in records), "B"),
                short(sum(r.bytes_on_links for r in records), "B"),
            )
            rows.append((last_name(name), str(len(records)), *counts, shown, share))
        return Report(self._title("by operation"), BY_OPERATION, rows)

    def _title(self, what: str) -> str:
        chips = [record.mesh.system.chip.name for record in self.records]
        chip = f", {chips[-1]}s" if chips else ""
        return f"{what}: {short(self.time_s, 's')} modelled end to end{self._model}{chip}"

    def timeline(self, *, join: bool = False) -> Timeline:
        """Return when each chip computes and communicates, in modelled time: a lane for each chip.

        Args:
            join: one lane for chips that do the same at the same time.
        """
        chips = {chip for record in self.records for chip in record.mesh.get_device_ids()}
        bars: dict[int, list[Bar]] = {chip: [] for chip in sorted(chips)}
        for record, start in self.spans():
            for chip, begin in start.items():
                name = last_name(record.name)
                bars[chip].append(Bar(begin, begin + record.time_s, record.kind, name))
        alike = grouped(bars, lambda chip: tuple(bars[chip]) if join else chip)
        lanes = (ChipLane(tuple(same), tuple(bars[same[0]])) for same in alike.values())
        return Timeline(self._title("timeline"), tuple(lanes), bool(self._model))


@contextmanager
def profile() -> Iterator[Profile]:
    """Record every operation and collective of the block, with flops, bytes and a modelled time.

    An operation takes its launch and then the longer of computing whole tiles and moving bytes, see
    `ttkit.hardware.roofline`; a collective, what its plan costs, see
    `ttkit.plans.cost.cost`. The planner counts in the same way. Transfers between host and chips
    are listed, but not timed. What a call does inside is part of it. Operations of a trace are
    recorded when it is captured, and again at each replay.

    A call without a compute_kernel_config has the math fidelity that ttnn chooses by element type,
    see `ttkit.hardware.roofline.default_fidelity`.

    Raises:
        TTKitError: on a card.

    Example:
        >>> from ttkit import ttnn
        >>> with ttnn.open_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
        ...     a = ttnn.ones([64, 96], dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh)
        ...     with profile() as prof:
        ...         b = ttnn.matmul(a, a, transpose_b=True)
        >>> prof.records[0].flops == 2 * 64 * 96 * 64, prof.records[0].bound
        (True, 'launch')
    """
    if not backend.is_simulated():
        rule = "times are modelled on the simulator only, and a card's are measured"
        cure = "python -m tracy -r script.py on a card; TTKIT_BACKEND=sim for modelled times"
        fail("ttkit.profile", rule, cure)
    with tape() as calls:
        yield Profile(calls)
