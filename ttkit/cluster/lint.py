"""The linter for cluster files: what tt-run refuses, and what it lets pass that fails, hangs or
is lost later.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ttkit.cluster.bindings import (
    BINDING_KEYS,
    MAPPING_KEY,
    TOP_KEYS,
    Bindings,
    check_bindings,
    read_mapping,
)
from ttkit.cluster.config import BINDINGS, find_config
from ttkit.cluster.documents import Document, did_you_mean, read_text, read_yaml
from ttkit.cluster.hosts import Host, RankSlot, read_hosts, read_rankfile
from ttkit.descriptors import MeshGraphDescriptor, load_text
from ttkit.errors import Finding, TTKitError
from ttkit.words import counted

if TYPE_CHECKING:
    from rich.table import Table

# The names of the design document and of older files -> today's.
RENAMED = {
    "host_rank_id": "mesh_host_rank",
    "mesh_graph_path": "mesh_graph_desc_path",
    "TT_METAL_MESH_ID": "mesh_id",
    "TT_METAL_HOST_RANK_ID": "mesh_host_rank",
    "env": "env_overrides",
}
UNDER_TT_RUN = "under tt-run, "  # starts what concerns tt-run only, not ttkit run
# lost or harmful when set by hand
SETTINGS_BY_TT_RUN = ("TT_MESH_ID", "TT_MESH_HOST_RANK", "TT_MESH_GRAPH_DESC_PATH", "TT_RUN_RANK")


def lint_path(path: str | os.PathLike[str], hostfile: Path | None = None) -> list[Finding]:
    """What is wrong or doubtful in a configuration folder or in one of its files.

    Args:
        path: a folder with rank_bindings.yaml, hosts.txt and so on, or one such file, or a training
        configuration. hostfile: where the ranks of a rank_bindings.yaml go that is looked at
        without its folder; else all on one host.

    Example:
        >>> lint_path("configs/2loudboxes")
        []
    """
    path = Path(path)
    try:
        if os.path.isdir(path):
            return _lint_folder(path)
        if path.suffix == ".json" or (
            re.search(r"hosts?(file)?\b", path.stem) and path.suffix not in (".yaml", ".yml")
        ):
            return lint_hosts(path, read_hosts(path))
        if "rankfile" in path.name:
            read_rankfile(path)
            return []
        if path.suffix == ".textproto":
            _, findings = _descriptor(path)
            return findings
        return _lint_yaml(
            path, _places(read_hosts(hostfile), (), hostfile, None) if hostfile else None
        )
    except TTKitError as error:
        return [_as_finding(path, error)]


def findings_table(findings: Sequence[Finding]) -> str:
    """The findings as a table, worst first, as wide as the terminal; one line when there are
    none.
    """
    if not findings:
        return "no findings"
    from rich.table import Table
    from rich.text import Text

    table = Table("where", "severity", "finding", "what to do", show_lines=True)
    for finding in sorted(
        findings, key=lambda each: (each.severity != "error", each.path, each.line)
    ):
        cells = (
            f"{min(finding.path, os.path.relpath(finding.path), key=len)}:{finding.line}",
            finding.severity,
            finding.message,
            finding.cure,
        )
        table.add_row(*(Text(cell, overflow="fold") for cell in cells))
    errors = sum(finding.severity == "error" for finding in findings)
    return (
        f"{as_text(table)}{counted(errors, 'error')}, {counted(len(findings) - errors, 'warning')}"
    )


def as_text(table: Table) -> str:
    """A table of rich's as plain text, as wide as the terminal, also in Jupyter, where rich
    would show it itself, and in colours.
    """
    from rich.console import Console

    page = io.StringIO()
    Console(
        file=page,
        force_jupyter=False,
        force_terminal=False,
        width=max(100, min(160, int(os.environ.get("COLUMNS") or 120))),
    ).print(table)
    return page.getvalue()


def _lint_folder(folder: Path) -> list[Finding]:
    yaml_files = sorted({*folder.glob("*.yaml"), *folder.glob("*.yml")})
    config = find_config(folder, or_else=bool(yaml_files))
    hosts: tuple[Host, ...] = ()
    slots: tuple[RankSlot, ...] = ()
    findings: list[Finding] = []
    try:
        hosts = read_hosts(config.hosts) if config.hosts else ()
    except TTKitError as error:
        findings.append(_as_finding(config.hosts or folder, error))
    try:
        slots = read_rankfile(config.rankfile) if config.rankfile else ()
    except TTKitError as error:
        findings.append(_as_finding(config.rankfile or folder, error))
    if config.hosts and hosts:
        findings += lint_hosts(config.hosts, hosts)
    for path in yaml_files:
        try:
            places = (
                _places(hosts, slots, config.hosts, config.rankfile)
                if path.name == BINDINGS
                else None
            )
            findings += _lint_yaml(path, places)
        except TTKitError as error:
            findings.append(_as_finding(path, error))
    return findings


def _places(
    hosts: Sequence[Host], slots: Sequence[RankSlot], hosts_file: Path | None, rankfile: Path | None
) -> dict[str, Any]:
    """Where ranks go, as _lint_bindings wants it: the host of each slot in order, and the file
    that says so.
    """
    if slots:
        return {"hosts": [slot.host for slot in slots], "said_by": rankfile}
    return {
        "hosts": [host.name for host in hosts for _ in range(host.slots)],
        "said_by": hosts_file,
    }


def _lint_yaml(path: Path, places: dict[str, Any] | None = None) -> list[Finding]:
    document = read_yaml(path, "configuration file")
    twice = [
        Finding(
            "error",
            str(path),
            line,
            f"'{key[:60]}' stands twice in one mapping; only the last counts",
            "delete one, or make two list items of them",
        )
        for line, key in document.twice
    ]
    top = document.value if isinstance(document.value, dict) else {}
    if MAPPING_KEY in top:
        read_mapping(path)
        return twice
    if "rank_bindings" not in top:
        from ttkit.train.config import SECTIONS  # training knows what its files hold
        from ttkit.train.config_files import check_settings

        if set(top) & set(SECTIONS):
            return twice + check_settings(document)
    if "Mesh" in top and "ChipSpec" in top:  # a mesh graph descriptor of the first generation
        return [*twice, *_old_descriptor(path, path, 1), *_descriptor(path)[1]]
    return twice + lint_bindings(document, **(places or {}))


def lint_bindings(
    document: Document, hosts: Sequence[str] = (), said_by: Path | None = None
) -> list[Finding]:
    """What is wrong or doubtful in a rank_bindings.yaml.

    Args:
        document: the file, as read_yaml gives it.
        hosts: the host of each slot, in rank order; empty when all ranks run on one host.
        said_by: the hosts file or rankfile that says so.
    """
    bindings, findings = check_bindings(document)
    note = _Noting(document)
    _unknown_keys(document, note)
    if bindings is None:
        return findings + note.findings
    by_rank = {
        int(item["rank"]): index for index, item in enumerate(document.value["rank_bindings"])
    }
    _quotes(document, note)
    _repeated(bindings, by_rank, note)
    _variables(bindings, by_rank, note)
    _inherited(bindings, by_rank, note)
    _slots(bindings, hosts, said_by, note)
    _visible_devices(bindings, by_rank, hosts, note)
    if [*by_rank] != sorted(by_rank):
        note.warning(
            ("rank_bindings",),
            "ranks are not listed in order; tt-run 0.81.1 then puts the ':' between programs "
            "wrongly",
            "list them as 0, 1, 2, ...",
        )
    _against_descriptor(bindings, by_rank, note)
    return findings + note.findings


class _Noting:
    """Findings about one document."""

    def __init__(self, document: Document):
        self.document, self.findings = document, list[Finding]()

    def error(self, where: tuple[str | int, ...], rule: str, cure: str) -> None:
        self.findings.append(
            Finding("error", str(self.document.path), self.document.at(*where), rule, cure)
        )

    def warning(self, where: tuple[str | int, ...], rule: str, cure: str) -> None:
        self.findings.append(
            Finding("warning", str(self.document.path), self.document.at(*where), rule, cure)
        )


def _unknown_keys(document: Document, note: _Noting) -> None:
    """tt-run ignores keys that it does not know, so a misspelt one is lost without a word."""
    top = document.value
    if not isinstance(top, dict):
        return
    listed = top.get("rank_bindings")
    mappings = [((), top, TOP_KEYS)]
    mappings += [
        (("rank_bindings", i), item, BINDING_KEYS)
        for i, item in enumerate(listed if isinstance(listed, list) else [])
        if isinstance(item, dict)
    ]  # type: ignore[misc]
    for where, mapping, known in mappings:
        for key in mapping:
            if key not in known:
                hint = (
                    did_you_mean(key, known, RENAMED)
                    or f"delete it, or use one of {', '.join(known)}"
                )
                note.error(
                    (*where, str(key)), f"unknown key {str(key)[:60]!r}: tt-run ignores it", hint
                )


def _quotes(document: Document, note: _Noting) -> None:
    """0,1 without quotes happens to be text, but 0 is a number and 1:30 is ninety."""
    for where, line in document.lines.items():
        is_value = (
            where in document.plain
            and len(where) in (2, 4)
            and ("global_env" in where or "env_overrides" in where)
        )
        value: Any = document.value
        if is_value and line:
            for step in where:
                value = (
                    value.get(step)
                    if isinstance(value, dict)
                    else value[step]
                    if isinstance(value, list) and isinstance(step, int)
                    else None
                )
            if isinstance(value, str) and re.fullmatch(r"[\d,.: _-]+", value):
                rule = (
                    f"{where[-1]}: {value} stands without quotes; "
                    "with one number only tt-run would refuse it"
                )
                note.warning(where, rule, f'{where[-1]}: "{value}"')


def _repeated(bindings: Bindings, by_rank: dict[int, int], note: _Noting) -> None:
    seen: dict[tuple[Any, ...], int] = {}
    several = {
        mesh
        for mesh in (b.mesh_id for b in bindings.rank_bindings)
        if sum(b.mesh_id == mesh for b in bindings.rank_bindings) > 1
    }
    for binding in bindings.rank_bindings:
        where = ("rank_bindings", by_rank[binding.rank])
        if binding.mesh_host_rank is None and binding.mesh_id in several:
            rule = (
                f"rank {binding.rank}: mesh {binding.mesh_id} has several ranks, "
                "so each needs a mesh_host_rank"
            )
            note.error(
                where,
                rule,
                "add mesh_host_rank: 0, 1, ... in the order of the descriptor's host_topology",
            )
            continue
        key = (binding.mesh_graph_desc_path, binding.mesh_id, binding.mesh_host_rank)
        if key in seen:
            rule = (
                f"ranks {seen[key]} and {binding.rank} both claim mesh_id {binding.mesh_id}, "
                f"mesh_host_rank {binding.mesh_host_rank}"
            )
            note.error(
                where,
                rule,
                "give each rank a place of its own: another mesh_host_rank on a shared mesh, "
                "another mesh_id otherwise",
            )
        seen.setdefault(key, binding.rank)


def _variables(bindings: Bindings, by_rank: dict[int, int], note: _Noting) -> None:
    places: list[tuple[tuple[str | int, ...], Iterable[str]]] = [
        (("global_env",), bindings.global_env)
    ]
    places += [
        (("rank_bindings", by_rank[b.rank], "env_overrides"), b.env_overrides)
        for b in bindings.rank_bindings
    ]
    for where, names in places:
        for name in names:
            if name in SETTINGS_BY_TT_RUN:
                note.warning(
                    (*where, name),
                    f"{name} set by hand hides what the binding says",
                    "delete it; mesh_id, mesh_host_rank and rank set it",
                )
    if len(bindings.rank_bindings) > 1 and "TT_VISIBLE_DEVICES" in bindings.global_env:
        note.error(
            ("global_env", "TT_VISIBLE_DEVICES"),
            "all ranks get the same TT_VISIBLE_DEVICES",
            "move it to env_overrides of each rank",
        )
    if len(bindings.rank_bindings) > 1 and "TT_METAL_CACHE" in bindings.global_env:
        rule = "all ranks share one TT_METAL_CACHE and overwrite each other's kernels"
        note.warning(
            ("global_env", "TT_METAL_CACHE"),
            rule,
            "delete it (ttkit run gives each rank its own) or set it in env_overrides",
        )


def _inherited(bindings: Bindings, by_rank: dict[int, int], note: _Noting) -> None:
    """Under tt-run, mpirun 5.0.11 gives what rank 0 sets to every rank that does not;

    `ttkit run` does not.
    """
    first, *others = bindings.rank_bindings
    here = ("rank_bindings", by_rank[first.rank])
    found: list[tuple[str, tuple[str | int, ...], list[int]]] = []
    if first.mesh_host_rank:  # a rank without one is 0
        lacking = [binding.rank for binding in others if binding.mesh_host_rank is None]
        found.append(("TT_MESH_HOST_RANK", (*here, "mesh_host_rank"), lacking))
    for name in first.env_overrides:
        if name not in bindings.global_env:
            lacking = [binding.rank for binding in others if name not in binding.env_overrides]
            found.append((name, (*here, "env_overrides", name), lacking))
    for name, where, lacking in found:
        if lacking:
            ranks = f"rank{'s' * (len(lacking) > 1)} {', '.join(map(str, lacking[:8]))}"
            rule = f"{UNDER_TT_RUN}{name} of rank 0 reaches {ranks} too"
            rule += ": mpirun 5.0.11 gives it to every rank that does not set it"
            note.warning(
                where,
                rule,
                f"write {where[2]} for every rank; ttkit run gives each rank its own only",
            )


def _slots(bindings: Bindings, hosts: Sequence[str], said_by: Path | None, note: _Noting) -> None:
    ranks = len(bindings.rank_bindings)
    if hosts and ranks > len(hosts):
        rule = f"{ranks} ranks, but {said_by and said_by.name} has {counted(len(hosts), 'slot')}"
        note.error(("rank_bindings",), rule, f"raise slots= there to {ranks} in all, or add hosts")
    elif hosts and ranks < len(hosts):
        rule = (
            f"{counted(ranks, 'rank')}, but {said_by and said_by.name} has {len(hosts)} slots: "
            f"{len(hosts) - ranks} stay empty"
        )
        note.warning(("rank_bindings",), rule, "lower slots= there, or add bindings")


def _visible_devices(
    bindings: Bindings, by_rank: dict[int, int], hosts: Sequence[str], note: _Noting
) -> None:
    """Two ranks of one host must not open the same PCIe device."""
    ranks = [binding.rank for binding in bindings.rank_bindings]
    if hosts and len(hosts) < len(ranks):
        return  # said by _slots; which rank goes where is not known
    users: dict[tuple[str, str], int] = {}
    seen: dict[int, set[str]] = {}
    for binding in bindings.rank_bindings:
        host = hosts[binding.rank] if hosts else ""
        on = f" on {host}" if host else ""
        where = ("rank_bindings", by_rank[binding.rank], "env_overrides", "TT_VISIBLE_DEVICES")
        value = binding.env_overrides.get("TT_VISIBLE_DEVICES")
        others = [
            rank for rank in ranks if rank != binding.rank and (not hosts or hosts[rank] == host)
        ]
        if value is None:
            if others and "TT_VISIBLE_DEVICES" not in bindings.global_env:
                rule = (
                    f"rank {binding.rank} sees all devices, but shares its host{on} with "
                    f"rank{'s' * (len(others) > 1)} {', '.join(map(str, others[:8]))}"
                )
                note.warning(
                    where,
                    rule,
                    'env_overrides: {TT_VISIBLE_DEVICES: "0,1"} with devices of its own for each '
                    "rank",
                )
            continue
        if not re.fullmatch(r"\s*\d{1,4}\s*(,\s*\d{1,4}\s*)*", value) and "$" not in value:
            note.error(
                where,
                f"TT_VISIBLE_DEVICES {value[:40]!r} is not a comma list of device numbers",
                'as in "0,1", the numbers of /dev/tenstorrent',
            )
            continue
        devices = [device.strip() for device in value.split(",")]
        clash = [
            device
            for device in devices
            if users.setdefault((host, device), binding.rank) != binding.rank
        ]
        if clash:
            rule = (
                f"ranks {users[host, clash[0]]} and {binding.rank} both see "
                f"device{'s' * (len(clash) > 1)} {', '.join(clash)}{on}"
            )
            note.error(
                where, rule, "give each rank devices of its own, or its own host in a rankfile"
            )
        seen[binding.rank] = set(devices)


def _against_descriptor(bindings: Bindings, by_rank: dict[int, int], note: _Noting) -> None:
    """tt-run never looks into the descriptor; the ranks do, and stop or hang."""
    for path in {
        b.mesh_graph_desc_path or bindings.mesh_graph_desc_path for b in bindings.rank_bindings
    }:
        ranks = [
            b
            for b in bindings.rank_bindings
            if (b.mesh_graph_desc_path or bindings.mesh_graph_desc_path) == path
        ]
        if path is None:
            continue
        if path.suffix in (".yaml", ".yml"):
            note.findings += _old_descriptor(
                note.document.path, path, note.document.at("mesh_graph_desc_path")
            )
        descriptor, findings = _descriptor(path)
        note.findings += findings
        if descriptor is None:
            continue
        hosts_of = {mesh.mesh_id: mesh.num_hosts for mesh in descriptor.meshes}
        for binding in ranks:
            where = ("rank_bindings", by_rank[binding.rank])
            if binding.mesh_id not in hosts_of:
                rule = (
                    f"Local mesh binding mesh_id {binding.mesh_id} not found in mesh graph "
                    f"descriptor {path.name} (it has {sorted(hosts_of)})"
                )
                note.error(
                    (*where, "mesh_id"), rule, "use one of those, or add the mesh to the descriptor"
                )
            elif (binding.mesh_host_rank or 0) >= hosts_of[binding.mesh_id]:
                rule = (
                    f"Local mesh binding host_rank {binding.mesh_host_rank} not found in mesh "
                    f"graph descriptor {path.name}"
                )
                rule += f": mesh {binding.mesh_id} has {counted(hosts_of[binding.mesh_id], 'host')}"
                places = (
                    f"0 to {hosts_of[binding.mesh_id] - 1}"
                    if hosts_of[binding.mesh_id] > 1
                    else "0"
                )
                note.error(
                    (*where, "mesh_host_rank"),
                    rule,
                    f"{places}, or change host_topology in the descriptor",
                )
        for mesh_id, number in hosts_of.items():
            have = {b.mesh_host_rank or 0 for b in ranks if b.mesh_id == mesh_id}
            lacking = sorted(set(range(number)) - have)
            if lacking:
                rule = (
                    f"no rank for mesh {mesh_id}, host rank{'s' * (len(lacking) > 1)} "
                    f"{', '.join(map(str, lacking[:8]))} of {path.name}"
                )
                note.warning(
                    ("rank_bindings",),
                    rule,
                    "add its binding: the fabric waits for every host of the descriptor",
                )


def _old_descriptor(where: Path, path: Path, line: int) -> list[Finding]:
    rule = (
        "Mesh graph descriptor file must use the .textproto format: "
        f"{path.name} is MGD 1.0 YAML, which ttnn 0.81.1 refuses"
    )
    return [
        Finding(
            "warning",
            str(where),
            line,
            rule,
            f"ttkit convert {path.name} > {path.stem}.textproto, and name that",
        )
    ]


def _descriptor(path: Path) -> tuple[MeshGraphDescriptor | None, list[Finding]]:
    """A mesh graph descriptor (None when it cannot be used) and what is wrong or doubtful in its
    file, whatever the machine.
    """
    try:
        loaded = load_text(read_text(path, "mesh graph descriptor"), str(path))
        return loaded.descriptor, list(loaded.findings)
    except TTKitError as error:
        return None, [_as_finding(path, error)]


def lint_hosts(path: Path, hosts: Sequence[Host]) -> list[Finding]:
    """What is doubtful in a hosts file that can be read."""
    findings = []
    known: dict[str, Host] = {}
    for host in hosts:
        for address in (host.name.rpartition("@")[2], *host.ips):
            other = known.setdefault(address, host)
            if other is not host:
                rule = f"hosts {other.name} and {host.name} are both {address}"
                findings.append(
                    Finding(
                        "warning",
                        str(path),
                        host.line,
                        rule,
                        "name each host once, with slots= for several ranks",
                    )
                )
    return findings


def _as_finding(path: Path, error: TTKitError) -> Finding:
    """An error of a reader as one finding; the line is in the error's text where there is one."""
    text, _, cure = str(error).rpartition("\n  try: ")
    line = re.search(re.escape(str(path)) + r":(\d+)", text)
    return Finding(
        "error", str(path), int(line[1]) if line else 1, text or cure, cure if text else "see above"
    )
