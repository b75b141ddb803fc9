"""The files that run a layout: the training configuration and, where several processes share the
work, the hosts and which process has which chips."""

from __future__ import annotations

import itertools
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ttkit.errors import fail
from ttkit.files import write_whole
from ttkit.hardware import System
from ttkit.layouts.places import Machine, Place

CONFIG, BINDINGS, DESCRIPTOR, HOSTS = (
    "train.yaml",
    "rank_bindings.yaml",
    "mgd.textproto",
    "hosts.txt",
)
EDIT = "# Write the names of your hosts; 'localhost slots={}' runs all ranks on this one.\n"


def cards_of_stages(system: System, shape: tuple[int, int], count: int) -> list[list[int]]:
    """Return the cards of each of `count` stages with meshes of a shape, neighbours in turn; none
    where a card would be shared.

    Example:
        >>> from ttkit.hardware import SYSTEMS
        >>> cards_of_stages(SYSTEMS["t3000"], (2, 2), 2)
        [[0, 1], [2, 3]]
        >>> cards_of_stages(SYSTEMS["t3000"], (1, 1), 4)
        []
    """
    for height, width in (shape, shape[::-1]):
        tiles = list(itertools.islice(_tiles(system, height, width), count))
        cards = [[n for n, chips in enumerate(system.cards) if tile & set(chips)] for tile in tiles]
        own = sum(len(tile) for tile in tiles) == sum(
            len(system.cards[n]) for row in cards for n in row
        )
        if len(tiles) == count and own:
            return cards
    return []


def _tiles(system: System, height: int, width: int) -> Iterator[set[int]]:
    """Yield the chips of each rectangle of a system's grid, back and forth over its rows."""
    rows, columns = system.shape
    for number, top in enumerate(range(0, rows - height + 1, height)):
        lefts = list(range(0, columns - width + 1, width))
        for left in lefts[::-1] if number % 2 else lefts:
            yield {chip for row in system.ids[top : top + height] for chip in row[left:][:width]}


def launch_files(machine: Machine, place: Place, pp: int) -> dict[str, str]:
    """Return the text of each file beside the training configuration; none for one process.

    The ranks of a pipeline follow each other, and those of a host too. Without bindings, as where
    stages would share a card, each process of the simulator has a machine of its own.

    Args:
        machine: the hosts.
        place: where the layout lies on them.
        pp: the stages of the pipeline.
    """
    hosts, on_a_host = place.replicas * place.stages, pp // place.stages
    if hosts * on_a_host == 1:
        return {}
    names = [f"host-{n + 1}" for n in range(hosts)] if hosts > 1 else ["localhost"]
    lines = "".join(f"{name} slots={on_a_host}\n" for name in names)
    files = {HOSTS: (EDIT.format(hosts * on_a_host) if hosts > 1 else "") + lines}
    cards = cards_of_stages(machine.system, place.shape, on_a_host) if pp > 1 else []
    if not cards:
        return files
    import yaml

    ranks = []
    for rank in range(hosts * on_a_host):
        binding: dict[str, Any] = {"rank": rank, "mesh_id": rank, "mesh_host_rank": 0}
        if on_a_host > 1:
            visible = ",".join(map(str, cards[rank % on_a_host]))
            binding["env_overrides"] = {"TT_VISIBLE_DEVICES": visible}
        ranks.append(binding)
    bindings = {"rank_bindings": ranks, "mesh_graph_desc_path": DESCRIPTOR}
    files[BINDINGS] = yaml.safe_dump(bindings, sort_keys=False)
    return files | {DESCRIPTOR: _descriptor(machine.system, place.shape, len(ranks))}


def _descriptor(system: System, shape: tuple[int, int], count: int) -> str:
    """Return a mesh graph descriptor of equal meshes in a line."""
    links = max(1, system.links_per_pair)
    channels = f"channels {{ count: {links} policy: RELAXED }}"
    mesh = 'mesh {{ mesh_descriptor: "M0" mesh_id: {} }}'
    parts = [f"  instances {{ {mesh.format(n)} }}" for n in range(count)]
    parts += [
        f"  connections {{\n    nodes {{ {mesh.format(a)} }}\n    nodes {{ {mesh.format(b)} }}\n"
        f"    {channels}\n  }}"
        for a, b in itertools.pairwise(range(count))
    ]
    return "\n".join(
        [
            'mesh_descriptors {\n  name: "M0"',
            f"  arch: {system.chip.arch}",
            f"  device_topology {{ dims: [{shape[0]}, {shape[1]}] }}",
            "  host_topology { dims: [1, 1] }",
            f"  {channels}\n}}\n",
            'graph_descriptors {\n  name: "G0"\n  type: "FABRIC"',
            *parts,
            '}\n\ntop_level_instance { graph { graph_descriptor: "G0" graph_id: 0 } }\n',
        ]
    )


def write_run(folder: str | os.PathLike[str], files: dict[str, str]) -> str:
    """Write the files of a run into a folder, and return the commands that run it.

    Raises:
        TTKitError: the folder has some of them already, or cannot be written.
    """
    path, asked = Path(folder), f"write a run to {os.fspath(folder)!r}"
    there = [name for name in files if (path / name).exists()]
    if there:
        fail(asked, f"it has {', '.join(there)} already", "a new folder")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fail(asked, str(error), "a folder that you may write")
    for name, text in files.items():
        write_whole(path / name, text, asked)
    train = f"ttkit train --config {shlex.quote(str(path / CONFIG))}"
    run = f"ttkit run --config {shlex.quote(str(path))} {train}" if HOSTS in files else train
    return f"{train} --plan\n{run}"
