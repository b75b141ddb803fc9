"""Layouts for inference: every split of a machine into replicas and tensor-parallel groups."""

from __future__ import annotations

from typing import Any

from ttkit.errors import TTKitError
from ttkit.layouts.inference import InferencePlan, plan_inference
from ttkit.layouts.places import Machine, place_of, sizes_of, why_not_memory
from ttkit.layouts.report import Tables
from ttkit.train.config import TransformerConfig
from ttkit.train.layout import Layout
from ttkit.words import short


class Serving(Tables):
    """Layouts for prefill and decode; prints as a table, most tokens a second first.

    Attributes:
        fitting: plans that fit, by tokens a second.
        refused: (layout, why) of the others.
    """

    def __init__(
        self,
        config: TransformerConfig,
        machine: Machine,
        batch: int,
        context: int,
        may_hang: bool = False,
    ):
        self.title = f"{config.model_type}, {config.num_blocks} blocks, {batch} sequences of "
        self.title += f"{context} tokens on {machine.system.name}, {machine.chips} chips"
        self.fitting: list[InferencePlan] = []
        self.refused: list[tuple[Layout, str]] = []
        for layout, hosts in sizes_of(machine):
            if layout.pp > 1 or layout.cp > 1:
                continue
            place = place_of(machine.system, layout, hosts, may_hang)
            rule = layout.why_not(config, batch, config.max_sequence_length)
            if not rule and isinstance(place, str):
                rule = place
            if not rule:
                inner, own = layout.dp // hosts[0], batch // hosts[0]
                there = Layout(inner, layout.tp)
                try:
                    plan = plan_inference(config, there, machine.system, own, context)
                    rule = why_not_memory(plan.memory, machine)
                except TTKitError as error:
                    rule = str(error).splitlines()[0]
            if rule:
                self.refused.append((layout, rule))
            else:
                self.fitting.append(plan)
        self.hosts = machine.hosts
        self.fitting.sort(key=lambda plan: -plan.tokens_per_s)

    @property
    def best(self) -> InferencePlan | None:
        """The plan with most tokens a second; None if none fits."""
        return self.fitting[0] if self.fitting else None

    def reports(self) -> list[Any]:
        """Return the tables: what fits, and why the others were refused."""
        from ttkit.visualize.tables import Report

        rows = [
            [f"DP{plan.dp} TP{plan.tp}", f"{sum(plan.memory.values()) / 1e9:.2f}"]
            + [short(plan.time_to_first_token_s, "s"), f"{plan.tokens_per_s_per_user:.1f}"]
            + [f"{plan.tokens_per_s * self.hosts:,.0f}"]
            for plan in self.fitting
        ]
        columns = ["<layout of a host", "GB a chip", "first token", "tokens/s/user", "tokens/s"]
        found = [Report(f"{self.title}, modelled", columns, rows)]
        if self.refused:
            why = [[str(layout), rule] for layout, rule in self.refused]
            found.append(Report("Refused", ["<layout", "<why"], why))
        return found
