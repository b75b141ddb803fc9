"""ttkit side by side with its peers, in one run:

`make bench`, or `python benchmarks/run.py --help`.

Every row's workers are processes that stay alive and run one repetition when they are told to, in
turns (A B C D, B C D A, ...), so that what else happens on the machine hits all of them. Peers
whose devices are processes (torch over gloo, mpi4py) have eight, which sleep while it is another's
turn. Shown are medians. Results are waited for, and compared between the workers. The command fails
when an aim is missed, or when a peer is not installed."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from processes import CORES, Failed, Worker, absent, environment
from rich.console import Console
from rich.table import Table
from rows import PEERS, ROWS, TEAMS, Row

MEMORY_RATIO = 1.15


@dataclass
class Cell:
    """What one peer did in one row."""

    times: list[float] = field(default_factory=list)
    first_s: float | None = None
    sample: Any = None
    peak_mib: float | None = None
    added_mib: float | None = None
    failure: str | None = None

    @property
    def median(self) -> float | None:
        return statistics.median(self.times) if self.times and self.failure is None else None


def measure(
    row: Row, peers: list[str], env: dict[str, str], repetitions: int, versions: dict[str, str]
) -> dict[str, Cell]:
    """One row: every worker in turns."""
    cells = {peer: Cell() for peer in peers}
    workers: dict[str, Worker] = {}

    def once(peer: str) -> None:
        """One repetition in a process of its own."""
        cell, worker = cells[peer], Worker(peer, row, env)
        workers[peer] = worker
        answer = worker.answer()
        cell.times.append(
            time.perf_counter() - worker.began if row.whole_process else answer["seconds"]
        )
        cell.sample = answer.get("value")
        cell.peak_mib = max(cell.peak_mib or 0, answer["peak_mib"])
        if answer.get("added_mib") is not None:
            cell.added_mib = max(cell.added_mib or 0, answer["added_mib"])
        versions.update(answer["versions"])
        worker.close()

    def begin(peer: str) -> None:
        workers[peer] = Worker(peer, row, env)
        ready = workers[peer].answer()
        cells[peer].first_s, cells[peer].sample = ready["first"], ready["sample"]
        versions.update(ready["versions"])
        workers[peer].ask(run=row.calls)  # not counted

    def again(peer: str) -> None:
        cells[peer].times.append(workers[peer].ask(run=row.calls)["seconds"])

    def end(peer: str) -> None:
        last = workers[peer].ask()
        cells[peer].peak_mib, cells[peer].added_mib = last["peak_mib"], last["added_mib"]

    def each(action: Any, turn: int = 0) -> None:
        order = peers[turn % len(peers) :] + peers[: turn % len(peers)]
        for peer in order:
            if cells[peer].failure is None:
                try:
                    action(peer)
                    if not row.fresh:
                        workers[peer].settle()
                except Failed as error:
                    cells[peer].failure = str(error)

    try:
        each(once if row.fresh else begin)
        if row.fresh:  # the first run of a process may compile Python files
            for cell in cells.values():
                cell.times.clear()
        for turn in range(repetitions):
            each(once if row.fresh else again, turn)
        if not row.fresh:
            each(end)
    finally:
        for worker in workers.values():
            worker.close()
    return cells


def same(a: Any, b: Any) -> bool:
    """Whether two workers' samples are of the same result, within rounding."""
    if not isinstance(a, dict) or not isinstance(b, dict):
        return a is None or b is None or a == b
    close = abs(a["mean_square"] - b["mean_square"]) <= 1e-3 * abs(b["mean_square"])
    return (
        a["shape"] == b["shape"]
        and close
        and all(
            abs(x - y) <= 1e-3 * (1 + abs(y)) for x, y in zip(a["values"], b["values"], strict=True)
        )
    )


