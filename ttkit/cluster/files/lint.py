"""The linter: what tt-run refuses in files of a cluster, and what it lets pass that fails later.

Every file is read as a launch reads it, and what is wrong is collected. `RULES` are those that no
reader of a single file has.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ttkit.cluster.files import files_in, find_config
from ttkit.cluster.files.bindings import Bindings, RankBinding, check_bindings
from ttkit.cluster.files.hosts import host_of_each_slot
from ttkit.descriptors import MeshGraphDescriptor, check_descriptor, read_descriptor
from ttkit.errors import TTKitError
from ttkit.files import Document, Finding, Where, did_you_mean, read_yaml
from ttkit.words import counted, numbered

DEVICES = "TT_VISIBLE_DEVICES"
DEVICE_LIST = re.compile(r"\s*\d{1,4}\s*(,\s*\d{1,4}\s*)*")
RANKS: Where = ("rank_bindings",)


def lint_path(path: str | os.PathLike[str], hostfile: Path | None = None) -> list[Finding]:
    """Return what is wrong or doubtful in a configuration folder or in one of its files.

    Args:
        path: a folder with rank_bindings.yaml, hosts.txt and so on, one such file, or a training
            configuration.
        hostfile: the hosts file or rankfile of a rank_bindings.yaml that is given without its
            folder; else all ranks run on one host.

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
                find_config(path)  # This raises, and says what is missing.
            hostfile = config.rankfile or config.hosts
            found = (finding for file in paths for finding in lint_path(file, hostfile))
            return list(dict.fromkeys(found))  # A descriptor may be named and in the folder.
        if path.suffix == ".textproto":
            return check_descriptor(path)
        if path.suffix in (".yaml", ".yml"):
            return _lint_yaml(path, hostfile)
        host_of_each_slot(path)
        return []
    except TTKitError as error:
        return [_as_finding(path, error)]


def _as_finding(path: Path, error: TTKitError) -> Finding:
    """Return a reader's error as a finding; its line is in the error's text where there is one."""
    text, _, cure = str(error).partition("\n  try: ")
    found = re.search(re.escape(str(path)) + r":(\d+)", text)
    return Finding("error", str(path), int(found[1]) if found else 1, text, cure)


def _lint_yaml(path: Path, hosts_file: Path | None) -> list[Finding]:
    document = read_yaml(path, "configuration file")
    cure = "delete one, or make two list items of them"
    findings = [
        document.finding(
            where, f"{where[-1]!r} is twice in one mapping; only the last counts", cure
        )
        for where in document.twice
    ]
    top = document.value if isinstance(document.value, dict) else {}
    if "ChipSpec" in top:
        return findings + check_descriptor(path)
    if "rank_bindings" not in top:
        from ttkit.train.config.files import check_settings
        from ttkit.train.config.settings import SECTIONS  # Training defines what is in its files.

        if set(top) & set(SECTIONS):
            return findings + check_settings(document)
    bindings, faults = check_bindings(document)
    findings += faults
    if bindings:
        hosts = list[str]()
        if hosts_file:
            with contextlib.suppress(TTKitError):  # Linting that file reports it.
                hosts = host_of_each_slot(hosts_file)
        # The line of a finding is that of the rank in the file, which may have another order.
        listed = enumerate(document.value["rank_bindings"])
        at: dict[int, Where] = {int(item["rank"]): (*RANKS, index) for index, item in listed}
        launch = _Launch(document, bindings, at, hosts, hosts_file.name if hosts_file else "")
        findings += [finding for rule in RULES for finding in rule(launch)]
    return findings


# ---------------------------------------------------------------- rank_bindings.yaml
class _Launch(NamedTuple):
    """The bindings of a file; where each rank stands in it; the host of each slot, if any are named
    by a hosts file."""

    document: Document
    bindings: Bindings
    at: dict[int, Where]
    hosts: list[str]
    hosts_file: str


def _unknown_keys(launch: _Launch) -> Iterator[Finding]:
    """tt-run ignores keys that it does not know, so a misspelt one is silently lost."""
    ranks = launch.bindings.rank_bindings
    places: list[tuple[Where, Bindings | RankBinding]] = [((), launch.bindings)]
    for where, part in places + [(launch.at[binding.rank], binding) for binding in ranks]:
        known = type(part).model_fields
        for key in part.model_extra or ():
            cure = did_you_mean(key, known) or f"delete it, or use one of {', '.join(known)}"
            yield launch.document.finding(
                (*where, key), f"unknown key {key!r}: tt-run ignores it", cure
            )


def _places_in_meshes(launch: _Launch) -> Iterator[Finding]:
    """No two ranks take the same place in a mesh."""
    taken: dict[tuple[object, ...], int] = {}
    for binding in launch.bindings.rank_bindings:
        mesh, place, rank = binding.mesh_id, binding.mesh_host_rank or 0, binding.rank
        first = taken.setdefault((launch.bindings.descriptor_of(binding), mesh, place), rank)
        if first != rank:
            rule = f"ranks {first} and {rank} both claim mesh_id {mesh}, mesh_host_rank {place}"
            cure = "another mesh_host_rank for each rank of a shared mesh, in the order of the "
            cure += "descriptor's host_topology; another mesh_id otherwise"
            yield launch.document.finding(launch.at[rank], rule, cure)


