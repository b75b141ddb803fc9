"""Layouts for inference: every split of a machine into replicas and tensor-parallel groups."""

from __future__ import annotations

from typing import Any

from ttkit.layouts.inference import InferencePlan, plan_inference
from ttkit.layouts.memory import Memory
from ttkit.layouts.places import Machine, place_of, sizes_of, why_not_memory
from ttkit.layouts.report import Candidate, Choices
from ttkit.train.config.layout import Layout
from ttkit.train.config.settings import TransformerConfig
from ttkit.words import short


class Serving(Choices):
    """Layouts for prefill and decode; prints as a table, most tokens a second first."""

    def __init__(self, config: TransformerConfig, machine: Machine, batch: int, context: int):
        self.machine, self.batch = machine, batch
        self.title = f"{config.model_type}, {config.num_blocks} blocks, {batch} sequences of "
        self.title += f"{context} tokens on {machine.system.name}, {machine.chips} chips"
        self.fitting: list[InferencePlan] = []
        self.refused = []
        for layout, hosts in sizes_of(machine):
            if layout.pp > 1 or layout.cp > 1:
                continue
            place, held = place_of(machine.system, layout, hosts), None
            rule = layout.why_not(config, batch, config.max_sequence_length)
            rule = rule or (place if isinstance(place, str) else "")
            if not rule:
                own = Layout(layout.dp // hosts[0], layout.tp)
                each = plan_inference(config, own, machine.system, batch // hosts[0], context)
                if not (rule := why_not_memory(each.memory, machine)):
                    self.fitting.append(each)
                    continue
                weights, cache, buffers = each.memory.values()
                held = Memory(weights, 0, 0, cache, buffers)
            self.refused.append(Candidate(layout, memory=held, refused=rule))
        self.fitting.sort(key=lambda plan: -plan.tokens_per_s)

    def cure(self, least: Candidate) -> str:
        """Return what would need less memory, such as the cache of a shorter sequence."""
        fits = least.memory.weights < self.machine.room
        return "a shorter sequence" if fits else "a system with more DRAM"

    def figures_of(self, each: InferencePlan) -> dict[str, Any]:
        """Return the figures of a layout that fits."""
        return {
            "layout": f"DP{each.dp} TP{each.tp}",
            "memory": each.memory,
            "decode_s": each.decode_s,
            "time_to_first_token_s": each.time_to_first_token_s,
            "tokens_per_s_per_user": each.tokens_per_s_per_user,
            "tokens_per_s": each.tokens_per_s * self.machine.hosts,
            "warning": each.warning,
        }

    def reports(self) -> list[Any]:
        """Return the tables: what fits, and why the others were refused."""
        from ttkit.visualize.tables import Report

        rows = [
            [f"DP{plan.dp} TP{plan.tp}" + (", may hang" if plan.warning else "")]
            + [f"{sum(plan.memory.values()) / 1e9:.2f}"]
            + [short(plan.time_to_first_token_s, "s"), f"{plan.tokens_per_s_per_user:.1f}"]
            + [f"{plan.tokens_per_s * self.machine.hosts:,.0f}"]
            for plan in self.fitting
        ]
        columns = ["<layout of a host", "GB a chip", "first token", "tokens/s/user", "tokens/s"]
        found = [Report(f"{self.title}, modelled", columns, rows)]
        if self.refused:
            why = [[str(each.layout), each.refused] for each in self.refused]
            found.append(Report("Refused", ["<layout", "<why"], why))
        return found
