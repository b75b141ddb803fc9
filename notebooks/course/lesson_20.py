"""Lesson 20, several hosts: the chart of the ways out of a host, and exercises.

The answers are files; nothing is started and no other host is asked.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ttkit.cluster.files.bindings import read_bindings
from ttkit.cluster.files.lint import lint_path
from ttkit.cluster.launch.command import rank_environment
from ttkit.hardware import System, current_system
from ttkit.lessons import CheckFailed
from ttkit.lessons.exercises import Exercise
from ttkit.visualize.charts import Stacks
from ttkit.visualize.drawing import size_text
from ttkit.words import counted

HOSTS = Path(__file__).with_name("hosts")  # The folder has the files of both exercises.
BINDINGS = "rank_bindings.yaml"
ALL = "0,1,2,3"
# Each host maps to what its ranks must be given: mesh, rank among the mesh's hosts, cards.
WANTED = {
    "node-1": {("0", "0", "2,3"), ("1", "0", "0,1")},
    "node-2": {("2", "0", ALL)},
    "node-3": {("2", "1", ALL)},
}


class Ways(Stacks):
    """Bars of the times that the same bytes take on each way, on an axis by powers of ten."""

    def draw(self, ax) -> None:
        """Draw the bars."""
        from matplotlib.ticker import EngFormatter

        super().draw(ax)
        ax.set_xscale("log")
        ax.set_xlim(min(time for (time,) in self.rows.values()) / 10)
        ax.minorticks_off()
        ax.xaxis.set_major_formatter(EngFormatter(self.unit))

    def slower(self) -> float:
        """Return how many times longer the last way takes than the first."""
        (first, *_, last) = (time for (time,) in self.rows.values())
        return last / first


def ways_out(
    mib_a_chip: float = 64,
    network_gbit_per_s: float = 100,
    links_between_hosts: int = 2,
    system: System | None = None,
) -> Ways:
    """Return how long each chip's data takes inside its host, and out of it.

    All chips of a host send at once, so they share the cables between hosts and the network.

    Args:
        mib_a_chip: of data of each chip.
        network_gbit_per_s: of the host's network card: an assumption, to be replaced by your own.
        links_between_hosts: chip links from this host's chips to those of another host.
        system: the machine of a host; by default the one in use.

    Example:
        >>> ways_out(mib_a_chip=64)
        64 MiB of each of 8 chips, all at once; latency is left out
          its own DRAM: 0.233 ms at 288 GB/s (published)
          to a linked chip, 2 links: 2.85 ms at 23.6 GB/s (measured by Tenstorrent)
          to the other host, 2 chip links: 22.8 ms at 2.94 GB/s (measured, shared by 8 chips)
          to the other host, network: 42.9 ms at 1.56 GB/s (assumed 100 Gbit/s, shared by 8 chips)
    """
    system = system or current_system()
    chip, chips, links = system.chip, system.num_devices, system.links_per_pair
    link = chip.link.rates[0].gb_per_s  # The first rate is that of a message along a line of chips.
    shared = f"shared by {counted(chips, 'chip')}"
    # Each way has the GB/s that one chip gets while all chips of its host use it.
    ways = [("its own DRAM", chip.dram_bandwidth.value, "published")]
    if links:
        name = f"to a linked chip, {counted(links, 'link')}"
        ways.append((name, links * link, "measured by Tenstorrent"))
    name = f"to the other host, {counted(links_between_hosts, 'chip link')}"
    ways.append((name, links_between_hosts * link / chips, f"measured, {shared}"))
    source = f"assumed {network_gbit_per_s:g} Gbit/s, {shared}"
    network = network_gbit_per_s / 8 / chips  # A byte has 8 bits.
    ways.append(("to the other host, network", network, source))
    title = f"{size_text(mib_a_chip * 2**20)} of each of {counted(chips, 'chip')}, all at once"
    bars = {}
    for name, gb_per_s, source in ways:
        time = mib_a_chip * 2**20 / gb_per_s / 1e9
        text = f"{time:.3g} s" if time >= 1 else f"{1e3 * time:.3g} ms"
        bars[f"{name}: {text} at {gb_per_s:.3g} GB/s ({source})"] = [time]
    return Ways(f"{title}; latency is left out", bars, unit="s")


def files_of(exercise: str, folder: str | os.PathLike[str]) -> Path:
    """Copy the files of an exercise, "bindings" or "mistakes", into a folder; return the folder.

    Example:
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     sorted(path.name for path in files_of("bindings", folder).iterdir())
        ['hosts.txt', 'mgd.textproto']
    """
    return Path(shutil.copytree(HOSTS / exercise, folder, dirs_exist_ok=True))


def copy_of(setup: Path, folder: str | os.PathLike[str]) -> Path:
    """Copy a configuration; its bindings then name the descriptor beside them."""
    copy = Path(shutil.copytree(setup, folder, dirs_exist_ok=True))
    text = (copy / BINDINGS).read_text().replace(f"configs/{setup.name}/", "")
    (copy / BINDINGS).write_text(text)
    return copy


# ---------------------------------------------------------------- exercises
# A rank is given its mesh, its rank among the mesh's hosts, its cards.
Given = tuple[str, str, str]


def _given(exercise: str, texts: Mapping[str, str]) -> list[Given]:
    """Return what each rank is given by the files of an exercise, with these texts among them.

    Raises:
        CheckFailed: with the linter's first finding, an error if there is one.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = files_of(exercise, folder)
        for name, text in texts.items():
            (path / name).write_text(text, encoding="utf-8")
        for one in sorted(lint_path(path), key=lambda finding: finding.severity != "error"):
            place = f"{Path(one.path).name}:{one.line}"
            raise CheckFailed(f"{place}: {one.message}\n  try: {one.cure}")
        bindings = read_bindings(path / BINDINGS)
        ranks = [rank_environment(rank, bindings) for rank in bindings.rank_bindings]
    found = []
    for rank in ranks:  # A rank without a list of devices sees all cards of its host.
        cards = sorted(rank.get("TT_VISIBLE_DEVICES", ALL).replace(" ", "").split(","))
        found.append((rank["TT_MESH_ID"], rank.get("TT_MESH_HOST_RANK", "0"), ",".join(cards)))
    return found


