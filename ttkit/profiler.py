"""A profile of a run on the simulator: flops, bytes and modelled times.

It is shown as tables, as a timeline, or written as a trace file."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ttkit import backend
from ttkit.errors import fail
from ttkit.files import write_whole
from ttkit.plans import cost
from ttkit.plans.recorded import last_plan
from ttkit.roofline import default_fidelity, known_fidelity, roofline
from ttkit.sim.memory import bytes_of
from ttkit.sim.operation import OPERATIONS, watchers
from ttkit.sim.trace import tensors_in
from ttkit.visualize.tables import Report
from ttkit.visualize.timeline import COMMUNICATION, COMPUTE, Bar, Timeline, lanes_of
from ttkit.words import short

HOST = "host"
ALL_CALLS = tuple(  # columns; "<" aligns to the left
    "#|<operation|<chips|<operands, a chip|<result, a chip|flops, a chip|read, a chip|"
    "written, a chip|on links|time, modelled|<bound by".split("|")
)
BY_OPERATION = tuple(
    "<operation|calls|flops, a chip|moved, a chip|on links|time, modelled|of the time".split("|")
)
# The kinds of operations that do not compute, in a profile.
KINDS = {"write": HOST, "read": HOST, "collective": COMMUNICATION}


class Shard(NamedTuple):
    """What each chip holds of a tensor."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Record:
    """One outermost call: what it did on each of its chips, and its modelled time.

    Args:
        name: the operation's key in `ttkit.sim.operation.OPERATIONS`, without ttnn in front.
        kind: "compute", "communication" (a collective) or "host" (to or from it, not timed).
        mesh: its number in the profile, counted from 1.
        chips: device ids of the chips that took part; the others idle.
        operands, results: on each of the chips.
        flops: on each of the chips, of the values alone; the time is that of whole tiles.
        fidelity: passes of the matrix engine.
        bytes_read, bytes_written: of each chip's DRAM.
        bytes_on_links: over all cables, once for each hop.
        time_s: modelled.
        bound: what limits the time: "compute", "memory", "links", or "" where there is none.
    """

    name: str
    kind: str
    mesh: int
    chips: tuple[int, ...]
    operands: tuple[Shard, ...]
    results: tuple[Shard, ...]
    flops: int
    fidelity: str
    bytes_read: int
    bytes_written: int
    bytes_on_links: int
    time_s: float
    bound: str


