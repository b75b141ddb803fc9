"""The tables of a training plan (`ttkit.train.plan`)."""

from __future__ import annotations

from typing import Any

from ttkit.visualize.report import Report
from ttkit.words import short


def tables(plan: Any) -> list[Report]:
    """Parameters, memory, communication, times; a run on one chip has no communication."""
    return [_parameters(plan), _memory(plan), *([_communication(plan)] if plan.traffic else []), _times(plan)]


def _gb(nbytes: float) -> str:
    return f"{nbytes / 1e9:.3f} GB"


def _parameters(plan: Any) -> Report:
    shape = "x".join(map(str, plan.settings.device_config.mesh_shape))
    axes = [f"{name.upper()} on axis {axis}: {size}" for name, axis, size in _sizes(plan)]
    project, model = plan.settings.training_config.project_name, plan.config
    title = f"{project}: {model.model_type}, {model.num_blocks} blocks, on a {shape} mesh of {plan.system.name} ({'; '.join(axes) or 'one copy on each chip'})"
    rows = [[part.name, f"{part.parameters:,}", f"{part.on_a_chip:,}", f"{part.bytes_on_a_chip:,}"] for part in plan.parts]
    last = ["all", f"{plan.parameters:,}", f"{sum(p.on_a_chip for p in plan.parts):,}", f"{plan.memory['weights']:,}"]
    return Report(title, ["<part", "parameters", "on a chip", f"bytes there, {plan.dtype} in tiles"], rows, last)


def _sizes(plan: Any) -> list[tuple[str, int, int]]:
    return [(name, axis, {"ddp": plan.ddp, "tp": plan.tp}[name]) for name, axis in plan.axes.items()]


def _memory(plan: Any) -> Report:
    total, dram = sum(plan.memory.values()), plan.system.chip.dram_bytes
    optimizer = (plan.settings.training_config.optimizer or {}).get("type", "AdamW")
    words = {"activations": "activations (estimate)", "optimizer": f"optimizer ({optimizer})"}
    rows = [[words.get(name, name), f"{nbytes:,}", _gb(nbytes), f"{nbytes / dram:.1%}"] for name, nbytes in plan.memory.items()]
    title = f"Memory of a chip: {'fits' if plan.fits else 'does not fit'} in {_gb(dram)} of {plan.system.chip.name}"
    return Report(title, ["<what", "bytes", "GB", "of DRAM"], rows, ["all", f"{total:,}", _gb(total), f"{total / dram:.1%}"])


def _communication(plan: Any) -> Report:
    rows = []
    for what in dict.fromkeys(traffic.what for traffic in plan.traffic):
        same = [traffic for traffic in plan.traffic if traffic.what == what]
        kind = f"{same[0].plan.collective}, {same[0].plan.algorithm}, axis {same[0].plan.axis}"
        sent, lasts = sum(t.bytes_sent for t in same), sum(t.time_s for t in same)
        rows.append([what, kind, f"{sum(t.times for t in same):,}", f"{sum(t.times * t.plan.shard_bytes for t in same):,}", f"{sent:,}", short(lasts, "s")])
    last = ["all", "", f"{sum(t.times for t in plan.traffic):,}", "", f"{sum(t.bytes_sent for t in plan.traffic):,}"]
    time = short(sum(traffic.time_s for traffic in plan.traffic), "s")
    columns = ["<what", "<collective", "times", "bytes brought by a chip", "bytes sent by a chip", "modelled"]
    return Report("Communication of a step", columns, rows, [*last, time])


def _times(plan: Any) -> Report:
    tokens = plan.tokens * plan.passes * plan.ddp
    rows = [[name, short(time, "s"), f"{time / plan.step_time_s:.1%}"] for name, time in plan.times_s.items()]
    title = f"Time of a step, modelled: {short(plan.flops, 'flop')} on each chip; {tokens:,} tokens a step, {plan.tokens_per_s:,.0f} tokens/s"
    return Report(title, ["<what", "modelled", "share"], rows, ["all", short(plan.step_time_s, "s"), ""])
