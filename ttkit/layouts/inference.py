"""The cost of inference: the memory of a chip, the time of a decode step, and the time to the first
token. All figures are modelled; no device is opened and no memory is allocated.

A decode step gives one token to each sequence. It reads the weights and the cache from DRAM, and
does two all-reduces in each layer and an all-gather of the logits. Each layer also adds a fixed
time, `LAYER_S`, for its many small operations. A prefill also reads the weights once, and computes
matmuls for a whole prompt. The parts run one after the other, but in a decode step matmuls overlap
with the reads of weights.

Of a mixture, all experts are read and computed for every token, as in tt-metal's Mixtral.

A collective takes the time of its links, without the handling time of `ttkit.plans.cost`, which was
measured in training programs. Published decode steps do not show it: Llama-3.1-70B on a T3000 gives
15.9 tokens/s/user, the model gives 14.4, and with handling time it would give 11.3.
`docs/published.md` compares these figures with published ones."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ttkit.hardware import System
from ttkit.hardware.chips import ELEMENT_BYTES, TILE_BYTES, Fact
from ttkit.hardware.device_order import transposed_warning
from ttkit.hardware.roofline import compute_s, dram_s
from ttkit.layouts.costs import Memory
from ttkit.layouts.places import Machine, place_of, sizes_of, why_not_memory
from ttkit.layouts.report import Candidate, Choices
from ttkit.plans import Plan, Topology, all_gather, all_reduce, cost, topology
from ttkit.plans.cost import busy_traffic
from ttkit.train.config.layout import TILE, Layout, in_tiles, tiled
from ttkit.train.config.settings import TransformerConfig
from ttkit.train.model.models import Transformer, create_model, mlp_width
from ttkit.words import short

# `TILE_BYTES` has the sizes of block floats for a tile of 1024 elements. The bytes of one element
# are therefore not a whole number.
BYTES = ELEMENT_BYTES | {name: nbytes / 1024 for name, nbytes in TILE_BYTES.items()}
# The inner keys are words in the names of weights; the key "" gives the type of all other weights
# and of the cache.
WEIGHTS = {
    "bfloat16": {"": "bfloat16"},
    "bfloat8_b": {"norm": "bfloat16", "table": "bfloat16", "": "bfloat8_b"},
}
# "mixed" and "accuracy" are the settings "performance" and "accuracy" of tt-metal,
# models/tt_transformers (PERF.md).
WEIGHTS["mixed"] = WEIGHTS["bfloat8_b"] | {"gate": "bfloat4_b", "up": "bfloat4_b"}
WEIGHTS["accuracy"] = WEIGHTS["bfloat8_b"] | {"attention": "bfloat16"}
# `SENT` is `ccl_dtype`, and `LINKS` is the number of links of a reduce-scatter, in tt-metal,
# models/tt_transformers/tt/model_config.py.
SENT, LINKS = "bfloat8_b", 1
FIDELITY = "HiFi2"
# Only these two figures are fitted. Each makes the model reproduce the published speed that its
# source names.
LAYER_S = {
    "WORMHOLE_B0": Fact(400e-6, "s", "fitted on Llama-3.1-8B, n150, 26.0 tokens/s/user"),
    "BLACKHOLE": Fact(493e-6, "s", "fitted on Llama-3.1-8B, p150, 33.1 tokens/s/user"),
}


@dataclass(frozen=True)
class InferencePlan:
    """The cost of inference with a KV cache on the first chips of a machine.

    Args:
        layout: only its dp, tp and precision matter; precision is the type of activations.
        batch: sequences in all, divided over the dp replicas.
        context: positions of each sequence in the cache.
        prompt: tokens of a sequence that a prefill reads.
        weights: "mixed" (the projections of the MLP into its inner width in bfloat4_b, norms and
            token table in bfloat16, all others and the cache in bfloat8_b), "bfloat8_b" (the same
            without bfloat4_b), "accuracy" ("bfloat8_b" with attention in bfloat16), or "bfloat16".

    Example:
        >>> from ttkit.hardware import SYSTEMS
        >>> model = TransformerConfig(
        ...     model_type="llama", embedding_dim=256, num_heads=8, num_groups=4, num_blocks=2
        ... )
        >>> plan = InferencePlan(model, Layout(dp=2, tp=4), SYSTEMS["t3000"], 64, context=128)
        >>> plan.memory["KV cache"], plan.topology.shape
        (557056, (2, 4))
    """

    config: TransformerConfig
    layout: Layout
    system: System
    batch: int
    context: int
    prompt: int = 128
    weights: str = "mixed"

    @cached_property
    def topology(self) -> Topology:
        """The mesh of dp x tp chips."""
        return topology(self.system, (self.layout.dp, self.layout.tp))

    @cached_property
    def model(self) -> Transformer:
        """The model without values."""
        return create_model(self.config, self.layout)

    @property
    def name(self) -> str:
        """The number of replicas and the chips of each replica, such as "DP2 TP4"."""
        return f"DP{self.layout.dp} TP{self.layout.tp}"

    # ------------------------------------------------------------ memory
    def _weights(self) -> Iterator[tuple[str, int, int]]:
        """Yield name, elements and bytes of each parameter on a chip."""
        types = WEIGHTS[self.weights]
        for name, parameter in self.model.parameters().items():
            word = next((key for key in types if key and f".{key}" in f".{name}"), "")
            elements = tiled(parameter.local_shape)
            yield name, elements, int(elements * BYTES[types[word]])

    @cached_property
    def memory(self) -> dict[str, int]:
        """Bytes of weights, KV cache and buffers on each chip. The buffers are an estimate: what a
        block keeps at once in a prefill, and the logits."""
        config = self.config
        heads = config.num_heads
        each = self.batch // self.layout.dp
        groups = config.num_groups if config.model_type == "llama" else heads
        kept = tiled((groups // self.layout.tp, self.context, config.embedding_dim // heads))
        inner = config.embedding_dim + 2 * mlp_width(config) + self.model.vocabulary.padded
        row = 4 * config.embedding_dim + inner // self.layout.tp
        return {
            "weights": sum(nbytes for *_, nbytes in self._weights()),
            "KV cache": int(2 * config.num_blocks * each * kept * BYTES[WEIGHTS[self.weights][""]]),
            "buffers": in_tiles(max(self.prompt, each))
            * row
            * ELEMENT_BYTES[self.layout.precision],
        }

    # ------------------------------------------------------------ time
    def traffic(self, rows: int) -> list[tuple[str, int, Plan]]:
        """Return the collectives for `rows` rows of activations: purpose, count, plan.

        The logits count as one tile of rows: the last token of a prompt, or the tokens of a decode
        step of up to 32 sequences. For more sequences their all-gather is too small here."""
        if self.layout.tp == 1:
            return []
        each = int(BYTES[SENT] * in_tiles(rows))
        logits = int(BYTES[SENT] * TILE) * self.model.vocabulary.padded // self.layout.tp
        width = self.config.embedding_dim
        reduced = 2 * self.config.num_blocks
        blocks = all_reduce(self.topology, each * width, 1, links=LINKS)
        head = all_gather(self.topology, logits, 1, links=LINKS)
        return [("blocks", reduced, blocks), ("head", 1, head)]

    def _times(self, rows: int, busy: float = 1, more: float = 0) -> dict[str, float]:
        """Return the seconds of each part of a pass over `rows` rows.

        Matmuls with weights use the fraction `busy` of the cores. The pass also does `more` flops
        that are not in these matmuls."""
        chip = self.system.chip
        read = 0
        blocks = 0
        for name, elements, nbytes in self._weights():
            # A pass reads only a few rows of an embedding table. It reads all rows of a tied table,
            # which is also the head.
            looked_up = name == "position" or (name.endswith("table") and not self.config.is_tied)
            read += 0 if looked_up else nbytes
            blocks += elements if name.startswith("blocks") else 0
        traffic = busy_traffic(self.topology.link)
        return {
            "weights from DRAM": dram_s(chip, read),
            "matmuls": compute_s(chip, 2 * in_tiles(rows) * blocks / busy + more, FIDELITY),
            "collectives": sum(n * cost(p, traffic).time_s for _, n, p in self.traffic(rows)),
            "latency of layers": self.config.num_blocks * LAYER_S[chip.arch].value,
        }

    @cached_property
    def decode_s(self) -> dict[str, float]:
        """Modelled seconds of a decode step. Matmuls overlap with the reads of their weights, so
        only the longer of the two counts."""
        times = self._times(self.batch // self.layout.dp)
        times["matmuls"] = max(0.0, times["matmuls"] - times["weights from DRAM"])
        return times | {"KV cache from DRAM": dram_s(self.system.chip, self.memory["KV cache"])}

    @cached_property
    def prefill_s(self) -> dict[str, float]:
        """Modelled seconds of the prefill of one sequence. A matmul uses at most one row of cores
        for each row of tiles of its input."""
        config = self.config
        length = in_tiles(self.prompt)
        busy = min(1.0, length / TILE / self.system.chip.core_grid[1])
        causal = 2 * length**2 * config.embedding_dim * config.num_blocks / self.layout.tp
        return self._times(self.prompt, busy, causal)

    @property
    def time_to_first_token_s(self) -> float:
        """Modelled seconds until the first sequence has a token."""
        return sum(self.prefill_s.values())

    @property
    def tokens_per_s_per_user(self) -> float:
        """Modelled tokens of one sequence in a second."""
        return 1 / sum(self.decode_s.values())

    @property
    def tokens_per_s(self) -> float:
        """Modelled tokens of all sequences in a second."""
        return self.batch * self.tokens_per_s_per_user

    @property
    def warning(self) -> str:
        """The reason why collectives may hang on this mesh; "" if there is no reason."""
        return transposed_warning(self.system.shape, self.topology.shape)


# ---------------------------------------------------------------- every split of a machine
class Serving(Choices):
    """The layouts for prefill and decode of a model on a machine. They print as a table, with the
    most tokens per second first. The first token is always that of a prompt of 128 tokens."""

    def __init__(self, config: TransformerConfig, machine: Machine, batch: int, context: int):
        self.machine, self.batch = machine, batch
        self.title = f"{config.model_type}, {config.num_blocks} blocks, {batch} sequences of "
        self.title += f"{context} tokens on {machine.system.name}, {machine.chips} chips"
        self.fitting: list[InferencePlan] = []
        self.refused = []
        for layout, hosts in sizes_of(machine):
            if layout.pp > 1 or layout.cp > 1:
                continue
            place = place_of(machine.system, layout, hosts)
            held = None
            rule = layout.why_not(config, batch, config.max_sequence_length)
            rule = rule or (place if isinstance(place, str) else "")
            if not rule:
                own = replace(layout, dp=layout.dp // hosts[0])
                each = InferencePlan(config, own, machine.system, batch // hosts[0], context)
                if not (rule := why_not_memory(each.memory, machine)):
                    self.fitting.append(each)
                    continue
                weights, cache, buffers = each.memory.values()
                held = Memory(weights, 0, 0, cache, buffers)
            self.refused.append(Candidate(layout, memory=held, refused=rule))
        self.fitting.sort(key=lambda plan: -plan.tokens_per_s)

    def cure(self, least: Candidate) -> str:
        """Return what to try: a shorter sequence if the weights fit, else more DRAM."""
        fits = least.memory.weights < self.machine.room
        return "a shorter sequence" if fits else "a system with more DRAM"

    def figures_of(self, each: InferencePlan) -> dict[str, Any]:
        """Return the figures of a layout that fits."""
        return {
            "layout": each.name,
            "memory": each.memory,
            "decode_s": each.decode_s,
            "time_to_first_token_s": each.time_to_first_token_s,
            "tokens_per_s_per_user": each.tokens_per_s_per_user,
            "tokens_per_s": each.tokens_per_s * self.machine.hosts,
            "warning": each.warning,
        }

    def reports(self) -> list:
        """Return the tables: what fits, and why the others were refused."""
        from ttkit.visualize.tables import Report

        rows = [
            [
                plan.name + (", may hang" if plan.warning else ""),
                f"{plan.tokens_per_s * self.machine.hosts:,.0f}",
                f"{plan.tokens_per_s_per_user:.1f}",
                short(plan.time_to_first_token_s, "s"),
                f"{sum(plan.memory.values()) / 1e9:.2f}",
            ]
            for plan in self.fitting
        ]
        columns = ["<layout of a host", "tokens/s", "tokens/s/user", "first token", "GB per chip"]
        found = [Report(f"{self.title}, modelled", columns, rows)]
        if self.refused:
            why = [[str(each.layout), each.refused] for each in self.refused]
            found.append(Report("Refused", ["<layout", "<why"], why))
        return found
