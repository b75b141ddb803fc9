"""A profile of a run on the simulator: flops, bytes and modelled times.

A `Reader` makes a record of each call on the tape, with its figures and the calls that it waits
for. A `Profile` shows the records as a table or as a timeline."""

from __future__ import annotations

import copy
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from ttkit import backend
from ttkit.errors import fail
from ttkit.hardware.roofline import default_fidelity, operation_s
from ttkit.plans.cost import cost
from ttkit.sim.mesh import MeshDevice
from ttkit.sim.ops import OPERATIONS, Operation
from ttkit.sim.ops.work import is_same, work_of
from ttkit.sim.tape import DescribedTensor, Event, Tape, tape
from ttkit.visualize.lanes import COMMUNICATION, COMPUTE, Bar, ChipLane, Timeline, total
from ttkit.visualize.tables import Report
from ttkit.words import grouped, short

HOST = "host"
# The keys are kinds of operations; the values are the kinds of their records. The records of all
# other operations have the kind "compute", even if they only move values on a chip.
KINDS = {"write": HOST, "read": HOST, "collective": COMMUNICATION}


class Record(NamedTuple):
    """One outermost call: its work on each of its chips, and its modelled time.

    Args:
        name: the operation's key in `ttkit.sim.ops.OPERATIONS`, without ttnn in front.
        kind: "compute", "communication" (a collective) or "host" (a transfer to or from the host,
            which is not timed).
        mesh: the mesh that it ran on.
        chips: device ids of the chips that took part; the other chips of the mesh were idle.
        operands, results: the tensors, as the tape describes them.
        flops: the flops of the values on each chip; `time_s` counts those of whole tiles instead.
        bytes_read, bytes_written: the traffic of each chip's DRAM.
        bytes_on_links: the bytes over all cables, counted once for each hop.
        time_s: the modelled time.
        after: the numbers of the calls that it waits for; the first call of the profile is 1.
    """

    name: str
    kind: str
    mesh: MeshDevice
    chips: tuple[int, ...]
    operands: Sequence[DescribedTensor]
    results: Sequence[DescribedTensor]
    flops: int
    bytes_read: int
    bytes_written: int
    bytes_on_links: int
    time_s: float
    after: tuple[int, ...]


# A tensor is recognized in several events by three ids: of the tensor, of its memory and of its
# array. An id is 0 if there is no such object. All three are needed: the shards of
# `get_device_tensors` share one memory, and a replay of a trace puts the array of one tensor into
# another. The ids are those of the tape's weak references. The tape keeps these references, so no
# other object can get the same id.
Keys = tuple[int, ...]


def keys_of(tensor) -> Keys:
    """Return the keys of a described tensor."""
    kept = (tensor.tensor, tensor.memory, tensor.array)
    return tuple(0 if each is None else id(each) for each in kept)


