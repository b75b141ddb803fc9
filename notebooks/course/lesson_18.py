"""Lesson 18, choosing a layout: its picture, a step that is counted, and its exercises."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ttkit.hardware.systems import system_named
from ttkit.layouts.places import NETWORK, Machine, Place, place_of
from ttkit.layouts.search import evaluate, plan_layouts
from ttkit.layouts.step import Job
from ttkit.lessons.exercises import exercise
from ttkit.lessons.folder import course
from ttkit.records import Reader
from ttkit.sim.tape import Tape, tape
from ttkit.train import read_settings
from ttkit.train.config.layout import Layout
from ttkit.train.config.settings import DeviceConfig, Settings, TrainingConfig, TransformerConfig
from ttkit.visualize.charts import COLOURS, Chart, entitle
from ttkit.visualize.tables import Report

Points = Sequence[tuple[float, float]]


# ---------------------------------------------------------------- the picture
@dataclass(frozen=True, repr=False)
class BreakEven(Chart):
    """Time of sending over time of computing; at 1, both take as long.

    Args:
        title: what the chart shows.
        across: of the axis to the right.
        curves: {name: (size, sending over computing) points}.
    """

    title: str
    across: str
    curves: Mapping[str, Points]

    def __repr__(self) -> str:
        lines = [self.title]
        for name, points in self.curves.items():
            paid = next((f"from {x:g} on" for x, y in points if y <= 1), "nowhere")
            shown = ", ".join(f"{y:.2g} at {x:g}" for x, y in points[::2])
            lines.append(f"  {name}: {shown}; at most 1 {paid}")
        return "\n".join(lines)

    def draw(self, ax: Any) -> None:
        """Draw a curve for each name, and a line at 1."""
        for (name, points), colour, mark in zip(self.curves.items(), COLOURS, "os^Dvx"):
            ax.plot(*zip(*points), mark, linestyle="-", color=colour, markersize=5, label=name)
        ax.axhline(1, color="#d64545", linestyle="--", label="break-even")
        ax.set_xscale("log", base=2)
        ticks = [x for x, _ in next(iter(self.curves.values()))]
        ax.set_xticks(ticks, [f"{x:g}" for x in ticks])
        ax.set(ylim=(0, 2.5), xlabel=self.across, ylabel="sending / computing, modelled")
        ax.grid()
        entitle(ax, self.title)


# ---------------------------------------------------------------- the card
def card(title: str, cuts: Mapping[str, tuple[str, Any]]) -> Report:
    """Return a table of techniques: what each cuts, holds, sends and how long it waits.

    Args:
        cuts: {technique: (what it cuts, the planner's candidate)}, of eight chips.
    """
    rows = []
    for name, (cut, found) in cuts.items():
        times, sent = found.times, sum(each.bytes_sent for each in found.traffic) / 1e9
        network = 8 * sent / times.products / NETWORK  # of eight chips, while they compute
        parts = times.communication / times.total, times.bubble / times.total, network
        calls = sum(each.times for each in found.traffic)
        row = [name, cut, f"{found.memory.total / 1e9:.0f}", f"{sent:.1f}", f"{calls:,}"]
        rows.append([*row, *(f"{part:.0%}" for part in parts), f"{found.tokens_per_s:,.0f}"])
    columns = ["<", "<cuts", "GB a chip", "GB sent", "calls", "sending", "idle", "of a network"]
    return Report(title, [*columns, "tokens/s"], rows)


# ---------------------------------------------------------------- a step that is counted
def small_gpt() -> Settings:
    """Return the small run of this lesson: a GPT of two blocks on a row of eight chips."""
    training = TrainingConfig(batch_size=16, tokenizer_type="byte", checkpoint_dir="", eval_every=0)
    model = TransformerConfig(
        num_heads=8,
        embedding_dim=256,
        num_blocks=2,
        vocab_size=256,
        max_sequence_length=128,
        dropout_prob=0,
    )
    return Settings(DeviceConfig((1, 8)), training, transformer_config=model)


def highest_memory(calls: Tape) -> int:
    """Return the most bytes that a chip held after an operation.

    An operation's operands are alive when it returns, so nothing higher is missed.
    """
    return max((event.in_use for event in calls.events), default=0)


def counted_step(trainer: Any) -> tuple[int, Counter[str]]:
    """Train a step; return the highest memory of a chip, and bytes on links by collective."""
    trainer.step()  # the first one makes the optimizer's state
    with tape() as calls:
        trainer.step()
    sent: Counter[str] = Counter()
    for record in Reader(calls).records:
        if record.kind == "communication":
            sent[record.name.rpartition(".")[2]] += record.bytes_on_links
    return highest_memory(calls), sent


def planned_bytes(candidate: Any) -> Counter[str]:
    """Return the bytes that a layout's plans send over links in a step, by collective."""
    found: Counter[str] = Counter()
    for each in candidate.traffic:
        found[each.collective] += each.times * each.plan.total_bytes
    return found


def to_run(yaml: str) -> Settings:
    """Return the settings of a layout's YAML for a short run: bytes as tokens, no files written."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "run.yaml"
        file.write_text(yaml, encoding="utf-8")
        settings = read_settings(file)
    training = replace(
        settings.training_config, tokenizer_type="byte", checkpoint_dir="", eval_every=0
    )
    return replace(settings, training_config=training)


def alone(model: Any, **sizes: Any) -> Any:
    """Return the planner's candidate for a layout on a T3000, however large.

    It trains 32 sequences of 2,048 tokens in a step, and computes blocks again in backward.
    """
    machine, layout = Machine(system_named("t3000"), headroom=-99), Layout(recompute=True, **sizes)
    place = place_of(machine.system, layout, (1, 1))
    assert isinstance(place, Place), place
    job = Job(replace(model, experimental=None), 32, 2048, TrainingConfig())
    return evaluate(job, layout, place, machine)


# ---------------------------------------------------------------- 18.batch
def _exact(parameters: int, sequence: int, chips: int, flops_per_s: float, rate: float) -> float:
    """Return how many sequences take as long as sending."""
    sending = 2 * (chips - 1) / chips * 4 * parameters / rate
    return sending / (4 * parameters * sequence / flops_per_s)


def _batch(*run: Any, times: float = 1) -> int:
    return max(1, math.ceil(_exact(*run) * times))


exercise(
    "18.batch",
    asks="break_even(parameters, sequence, chips, flops_per_s, bytes_per_s)",
    reference=_batch,
    cases=[
        (1_000_000_000, 64, 8, 19.0e12, 8.0e9),
        (8_000_000_000, 80, 32, 60.0e12, 12.5e9),  # 116.25: rounded it would be too few
        (2**30, 1024, 4, 2**44, 2**33),  # exactly 3
        (1_000_000_000, 4096, 1, 16.0e12, 8.0e9),
    ],
    mistakes={
        "asked are whole sequences, the next number up": _exact,
        "one less is too few: whole ones are the next number up": lambda *run: _batch(*run) - 1,
        "one less is enough": lambda *run: _batch(*run) + 1,
        "6 operations a weight and token are forward and backward; gradients can hide under the "
        "backward alone, which has 4": functools.partial(_batch, times=4 / 6),
        "2 operations a weight and token are the forward, which is over before the first gradient "
        "is there": functools.partial(_batch, times=4 / 2),
        "an all-reduce, a reduce-scatter and an all-gather, sends 2 (n - 1) / n of the gradients, "
        "of 4 bytes each; this is half of it": functools.partial(_batch, times=1 / 2),
        "an all-reduce sends 2 (n - 1) / n of the gradients, not twice all": lambda *run: _batch(
            *run, times=run[2] / max(run[2] - 1, 1)
        ),
        "that is the batch of all chips; asked is that of one": lambda *run: run[2] * _batch(*run),
        "these are tokens; asked are whole sequences": lambda *run: run[1] * _batch(*run),
    },
    praise="right for four cases; for one chip, too, which sends nothing",
    hints=[
        "During which part of a step can a gradient be sent? How many operations does it have?",
        "An all-reduce sends 2 (n - 1) / n of the gradients, of 4 bytes each. The backward of a "
        "sequence takes 4 operations a weight and token.",
        "The seconds of sending divided by those of a sequence's backward, rounded up; at least 1.",
    ],
)


# ---------------------------------------------------------------- 18.layout
BLOCKS = "of every block would go over the hosts' network: put between hosts what sends least"
BETWEEN = {
    "pp": "",
    "dp": "dp is 1: the hosts have no replicas of their own",
    "tp": f"the tensor-parallel sums {BLOCKS}",
    "cp": f"the keys and values {BLOCKS}",
}


@functools.cache
def _planned(headroom: float = 0.1) -> Any:
    """Return the plans of the capstone."""
    return plan_layouts(
        str(course() / "configs/models/llama70b.yaml"),
        "galaxy",
        batch=128,
        sequence=512,
        hosts=2,
        precision="bfloat16",
        optimizer={"type": "AdamW", "master_weights": False},
        headroom=headroom,
    )


def _read(answer: Any) -> tuple[Any, str, str]:
    """Return the planner's candidate, what is between the hosts, and what binds."""
    layout, between, binding = answer
    return _planned().find(str(layout)), between.strip().lower(), binding.strip().lower()


def _gains(best: Any) -> dict[str, float]:
    """Return how many times as fast a step is without each limit that is no memory."""
    waits = {"chip links": 0.0, "network": 0.0, "bubble": best.times.bubble}
    for each in best.traffic:
        waits["network" if each.link == "between hosts" else "chip links"] += each.time_s
    return {limit: best.times.total / (best.times.total - wait) for limit, wait in waits.items()}


def _room(best: Any) -> str:
    twice = _planned(headroom=-1).best
    faster = twice.tokens_per_s / best.tokens_per_s
    return f"with twice the memory, {twice.layout} would be {faster:.2f} times as fast"


def _largest(best: Any) -> str:
    kinds: dict[str, int] = best.memory._asdict()
    return max(kinds, key=lambda kind: kinds[kind])


def _broken(found: tuple[Any, str, str]) -> str:
    """Return what is wrong with a layout, what is between the hosts, or what binds."""
    mine, between, binding = found
    best = _planned().best
    if mine.refused:
        return f"{mine.layout} cannot run: {mine.refused}"
    if (faster := best.tokens_per_s / mine.tokens_per_s) > 1.02:
        said = f"{mine.layout} fits and trains {mine.tokens_per_s:,.0f} tokens/s"
        return f"{said}; another one that fits is {faster:.2f} times as fast"
    if wrong := BETWEEN.get(between, f"between the hosts lies one of {', '.join(BETWEEN)}"):
        return f"between the hosts is not {between!r}: {wrong}"
    gains, held = _gains(mine), mine.memory._asdict()
    if binding in gains:
        said = f"{binding} is not the limit: if nothing waited for that, a step would be "
        return f"{said}{gains[binding]:.2f} times as fast; {_room(mine)}"
    if binding not in held:
        return f"what binds is one of {', '.join((*gains, *held))}, not {binding!r}"
    sizes = ", ".join(f"{kind} {size / 1e9:.1f}" for kind, size in held.items())
    right = binding == _largest(mine)
    return "" if right else f"memory binds, but not by {binding}: of a chip's GB, {sizes}"


def _praised(found: tuple[Any, str, str]) -> str:
    mine, _, binding = found
    return (
        f"{mine.layout}, {mine.tokens_per_s:,.0f} tokens/s modelled; {_room(mine)}: {binding} binds"
    )


exercise(
    "18.layout",
    asks="layout, what is cut between the hosts, what binds",
    reads=_read,
    rules=_broken,
    praise=_praised,
    hints=[
        "Which call makes the table? `CASE` has its options.",
        'ttkit.plan_layouts(LLAMA70B, "galaxy", **CASE).best has .layout, .place, .times, .memory.',
        "best.place.stages says whether pipeline stages lie between the hosts.",
        "times.total / (times.total - times.bubble) is what a step without bubble would gain; "
        "compare it with tokens_per_s of a plan with headroom=-1. The kind is the largest in "
        "best.memory.",
    ],
)
