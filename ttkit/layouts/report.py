"""The result of a search: a table of layouts, the reasons why others were refused, a page that
explains one layout, and the YAML to run it."""

import math
from collections import Counter
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from ttkit.errors import fail
from ttkit.files import AnyPath
from ttkit.layouts.costs import Times, Traffic
from ttkit.layouts.dry_run import Job
from ttkit.layouts.launching import CONFIG, launch_files, settings_of, write_run
from ttkit.layouts.places import Machine, Place
from ttkit.train.config.layout import Layout
from ttkit.train.config.settings import Settings
from ttkit.words import Tables, counted

ROWS = 12  # A table shows at most this many layouts.
# Two layouts whose speeds differ by at most this fraction tie. It is somewhat more than the largest
# error of a published ratio of two layouts (docs/published.md, "One layout beside another").
ERROR = 0.12


class Candidate(NamedTuple):
    """A layout with its memory, its times and its traffic. `refused` says why it cannot run; it is
    "" if the layout can run."""

    layout: Layout
    place: Place | None = None
    # This is a `Memory`, or None if the layout was refused before its memory was computed.
    memory: Any = None
    times: Times | None = None
    traffic: tuple[Traffic, ...] = ()
    flops: int = 0  # These are the flops of the matmuls of a step on one chip.
    tokens_per_s: float = 0.0
    mfu: float = 0.0
    refused: str = ""

    @property
    def order(self) -> tuple[float, int]:
        """A key to compare by: the faster layout is greater, then the one with less memory."""
        return self.tokens_per_s, -self.memory.total

    @property
    def point(self) -> tuple[float, float]:
        """The memory of a chip in GB, and the tokens/s, of a layout that fits."""
        return self.memory.total / 1e9, self.tokens_per_s

    @property
    def warning(self) -> str:
        """Why collectives may hang on its mesh, or "" where they do not."""
        return self.place.warning if self.place else ""


class Choices(Tables):
    """The layouts that a search has found.

    Attributes:
        machine, batch: the machine and the batch that the layouts are for.
        title: the heading of the table.
        fitting: layouts that can run, those with the most tokens per second first.
        refused: layouts that cannot run.
    """

    machine: Machine
    batch: int
    title: str
    fitting: list
    refused: list[Candidate]

    @property
    def best(self):
        """The layout with the most tokens per second.

        Raises:
            TTKitError: nothing fits.
        """
        if not self.fitting:
            fail(f"a layout of {self.title}", *self.why_nothing_fits())
        return self.fitting[0]

    def why_nothing_fits(self) -> tuple[str, str]:
        """Return why nothing fits, and what to try."""
        rule = "no layout can run"
        chips = self.machine.chips
        too_large = [each for each in self.refused if each.memory]
        if not too_large:
            rule += f"; {chips} replicas do not divide batch {self.batch}"
            return rule, f"batch {-(-self.batch // chips) * chips}"
        # If the lasting memory alone is too large, activations are not counted. So candidates whose
        # memory is complete come first. A layout that holds more than another has the memory of
        # that one, which comes before it.
        least = min(too_large, key=lambda each: (not each.memory.activations, sum(each.memory)))
        return f"{rule}; the smallest, {least.layout}, {least.refused}", self.cure(least)

    def cure(self, least: Candidate) -> str:
        """Return what would make the smallest layout fit."""
        raise NotImplementedError

    def figures(self) -> dict[str, Any]:
        """Return all layouts as plain numbers and text: bytes of a chip, seconds, tokens/s."""
        refused = [{"layout": str(each.layout), "why": each.refused} for each in self.refused]
        fitting = list(map(self.figures_of, self.fitting))
        return {"title": self.title, "fitting": fitting, "refused": refused}

    def figures_of(self, each) -> dict[str, Any]:
        """Return the figures of a layout that fits."""
        raise NotImplementedError

    def notes(self) -> Iterator[str]:
        """Yield why nothing fits and what to try, or the warnings of the layouts in the table."""
        if not self.fitting:
            yield "; try: ".join(self.why_nothing_fits())
        yield from dict.fromkeys(filter(None, (each.warning for each in self.fitting[:ROWS])))


