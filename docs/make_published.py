"""Make docs/published.md: published figures beside modelled ones.

`python docs/make_published.py`. With --check, exit status 1 when the page is out of step. The
published figures and the sizes of the models are data, with their sources: docs/published.yaml.
"""

import functools
import pathlib
import statistics
import sys
import textwrap
from dataclasses import replace
from types import SimpleNamespace

import yaml

DOCS = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent))

from ttkit.hardware.chips import BLACKHOLE, BLACKHOLE_P300, Chip, Fact, Rate  # noqa: E402
from ttkit.hardware.systems import SYSTEMS, System, grid_ids  # noqa: E402
from ttkit.layouts.costs import EFFICIENCY  # noqa: E402
from ttkit.layouts.inference import (  # noqa: E402
    DRAM_SHARE,
    LAYER_S,
    PRODUCTS_SHARE,
    InferencePlan,
    plan_inference,
)
from ttkit.plans import all_gather, all_reduce, cost, reduce_scatter, topology  # noqa: E402
from ttkit.plans.cost import rate_gb_per_s  # noqa: E402
from ttkit.train.config.layout import Layout  # noqa: E402
from ttkit.train.config.settings import TransformerConfig  # noqa: E402
from ttkit.train.model.models import create_model  # noqa: E402
from ttkit.train.model.modules import tiled  # noqa: E402

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
_LOST = [rate_gb_per_s(BLACKHOLE_P300.link, links=n) for n in (2, 1)]
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
HOP_S = Fact(
    17e-6,
    "s for each chip after the first of an all-reduce",
    "tenstorrent/tt-metal FSDP_PERF_REPORT.md, section 4: of an all-gather about 5 us, of a "
    "reduce-scatter about 12, read off its small tensors",
)
SEQUENCE = 2048  # tokens of a chip in a step: one sample, as in tt-train's configuration


def config_of(model: str) -> TransformerConfig:
    """Return the sizes of a model."""
    return TransformerConfig(
        model_type="llama", max_sequence_length=SEQUENCE, **DATA["models"][model]
    )


def plan_of(row: list) -> InferencePlan:
    """Return the plan of a row: model, system, dp, tp, batch."""
    return _plan(*row[:5])


@functools.cache
def _plan(model: str, system: str, dp: int, tp: int, batch: int) -> InferencePlan:
    layout = SimpleNamespace(dp=dp, tp=tp, precision="bfloat16")
    machine = P100 if system == "p100" else SYSTEMS[system]
    weights = DATA["weights"].get(model, "mixed")
    return plan_inference(config_of(model), layout, machine, batch, 128, weights=weights)


def predicted(row: list) -> dict[str, float]:
    """Return the modelled figures of a row: tokens/s/user, tokens/s, ms to the first token."""
    plan = plan_of(row)
    first = 1e3 * plan.time_to_first_token_s
    return {"user": plan.tokens_per_s_per_user, "all": plan.tokens_per_s, "first": first}


def ring(chips: int, system: System = GALAXY_BH) -> tuple:
    """Return a ring of a Galaxy and its axis: a row, a column, or all chips."""
    shape, axis = {4: ((8, 4), 1), 8: ((8, 4), 0), 32: ((1, 32), 1)}[chips]
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
def synchronisation_s(
    model: str, chips: int, system: System = GALAXY_BH, hop_s: float = HOP_S.value
) -> float:
    """Return the modelled seconds of the all-reduces of all gradients, one for each parameter."""
    mesh, axis = ring(chips, system)
    parameters = create_model(config_of(model), Layout()).parameters().values()
    sizes = [2 * tiled(p.local_shape) for p in parameters]
    moved = sum(cost(all_reduce(mesh, nbytes, axis)).time_s for nbytes in sizes)
    return moved + len(sizes) * (chips - 1) * hop_s


def step_s(model: str, samples: int = 1, chip: Chip = GALAXY_BH.chip) -> float:
    """Return the modelled seconds of a training step without synchronisation. Operations of a
    token: 6 N + 12 L E S (Chowdhery 2022), N with the token table, as tt-train counted them before
    tt-metal PR #50114."""
    config = config_of(model)
    parameters = create_model(config, Layout()).parameters().values()
    learned = sum(tiled(p.local_shape) for p in parameters)
    token = 6 * learned + 12 * config.num_blocks * config.embedding_dim * SEQUENCE
    peak = chip.peak_flops("HiFi4") * EFFICIENCY.value
    return samples * SEQUENCE * token / peak


def training() -> list[tuple[str, float, float, str]]:
    """Return (what, published, predicted, unit) of the figures of training."""
    model, sync = "TinyLlama-1.1B", synchronisation_s("TinyLlama-1.1B", 32)
    step = step_s(model)
    share = sync / (step + sync)
    return [
        ("gradient synchronisation, of a step, DDP 32", 27.0, 100 * share, "%"),
        (
            "MFU with gradient synchronisation, DDP 32",
            15.5,
            100 * EFFICIENCY.value * (1 - share),
            "%",
        ),
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
        "products, of the peak (prefill)": PRODUCTS_SHARE,
        **{f"time of a layer, {arch}": fact for arch, fact in LAYER_S.items()},
        "products in training, of the peak": EFFICIENCY,
        "time of a hop of an all-reduce (training)": HOP_S,
    }
    rows = [line(what, f"{f.value:g}", f.unit, f.source) for what, f in named.items()]
    return [*table("<what", "value", "<unit", "<source"), *rows]


def products() -> list[str]:
    lines = table("<product", "<system", "<fidelity", "Tflop/s", "modelled", "error", "<")
    for what, published, system, fidelity, note in DATA["products"]:
        found = SYSTEMS[system].chip.peak_flops(fidelity) * PRODUCTS_SHARE.value / 1e12
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


def assumed() -> list[str]:
    """Return what is taken for the figures whose settings are not published, and what follows."""
    model, galaxy = "TinyLlama-1.1B", SYSTEMS["galaxy_torus"]
    step, sync = step_s(model), synchronisation_s(model, 32)
    step_wh, sync_wh = step_s(model, 1, galaxy.chip), synchronisation_s(model, 32, galaxy)
    two, five = (sync / (n * step + sync) for n in (2, 5))
    alone = 1e3 * synchronisation_s(model, 32, hop_s=0)
    numbers = {"two": two, "five": five, "wormhole": sync_wh / (step_wh + sync_wh), "alone": alone}
    return text("training", **numbers)


def trained() -> list[str]:
    lines = table("<what", "published", "modelled", "error", "<")
    for what, published, found, unit in training():
        numbers = f"{published:g} {unit}", f"{found:.1f} {unit}", error(published, found)
        lines.append(line(what, *numbers, "predicted; overlap"))
    for model, chips, seconds, source in DATA["synchronisation"]:
        found = synchronisation_s(model, chips)
        cells = f"{1e3 * seconds:.0f} ms", f"{1e3 * found:.0f} ms", error(seconds, found)
        what = f"gradient synchronisation, {model}, DDP {chips}"
        lines.append(line(what, *cells, f"predicted; {source}"))
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
        trained(),
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