def verdicts(
    row: Row, cells: dict[str, Cell], missing: dict[str, str]
) -> tuple[list[str], list[str]]:
    """What the row misses, and what could not be decided."""
    missed: list[str] = []
    open_ = [
        f"{PEERS[peer]}: {missing[peer]} is not installed" for peer in row.peers if peer in missing
    ]
    open_ += [f"{PEERS[peer]}: {cell.failure}" for peer, cell in cells.items() if cell.failure]
    ours = cells["ttkit"]
    if ours.median is None:
        return missed, open_
    reference = next(
        (
            cells[peer]
            for peer in ("numpy", "jax", "torch")
            if peer in cells and cells[peer].median is not None
        ),
        None,
    )
    checked = ([reference] if reference else []) + [cells[peer] for peer in TEAMS if peer in cells]
    if not all(same(ours.sample, cell.sample) for cell in checked):
        missed.append("the result differs from the peers'")
    for peer in row.ahead_of:
        theirs = cells[peer].median if peer in cells else None
        if theirs is not None and ours.median >= theirs:
            missed.append(
                f"behind {PEERS[peer].split(',')[0]}: {shown(ours.median)} v {shown(theirs)}"
            )
    floor = cells["numpy"].median if "numpy" in cells else None
    if (
        row.floor
        and floor is not None
        and min(ours.median, floor) > 1e-3
        and ours.median > row.floor_ratio * floor
    ):
        missed.append(f"{ours.median / floor:.2f}x of one device, aim {row.floor_ratio}x")
    if row.limit_s is not None and ours.median > row.limit_s:
        missed.append(f"{shown(ours.median)}, aim {shown(row.limit_s)}")
    if row.overhead_s is not None and floor is not None and ours.median - floor > row.overhead_s:
        missed.append(
            f"adds {shown(ours.median - floor)} to NumPy's call, aim {shown(row.overhead_s)}"
        )
    limit = row.added_limit_mib or (row.unique_mib and MEMORY_RATIO * row.unique_mib)
    if limit and ours.added_mib is None:
        open_.append("added memory: this system does not tell (needs /proc)")
    elif limit and ours.added_mib is not None and ours.added_mib > limit:
        missed.append(f"adds {ours.added_mib:.0f} MiB, aim {limit:.0f} MiB")
    return missed, open_


def shown(seconds: float) -> str:
    """A time with three figures and its unit."""
    value, unit = next(
        (seconds * scale, unit)
        for scale, unit in ((1, "s"), (1e3, "ms"), (1e6, "us"))
        if seconds * scale >= 1 or unit == "us"
    )
    return f"{value:.{max(0, 3 - len(str(int(value))))}f} {unit}"


def ratio(a: float | None, b: float | None) -> str:
    """a / b for times over 1 ms."""
    return f"{a / b:.2f}" if a is not None and b is not None and min(a, b) > 1e-3 else ""


def tables(
    results: dict[Row, dict[str, Cell]],
    notes: dict[Row, tuple[list[str], list[str]]],
    missing: dict[str, str],
) -> list[Table]:
    """Times, then memory."""
    times, memory = (
        Table(title="Medians; ratios for rows over 1 ms"),
        Table(
            title="Memory, MiB: peak of the whole process, or of all eight with shared pages "
            "counted once; added: what the row's own data and work add to ttkit's process"
        ),
    )
    times.add_column("")
    for title in (
        "ttkit\n8 devices",
        "JAX\n8 devices",
        "ttkit\n/ JAX",
        "NumPy\none device",
        "ttkit\n/ NumPy",
        "torch\n8 ranks",
        "gloo\n8 proc.",
        "mpi4py\n8 proc.",
    ):
        times.add_column(title, justify="right")
    times.add_column("aims")
    memory.add_column("")
    for title in (
        "ttkit",
        "JAX",
        "torch",
        "NumPy",
        "gloo",
        "mpi4py",
        "added",
        "unique\nbytes",
        "added\n/ unique",
    ):
        memory.add_column(title, justify="right")

    def cell_of(row: Row, peer: str) -> str:
        if peer not in row.peers:
            return "-"
        if peer in missing:
            return "not installed"
        cell = results[row][peer]
        return (
            "failed"
            if cell.median is None
            else shown(cell.median) + ("*" if (row.name, peer) == ("gpt2-block", "torch") else "")
        )

    def mib(value: float | None) -> str:
        return "" if value is None else f"{value:.0f}"

    for row, cells in results.items():
        median = {peer: cells[peer].median if peer in cells else None for peer in PEERS}
        missed, open_ = notes[row]
        aims = (
            "[red]missed[/]"
            if missed
            else "[yellow]open[/]"
            if open_
            else "[green]met[/]"
            if row.aims
            else "-"
        )
        ratios = (
            ratio(median["ttkit"], median["jax"]),
            ratio(median["ttkit"], median["numpy"]) if row.floor else "",
        )
        shown_times = [cell_of(row, peer) for peer in ("ttkit", "jax", "numpy", "torch", *TEAMS)]
        times.add_row(
            row.title,
            *shown_times[:2],
            ratios[0],
            shown_times[2],
            ratios[1],
            *shown_times[3:],
            aims,
        )
        peaks = [
            mib(cells[peer].peak_mib) if peer in cells else "-"
            for peer in ("ttkit", "jax", "torch", "numpy", *TEAMS)
        ]
        unique = row.unique_mib or (1024.0 if row.added_limit_mib else None)
        added = cells["ttkit"].added_mib
        shares = (
            [
                mib(added),
                mib(unique),
                f"{added / unique:.2f}" if added is not None and unique else "",
            ]
            if unique
            else ["", "", ""]
        )
        memory.add_row(row.title, *peaks, *shares)
    times.caption = (
        "* torch on one device. torch: 8 ranks in one process (LocalTensorMode). gloo, mpi4py: "
        "a call's time is its slowest rank's, after a barrier.\n"
        "All-gather along the sharded leading dim needs no copy in ttkit; "
        "`all-gather of columns` does."
    )
    return [times, memory]


