"""Make docs/published.md: published figures beside modelled ones.

`python docs/make_published.py`. With --check, exit status 1 when the page is out of step. The
published figures and the sizes of the models are data, with their sources: docs/published.yaml.
"""

import functools
import math
import pathlib
import statistics
import sys
import textwrap
from dataclasses import replace

import yaml

DOCS = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent))

from ttkit.hardware.chips import BLACKHOLE, CHIPS, Fact, Rate  # noqa: E402
from ttkit.hardware.roofline import DRAM_SHARE, LAUNCH, MATMUL_SHARE, operation_s  # noqa: E402
from ttkit.hardware.systems import SYSTEMS, System, grid_ids  # noqa: E402
from ttkit.layouts.dry_run import Job  # noqa: E402
from ttkit.layouts.inference import LAYER_S, InferencePlan  # noqa: E402
from ttkit.layouts.places import Machine, Place  # noqa: E402
from ttkit.layouts.report import Candidate  # noqa: E402
from ttkit.layouts.search import evaluate  # noqa: E402
from ttkit.plans import all_gather, cost, reduce_scatter, topology  # noqa: E402
from ttkit.plans.cost import HOP_S, rate_gb_per_s  # noqa: E402
from ttkit.train.config.layout import Layout  # noqa: E402
from ttkit.train.config.settings import TrainingConfig, TransformerConfig  # noqa: E402

DATA = yaml.safe_load((DOCS / "published.yaml").read_text(encoding="utf-8"))
GEMM = DATA["sources"]["gemm"]
PAGE_OF_BLACKHOLE = "docs.tenstorrent.com, Blackhole specifications"
P100 = System(
    "p100",
    replace(
        BLACKHOLE,
        name="p100 chip",
        cores=Fact(120, "cores", PAGE_OF_BLACKHOLE),
        dram=Fact(28, "GB", PAGE_OF_BLACKHOLE),
        dram_bandwidth=Fact(448, "GB/s", PAGE_OF_BLACKHOLE),
    ),
    grid_ids(1, 1),
)
# A Blackhole Galaxy as it is cabled for training: closed rings; 120 cores a chip. Two links of a
# pair at once were measured on a p300 only: they lose as much here.
_LOST = [rate_gb_per_s(CHIPS["p300 chip"].link, links=n) for n in (2, 1)]
_RATE = Rate("line", rate_gb_per_s(BLACKHOLE.link) * _LOST[0] / _LOST[1], links=2)
GALAXY_BH = replace(
    SYSTEMS["galaxy_bh"],
    wraps=(True, True),
    chip=replace(
        BLACKHOLE,
        cores=Fact(120, "cores", "tenstorrent/tt-blacksmith issue #686"),
        link=replace(BLACKHOLE.link, rates=(*BLACKHOLE.link.rates, _RATE)),
    ),
)
RINGS = {4: ((8, 4), 1), 8: ((8, 4), 0), 32: ((1, 32), 1)}  # mesh and axis of so many chips
ADAMW = {"type": "AdamW", "master_weights": False}
SEQUENCE = 2048  # tokens of a chip in a step: one sample, as in tt-train's configuration


def config_of(model: str) -> TransformerConfig:
    """Return the sizes of a model."""
    return TransformerConfig(
        model_type="llama", dropout_prob=0.0, max_sequence_length=SEQUENCE, **DATA["models"][model]
    )


def plan_of(row: list) -> InferencePlan:
    """Return the plan of a row: model, system, dp, tp, batch."""
    return _plan(*row[:5])


@functools.cache
def _plan(model: str, system: str, dp: int, tp: int, batch: int) -> InferencePlan:
    layout = Layout(dp, tp, precision="bfloat16")
    machine = P100 if system == "p100" else SYSTEMS[system]
    weights = DATA["weights"].get(model, "mixed")
    return InferencePlan(config_of(model), layout, machine, batch, 128, weights=weights)


def predicted(row: list) -> dict[str, float]:
    """Return the modelled figures of a row: tokens/s/user, tokens/s, ms to the first token."""
    plan = plan_of(row)
    first = 1e3 * plan.time_to_first_token_s
    return {"user": plan.tokens_per_s_per_user, "all": plan.tokens_per_s, "first": first}


