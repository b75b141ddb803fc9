"""The linter: report what tt-run refuses in the files of a cluster, and what fails only later.

Every file is read as a launch reads it. All errors are collected, but the reader of a hosts file or
a rankfile stops at the first error. `RULES` are checks that the readers of the files do not make.
"""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ttkit.cluster.files import files_in, find_config
from ttkit.cluster.files.bindings import Bindings, RankBinding, check_bindings
from ttkit.cluster.files.hosts import host_of_each_slot
from ttkit.descriptors.descriptor import MeshGraphDescriptor
from ttkit.descriptors.reading import check_descriptor, read_descriptor
from ttkit.errors import TTKitError
from ttkit.files import AnyPath, Finding, KeyPath, did_you_mean, errors_in, read_yaml
from ttkit.words import counted, grouped, numbered

DEVICES = "TT_VISIBLE_DEVICES"
RANKS: KeyPath = ("rank_bindings",)


def lint_path(path: AnyPath, hostfile: Path | None = None) -> list[Finding]:
    """Return what is wrong or doubtful in a configuration folder or in one of its files.

    Args:
        path: a folder with rank_bindings.yaml, hosts.txt and so on, one such file, or a training
            configuration.
        hostfile: if `path` is a rank_bindings.yaml, its hosts file or rankfile; without one, the
            linter assumes that all ranks run on one host.

    Example:
        >>> lint_path("configs/2loudboxes")
        []
    """
    path = Path(path)
    try:
        if path.is_dir():
            config = files_in(path)
            paths = [*filter(None, (config.hosts, config.rankfile)), *sorted(path.glob("*.y*ml"))]
            if not paths:
                find_config(path)  # This raises an error that names what is missing.
            hostfile = config.rankfile or config.hosts
            found = (finding for file in paths for finding in lint_path(file, hostfile))
            # A YAML descriptor in the folder is read twice if the bindings also name it. A
            # .textproto is read only if they name it.
            return list(dict.fromkeys(found))
        if path.suffix == ".textproto":
            return check_descriptor(path)
        if path.suffix in (".yaml", ".yml"):
            return _lint_yaml(path, hostfile)
        host_of_each_slot(path)
        return []
    except TTKitError as error:
        text = f"{error.asked}: {error.rule}"
        # The error of a reader may have a line number after the path.
        line = re.search(re.escape(str(path)) + r":(\d+)", text)
        return [Finding("error", str(path), int(line[1]) if line else 1, text, error.cure)]


def _lint_yaml(path: Path, hosts_file: Path | None) -> list[Finding]:
    document = read_yaml(path, "configuration file")
    findings = [
        document.finding(
            where,
            f"{where[-1]!r} is twice in one mapping; only the last counts",
            "delete one, or make two list items of them",
        )
        for where in document.repeated_keys
    ]
    top = document.value if isinstance(document.value, dict) else {}
    if "ChipSpec" in top:
        return findings + check_descriptor(path)
    if "rank_bindings" not in top:
        from ttkit.train.config.files import check_settings
        from ttkit.train.config.settings import SECTIONS  # A training file has these sections.

        if set(top) & set(SECTIONS):
            return findings + check_settings(document)
    bindings, faults = check_bindings(document)
    findings += faults
    if bindings is None:
        return findings
    hosts = list[str]()
    if hosts_file:
        with contextlib.suppress(TTKitError):  # Its errors are found when it is linted itself.
            hosts = host_of_each_slot(hosts_file)
    # The bindings are sorted by rank, but the file may have another order. `at` maps each rank to
    # its place in the file, from which a finding gets its line.
    listed = enumerate(document.value["rank_bindings"])
    at: dict[int, KeyPath] = {int(item["rank"]): (*RANKS, index) for index, item in listed}
    launch = _Launch(bindings, at, hosts, hosts_file.name if hosts_file else "")
    broken = [fault for rule in RULES for fault in rule(launch)]
    # tt-run does not read the descriptor. The ranks read it, and stop or hang if it does not fit.
    for descriptor, ranks in grouped(bindings.rank_bindings, bindings.descriptor_of).items():
        found = lint_path(descriptor)
        if not errors_in(found):
            broken += _against(launch, read_descriptor(descriptor), descriptor.name, ranks)
        findings += found
    return findings + [document.finding(*fault) for fault in broken]


# ---------------------------------------------------------------- rank_bindings.yaml
# A fault is a tuple of its place in the file, the rule and the cure. A warning also has a severity.
Fault = tuple[KeyPath, str, str] | tuple[KeyPath, str, str, str]


class _Launch(NamedTuple):
    """The bindings of a file, the place of each rank in the file, and the host of each slot.

    Without a hosts file there are no slots."""

    bindings: Bindings
    at: dict[int, KeyPath]
    hosts: list[str]
    hosts_file: str


