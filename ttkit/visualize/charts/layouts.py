"""Layouts of a model on a machine: tables, a page on one of them, memory against speed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ttkit.visualize.charts import Bars
from ttkit.visualize.tables import Report
from ttkit.words import counted, short

Point = tuple[str, float, float]
KINDS = ("weights", "gradients", "optimizer", "activations", "buffers")


def _mesh(candidate: Any) -> str:
    place = candidate.place
    hosts = place.replicas * place.stages
    shape = "x".join(map(str, place.shape))
    shape += ", may hang" if place.warning else ""
    return shape if hosts == 1 else f"{shape}, {counted(hosts, 'host')}"


def tables(layouts: Any, most: int) -> list[Report]:
    """Return what fits, the fastest first, and how many were refused for which reason."""
    rows = []
    for each in layouts.fitting[:most]:
        sent = sum(one.bytes_sent for one in each.traffic)
        times = each.times
        rows.append(
            [str(each.layout), _mesh(each), f"{each.memory.total / 1e9:.2f}", short(sent, "B")]
            + [f"{part / times.total:.0%}" for part in (times.communication, times.bubble)]
            + [short(times.total, "s"), f"{each.tokens_per_s:,.0f}", f"{each.mfu:.1%}"]
        )
    count = f"{len(layouts.fitting)} layouts fit, {len(layouts.refused)} were refused"
    if len(layouts.fitting) > most:
        count += f"; the fastest {most}"
    columns = ["<layout", "<mesh", "GB a chip", "sent by a chip", "exposed", "bubble"]
    columns += ["step, modelled", "tokens/s", "MFU"]
    found = [Report(f"{layouts.title}: {count}", columns, rows)]
    if layouts.refused:
        why = [[reason, f"{n}"] for reason, n in layouts.reasons().most_common(most)]
        found.append(Report("Refused", ["<why", "layouts"], why))
    return found


def explanation(layouts: Any, candidate: Any) -> Iterator[Report]:
    """Yield the tables of one layout: memory by kind, collectives, times."""
    memory, machine = candidate.memory, layouts.machine
    dram = machine.system.chip.dram_bytes
    if memory:
        rows = [
            [kind, f"{n:,}", f"{n / 1e9:.3f}", f"{n / dram:.1%}"] for kind, n in zip(KINDS, memory)
        ]
        total = memory.total
        last = ["all", f"{total:,}", f"{total / 1e9:.3f}", f"{total / dram:.1%}"]
        state = candidate.refused or f"fits, {machine.headroom:.0%} stay free"
        title = f"{candidate.layout}: memory of a chip, {state}"
        yield Report(title, ["<what", "bytes", "GB", "of DRAM"], rows, last)
    if not candidate.times:
        return
    if candidate.traffic:
        rows = [
            [each.what, each.collective, each.link, f"{each.times:,}", f"{each.nbytes:,}"]
            + [short(each.bytes_sent, "B"), short(each.time_s, "s")]
            for each in candidate.traffic
        ]
        columns = ["<what", "<collective", "<over", "times", "bytes of a chip"]
        columns += ["sent in a step", "modelled"]
        yield Report("Communication of a step", columns, rows)
    times = candidate.times
    rows = [[name, short(t, "s"), f"{t / times.total:.1%}"] for name, t in times._asdict().items()]
    title = f"Time of a step, modelled: {candidate.tokens_per_s:,.0f} tokens/s"
    title += f", MFU {candidate.mfu:.1%}"
    yield Report(title, ["<what", "modelled", "share"], rows, ["all", short(times.total, "s"), ""])


class Page:
    """Several tables, and the configuration to run it."""

    def __init__(self, reports: list[Report], text: str):
        self.reports, self.text = reports, text

    def __repr__(self) -> str:
        return "\n\n".join([*map(repr, self.reports), self.text])

    def _repr_html_(self) -> str:
        from html import escape

        tables = "".join(report._repr_html_() for report in self.reports)
        return f'{tables}<pre style="font-family:monospace">{escape(self.text)}</pre>'


def front_of(points: Iterable[Point]) -> list[Point]:
    """Return the Pareto front: the layouts that no other beats in both memory and speed, the
    smallest first.

    Args:
        points: (name, GB of a chip, tokens/s).

    Example:
        >>> front_of([("A", 2, 10), ("B", 1, 5), ("C", 3, 9)])
        [('B', 1, 5), ('A', 2, 10)]
    """
    found: list[Point] = []
    for point in sorted(points, key=lambda p: (p[1], -p[2])):
        if not found or point[2] > found[-1][2]:
            found.append(point)
    return found


def pareto(layouts: Any) -> Bars:
    """Return the speed of the layouts that fit and are on the Pareto front of memory and speed."""
    points = (
        (str(each.layout), each.memory.total / 1e9, each.tokens_per_s) for each in layouts.fitting
    )
    bars = [
        (name, speed, f"{gb:.3g} GB, {speed:,.0f} tokens/s") for name, gb, speed in front_of(points)
    ]
    foot = [f"tokens/s, modelled; {layouts.machine.room / 1e9:.3g} GB of a chip may be used"]
    return Bars(layouts.title, bars, foot)