def ring(chips: int, system: System = GALAXY_BH) -> tuple:
    """Return a ring of a Galaxy and its axis: a row, a column, or all chips."""
    shape, axis = RINGS[chips]
    return topology(system, shape), axis


def rate(what: str, tensor: list[int], chips: int) -> float:
    """Return the modelled GB/s that a chip receives or sends."""
    mesh, axis = ring(chips)
    nbytes = 2 * tensor[0] * tensor[1]
    gathers = what == "all_gather"
    plan = (all_gather if gathers else reduce_scatter)(
        mesh, nbytes // chips if gathers else nbytes, axis
    )
    return nbytes * (chips - 1) / chips / cost(plan).time_s / 1e9


@functools.cache
def trained(
    model: str,
    dp: int,
    samples: int = 1,
    tp: int = 1,
    zero: int = 0,
    recompute: bool = False,
    system: System = GALAXY_BH,
) -> Candidate:
    """Return the planner's step, as in tt-train: bfloat16, AdamW without float32 weights.

    Args:
        samples: the sequences of a replica.
        tp: 1, or the four chips of a row of the Galaxy.
    """
    shape, axis = RINGS[dp] if tp == 1 else ((8, 4), 0)
    axes = (("dp", axis), ("tp", 1))[: 1 + (tp > 1)]
    job = Job(config_of(model), samples * dp, SEQUENCE, TrainingConfig(optimizer=ADAMW))
    layout = Layout(dp, tp, zero=zero, recompute=recompute, precision="bfloat16")
    return evaluate(job, layout, Place(shape, axes), Machine(system, headroom=-math.inf))


def step_ms(row: list) -> float:
    """Return the modelled milliseconds of a step: model, dp, samples, tp, ZeRO stage, recompute."""
    return 1e3 * trained(*row[:6]).times.total


def beside() -> list[tuple[list, float, float]]:
    """Return (row of ZeRO-3, published, modelled): a step of ZeRO-3 as a part of the step of the
    same layout without it.
    """
    plain = {(*row[:4], row[5]): row for row in DATA["steps"] if row[4] == 0}
    pairs = [(row, plain[(*row[:4], row[5])]) for row in DATA["steps"] if row[4] == 3]
    return [(row, row[6] / other[6], step_ms(row) / step_ms(other)) for row, other in pairs]


def synchronisation_s(step: Candidate) -> float:
    """Return the modelled seconds of the all-reduces of all gradients, one for each parameter."""
    return sum(each.time_s for each in step.traffic if each.what.endswith("gradients"))


def share(step: Candidate) -> float:
    """Return the part of a step that synchronises gradients."""
    return synchronisation_s(step) / step.times.total


def training() -> list[tuple[str, float, float, str]]:
    """Return (what, published, predicted, unit) of the figures of training."""
    step = trained("TinyLlama-1.1B", 32)
    # tt-train counts the peak at HiFi4, the planner at the fidelity that ttnn takes.
    chip = GALAXY_BH.chip
    mfu = 100 * step.mfu * chip.peak_flops("HiFi2") / chip.peak_flops("HiFi4")
    return [
        ("MFU without gradient synchronisation", 21.8, mfu / (1 - share(step)), "%"),
        ("gradient synchronisation, of a step, DDP 32", 27.0, 100 * share(step), "%"),
        ("MFU with gradient synchronisation, DDP 32", 15.5, mfu, "%"),
    ]


def error(published: float, modelled: float) -> str:
    return f"{modelled / published - 1:+.0%}"


def errors(rows: list[list], figure: str = "user") -> list[float]:
    """Return the relative errors of the predicted rows, without sign; fitted rows are left out."""
    place = {"user": 5, "all": 6, "first": 7}[figure]
    rows = [row for row in rows if row[place] and (figure != "user" or not is_fitted(row))]
    return [abs(predicted(row)[figure] / row[place] - 1) for row in rows]


def is_fitted(row: list) -> bool:
    return row in DATA["decode"] and row[:2] in DATA["fitted"]


def middle(found: list[float]) -> str:
    count = f"{len(found)} predicted figures"
    return f"median error {statistics.median(found):.0%}, worst {max(found):.0%} ({count})"