def _misplaced(ranks: list[Given]) -> str:
    """Return which rank has what its host has not; ranks fill the slots in their order."""
    hosts = [host for host, each in WANTED.items() for _ in each]
    left = {host: set(each) for host, each in WANTED.items()}
    for rank, (host, given) in enumerate(zip(hosts, ranks, strict=True)):
        if given not in left[host]:
            words = "mesh {}, part {} of it, cards {}".format
            has = " or ".join(words(*each) for each in sorted(left[host]))
            return f"rank {rank} runs on {host}, which has {has}; yours has {words(*given)}"
        left[host].remove(given)
    return ""


Exercise(
    "20.bindings",
    asks="the text",
    reads=lambda text: _given("bindings", {BINDINGS: text}),
    rules=_misplaced,
    praise="4 ranks on 3 hosts, each with its mesh, its place in it and its cards; the linter "
    "finds nothing",
    hints=[
        "Ranks fill the slots of hosts.txt from the top. On which host does each of the four run?",
        "Which host has two ranks? Only those need TT_VISIBLE_DEVICES. Which mesh has two hosts? "
        "Only its ranks need mesh_host_rank.",
        "A rank of node-1 is written so: {rank: 0, mesh_id: 0, env_overrides: {TT_VISIBLE_DEVICES: "
        '"2,3"}}. A rank of mesh 2: {rank: 2, mesh_id: 2, mesh_host_rank: 0}.',
    ],
)


def _mixed_up(ranks: list[Given]) -> str:
    for rank, (mesh, _, cards) in enumerate(ranks):
        if not mesh == cards == str(rank):
            has = f"rank {rank} has mesh {mesh} and card {cards}"
            return f"{has}; mesh {rank} and card {rank} are asked for"
    return ""


Exercise(
    "20.mistakes",
    asks="the texts",
    reads=lambda texts: _given("mistakes", texts),
    rules=_mixed_up,
    praise="four ranks, each with its mesh and its card; the linter finds nothing",
    hints=[
        "Compare the four ranks line by line. They should differ in their numbers only.",
        "lint_path(broken) gives findings, each with path, line and message. Some mistakes hide "
        "others, and one of them no linter can know.",
        "Two lines have a slip: a number without quotes, a key without its s. One rank has the "
        "number of another rank, one has its card, and two ranks have each other's mesh. The host "
        "has too few slots.",
    ],
)
