"""A profile of what ran on the simulator: flops, bytes and modelled times, as tables, a picture
and a trace file.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ttkit import backend
from ttkit.errors import fail
from ttkit.files import write_whole
from ttkit.plans import cost
from ttkit.plans.recorded import last_plan
from ttkit.roofline import default_fidelity, known_fidelity, roofline
from ttkit.visualize.tables import Report
from ttkit.visualize.timeline import COMMUNICATION, COMPUTE, Bar, Timeline, lanes_of
from ttkit.words import short

HOST = "host"
# What kinds of operations are for a profile; all others compute.
KINDS = {"write": HOST, "read": HOST, "collective": COMMUNICATION}


@dataclass(frozen=True)
class Piece:
    """What each chip holds of a tensor: shape, element type, and bytes with tile padding."""

    shape: tuple[int, ...]
    dtype: str
    nbytes: int


@dataclass(frozen=True)
class Record:
    """One call, outermost: what it did on each of its chips, and how long the model says that it
    took.

    Args:
        name: the operation's name in ttnn.
        kind: "compute", "communication" (a collective) or "host" (values moved between host and
        chips, which is not timed). mesh: its number in the profile, counted from 1. chips: device
        ids of the chips that took part; the others idle. operands, results: on each of the chips.
        flops: on each of the chips, of the values alone; time is taken for whole tiles. fidelity:
        passes of the matrix engine. bytes_read, bytes_written: of each chip's DRAM. bytes_on_links:
        over all cables, once for each hop. time_s: modelled. bound: what the time is spent on:
        "compute", "memory", "links", or "" where there is none.
    """

    name: str
    kind: str
    mesh: int
    chips: tuple[int, ...]
    operands: tuple[Piece, ...]
    results: tuple[Piece, ...]
    flops: int
    fidelity: str
    bytes_read: int
    bytes_written: int
    bytes_on_links: int
    time_s: float
    bound: str


class Profile:
    """The records of a `ttkit.profile()` block, in order, and what can be made of them.

    All times are modelled.

    A chip does one thing after the other; a collective begins when the last of its chips is ready.
    """

    def __init__(self, fidelity: str | None = None):
        self.records: list[Record] = []
        self._fidelity = fidelity
        self._meshes: list[tuple[Any, str]] = []  # as they were met, with what they are called
        self._chip = ""

    # ------------------------------------------------------------ what the dispatch point tells
    def before(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Nothing: a call that is refused did not run."""

    def after(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Record a call, unless it concerns the host alone."""
        from ttkit.sim.operation import OPERATIONS
        from ttkit.sim.trace import tensors_in

        operation = OPERATIONS[name]
        bound = operation.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments
        results, operands = tensors_in(result), tensors_in(list(given.values()))
        there = [t for t in (*results, *operands) if t.mesh is not None]
        if not there:
            return
        like = there[0]
        chip = like.mesh.system.chip
        kind = KINDS.get(operation.kind, COMPUTE)
        asked = getattr(given.get("compute_kernel_config"), "math_fidelity", None)
        configured = any(given.get(key) is not None for key in ("program_config", "core_grid"))
        fidelity = known_fidelity(asked, name) if asked is not None else self._fidelity
        fidelity = fidelity or default_fidelity(
            chip, [t.dtype.name for t in operands], configured=configured
        )
        count, read, written, on_links, price = 0, 0, 0, 0, (0.0, "")
        if not _nothing_done(operation, operands, results):
            # an output tensor is not read
            is_read = [i == 0 or not any(t is r for r in results) for i, t in enumerate(operands)]
            read, written = (
                _bytes(t for t, counts in zip(operands, is_read, strict=True) if counts),
                _bytes(results),
            )
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
        ids = tuple(like.mesh.id_at(c) for c in like.grid.coords)
        had, made = tuple(map(_piece, operands)), tuple(map(_piece, results))
        self.records.append(
            Record(
                name,
                kind,
                self._mesh(like.mesh),
                ids,
                had,
                made,
                count,
                fidelity,
                read,
                written,
                on_links,
                *price,
            )
        )

    def _mesh(self, mesh: Any) -> int:
        if not any(mesh is known for known, _ in self._meshes):
            self._meshes.append((mesh, f"{'x'.join(map(str, mesh.shape))} mesh"))
        return next(i for i, (known, _) in enumerate(self._meshes, 1) if known is mesh)

    # ------------------------------------------------------------ when what ran where
    def spans(self) -> Iterator[tuple[Record, dict[int, float]]]:
        """Each record that takes time, with the modelled second at which it begins on each of
        its chips: {chip: start}.
        """
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
        return max(
            (max(start.values()) + record.time_s for record, start in self.spans()), default=0.0
        )

    def busiest(self, field: str) -> int:
        """The sum of a number of the records, such as "flops", on the chip where it is largest."""
        counted: Counter[int] = Counter()
        for record in self.records:
            for chip in record.chips:
                counted[chip] += getattr(record, field)
        return max(counted.values(), default=0)

    def __repr__(self) -> str:
        kinds = Counter(record.kind for record in self.records)
        calls = (
            f"{kinds[COMPUTE]} operations, {kinds[COMMUNICATION]} collectives, "
            f"{kinds[HOST]} transfers to or from the host"
        )
        return f"Profile({calls}; {short(self.time_s, 's')} modelled)"

    def _repr_html_(self) -> str:
        return self.timeline(join=True)._repr_html_() + self.summary()._repr_html_()

    # ------------------------------------------------------------ tables
    def table(self) -> Report:
        """Every call in order: what each chip had, computed and moved, and the modelled time;
        the last row is for the busiest chip.
        """
        rows = [
            (
                str(i),
                _last(r.name),
                _ids(r.chips),
                _shapes(r.operands),
                _shapes(r.results),
                short(r.flops),
                short(r.bytes_read, "B"),
                short(r.bytes_written, "B"),
                short(r.bytes_on_links, "B"),
                "not modelled" if r.kind == HOST else short(r.time_s, "s"),
                _bound(r),
            )
            for i, r in enumerate(self.records, 1)
        ]
        on_links = sum(r.bytes_on_links for r in self.records)
        sums = [
            short(self.busiest("flops")),
            *(short(self.busiest(f), "B") for f in ("bytes_read", "bytes_written")),
        ]
        last = (
            "",
            "total, end to end",
            "",
            "",
            "",
            *sums,
            short(on_links, "B"),
            short(self.time_s, "s"),
            "",
        )
        names = (
            "#",
            "<operation",
            "<chips",
            "<operands, a chip",
            "<result, a chip",
            "flops, a chip",
            "read, a chip",
            "written, a chip",
            "on links",
        )
        return Report(
            self._title("operations in order"), (*names, "time, modelled", "<bound by"), rows, last
        )

    def summary(self) -> Report:
        """The calls grouped by operation, the longest first."""
        groups: dict[str, list[Record]] = {}
        for record in self.records:
            groups.setdefault(record.name, []).append(record)
        spent = {name: sum(r.time_s for r in records) for name, records in groups.items()}
        everything = sum(spent.values()) or 1
        rows = []
        for name in sorted(groups, key=lambda n: -spent[n]):
            records = groups[name]
            moved = sum(r.bytes_read + r.bytes_written for r in records)
            counts = (
                short(sum(r.flops for r in records)),
                short(moved, "B"),
                short(sum(r.bytes_on_links for r in records), "B"),
            )
            timed = (
                ("not modelled", "")
                if records[0].kind == HOST
                else (short(spent[name], "s"), f"{100 * spent[name] / everything:.0f} %")
            )
            rows.append((_last(name), str(len(records)), *counts, *timed))
        names = (
            "<operation",
            "calls",
            "flops, a chip",
            "moved, a chip",
            "on links",
            "time, modelled",
            "of the time",
        )
        return Report(self._title("by operation"), names, rows)

    def _title(self, what: str) -> str:
        chip = f", {self._chip}s at their published peaks" if self._chip else ""
        return f"{what}: {short(self.time_s, 's')} modelled end to end{chip}"

    # ------------------------------------------------------------ pictures
    def timeline(self, *, join: bool = False) -> Timeline:
        """When each chip computes and communicates, in modelled time: a lane for each chip.

        Args:
            join: one lane for chips that do the same at the same time.
        """
        bars: dict[int, list[Bar]] = {
            chip: [] for mesh, _ in self._meshes for chip in mesh.get_device_ids()
        }
        for record, start in self.spans():
            for chip, begin in start.items():
                bars[chip].append(Bar(record.name, record.kind, begin, begin + record.time_s))
        return Timeline(self._title("timeline"), lanes_of(bars, join))

    def to_chrome_trace(self, path: str | os.PathLike[str]) -> Path:
        """Write the modelled timeline as Chrome trace events, for Perfetto (ui.perfetto.dev) or
        chrome://tracing.

        A process is a mesh, a thread a chip, times are modelled microseconds. The file is written
        whole or not at all.

        Returns:
            Where it was written.

        Raises:
            TTKitError: the file cannot be written there.
        """
        events = sorted(
            (e for record, start in self.spans() for e in _events(record, start)),
            key=lambda e: (e["ts"], e["pid"], e["tid"]),
        )
        names = []
        for number, (mesh, called) in enumerate(self._meshes, 1):
            names.append(_label("process_name", number, 0, f"{called}, modelled"))
            names += [
                _label("thread_name", number, chip, f"chip {chip}")
                for chip in sorted(mesh.get_device_ids())
            ]
        text = json.dumps(
            {
                "traceEvents": names + events,
                "displayTimeUnit": "ns",
                "otherData": {"times": self._title("all times are modelled")},
            }
        )
        return write_whole(path, text, f"to_chrome_trace({str(path)!r})")


@contextmanager
def profile(*, fidelity: Any = None) -> Iterator[Profile]:
    """Record every operation and collective that runs inside the block on the simulator, with
    flops, bytes and a modelled time.

    An operation takes max(flops of whole tiles / peak of the matrix engines, bytes / DRAM
    bandwidth), see `ttkit.roofline`; a collective, what its plan costs on the links; transfers
    between host and chips are listed, but not timed. What a call does inside is part of it.
    Operations replayed by `execute_trace` are recorded at each replay, as they are when they are
    captured.

    Args:
        fidelity: "LoFi", "HiFi2", "HiFi3" or "HiFi4", or a `ttnn.MathFidelity`, for calls without a
        compute_kernel_config;
            by default as ttnn chooses by element type, see `ttkit.roofline.default_fidelity`.

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
        cure = (
            "python -m tracy -r script.py, then ttnn.ReadDeviceProfiler(mesh), on a card; "
            "TTKIT_BACKEND=sim for modelled times"
        )
        fail(
            "ttkit.profile",
            "times are modelled on the simulator only, and a card's are measured",
            cure,
        )
    from ttkit.sim.operation import watchers

    recorder = Profile(None if fidelity is None else known_fidelity(fidelity, "ttkit.profile"))
    watchers.append(recorder)
    try:
        yield recorder
    finally:
        watchers.remove(recorder)


# ---------------------------------------------------------------- reading a call
def _piece(tensor: Any) -> Piece:
    return Piece(tuple(tensor.shard_shape), tensor.dtype.name.lower(), _bytes([tensor]))


def _bytes(tensors: Any) -> int:
    """What tensors take on a chip, as the memory accounting has it."""
    from ttkit.sim.memory import bytes_of

    return sum(bytes_of(t.padded, t.dtype) for t in tensors)


def _nothing_done(operation: Any, operands: Sequence[Any], results: Sequence[Any]) -> bool:
    """True for a call that neither computes nor moves: the same tensor, or the same bytes, came
    back.
    """
    if operation.moves == "none" or not results:
        return True
    if not operands:
        return False
    if results[0] is operands[0] and not operation.name.endswith(("_", "_in_place")):
        return True
    return operation.moves == "shape" and _stays(operands[0], results[0])


def _stays(before: Any, after: Any) -> bool:
    """True where a reshape leaves every element where it is: rows keep their length, and tiles
    their rows.
    """
    old, new = ((1, 1) + tuple(t.shard_shape) for t in (before, after))
    rows_stay = (
        before.layout.name != "TILE" or old[-2] == new[-2] or old[-2] % 32 == new[-2] % 32 == 0
    )
    return before.layout is after.layout and old[-1] == new[-1] and rows_stay


# ---------------------------------------------------------------- writing it down
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
    for chip, begin in start.items():
        yield {
            "name": record.name,
            "cat": record.kind,
            "ph": "X",
            "ts": begin * 1e6,
            "dur": record.time_s * 1e6,
            "pid": record.mesh,
            "tid": chip,
            "args": about,
        }


def _label(what: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}


def _bound(record: Record) -> str:
    return f"{record.bound}, {record.fidelity}" if record.bound == "compute" else record.bound


def _ids(chips: Sequence[int]) -> str:
    return f"all {len(chips)}" if len(chips) > 4 else ", ".join(map(str, sorted(chips)))


def _shapes(pieces: Sequence[Piece]) -> str:
    """Shapes and types, shapes without spaces so that lines break between them; a type that all
    share is said once.
    """
    shapes = [f"[{','.join(map(str, p.shape))}]" for p in pieces]
    kinds = list(dict.fromkeys(p.dtype for p in pieces))
    if len(kinds) == 1:
        return f"{', '.join(shapes)} {kinds[0]}"
    return ", ".join(f"{shape} {p.dtype}" for shape, p in zip(shapes, pieces, strict=True))


def _last(name: str) -> str:
    """A name without the module that it is in."""
    return name.rpartition(".")[2]
