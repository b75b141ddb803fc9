"""A training run: the tables of its plan, its losses, and a step in words."""

from __future__ import annotations

from typing import Any

from ttkit.visualize.charts import Curves
from ttkit.visualize.tables import Report
from ttkit.words import counted, short


def loss_curves(trainer: Any) -> Curves:
    """Return the losses of a trainer's history.

    Args:
        trainer: a `ttkit.train.Trainer`.
    """
    history = trainer.history
    curves = {"training loss": [(record.step, record.loss) for record in history]}
    checks = [(r.step, r.validation_loss) for r in history if r.validation_loss is not None]
    if checks:
        curves["validation loss"] = checks
    project = trainer.settings.training_config.project_name
    return Curves(f"{project}: {counted(len(history), 'step')}", curves)


def words(record: Any, end: int) -> str:
    """Return a record as a line of text."""
    checked = record.validation_loss is not None
    validation = f", validation {record.validation_loss:.4f}" if checked else ""
    speed = f"{record.tokens_per_s:,.0f} tokens/s"
    return f"step {record.step}/{end}: loss {record.loss:.4f}{validation}, {speed}"


# ---------------------------------------------------------------- its plan
def tables(plan: Any) -> list[Report]:
    """Return the tables of a training plan; one chip has none for communication."""
    return [
        _parameters(plan),
        _memory(plan),
        *([_communication(plan)] if plan.traffic else []),
        _times(plan),
    ]


def _gb(nbytes: float) -> str:
    return f"{nbytes / 1e9:.3f} GB"


def _parameters(plan: Any) -> Report:
    shape = "x".join(map(str, plan.settings.device_config.mesh_shape))
    layout = plan.model.layout
    axes = [f"{name} on axis {axis}: {chips}" for name, axis, chips in layout.strategies()]
    if plan.layout.pp > 1:
        axes.append(f"PP: the first of {plan.layout.pp} stages")
    project, model = plan.settings.training_config.project_name, plan.config
    title = (
        f"{project}: {model.model_type}, {model.num_blocks} blocks, "
        f"on a {shape} mesh of {plan.system.name} "
        f"({'; '.join(axes) or 'one copy on each chip'})"
    )
    rows = [
        [part.name, f"{part.parameters:,}", f"{part.on_a_chip:,}", f"{part.bytes_on_a_chip:,}"]
        for part in plan.parts
    ]
    last = [
        "all",
        f"{plan.parameters:,}",
        f"{sum(p.on_a_chip for p in plan.parts):,}",
        f"{sum(p.bytes_on_a_chip for p in plan.parts):,}",
    ]
    return Report(
        title,
        ["<part", "parameters", "on a chip", f"bytes there, {plan.dtype} in tiles"],
        rows,
        last,
    )


def _memory(plan: Any) -> Report:
    total, dram = sum(plan.memory.values()), plan.system.chip.dram_bytes
    optimizer = (plan.settings.training_config.optimizer or {}).get("type", "AdamW")
    words = {"optimizer": f"optimizer ({optimizer})"}
    rows = [
        [words.get(name, name), f"{nbytes:,}", _gb(nbytes), f"{nbytes / dram:.1%}"]
        for name, nbytes in plan.memory.items()
    ]
    title = (
        f"Memory of a chip: {'fits' if plan.fits else 'does not fit'} in {_gb(dram)} of "
        f"{plan.system.chip.name}"
    )
    return Report(
        title,
        ["<what", "bytes", "GB", "of DRAM"],
        rows,
        ["all", f"{total:,}", _gb(total), f"{total / dram:.1%}"],
    )


def _communication(plan: Any) -> Report:
    rows = []
    for what in dict.fromkeys(traffic.what for traffic in plan.traffic):
        same = [traffic for traffic in plan.traffic if traffic.what == what]
        where = same[0].link if same[0].axis is None else f"axis {same[0].axis}"
        kind = f"{same[0].collective}, {where}"
        sent, lasts = sum(t.bytes_sent for t in same), sum(t.time_s for t in same)
        rows.append(
            [
                what,
                kind,
                f"{sum(t.times for t in same):,}",
                f"{sum(t.times * t.nbytes for t in same):,}",
                f"{sent:,}",
                short(lasts, "s"),
            ]
        )
    last = [
        "all",
        "",
        f"{sum(t.times for t in plan.traffic):,}",
        "",
        f"{sum(t.bytes_sent for t in plan.traffic):,}",
    ]
    time = short(sum(traffic.time_s for traffic in plan.traffic), "s")
    columns = [
        "<what",
        "<collective",
        "times",
        "bytes brought by a chip",
        "bytes sent by a chip",
        "modelled",
    ]
    return Report("Communication of a step", columns, rows, [*last, time])


def _times(plan: Any) -> Report:
    tokens = plan.settings.training_config.batch_size * plan.config.max_sequence_length
    rows = [
        [name, short(time, "s"), f"{time / plan.step_time_s:.1%}"]
        for name, time in plan.times_s.items()
    ]
    title = (
        f"Time of a step, modelled: {short(plan.flops, 'flop')} on each chip; "
        f"{tokens:,} tokens a step, {float(f'{plan.tokens_per_s:.3g}'):,.0f} tokens/s"
    )
    return Report(
        title, ["<what", "modelled", "share"], rows, ["all", short(plan.step_time_s, "s"), ""]
    )