def _slots(launch: _Launch) -> Iterator[Finding]:
    """There are as many slots as ranks."""
    ranks, slots = len(launch.bindings.rank_bindings), len(launch.hosts)
    if not slots or ranks == slots:
        return
    rule = f"{counted(ranks, 'rank')}, but {launch.hosts_file} has {counted(slots, 'slot')}"
    severity, cure = "error", f"raise slots= there to {ranks} in all, or add hosts"
    if ranks < slots:
        severity, cure = "warning", "lower slots= there, or add bindings"
    yield launch.document.finding(RANKS, rule, cure, severity)


def _devices(launch: _Launch) -> Iterator[Finding]:
    """No two ranks of one host open the same PCIe device."""
    ranks = launch.bindings.rank_bindings
    hosts = launch.hosts or [""] * len(ranks)
    users: dict[tuple[str, str], int] = {}
    for binding, host in zip(ranks, hosts):
        rank, on = binding.rank, f" on {host}" if host else ""
        where = (*launch.at[rank], "env_overrides", DEVICES)
        value = launch.bindings.visible_devices(binding)
        given = [device.strip() for device in value.split(",")]
        others = [
            each.rank for each, there in zip(ranks, hosts) if there == host and each.rank != rank
        ]
        clash = [each for each in given if users.setdefault((host, each), rank) != rank]
        if not value and others:
            rule = f"rank {rank} sees all devices, but shares its host{on} with "
            cure = f'env_overrides: {{{DEVICES}: "0,1"}} with devices of its own for each rank'
            yield launch.document.finding(where, rule + numbered("rank", others), cure, "warning")
        elif value and "$" not in value and not DEVICE_LIST.fullmatch(value):
            rule = f"{DEVICES} {value[:40]!r} is not a comma list of device numbers"
            yield launch.document.finding(
                where, rule, 'as in "0,1", the numbers of /dev/tenstorrent'
            )
        elif value and clash:
            rule = f"ranks {users[host, clash[0]]} and {rank} both see "
            cure = "give each rank devices of its own, or its own host in a rankfile"
            yield launch.document.finding(where, f"{rule}{numbered('device', clash)}{on}", cure)


def _descriptors(launch: _Launch) -> Iterator[Finding]:
    """tt-run never looks into the descriptor; the ranks do, and stop or hang."""
    ranks_of: dict[Path, list[RankBinding]] = {}
    for binding in launch.bindings.rank_bindings:
        if path := launch.bindings.descriptor_of(binding):
            ranks_of.setdefault(path, []).append(binding)
    for path, ranks in ranks_of.items():
        yield from (found := lint_path(path))
        if not any(finding.severity == "error" for finding in found):
            yield from _against(launch, read_descriptor(path), path.name, ranks)


def _against(
    launch: _Launch, descriptor: MeshGraphDescriptor, name: str, ranks: list[RankBinding]
) -> Iterator[Finding]:
    """Compare the ranks with the meshes of their descriptor."""
    hosts_of = {mesh.mesh_id: mesh.num_hosts for mesh in descriptor.meshes}
    missing = f"not found in mesh graph descriptor {name}"
    for binding in ranks:
        where, mesh = launch.at[binding.rank], binding.mesh_id
        place = binding.mesh_host_rank or 0
        if mesh not in hosts_of:
            rule = f"Local mesh binding mesh_id {mesh} {missing} (it has {sorted(hosts_of)})"
            cure = "use one of those, or add the mesh to the descriptor"
            yield launch.document.finding((*where, "mesh_id"), rule, cure)
        elif place >= hosts_of[mesh]:
            last = hosts_of[mesh] - 1
            rule = f"Local mesh binding host_rank {place} {missing}: mesh {mesh} has "
            cure = f"{f'0 to {last}' if last else '0'}, or change host_topology in the descriptor"
            rule += counted(last + 1, "host")
            yield launch.document.finding((*where, "mesh_host_rank"), rule, cure)
    for mesh, number in hosts_of.items():
        have = {binding.mesh_host_rank or 0 for binding in ranks if binding.mesh_id == mesh}
        if lacking := sorted(set(range(number)) - have):
            rule = f"no rank for mesh {mesh}, {numbered('host rank', lacking)} of {name}"
            cure = "add its binding: the fabric waits for every host of the descriptor"
            yield launch.document.finding(RANKS, rule, cure, "warning")


RULES = (_unknown_keys, _places_in_meshes, _slots, _devices, _descriptors)


# ---------------------------------------------------------------- tables
def findings_table(findings: Sequence[Finding]) -> str:
    """Return the findings as a table, errors first, as wide as the terminal."""
    if not findings:
        return "no findings"
    rows = []
    for finding in sorted(findings, key=lambda f: (f.severity != "error", f.path, f.line)):
        where = f"{min(finding.path, os.path.relpath(finding.path), key=len)}:{finding.line}"
        rows.append((where, finding.severity, finding.message, finding.cure))
    table = text_table(("where", "severity", "finding", "what to do"), rows, show_lines=True)
    errors = sum(finding.severity == "error" for finding in findings)
    warnings = counted(len(findings) - errors, "warning")
    return f"{table}{counted(errors, 'error')}, {warnings}"


def text_table(head: Sequence[str], rows: Sequence[Sequence[str]], show_lines: bool = False) -> str:
    """Return a table as plain text, as wide as the terminal.

    In Jupyter too, where rich would show it itself, and in colours.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*head, show_lines=show_lines)
    for row in rows:
        table.add_row(*(Text(cell, overflow="fold") for cell in row))
    page = io.StringIO()
    width = max(100, min(160, int(os.environ.get("COLUMNS") or 120)))
    Console(file=page, force_jupyter=False, force_terminal=False, width=width).print(table)
    return page.getvalue()