class Profile:
    """The records of a `ttkit.profile()` block, in order; all times are modelled.

    A chip does one thing after the other. A collective begins when the last of its chips is ready.
    """

    def __init__(self, fidelity: str | None = None):
        self.records: list[Record] = []
        self._fidelity = fidelity
        self._meshes: list[Any] = []  # in the order of their first calls
        self._chip = ""

    def before(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Do nothing: a call that fails is not in the profile."""

    def after(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Record a call, unless it concerns the host alone."""
        operation = OPERATIONS[name]
        bound = operation.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments
        results, operands = tensors_in(result), tensors_in(list(given.values()))
        like = next((t for t in (*results, *operands) if t.mesh is not None), None)
        if like is None:
            return
        chip = like.mesh.system.chip
        kind = KINDS.get(operation.kind, COMPUTE)
        asked = getattr(given.get("compute_kernel_config"), "math_fidelity", None)
        configured = any(given.get(key) is not None for key in ("program_config", "core_grid"))
        known = asked is not None and asked.name != "Invalid"
        fidelity = known_fidelity(asked, name) if known else self._fidelity
        dtypes = [t.dtype.name for t in operands]
        fidelity = fidelity or default_fidelity(chip, dtypes, configured=configured)
        count, read, written, on_links, price = 0, 0, 0, 0, (0.0, "")
        socket = given.get("mesh_socket")  # of a send, which has no result
        sent = kind == COMMUNICATION and getattr(socket, "shift", None) is not None
        if sent or not _nothing_done(operation, operands, results):
            outputs = [t for t in operands[1:] if any(t is r for r in results)]  # not read
            read, written = _bytes(operands) - _bytes(outputs), _bytes(results)
            if operation.moves == "part":  # of the table or tensor as much as it writes
                others = operands[:-1] if operation.name == "embedding" else []
                read = min(read, written + _bytes(others))
            count = operation.flops(given, operands, results, lambda t: t.shard_shape)
            if kind == COMMUNICATION and read:  # an empty tensor has no plan
                plan = last_plan()
                on_links, price = plan.total_bytes, (cost(plan).time_s, "links")
            elif kind == COMPUTE:
                tiles = operation.flops(given, operands, results, lambda t: t.padded)
                price = roofline(chip, tiles, read + written, fidelity)
        self._chip = chip.name
        if not any(like.mesh is mesh for mesh in self._meshes):
            self._meshes.append(like.mesh)
        number = next(i for i, mesh in enumerate(self._meshes, 1) if mesh is like.mesh)
        ids = tuple(like.mesh.id_at(c) for c in like.grid.coords)
        moved = (fidelity, read, written, on_links, *price)
        had, made = (
            tuple(Shard(tuple(t.shard_shape), t.dtype.name.lower()) for t in tensors)
            for tensors in (operands, results)
        )
        self.records.append(Record(name, kind, number, ids, had, made, count, *moved))

    def spans(self) -> Iterator[tuple[Record, dict[int, float]]]:
        """Yield each record that takes time, with its modelled starts in seconds: {chip: start}."""
        clock: dict[int, float] = {}
        for record in self.records:
            if record.time_s:
                start = {chip: clock.get(chip, 0.0) for chip in record.chips}
                if record.kind == COMMUNICATION:
                    start = dict.fromkeys(start, max(start.values()))
                clock |= {chip: begin + record.time_s for chip, begin in start.items()}
                yield record, start

    @property
    def time_s(self) -> float:
        """Modelled seconds from the first operation's start to the last one's end."""
        ends = (max(start.values()) + record.time_s for record, start in self.spans())
        return max(ends, default=0.0)

    def busiest(self, field: str) -> int:
        """Return the sum of a field, such as "flops", on the chip where it is largest."""
        counted: Counter[int] = Counter()
        for record in self.records:
            for chip in record.chips:
                counted[chip] += getattr(record, field)
        return max(counted.values(), default=0)

    def __repr__(self) -> str:
        kinds = Counter(record.kind for record in self.records)
        calls = f"{kinds[COMPUTE]} operations, {kinds[COMMUNICATION]} collectives"
        calls += f", {kinds[HOST]} transfers to or from the host"
        return f"Profile({calls}; {short(self.time_s, 's')} modelled)"

    def _repr_html_(self) -> str:
        return self.timeline(join=True)._repr_html_() + self.summary()._repr_html_()

    def table(self) -> Report:
        """Return every call in order, with counts for each chip; the last row: the busiest chip."""
        rows = [
            (str(i), _last(r.name), _ids(r.chips), _shapes(r.operands), _shapes(r.results))
            + (short(r.flops), short(r.bytes_read, "B"), short(r.bytes_written, "B"))
            + (short(r.bytes_on_links, "B"), _time(r, r.time_s), _bound(r))
            for i, r in enumerate(self.records, 1)
        ]
        total = short(sum(r.bytes_on_links for r in self.records), "B")
        busiest = [short(self.busiest(f), "B") for f in ("bytes_read", "bytes_written")]
        last = ("", "total, end to end", "", "", "", short(self.busiest("flops")), *busiest)
        last += (total, short(self.time_s, "s"), "")
        return Report(self._title("operations in order"), ALL_CALLS, rows, last)

    def summary(self) -> Report:
        """Return the calls grouped by operation, the longest first."""
        groups: dict[str, list[Record]] = {}
        for record in self.records:
            groups.setdefault(record.name, []).append(record)
        spent = {name: sum(r.time_s for r in records) for name, records in groups.items()}
        everything = sum(spent.values()) or 1
        rows = []
        for name in sorted(groups, key=lambda n: -spent[n]):
            records, one = groups[name], groups[name][0]
            share = "" if one.kind == HOST else f"{100 * spent[name] / everything:.0f} %"
            moved = sum(r.bytes_read + r.bytes_written for r in records)
            on_links = sum(r.bytes_on_links for r in records)
            counts = (short(sum(r.flops for r in records)), short(moved, "B"), short(on_links, "B"))
            rows.append((_last(name), str(len(records)), *counts, _time(one, spent[name]), share))
        return Report(self._title("by operation"), BY_OPERATION, rows)

    def _title(self, what: str) -> str:
        chip = f", {self._chip}s at their published peaks" if self._chip else ""
        return f"{what}: {short(self.time_s, 's')} modelled end to end{chip}"

    def timeline(self, *, join: bool = False) -> Timeline:
        """Return when each chip computes and communicates, in modelled time: a lane for each chip.

        Args:
            join: one lane for chips that do the same at the same time.
        """
        chips = [chip for mesh in self._meshes for chip in mesh.get_device_ids()]
        bars: dict[int, list[Bar]] = {chip: [] for chip in chips}
        for record, start in self.spans():
            for chip, begin in start.items():
                bars[chip].append(Bar(record.name, record.kind, begin, begin + record.time_s))
        return Timeline(self._title("timeline"), lanes_of(bars, join))

    def to_chrome_trace(self, path: str | os.PathLike[str]) -> Path:
        """Write the modelled timeline as Chrome trace events, and return the path.

        Perfetto (ui.perfetto.dev) and chrome://tracing show the file: a process is a mesh, a thread
        a chip, times are modelled microseconds. The file is written whole or not at all.

        Raises:
            TTKitError: the file cannot be written there.
        """
        events = [event for record, start in self.spans() for event in _events(record, start)]
        events.sort(key=lambda event: (event["ts"], event["pid"], event["tid"]))
        names = []
        for number, mesh in enumerate(self._meshes, 1):
            called = f"{'x'.join(map(str, mesh.shape))} mesh, modelled"
            names.append(_label("process_name", number, 0, called))
            for chip in sorted(mesh.get_device_ids()):
                names.append(_label("thread_name", number, chip, f"chip {chip}"))
        times = {"times": self._title("all times are modelled")}
        trace = {"traceEvents": names + events, "displayTimeUnit": "ns", "otherData": times}
        return write_whole(path, json.dumps(trace), f"to_chrome_trace({str(path)!r})")


@contextmanager
def profile(*, fidelity: Any = None) -> Iterator[Profile]:
    """Record every operation and collective of the block, with flops, bytes and a modelled time.

    An operation takes max(flops of whole tiles / peak of the matrix engines, bytes / DRAM
    bandwidth), see `ttkit.roofline`; a collective, what its plan costs on the links; transfers
    between host and chips are listed, but not timed. What a call does inside is part of it.
    Operations of a trace are recorded when it is captured, and again at each replay.

    Args:
        fidelity: "LoFi", "HiFi2", "HiFi3" or "HiFi4", or a `ttnn.MathFidelity`, for calls without a
            compute_kernel_config; by default as ttnn chooses by element type, see
            `ttkit.roofline.default_fidelity`.

    Raises:
        TTKitError: on a card; no such fidelity.

    Example:
        >>> from ttkit import ttnn
        >>> with ttnn.open_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
        ...     a = ttnn.ones([64, 96], dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh)
        ...     with profile() as prof:
        ...         b = ttnn.matmul(a, a, transpose_b=True)
        >>> prof.records[0].flops == 2 * 64 * 96 * 64, prof.records[0].bound
        (True, 'memory')
    """
    if not backend.is_simulated():
        rule = "times are modelled on the simulator only, and a card's are measured"
        cure = "python -m tracy -r script.py on a card; TTKIT_BACKEND=sim for modelled times"
        fail("ttkit.profile", rule, cure)
    recorder = Profile(None if fidelity is None else known_fidelity(fidelity, "ttkit.profile"))
    watchers.append(recorder)
    try:
        yield recorder
    finally:
        watchers.remove(recorder)


# ---------------------------------------------------------------- reading a call
def _bytes(tensors: Any) -> int:
    """Return the bytes of tensors on a chip, as the memory accounting counts them."""
    return sum(bytes_of(t.padded, t.dtype) for t in tensors)


def _nothing_done(operation: Any, operands: Sequence[Any], results: Sequence[Any]) -> bool:
    """Return whether a call neither computes nor moves anything."""
    if operation.moves == "none" or not results:
        return True
    if not operands:
        return False
    if results[0] is operands[0] and not operation.name.endswith(("_", "_in_place")):
        return True
    return operation.moves == "shape" and _stays(operands[0], results[0])


def _stays(before: Any, after: Any) -> bool:
    """Return whether a reshape moves no element: rows keep their length, and tiles their rows."""
    old, new = ((1, 1) + tuple(t.shard_shape) for t in (before, after))
    whole_tiles = old[-2] % 32 == new[-2] % 32 == 0
    rows_stay = before.layout.name != "TILE" or old[-2] == new[-2] or whole_tiles
    return before.layout is after.layout and old[-1] == new[-1] and rows_stay


# ---------------------------------------------------------------- in words
def _events(record: Record, start: Mapping[int, float]) -> Iterator[dict[str, Any]]:
    about = {
        "operands": _shapes(record.operands),
        "result": _shapes(record.results),
        "flops": record.flops,
        "bytes read": record.bytes_read,
        "bytes written": record.bytes_written,
        "bytes on links": record.bytes_on_links,
        "time": f"modelled, bound by {_bound(record)}",
    }
    event = {"name": record.name, "cat": record.kind, "ph": "X", "pid": record.mesh, "args": about}
    for chip, begin in start.items():
        yield event | {"ts": begin * 1e6, "dur": record.time_s * 1e6, "tid": chip}


def _label(what: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}


def _last(name: str) -> str:
    return name.rpartition(".")[2]  # without the namespace


def _time(record: Record, time_s: float) -> str:
    return "not modelled" if record.kind == HOST else short(time_s, "s")


def _bound(record: Record) -> str:
    return f"{record.bound}, {record.fidelity}" if record.bound == "compute" else record.bound


def _ids(chips: Sequence[int]) -> str:
    return f"all {len(chips)}" if len(chips) > 4 else ", ".join(map(str, sorted(chips)))


def _shapes(shards: Sequence[Shard]) -> str:
    """Return shapes and types; a type that all share stands once, at the end."""
    # no spaces in a shape, so that lines break between shapes
    shapes = [f"[{','.join(map(str, s.shape))}]" for s in shards]
    kinds = list(dict.fromkeys(s.dtype for s in shards))
    if len(kinds) == 1:
        return f"{', '.join(shapes)} {kinds[0]}"
    return ", ".join(f"{shape} {s.dtype}" for shape, s in zip(shapes, shards, strict=True))
