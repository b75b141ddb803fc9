"""The result of a search: a table, reasons, a page on one layout, and the YAML to run it."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, replace
from typing import Any

from ttkit.errors import fail
from ttkit.train.config import Distributed, Settings
from ttkit.words import counted

ROWS = 12  # of a table


class Tables:
    """What prints as several tables, and shows them in a notebook."""

    def reports(self) -> list[Any]:
        """Return the tables."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return "\n\n".join(repr(report) for report in self.reports())

    def _repr_html_(self) -> str:
        return "".join(report._repr_html_() for report in self.reports())


class Layouts(Tables):
    """All layouts of a model on a machine; prints as a table, the fastest first.

    Attributes:
        job, machine: what was asked.
        fitting: candidates that can run, by tokens a second.
        refused: the others.
    """

    def __init__(self, job: Any, machine: Any, found: list[Any]):
        self.job, self.machine = job, machine
        self.refused = [each for each in found if each.refused]
        fitting = (each for each in found if not each.refused)
        self.fitting = sorted(fitting, key=lambda each: -each.tokens_per_s)

    @property
    def best(self) -> Any:
        """The fastest candidate.

        Raises:
            TTKitError: nothing fits.
        """
        if not self.fitting:
            nearest = [c for c in self.refused if c.memory]
            # of some only what lasts from step to step is known
            order = lambda c: ("more than" in c.refused, sum(c.memory))  # noqa: E731
            least = min(nearest, key=order, default=None)
            rule = "no layout can run"
            if least:
                rule += f"; the smallest, {least.layout}, {least.refused}"
            fail(f"a layout of {self.title}", rule, "more hosts, precision bfloat16, batch")
        return self.fitting[0]

    @property
    def title(self) -> str:
        """What was asked."""
        job, machine = self.job, self.machine
        hosts = f"{counted(machine.hosts, 'host')} of " if machine.hosts > 1 else ""
        return (
            f"{job.config.model_type}, {job.config.num_blocks} blocks, batch {job.batch} x "
            f"{job.sequence} tokens on {hosts}{machine.system.name}, {machine.chips} chips"
        )

    def find(self, text: str) -> Any:
        """Return the candidate whose layout prints so, such as "DP8 TP4 ZeRO-1"."""
        words = set(text.split())
        for each in (*self.fitting, *self.refused):
            if words == set(str(each.layout).split()):
                return each
        rule = (
            f"the {len(self.fitting)} that fit begin with {self.fitting[:1] and self.best.layout}"
        )
        fail(f"the layout {text!r}", rule, "a name from the table")

    def reports(self) -> list[Any]:
        """Return the tables: what fits, and why the others were refused."""
        from ttkit.visualize.layouts import tables

        return tables(self, ROWS)

    def reasons(self) -> Counter[str]:
        """Return how many layouts were refused for each reason; those of memory, by its kind."""
        return Counter(
            f"too large: {each.refused.rsplit(': ', 1)[1].split()[0]}"
            if each.memory
            else each.refused
            for each in self.refused
        )

    def explain(self, candidate: Any = None) -> Any:
        """Return a page on one layout, the fastest unless given."""
        from ttkit.visualize.layouts import Page, explanation

        chosen = candidate or self.best
        text = "" if chosen.refused else self.yaml(chosen)
        return Page(list(explanation(self, chosen)), text)

    def yaml(self, candidate: Any = None) -> str:
        """Return the training configuration of a layout, the fastest unless given."""
        import yaml

        chosen = candidate or self.best
        layout, place, job = chosen.layout, chosen.place, self.job
        start = Settings(
            training_config=replace(job.training, batch_size=job.batch),
            transformer_config=job.config,
        )
        inner = replace(layout, dp=layout.dp // place.replicas)
        settings = inner.to_settings(start, place.shape)
        if place.replicas > 1:
            settings = replace(settings, distributed=Distributed(enabled=True))
        head = f"# {layout}: {chosen.tokens_per_s:,.0f} tokens/s, modelled\n"
        return head + yaml.safe_dump(differing(settings), sort_keys=False)


def differing(settings: Settings) -> dict[str, Any]:
    """Return the keys of a configuration that have not their default, section by section."""

    def plain(value: Any) -> Any:
        return list(value) if isinstance(value, tuple) else value

    found: dict[str, Any] = {}
    defaults = asdict(Settings())
    for section, values in asdict(settings).items():
        before = defaults[section]
        changed = {k: plain(v) for k, v in values.items() if v != before[k]}
        if changed:
            found[section] = changed
    return found