def _unknown_keys(launch: _Launch) -> Iterator[Fault]:
    """Report keys that tt-run does not know: it ignores them without a message."""
    places: list[tuple[KeyPath, Bindings | RankBinding]] = [((), launch.bindings)]
    places += [(launch.at[binding.rank], binding) for binding in launch.bindings.rank_bindings]
    for where, part in places:
        for key in part.model_extra or ():
            yield (
                (*where, key),
                f"unknown key {key!r}: tt-run ignores it",
                did_you_mean(key, type(part).model_fields),
            )


def _places_in_meshes(launch: _Launch) -> Iterator[Fault]:
    """Check that no two ranks take the same place in a mesh."""
    taken: dict[tuple[object, ...], int] = {}
    for binding in launch.bindings.rank_bindings:
        mesh = binding.mesh_id
        place = binding.mesh_host_rank or 0
        rank = binding.rank
        first = taken.setdefault((launch.bindings.descriptor_of(binding), mesh, place), rank)
        if first != rank:
            yield (
                launch.at[rank],
                f"ranks {first} and {rank} both claim mesh_id {mesh}, mesh_host_rank {place}",
                "another mesh_host_rank for each rank of a shared mesh, in the order of the "
                "descriptor's host_topology; another mesh_id otherwise",
            )


def _slots(launch: _Launch) -> Iterator[Fault]:
    """Check that there are as many slots as ranks."""
    ranks = len(launch.bindings.rank_bindings)
    slots = len(launch.hosts)
    rule = f"{counted(ranks, 'rank')}, but {launch.hosts_file} has {counted(slots, 'slot')}"
    if slots and ranks > slots:
        yield RANKS, rule, f"give it {ranks} slots in all, or add hosts"
    elif ranks < slots:
        yield RANKS, rule, "lower slots= there, or add bindings", "warning"


def _devices(launch: _Launch) -> Iterator[Fault]:
    """Check that no two ranks on a host open the same PCIe device."""
    ranks = launch.bindings.rank_bindings
    hosts = launch.hosts or [""] * len(ranks)
    users: dict[tuple[str, str], int] = {}
    for binding, host in zip(ranks, hosts):
        rank = binding.rank
        on = f" on {host}" if host else ""
        where = (*launch.at[rank], "env_overrides", DEVICES)
        value = launch.bindings.visible_devices(binding)
        given = [device.strip() for device in value.split(",")]
        clash = [each for each in given if users.setdefault((host, each), rank) != rank]
        others = [b.rank for b, there in zip(ranks, hosts) if there == host and b is not binding]
        if value and clash:
            rule = f"ranks {users[host, clash[0]]} and {rank} both see "
            cure = "give each rank devices of its own, or its own host in a rankfile"
            yield where, f"{rule}{numbered('device', clash)}{on}", cure
        elif not value and others:
            rule = f"rank {rank} sees all devices, but shares {host or 'its host'} with "
            cure = f'env_overrides: {{{DEVICES}: "0,1"}} with devices of its own for each rank'
            yield where, rule + numbered("rank", others), cure, "warning"


RULES = (_unknown_keys, _places_in_meshes, _slots, _devices)


def _against(
    launch: _Launch, descriptor: MeshGraphDescriptor, name: str, ranks: list[RankBinding]
) -> Iterator[Fault]:
    """Compare the ranks with the meshes of their descriptor."""
    hosts_of = {mesh.mesh_id: mesh.num_hosts for mesh in descriptor.meshes}
    missing = f"not found in mesh graph descriptor {name}"
    for binding in ranks:
        where = launch.at[binding.rank]
        mesh = binding.mesh_id
        place = binding.mesh_host_rank or 0
        if mesh not in hosts_of:
            rule = f"Local mesh binding mesh_id {mesh} {missing} (it has {sorted(hosts_of)})"
            yield (*where, "mesh_id"), rule, "use one of those, or add the mesh to the descriptor"
        elif place >= hosts_of[mesh]:
            last = hosts_of[mesh] - 1
            rule = f"Local mesh binding host_rank {place} {missing}: mesh {mesh} has "
            cure = f"use {f'0 to {last}' if last else 0}, or change host_topology in the descriptor"
            yield (*where, "mesh_host_rank"), rule + counted(last + 1, "host"), cure
    for mesh, number in hosts_of.items():
        have = {binding.mesh_host_rank or 0 for binding in ranks if binding.mesh_id == mesh}
        if lacking := sorted(set(range(number)) - have):
            rule = f"no rank has {numbered('host rank', lacking)} of mesh {mesh} in {name}"
            cure = "add its binding: the fabric waits for every host of the descriptor"
            yield RANKS, rule, cure, "warning"