# ---------------------------------------------------------------- reading a tape
class Reader:
    """A reader of a tape's events. Each time `records` is read, it adds records of the new
    events."""

    def __init__(self, tape: Tape):
        self.tape = tape
        self._records: list[Record] = []
        self._seen: list[Event] = []  # A copy has the same lists, so each event is read only once.
        # The list of a key begins with the number of the call that made the values; it is 0 if that
        # was before the tape began. The numbers of the calls that read the values follow.
        self._calls = defaultdict[int, list[int]](lambda: [0])

    @property
    def records(self) -> list[Record]:
        """The records of the calls that used a mesh and did not fail, in order."""
        for event in self.tape.events[len(self._seen) :]:
            self._seen.append(event)
            if event.returned and event.name in OPERATIONS:
                self._read(event, OPERATIONS[event.name])
        return self._records

    def _read(self, event: Event, operation: Operation) -> None:
        operands = event.operands
        results = event.results
        like = next((t for t in (*results, *operands) if t.mesh is not None), None)
        if like is None:
            return
        given = operation.takes.given(event.args, event.kwargs)
        chip = like.mesh.system.chip
        kind = KINDS.get(operation.kind, COMPUTE)
        asked = getattr(given.get("compute_kernel_config"), "math_fidelity", None)
        fidelity = "Invalid" if asked is None else asked.name
        if fidelity == "Invalid":
            configured = any(given.get(key) is not None for key in ("program_config", "core_grid"))
            dtypes = [t.dtype.name for t in operands]
            fidelity = default_fidelity(chip, dtypes, configured=configured)
        work = work_of(event, operation)
        on_links = 0
        time_s = 0.0
        if work and kind == COMMUNICATION and work.read:  # An empty tensor has no plan.
            plans = [collective.plan for collective in event.sent]
            on_links = sum(plan.total_bytes for plan in plans)
            time_s = sum(cost(plan).time_s for plan in plans)
        elif work and kind == COMPUTE:
            time_s = float(operation_s(chip, work.flops_of_tiles, work.moved, fidelity))
        same = len(operands) == len(results) and all(map(is_same, operands, results))
        socket = given.get("mesh_socket")
        unchanged = not work and same and socket is None
        # A call without results, such as copy_host_to_device_tensor, writes its second operand.
        made = [] if unchanged else results or operands[1:]
        reads = list(map(keys_of, operands))
        writes = list(map(keys_of, made))
        if socket is not None:  # A send writes the socket's queue, and a receive reads it.
            (reads if results else writes).append((id(socket._channel.queue), 0, 0))
        self._records.append(
            Record(
                name=event.name,
                kind=kind,
                mesh=like.mesh,
                chips=tuple(like.mesh.ids_over(like.grid)),
                operands=operands,
                results=results,
                flops=work.flops if work else 0,
                bytes_read=work.read if work else 0,
                bytes_written=work.written if work else 0,
                bytes_on_links=on_links,
                time_s=time_s,
                after=self._waits(reads, writes),
            )
        )

    def _waits(self, reads: list[Keys], writes: list[Keys]) -> tuple[int, ...]:
        """Return the numbers of the calls that a call waits for: the calls that made
        what it reads, and the earlier calls that read what it overwrites.

        Args:
            reads: the tensors that it reads.
            writes: the tensors that it makes or writes; one that is also read is overwritten.
        """
        number = len(self._records) + 1
        calls = self._calls
        waits = set()
        written = {tensor for tensor, _, _ in writes}
        for keys in reads:
            waits.add(max(calls[key][0] for key in keys if key))
            if keys[0] in written:
                waits.update(calls[keys[0]])
            else:
                calls[keys[0]].append(number)
        for tensor, memory, array in writes:
            calls[tensor][:] = [number]
            if memory:
                calls[memory][:] = [number]
            # A result may share the array of an operand. The array then keeps the number of the
            # call that made the operand.
            if array and not calls[array][0]:
                calls[array][:] = [number]
        return tuple(sorted(waits - {0}))


def last_name(name: str) -> str:
    """Return an operation's name without the module that it is in."""
    return name.rpartition(".")[2]


# ---------------------------------------------------------------- the profile
BY_OPERATION = tuple(  # These are column titles; "<" aligns a column to the left.
    "<operation|calls|flops per chip|moved per chip|on links|time, modelled|of the time".split("|")
)
# This key has the end of a call on its last chip. If a chip takes no part in the call,
# but has to wait for it, the chip waits until then.
OTHER_CHIPS = -1