def conditions(versions: dict[str, str], dropped: list[str], load: float) -> dict[str, Any]:
    """What the numbers hold for."""
    processor = platform.processor() or platform.machine()
    try:
        processor = next(
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        )
    except (OSError, StopIteration):
        pass
    return {
        "processor": processor,
        "cores": CORES,
        "threads": f"{CORES} for NumPy's BLAS and torch in one process, "
        "1 a process where there are eight; XLA's own choice",
        "load_at_start": round(load, 2),
        "python": platform.python_version(),
        **versions,
        "dtype": "float32",
        "shapes": "MLP 4544 -> 18176 -> 4544, 256 tokens, GELU by tanh, mesh 2x4; collectives: "
        "bytes over all devices; GPT-2 block 768 wide, 12 heads, mesh 2x4",
        "left out of the workers' environment": dropped,
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--quick", action="store_true", help="three repetitions a row")
    parser.add_argument(
        "--rows",
        nargs="+",
        metavar="NAME",
        help="only these rows; the beginning of a name is enough",
    )
    parser.add_argument("--list", action="store_true", help="the names of the rows")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything measured there")
    parser.add_argument(
        "--keep-environment",
        action="store_true",
        help="do not take settings such as OPENBLAS_CORETYPE out of the workers' environment",
    )
    options = parser.parse_args()
    options.chosen = [
        row for row in ROWS if not options.rows or row.name.startswith(tuple(options.rows))
    ]
    if not options.chosen:
        parser.error(f"no row begins with {' or '.join(options.rows)}; --list shows them")
    return options


def main() -> int:
    options = arguments()
    if options.list:
        print("\n".join(f"{row.name:24}{row.title}" for row in ROWS))
        return 0
    out = Console(width=None if sys.stdout.isatty() else 150, highlight=False)
    env, dropped = environment(options.keep_environment)
    missing = absent()
    load = os.getloadavg()[0]
    versions: dict[str, str] = {}
    results: dict[Row, dict[str, Cell]] = {}
    began = time.perf_counter()
    for number, row in enumerate(options.chosen, 1):
        print(f"[{number}/{len(options.chosen)}] {row.title}", file=sys.stderr, flush=True)
        peers = [peer for peer in row.peers if peer not in missing]
        results[row] = measure(row, peers, env, 3 if options.quick else row.repetitions, versions)
    notes = {row: verdicts(row, cells, missing) for row, cells in results.items()}

    facts = conditions(versions, dropped, load)
    for table in tables(results, notes, missing):
        out.print(table)
    for name, value in facts.items():
        out.print(
            f"{name}: {', '.join(value) or 'nothing' if isinstance(value, list) else value}",
            style="dim",
        )
    if load > 0.3 * CORES:
        out.print(
            f"The machine was busy when this began (load {load:.1f} on {CORES} cores): "
            "multi-threaded rows suffer unevenly.",
            style="yellow",
        )
    if options.json:
        values = {
            row.name: {peer: vars(cell) | {"median": cell.median} for peer, cell in cells.items()}
            for row, cells in results.items()
        }
        verdict = {
            row.name: {"missed": missed, "open": open_} for row, (missed, open_) in notes.items()
        }
        options.json.write_text(
            json.dumps({"conditions": facts, "rows": values, "aims": verdict}, indent=1)
        )
    out.print(f"{time.perf_counter() - began:.0f} s in all")
    bad = False
    for row, (missed, open_) in notes.items():
        for word, texts in (("missed", missed), ("not decided", open_)):
            for text in texts:
                bad = True
                out.print(
                    f"{word}: {row.name}: {text}",
                    style="red" if word == "missed" else "yellow",
                    markup=False,
                )
    if missing:
        needed = sorted(set(missing.values()))
        out.print(
            f"Not a pass without {' and '.join(needed)}: pip install {' '.join(needed)}",
            style="yellow",
        )
    if not bad:
        out.print("All aims are met.", style="green")
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