def table(*columns: str) -> list[str]:
    names = [column.lstrip("<") for column in columns]
    marks = ["---" if column.startswith("<") else "---:" for column in columns]
    return ["| " + " | ".join(names) + " |", "|" + "|".join(marks) + "|"]


def line(*cells: object) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"


def speeds(rows: list[list], total: bool = False) -> list[str]:
    """Return a table of tokens/s/user, and of tokens/s and the time to the first token."""
    more = ("tokens/s", "modelled", "first token, ms", "modelled", "error") if total else ()
    lines = table(
        "<model", "<system", "DP", "TP", "batch", "tokens/s/user", "modelled", "error", *more, "<"
    )
    for row in rows:
        made, published = predicted(row), row[5:8]
        cells = [*row[:5], published[0], f"{made['user']:.1f}", error(published[0], made["user"])]
        if total:
            first = f"{made['first']:.0f}", error(published[2], made["first"])
            cells += [f"{published[1]:,}", f"{made['all']:,.0f}", published[2], *first]
        kind = "fitted" if is_fitted(row) else "predicted"
        lines.append(line(*cells, f"{kind}; {'; '.join(row[8:])}"))
    return lines


def text(name: str, **numbers: object) -> list[str]:
    """Return the lines of a paragraph."""
    whole = DATA["texts"][name].format(**numbers)
    return textwrap.wrap(whole, 100, break_long_words=False, break_on_hyphens=False)


def constants() -> list[str]:
    named = {
        "DRAM, of its bandwidth": DRAM_SHARE,
        "matmuls, of the peak": MATMUL_SHARE,
        "launch of an operation (training)": LAUNCH,
        **{f"time of a hop, {name} (training)": fact for name, fact in HOP_S.items()},
        **{f"time of a layer, {arch} (inference)": fact for arch, fact in LAYER_S.items()},
    }
    rows = [line(what, f"{f.value:g}", f.unit, f.source) for what, f in named.items()]
    return [*table("<what", "value", "<unit", "<source"), *rows]


def products() -> list[str]:
    lines = table("<product", "<system", "<fidelity", "Tflop/s", "modelled", "error", "<")
    for what, sizes, published, system, fidelity, note in DATA["products"]:
        chip, flops = SYSTEMS[system].chip, 2 * math.prod(sizes)
        found = MATMUL_SHARE.value * chip.peak_flops(fidelity) / 1e12
        if sizes:
            found = flops / operation_s(chip, flops, 0, fidelity) / 1e12
        cells = (
            published,
            f"{found:.1f}",
            error(published, found),
            "; ".join(filter(None, (GEMM, note))),
        )
        lines.append(line(what, system, fidelity, *cells))
    return lines


def collectives() -> list[str]:
    lines = table("<collective", "<tensor", "chips", "published", "modelled", "error", "<")
    for name, tensor, chips, published, source in DATA["collectives"]:
        found = rate(name, tensor, chips)
        cells = f"{published} GB/s", f"{found:.0f} GB/s", error(published, found), source
        lines.append(line(name, "x".join(map(str, tensor)), chips, *cells))
    eight = rate("all_gather", [2**15, 2**15], 8)
    for published in (78, 90):
        cells = f"{published} GB/s", f"{eight:.0f} GB/s", error(published, eight)
        why = (
            "tenstorrent/tt-metal PR #54555; floors of a test on a Galaxy, chip and size not known"
        )
        lines.append(line("all_gather", "large", 8, *cells, why))
    gather = all_gather(topology("t3000", (1, 8)), 2**26, 1)
    link = cost(gather, "ring multicast").bus_bandwidth_gb_per_s / gather.links
    why = "tenstorrent/tt-metal PR #6706; each link of a Wormhole, both directions"
    cells = "15 GB/s", f"{link:.1f} GB/s", error(15, link), why
    lines.append(line("all_gather", "large", "8 (T3000)", *cells))
    decode = plan_of(["Llama-3.1-70B", "galaxy", 4, 8, 128]).decode_s
    share = decode["collectives"] / sum(decode.values())
    why = "tenstorrent/tt-mlir issue #7488; compiled code, reported as a defect"
    cells = "60 %", f"{share:.0%}", error(0.6, share), why
    return [*lines, line("both, of a decode step", "Llama-3.1-70B", "32 (Galaxy)", *cells)]