class Layouts(Choices):
    """All layouts of a model on a machine. They print as a table, the fastest first.

    Attributes:
        job: the model, the batch and the settings of its training.
    """

    def __init__(self, job: Job, machine: Machine, found: list[Candidate]):
        self.job = job
        self.machine = machine
        self.batch = job.batch
        hosts = f"{counted(machine.hosts, 'host')} of " if machine.hosts > 1 else ""
        self.title = (
            f"{job.config.model_type}, {job.config.num_blocks} blocks, batch {job.batch} x "
            f"{job.sequence} tokens on {hosts}{machine.system.name}, {machine.chips} chips"
        )
        self.refused = [each for each in found if each.refused]
        fitting = (each for each in found if not each.refused)
        self.fitting = sorted(fitting, key=lambda each: each.order, reverse=True)

    @property
    def front(self) -> list[Candidate]:
        """The Pareto front: the layouts for which every faster one needs more memory."""
        front: list[Candidate] = []
        for each in self.fitting:
            if not front or each.memory.total < front[-1].memory.total:
                front.append(each)
        return front

    def ties(self, each: Candidate) -> bool:
        """Return whether a layout that fits may be as fast as the first, within `ERROR`."""
        return each.tokens_per_s >= (1 - ERROR) * self.best.tokens_per_s

    def notes(self) -> Iterator[str]:
        """Yield the notes of `Choices`, then how many layouts tie with the fastest."""
        yield from super().notes()
        if (tied := sum(map(self.ties, self.fitting))) > 1:
            yield (
                f"a ratio of two speeds may be {ERROR:.0%} off, so the first {tied} tie (~); "
                "the one with the least memory leaves the most room"
            )

    def cure(self, least: Candidate) -> str:
        """Return what to try: a shorter sequence, more hosts, or a system with more DRAM."""
        config = self.job.config
        machine = self.machine
        if least.memory.activations:
            narrower = " or precision bfloat16" if least.layout.precision == "float32" else ""
            return f"a shorter sequence{narrower}"
        hosts = math.ceil(machine.hosts * sum(least.memory) / machine.room)
        # More hosts are assumed to hold more pipeline stages, of at least one block each. With more
        # replicas a chip would still need about as much memory.
        return (
            f"at least {hosts} hosts" if hosts <= config.num_blocks else "a system with more DRAM"
        )

    def figures_of(self, each) -> dict[str, Any]:
        """Return the figures of a layout that fits."""
        return {
            "layout": str(each.layout),
            "mesh": list(each.place.shape),
            "hosts": {"batch": each.place.replicas, "stages": each.place.stages},
            "memory": each.memory._asdict(),
            "sent": sum(one.bytes_sent for one in each.traffic),
            "times_s": each.times._asdict(),
            "step_s": each.times.total,
            "tokens_per_s": each.tokens_per_s,
            "mfu": each.mfu,
            "ties": self.ties(each),
            "warning": each.warning,
        }

    def find(self, text: str):
        """Return the candidate whose layout prints as `text`, such as "DP8 TP4 ZeRO-1". The words
        may be in any order."""
        words = set(text.split())
        names = {str(each.layout): each for each in (*self.refused[::-1], *self.fitting[::-1])}
        for name, each in names.items():
            if words == set(name.split()):
                return each
        near = " or ".join(get_close_matches(text, names)) or "a name from the table"
        fail(f"the layout {text!r}", "no layout that fits or was refused has this name", near)

    def reports(self) -> list:
        """Return the tables: what fits, and why the others were refused."""
        from ttkit.visualize.charts.plans import layout_tables

        return layout_tables(self, ROWS)

    def reasons(self) -> Counter[str]:
        """Return how many layouts were refused for each reason. Layouts that need too much memory
        are counted by the kind of memory that takes the most."""
        return Counter(
            f"too large: {each.refused.rsplit(': ', 1)[1].split()[0]}"
            if each.memory
            else each.refused
            for each in self.refused
        )

    def explain(self, candidate=None):
        """Return a page that explains one layout, by default the fastest."""
        from ttkit.visualize.charts.plans import Page, explanation

        chosen = candidate or self.best
        text = "" if chosen.refused else self.yaml(chosen)
        return Page(explanation(chosen, self.machine.system.chip.dram_bytes), text)

    def yaml(self, candidate=None) -> str:
        """Return the training configuration of a layout, by default of the fastest."""
        import yaml

        chosen = candidate or self.best
        head = f"# {chosen.layout}: {chosen.tokens_per_s:,.0f} tokens/s, modelled\n"
        settings = settings_of(self.job, chosen.layout, chosen.place)
        changed = TypeAdapter(Settings).dump_python(settings, exclude_defaults=True)
        return head + yaml.safe_dump(changed, sort_keys=False)

    def write(self, folder: AnyPath, candidate=None) -> str:
        """Write the files that run a layout, by default the fastest, into a new folder.

        The folder gets `train.yaml`. For a pipeline or several hosts it also gets `hosts.txt`. For
        a pipeline it may also get `rank_bindings.yaml` and `mgd.textproto`, which give each rank
        its chips.

        Returns:
            Two commands, one per line: the first plans the run, the second starts it.

        Raises:
            TTKitError: the layout cannot run; the folder has such files already.
        """
        chosen = candidate or self.best
        if chosen.refused:
            fail(f"write {chosen.layout}", chosen.refused, "a layout that fits")
        beside = launch_files(self.machine, chosen.place, chosen.layout.pp)
        files = {CONFIG: self.yaml(chosen)} | beside
        return write_run(folder, files, self.machine.system)
