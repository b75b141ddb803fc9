"""The result of a search: a table, reasons, a page on one layout, and the YAML to run it."""

import math
from collections import Counter
from collections.abc import Iterator
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
# No modelled speed of training is farther than this from a published one (docs/published.md).
ERROR = 0.12


class Candidate(NamedTuple):
    """A layout with what it takes; `refused` says why it cannot run, "" if it can."""

    layout: Layout
    place: Place | None = None
    memory: Any = None  # It is a `Memory`, or None if a rule came first.
    times: Times | None = None
    traffic: tuple[Traffic, ...] = ()
    flops: int = 0  # It counts what the matmuls of a step do on a chip.
    tokens_per_s: float = 0.0
    mfu: float = 0.0
    refused: str = ""

    @property
    def point(self) -> tuple[float, float]:
        """GB of a chip and tokens/s, of a layout that fits."""
        return self.memory.total / 1e9, self.tokens_per_s

    @property
    def warning(self) -> str:
        """What to know of its mesh before it is opened, or ""."""
        return self.place.warning if self.place else ""


class Choices(Tables):
    """The layouts that a search has found.

    Attributes:
        machine, batch: the machine and the batch that the layouts are for.
        title: heads the table.
        fitting: layouts that can run, most tokens a second first.
        refused: layouts that cannot run.
    """

    machine: Machine
    batch: int
    title: str
    fitting: list
    refused: list[Candidate]

    @property
    def best(self):
        """The one with most tokens a second.

        Raises:
            TTKitError: nothing fits.
        """
        if not self.fitting:
            fail(f"a layout of {self.title}", *self.why_nothing_fits())
        return self.fitting[0]

    def why_nothing_fits(self) -> tuple[str, str]:
        """Return why nothing fits, and what to try."""
        rule, chips = "no layout can run", self.machine.chips
        too_large = [each for each in self.refused if each.memory]
        if not too_large:
            rule += f"; {chips} replicas do not divide batch {self.batch}"
            return rule, f"batch {-(-self.batch // chips) * chips}"
        # A candidate with "more than" has no count of its activations, so the others come first.
        least = min(too_large, key=lambda each: ("more than" in each.refused, sum(each.memory)))
        return f"{rule}; the smallest, {least.layout}, {least.refused}", self.cure(least)

    def cure(self, least: Candidate) -> str:
        """Return what would make the smallest layout fit."""
        raise NotImplementedError

    def figures(self) -> dict[str, Any]:
        """Return all layouts as plain numbers and text: bytes of a chip, seconds, tokens/s."""
        refused = [{"layout": str(each.layout), "why": each.refused} for each in self.refused]
        fitting = [self.figures_of(each) for each in self.fitting]
        return {"title": self.title, "fitting": fitting, "refused": refused}

    def figures_of(self, each) -> dict[str, Any]:
        """Return the figures of a layout that fits."""
        raise NotImplementedError

    def notes(self) -> Iterator[str]:
        """Yield why nothing fits and what to try, or the warnings of what is shown."""
        if not self.fitting:
            yield "; try: ".join(self.why_nothing_fits())
        shown = (each.warning for each in self.fitting[:ROWS])
        yield from dict.fromkeys(filter(None, shown))


class Layouts(Choices):
    """All layouts of a model on a machine; prints as a table, the fastest first.

    Attributes:
        job: the model, the batch and the settings of its training.
    """

    def __init__(self, job: Job, machine: Machine, found: list[Candidate]):
        self.job, self.machine, self.batch = job, machine, job.batch
        hosts = f"{counted(machine.hosts, 'host')} of " if machine.hosts > 1 else ""
        self.title = (
            f"{job.config.model_type}, {job.config.num_blocks} blocks, batch {job.batch} x "
            f"{job.sequence} tokens on {hosts}{machine.system.name}, {machine.chips} chips"
        )
        self.refused = [each for each in found if each.refused]
        fitting = (each for each in found if not each.refused)
        self.fitting = sorted(fitting, key=lambda each: (-each.tokens_per_s, each.memory.total))

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
        return bool(each.tokens_per_s >= (1 - ERROR) * self.best.tokens_per_s)

    def notes(self) -> Iterator[str]:
        """Yield also which layouts tie."""
        yield from super().notes()
        if (tied := sum(map(self.ties, self.fitting))) > 1:
            fast = f"modelled speeds are within {ERROR:.0%} of published ones, so the first {tied}"
            yield f"{fast} tie (~); the one with the least memory leaves the most room"

    def cure(self, least: Candidate) -> str:
        """Return what would need less memory."""
        config, machine = self.job.config, self.machine
        if "more than" not in least.refused:
            narrower = " or precision bfloat16" if least.layout.precision == "float32" else ""
            return f"a shorter sequence{narrower}"
        hosts = math.ceil(machine.hosts * sum(least.memory) / machine.room)
        # More hosts help only as pipeline stages: a host with a replica needs as much memory.
        return (
            f"at least {hosts} hosts" if hosts <= config.num_blocks else "a system with more DRAM"
        )

    def figures_of(self, each) -> dict[str, Any]:
        """Return the figures of a layout that fits."""
        return {
            "layout": str(each.layout),
            "mesh": list(each.place.shape),
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
        """Return the candidate whose layout prints so, such as "DP8 TP4 ZeRO-1"."""
        words = set(text.split())
        for each in (*self.fitting, *self.refused):
            if words == set(str(each.layout).split()):
                return each
        fail(
            f"the layout {text!r}",
            f"none of the {len(self.fitting)} that fit has that name, nor one that was refused",
            "a name from the table",
        )

    def reports(self) -> list:
        """Return the tables: what fits, and why the others were refused."""
        from ttkit.visualize.charts.plans import layout_tables

        return layout_tables(self, ROWS)

    def reasons(self) -> Counter[str]:
        """Return how many layouts were refused for each reason; those of memory, by its kind."""
        return Counter(
            f"too large: {each.refused.rsplit(': ', 1)[1].split()[0]}"
            if each.memory
            else each.refused
            for each in self.refused
        )

    def explain(self, candidate=None):
        """Return a page on one layout, the fastest unless given."""
        from ttkit.visualize.charts.plans import Page, explanation

        chosen = candidate or self.best
        text = "" if chosen.refused else self.yaml(chosen)
        return Page(explanation(chosen, self.machine.system.chip.dram_bytes), text)

    def yaml(self, candidate=None) -> str:
        """Return the training configuration of a layout, the fastest unless given."""
        import yaml

        chosen = candidate or self.best
        head = f"# {chosen.layout}: {chosen.tokens_per_s:,.0f} tokens/s, modelled\n"
        settings = settings_of(self.job, chosen.layout, chosen.place)
        changed = TypeAdapter(Settings).dump_python(settings, exclude_defaults=True)
        return head + yaml.safe_dump(changed, sort_keys=False)

    def write(self, folder: AnyPath, candidate=None) -> str:
        """Write the files that run a layout, the fastest unless given, into a new folder.

        They are `train.yaml`; a pipeline or several hosts also have `hosts.txt`, and a pipeline may
        have the bindings of its ranks to chips.

        Returns:
            The commands that plan the run, and that start it.

        Raises:
            TTKitError: the layout cannot run; the folder has such files already.
        """
        chosen = candidate or self.best
        if chosen.refused:
            fail(f"write {chosen.layout}", chosen.refused, "a layout that fits")
        beside = launch_files(self.machine, chosen.place, chosen.layout.pp)
        return write_run(folder, {CONFIG: self.yaml(chosen)} | beside)