def assumed(name: str = "training") -> list[str]:
    """Return a paragraph on training, with its numbers."""
    model = "TinyLlama-1.1B"
    numbers = {
        "two": share(trained(model, 32, 2)),
        "five": share(trained(model, 32, 5)),
        "wormhole": share(trained(model, 32, system=SYSTEMS["galaxy_torus"])),
        "hops": 31 * HOP_S["all_reduce"].value * 1e3 * 201,
        "middle": statistics.median(abs(found / wanted - 1) for wanted, found in measured()),
        "apart": max(abs(found / wanted - 1) for _, wanted, found in beside()),
    }
    return text(name, **numbers)


def measured() -> list[tuple[float, float]]:
    """Return published and predicted figures of training."""
    rows = [(published, found) for _, published, found, _ in training()]
    each = DATA["synchronisation"]
    rows += [(row[6], step_ms(row)) for row in DATA["steps"]]
    return rows + [(row[2], synchronisation_s(trained(*row[:2], 5))) for row in each]


def steps() -> list[str]:
    lines = table("<what", "published", "modelled", "error", "<")
    for what, published, found, unit in training():
        numbers = f"{published:g} {unit}", f"{found:.1f} {unit}", error(published, found)
        lines.append(line(what, *numbers, "predicted; overlap"))
    for model, chips, seconds, source in DATA["synchronisation"]:
        found = synchronisation_s(trained(model, chips, 5))
        cells = f"{1e3 * seconds:.0f} ms", f"{1e3 * found:.0f} ms", error(seconds, found)
        what = f"gradient synchronisation, {model}, DDP {chips}"
        lines.append(line(what, *cells, f"predicted; {source}"))
    return lines


def whole_steps() -> list[str]:
    lines = table(
        "<model", "<layout", "sequences of a replica", "published", "modelled", "error", "<"
    )
    for row in DATA["steps"]:
        found = step_ms(row)
        cells = f"{row[6]:g} ms", f"{found:.0f} ms", error(row[6], found)
        lines.append(line(row[0], trained(*row[:6]).layout, row[2], *cells, row[7]))
    return lines


def two_layouts() -> list[str]:
    lines = table("<model", "<layout", "sequences of a replica", "published", "modelled", "error")
    for row, published, found in beside():
        cells = f"{published:.3f}", f"{found:.3f}", error(published, found)
        lines.append(line(row[0], trained(*row[:6]).layout, row[2], *cells))
    return lines


def made() -> str:
    """Return the page."""
    decode, one = DATA["decode"], DATA["one_sequence"]
    first = middle(errors(decode, "first"))
    paragraphs = [
        ["# Published figures beside modelled ones"],
        text("top"),
        ["## Constants"],
        constants(),
        text("constants"),
        ["## Decoding"],
        text("decode", user=middle(errors(decode)), first=first),
        speeds(decode, total=True),
        ["## Decoding, one sequence in each replica"],
        text("one_sequence", user=middle(errors(one))),
        speeds(one),
        ["## Decoding by other programs"],
        text("others"),
        speeds(DATA["others"], total=True),
        ["## Products"],
        products(),
        ["## Collectives"],
        text("collectives", rate=_RATE.gb_per_s),
        collectives(),
        ["## Training"],
        assumed(),
        steps(),
        ["### Whole steps"],
        text("steps"),
        whole_steps(),
        ["### One layout beside another"],
        assumed("beside"),
        two_layouts(),
        ["## Not predicted"],
        [*table("<published", "<source", "<why"), *(line(*row) for row in DATA["left_out"])],
        ["## Sources"],
        [f"- {name}: {source}" for name, source in DATA["sources"].items()],
    ]
    return "\n\n".join("\n".join(lines) for lines in paragraphs) + "\n"


if __name__ == "__main__":
    page = DOCS / "published.md"
    if sys.argv[1:] == ["--check"]:
        if page.read_text(encoding="utf-8") != made():
            sys.exit("docs/published.md is out of step: python docs/make_published.py")
    else:
        page.write_text(made(), encoding="utf-8")
