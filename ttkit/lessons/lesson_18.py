"""Lesson 18, choosing a layout: its picture, a step that is counted, and its exercises."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ttkit.lessons import CheckFailed, exercise, require
from ttkit.lessons.answers import Answer, asks
from ttkit.lessons.calls import Peak, bytes_by_collective
from ttkit.lessons.predicting import as_number
from ttkit.train import read_settings
from ttkit.train.config import DeviceConfig, Settings, TrainingConfig, TransformerConfig
from ttkit.visualize.chart import Chart, entitle
from ttkit.visualize.charts import COLOURS
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
    from ttkit.layouts.places import NETWORK

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


def counted_step(trainer: Any) -> tuple[int, Counter[str]]:
    """Train a step; return the highest memory of a chip, and bytes on links by collective."""
    from ttkit.profiler import profile

    trainer.step()  # the first one makes the optimizer's state
    with Peak() as peak, profile() as run:
        trainer.step()
    return peak.most, bytes_by_collective(run.records)


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
    from ttkit.hardware.systems import system_named
    from ttkit.layouts.places import Machine, Place, place_of
    from ttkit.layouts.search import evaluate
    from ttkit.layouts.step import Job
    from ttkit.train.config import TrainingConfig
    from ttkit.train.layout import Layout

    machine, layout = Machine(system_named("t3000"), headroom=-99), Layout(recompute=True, **sizes)
    place = place_of(machine.system, layout, (1, 1), False)
    assert isinstance(place, Place), place
    job = Job(replace(model, experimental=None), 32, 2048, TrainingConfig())
    return evaluate(job, layout, place, machine)


# ---------------------------------------------------------------- 18.batch
RUNS = (  # parameters, tokens of a sequence, chips, flop/s, bytes/s
    (1_000_000_000, 64, 8, 19.0e12, 8.0e9),
    (8_000_000_000, 80, 32, 60.0e12, 12.5e9),  # 116.25: rounded it would be too few
    (2**30, 1024, 4, 2**44, 2**33),  # exactly 3
    (1_000_000_000, 4096, 1, 16.0e12, 8.0e9),
)


@exercise(
    "18.batch",
    "During which part of a step can a gradient be sent? How many operations does it have?",
    "An all-reduce sends 2 (n - 1) / n of the gradients, of 4 bytes each. The backward of a "
    "sequence takes 4 operations a weight and token.",
    "The seconds of sending divided by those of a sequence's backward, rounded up; at least 1.",
)
@asks("break_even(parameters, sequence, chips, flops_per_s, bytes_per_s)")
def _batch(break_even: Answer) -> str:
    for run in RUNS:
        parameters, sequence, n, flops_per_s, bytes_per_s = run
        exact = 2 * (n - 1) / n * flops_per_s / bytes_per_s / sequence
        wanted, call = max(1, math.ceil(exact)), f"break_even{run}"
        given = break_even(*run)
        found = as_number(given)
        break_even.must_give("a number of sequences", found is not None, given)
        if found is None or found == wanted:
            continue
        enough = f"{call} gives {found:,}: exactly {wanted} are needed, and are enough"
        require(exact != wanted or found != wanted + 1, enough)
        mistakes = {
            4 / 6: "6 operations a weight and token are forward and backward; gradients can hide "
            "under the backward alone, which has 4",
            4 / 2: "2 operations a weight and token are the forward, which is over before the "
            "first gradient is there",
            1 / 2: "too little is sent: an all-reduce, a reduce-scatter and an all-gather, sends "
            "2 (n - 1) / n of the gradients, of 4 bytes each",
            n / max(n - 1, 1): "an all-reduce sends 2 (n - 1) / n of the gradients, not twice all",
            n: "that is the batch of all chips; asked is that of one",
            sequence: "these are tokens; asked are whole sequences",
        }
        for factor, why in mistakes.items():
            near = {f(factor * exact) for f in (math.floor, math.ceil)} | {factor * wanted}
            require(n == 1 or found not in near, f"{call} gives {found:,}: {why}")
        few = math.floor(found) == wanted - 1 >= 1
        hide = f"{exact:.2f} are needed, so whole ones are the next number up"
        require(not few, f"{call} gives {found:,.4g}: {hide}")
        sending = 8 * (n - 1) / n * parameters / bytes_per_s
        backward = 4 * parameters * sequence / flops_per_s
        times = f"sending takes {sending:.3g} s, the backward of a sequence {backward:.3g} s"
        least = "at least one sequence" if found < 1 else f"{times}: {exact:.4g} are needed"
        raise CheckFailed(f"{call} gives {found:,}; {least}")
    return "right for four cases; for one chip, too, which sends nothing"


# ---------------------------------------------------------------- 18.layout
CAPSTONE: dict[str, Any] = {
    "system": "galaxy",
    "hosts": 2,
    "batch": 128,
    "sequence": 512,
    "precision": "bfloat16",
    "optimizer": {"type": "AdamW", "master_weights": False},
}
KINDS = ("weights", "gradients", "optimizer", "activations", "buffers")
BINDING = (*KINDS, "chip links", "network", "bubble")


def _llama70b() -> Any:
    from ttkit.train.config import TransformerConfig

    sizes = {"num_heads": 64, "num_groups": 8, "embedding_dim": 8192, "num_blocks": 80}
    sizes |= {"intermediate_dim": 28672, "vocab_size": 128256, "max_sequence_length": 512}
    model: Any = "llama"
    return TransformerConfig(model_type=model, dropout_prob=0.0, **sizes)  # type: ignore[arg-type]


def _parsed(text: Any) -> Any:
    """Return the layout that prints so."""
    from ttkit.train.layout import Layout

    found: dict[str, Any] = {}
    words = re.sub(r"micro[- ]?batch(es)?", "", str(text), flags=re.I)
    example = "'DP8 TP4 PP2 ZeRO-1 SP recompute 8 micro-batches'"
    for word in re.sub(r"[,;+()\[\]'\"]", " ", words).split():
        part = re.fullmatch(r"(sp|recompute)|([dtpce]p|zero-|)(0*[0-9]{1,6})", word.lower())
        flag, name, number = part.groups() if part else ("", "", "0")
        name = flag or name
        key = {"zero-": "zero", "sp": "sequence_parallel", "": "micro_batches"}.get(name, name)
        fine = flag or key == "zero" or int(number) > 0
        require(bool(fine), f"{word[:40]!r} is no part of a layout as {example}")
        require(key not in found, f"{word!r}: the layout names {key} twice; name each part once")
        found[key] = int(number) if number else True
    return Layout(**found, precision="bfloat16")


@exercise(
    "18.layout",
    "Which call makes the table? `CASE` has its options.",
    'ttkit.plan_layouts(LLAMA70B, "galaxy", **CASE).best has .layout, .place, .times, .memory.',
    "best.place.stages says whether pipeline stages lie between the hosts.",
    "times.total / (times.total - times.bubble) is what a step without bubble would gain; compare "
    "it with tokens_per_s of a plan with headroom=-1. The kind is the largest in best.memory.",
)
def _layout(answer: Any, mesh: Any) -> str:
    from ttkit.layouts.places import Machine, Place, place_of
    from ttkit.layouts.search import evaluate, plan_layouts
    from ttkit.layouts.step import Job
    from ttkit.train.config import TrainingConfig
    from ttkit.train.layout import Layout

    form = "a triple (layout, what is cut between the hosts, the binding constraint)"
    require(isinstance(answer, (tuple, list)) and len(answer) == 3, f"asked is {form}")
    text = getattr(answer[0], "layout", answer[0])  # of a candidate, too
    between, binding = (str(part).strip(" \t\n'\"").lower() for part in answer[1:])
    layout = text if isinstance(text, Layout) else _parsed(text)
    layout, config = replace(layout, precision="bfloat16"), _llama70b()
    known = f"the binding constraint is one of {', '.join(BINDING)}, not {binding!r}"
    require(binding in BINDING, known)
    sizes = {"dp": layout.dp, "tp": layout.tp, "pp": layout.pp, "cp": layout.cp}
    require(between in sizes, f"between the hosts lies one of {', '.join(sizes)}, not {between!r}")
    require(layout.chips == 64, f"{layout} is for {layout.chips} chips; two Galaxies have 64")
    tokens, width = CAPSTONE["batch"] * CAPSTONE["sequence"], config.embedding_dim
    if between in ("tp", "cp") or layout.tp * layout.cp > 32:
        calls = (6 if layout.recompute else 4) * config.num_blocks
        seconds = calls * tokens * width * 2 / 12.5e9
        what = "tensor-parallel sums" if between == "tp" or layout.tp > 32 else "keys and values"
        rule = f"{what} of every block go over the hosts' network"
        if "sums" in what:
            rule += f": {seconds:.0f} s a step at 12.5 GB/s for {calls} all-reduces"
        require(False, f"{layout}: {rule}. Put between hosts what sends least")
    require(sizes[between] % 2 == 0, f"{between} {sizes[between]} is not cut in two by two hosts")
    if rule := layout.why_not(config, 128, 512):
        require(False, f"{layout} cannot run: {rule}")
    found = plan_layouts(config, **CAPSTONE)
    hosts = (2, 1) if between == "dp" else (1, 2)
    place = place_of(found.machine.system, layout, hosts, False)
    require(not isinstance(place, str), f"{layout} cannot run: {place}")
    training = TrainingConfig(optimizer=CAPSTONE["optimizer"])
    job = Job(replace(config, experimental=None), 128, 512, training)
    assert isinstance(place, Place)
    mine = evaluate(job, layout, place, found.machine)
    no_headroom = Machine(found.machine.system, 2, headroom=0.0)
    if mine.refused and not evaluate(job, layout, place, no_headroom).refused:
        require(False, f"{layout} {mine.refused}. It fits only without the headroom: a fragmented "
                "DRAM, a trace or a longer batch, and it stops")  # fmt: skip
    require(not mine.refused, f"{layout} does not fit: it {mine.refused}")
    best = found.best
    faster = best.tokens_per_s / mine.tokens_per_s
    require(faster < 1.02, f"{layout} fits and trains {mine.tokens_per_s:,.0f} tokens/s; another "
            f"one that fits is {faster:.2f} times as fast")  # fmt: skip
    return _bound(binding, mine, plan_layouts(config, headroom=-1.0, **CAPSTONE).best)


def _bound(binding: str, mine: Any, larger: Any) -> str:
    """Check what binds: that without which a step would be fastest."""
    times, total = mine.times, mine.times.total
    links = {"chip links": "chip links", "network": "between hosts"}
    gains = {
        name: total / (total - sum(each.time_s for each in mine.traffic if each.link == link))
        for name, link in links.items()
    }
    gains["bubble"] = total / (total - times.bubble)
    memory = larger.tokens_per_s / mine.tokens_per_s
    most = max(KINDS, key=lambda kind: getattr(mine.memory, kind))
    room = f"with twice the memory, {larger.layout} would be {memory:.2f} times as fast"
    if binding in gains:
        what = f"the layout is right, but {binding} is not the limit: if nothing waited for that,"
        require(False, f"{what} a step would be {gains[binding]:.2f} times as fast; {room}")
    held = ", ".join(f"{kind} {getattr(mine.memory, kind) / 1e9:.1f}" for kind in KINDS)
    wrong = f"memory binds, but not by {binding}: of a chip's GB, {held}"
    require(binding == most, wrong)
    return f"{mine.layout}, {mine.tokens_per_s:,.0f} tokens/s modelled; {room}: {most} binds"
