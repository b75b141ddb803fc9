"""Make the files that run a layout.

These are the training configuration and, where several processes share the work, the
list of hosts and the chips of each process.
"""

import itertools
import os
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from ttkit.errors import fail
from ttkit.files import AnyPath, write_whole
from ttkit.hardware import System
from ttkit.hardware.systems import SYSTEMS
from ttkit.layouts.dry_run import Job
from ttkit.layouts.places import Machine, Place
from ttkit.train.config.layout import Layout
from ttkit.train.config.settings import (
    DeviceConfig,
    Distributed,
    LayoutConfig,
    MultihostConfig,
    PipelineParallelConfig,
    Settings,
)

CONFIG = "train.yaml"
BINDINGS = "rank_bindings.yaml"
DESCRIPTOR = "mgd.textproto"
HOSTS = "hosts.txt"
EDIT = "# Write the names of your hosts; 'localhost slots={}' runs all ranks on this host.\n"


def settings_of(job: Job, layout: Layout, place: Place) -> Settings:
    """Return the training configuration of a layout at its place."""
    multihost = MultihostConfig()
    distributed = Distributed()
    if layout.pp > 1:
        stages = PipelineParallelConfig(
            job.config.num_blocks,
            dict(enumerate(layout.stages_of(job.config))),
            layout.schedule,  # type: ignore[arg-type]
            layout.chunks,
        )
        multihost = MultihostConfig(True, layout.pp * place.replicas, "mpi", stages)
    elif place.replicas > 1:
        distributed = Distributed(True, HOSTS, place.replicas)
    # Some arguments are plain strings or numbers where the settings classes declare literals. mypy
    # may ignore this, because the classes check the values at run time.
    return Settings(
        DeviceConfig(
            place.shape,
            enable_ddp=layout.dp > place.replicas,
            enable_tp=layout.tp > 1,
            enable_pp=layout.pp > 1,
            enable_cp=layout.cp > 1,
        ),
        replace(
            job.training,
            batch_size=job.batch,
            # A BPE vocabulary has at least 256 ids, one for each byte.
            tokenizer_type="bpe" if job.config.vocab_size >= 256 else "char",
            gradient_accumulation_steps=layout.micro_batches,
            precision=layout.precision,  # type: ignore[arg-type]
        ),
        multihost,
        transformer_config=replace(
            job.config, runner_type="memory_efficient" if layout.recompute else "default"
        ),
        distributed=distributed,
        layout=LayoutConfig(
            layout.zero,  # type: ignore[arg-type]
            layout.sequence_parallel,
            layout.ep > 1,
            job.bucket_mb,
        ),
    )


def cards_of_stages(system: System, shape: tuple[int, int], count: int) -> list[list[int]]:
    """Return the cards of each of `count` stages whose meshes have this shape. Each stage is a
    neighbour of the next. The list is empty if the meshes do not fit on the system, or if a mesh
    would have only some of a card's chips.

    Example:
        >>> from ttkit.hardware import SYSTEMS
        >>> cards_of_stages(SYSTEMS["t3000"], (2, 2), 2)
        [[0, 1], [2, 3]]
        >>> cards_of_stages(SYSTEMS["t3000"], (1, 1), 4)
        []
    """
    for height, width in (shape, shape[::-1]):
        areas = list(itertools.islice(_rectangles(system, height, width), count))
        cards = [[n for n, chips in enumerate(system.cards) if area & set(chips)] for area in areas]
        chips = [{chip for n in row for chip in system.cards[n]} for row in cards]
        if len(areas) == count and chips == areas:
            return cards
    return []


def _rectangles(system: System, height: int, width: int) -> Iterator[set[int]]:
    """Yield the chips of each rectangle of this size in a system's grid. Every second row of
    rectangles goes from right to left, so that each rectangle lies beside the next."""
    rows, columns = system.shape
    for number, top in enumerate(range(0, rows - height + 1, height)):
        lefts = list(range(0, columns - width + 1, width))
        for left in lefts[::-1] if number % 2 else lefts:
            yield {chip for row in system.ids[top : top + height] for chip in row[left:][:width]}


def launch_files(machine: Machine, place: Place, pp: int) -> dict[str, str]:
    """Return {name: text} of the files beside the training configuration; {} for one process.

    The ranks of one pipeline have consecutive numbers, and so have the ranks of one host. There are
    no bindings without a pipeline, or where stages would share a card; each process then simulates
    a machine of its own.

    Args:
        machine: the hosts, and the system of each.
        place: where the layout lies on the hosts.
        pp: the number of stages of the pipeline.
    """
    hosts = place.replicas * place.stages
    on_a_host = pp // place.stages
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
    return files | {DESCRIPTOR: _meshes_in_a_line(machine.system, place.shape, len(ranks))}


def _meshes_in_a_line(system: System, shape: tuple[int, int], count: int) -> str:
    """Return a mesh graph descriptor of equal meshes, each joined to the next."""
    # This import loads protobuf, which a search does not need.
    from ttkit.descriptors.descriptor import Connection, MeshGraphDescriptor, MeshInstance
    from ttkit.descriptors.reading import descriptor_text

    links = max(1, system.links_per_pair), "RELAXED"
    lines = "LINE", "LINE"
    meshes = [
        MeshInstance(n, "M0", system.chip.arch, shape, lines, (1, 1), *links) for n in range(count)
    ]
    joined = [Connection(ends, *links) for ends in itertools.pairwise(range(count))]
    return descriptor_text(MeshGraphDescriptor(tuple(meshes), tuple(joined)))


def write_run(folder: AnyPath, files: dict[str, str], system: System) -> str:
    """Write the files of a run into a folder, and return the commands that plan and start it. They
    name the system, if it is one that has a name.

    Raises:
        TTKitError: the folder already has one of the files, or a file cannot be written.
    """
    path = Path(folder)
    asked = f"write a run to {os.fspath(folder)!r}"
    there = [name for name in files if (path / name).exists()]
    if there:
        fail(asked, f"it has {', '.join(there)} already", "a new folder")
    for name, text in files.items():
        write_whole(path / name, text, asked)
    train = f"ttkit train --config {shlex.quote(str(path / CONFIG))}"
    run = f"ttkit run --config {shlex.quote(str(path))} {train}" if HOSTS in files else train
    if SYSTEMS.get(system.name) != system:
        return f"{train} --plan\n{run}"
    return f"{train} --plan --system {system.name}\nTTKIT_SYSTEM={system.name} {run}"