class Profile(Reader):
    """The calls of a `ttkit.profile()` block, in order; all times are modelled.

    A chip runs one call after the other, in the program's order. A call begins when its operands
    are there. A collective begins when the last of its chips is ready. See also `overlapped`.
    """

    _model = ""  # `overlapped` sets this text, which is then in the title.

    def overlapped(self) -> Profile:
        """Return the same calls, modelled with communication overlapped with compute.

        Each chip has two queues: one for collectives, and one for all other calls. A call begins
        when its queue is free and its operands are there. The all-reduce of a gradient can thus run
        at the same time as operations of the backward that were called before it. Neither queue
        slows the other down.

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
        other._model = ", communication overlaps compute"
        return other

    def spans(self) -> Iterator[tuple[Record, dict[int, float]]]:
        """Yield each record that takes time, with its modelled starts in seconds: {chip: start}."""
        free: dict[tuple[str, int], float] = {}  # A queue of a chip is free from this time on.
        ends: list[dict[int, float]] = [{}]  # Entry n has the end of call n on each chip.
        for record in self.records:
            queue = record.kind if self._model else ""
            start = {}
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
        """The modelled seconds from the first call's start to the last end."""
        ends = (max(start.values()) + record.time_s for record, start in self.spans())
        return max(ends, default=0.0)

    @property
    def exposed_s(self) -> float:
        """Modelled seconds in which a chip communicates and does not compute, for the chip that has
        the most of them.

        All communication is exposed, except the part that `overlapped` hides.
        """
        return max((total(lane.exposed) for lane in self.timeline().lanes), default=0.0)

    def __repr__(self) -> str:
        kinds = Counter(record.kind for record in self.records)
        calls = f"{kinds[COMPUTE]} operations, {kinds[COMMUNICATION]} collectives"
        calls += f", {kinds[HOST]} transfers to or from the host"
        return f"Profile({calls}; {short(self.time_s, 's')} modelled{self._model})"

    def _repr_html_(self) -> str:
        return self.timeline()._repr_html_() + self.summary()._repr_html_()

    def summary(self) -> Report:
        """Return the calls grouped by operation, the longest first."""
        groups = grouped(self.records, lambda record: record.name)
        spent = {name: sum(r.time_s for r in records) for name, records in groups.items()}
        rows = []
        for name, time in sorted(spent.items(), key=lambda pair: -pair[1]):
            records = groups[name]
            shown, share = "not modelled", ""
            if records[0].kind != HOST:
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

    def timeline(self) -> Timeline:
        """Return when each chip computes and communicates, in modelled time.

        Chips that do the same at the same time share a lane.
        """
        chips = {chip for record in self.records for chip in record.mesh.get_device_ids()}
        bars: dict[int, list[Bar]] = {chip: [] for chip in sorted(chips)}
        for record, start in self.spans():
            for chip, begin in start.items():
                name = last_name(record.name)
                bars[chip].append(Bar(begin, begin + record.time_s, record.kind, name))
        alike = grouped(bars, lambda chip: tuple(bars[chip]))
        lanes = (ChipLane(tuple(same), tuple(bars[same[0]])) for same in alike.values())
        return Timeline(self._title("timeline"), tuple(lanes), bool(self._model))


@contextmanager
def profile() -> Iterator[Profile]:
    """Record every operation and collective of the block, with flops, bytes and a modelled time.

    The time of an operation is the time of its launch, plus the longer of computing whole tiles and
    moving bytes (see `ttkit.hardware.roofline`). The time of a collective is that of its plan (see
    `ttkit.plans.cost.cost`). `plan_layouts` uses the same times. Transfers between host and chips
    are listed, but not timed. Calls that another call makes are part of that call. Operations of a
    trace are recorded when the trace is captured, and again at each replay.

    A call without a compute_kernel_config has ttnn's default math fidelity (see
    `ttkit.hardware.roofline.default_fidelity`).

    Raises:
        TTKitError: the program runs on a card.

    Example:
        >>> from ttkit import ttnn
        >>> with ttnn.open_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
        ...     a = ttnn.ones([64, 96], dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh)
        ...     with profile() as prof:
        ...         b = ttnn.matmul(a, a, transpose_b=True)
        >>> prof.records[0].flops == 2 * 64 * 96 * 64
        True
    """
    if not backend.is_simulated():
        fail(
            "ttkit.profile",
            "times are modelled on the simulator only; on a card they are measured",
            "python -m tracy -r script.py on a card; TTKIT_BACKEND=sim for modelled times",
        )
    with tape() as calls:
        yield Profile(calls)
