"""The linter: what tt-run refuses in files of a cluster, and what it lets pass that fails later."""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ttkit.cluster.files.bindings import Bindings, RankBinding, check_bindings
from ttkit.cluster.files.config import find_config
from ttkit.cluster.files.hosts import read_hosts, read_rankfile, slots_of
from ttkit.descriptors import MeshGraphDescriptor, load_text
from ttkit.errors import TTKitError
from ttkit.files import Document, Finding, Where, did_you_mean, read_text, read_yaml
from ttkit.words import counted, numbered

# The keys are names in the design document and in older files, the values today's names.
RENAMED = {
    "host_rank_id": "mesh_host_rank",
    "mesh_graph_path": "mesh_graph_desc_path",
    "TT_METAL_MESH_ID": "mesh_id",
    "TT_METAL_HOST_RANK_ID": "mesh_host_rank",
    "env": "env_overrides",
}
DEVICES = "TT_VISIBLE_DEVICES"
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
            return _lint_folder(path)
        if path.suffix == ".textproto":
            return check_file(path)[1]
        if path.suffix in (".yaml", ".yml"):
            return _lint_yaml(path, hostfile)
        _hosts_in_rank_order(path)
        return []
    except TTKitError as error:
        return [as_finding(path, error)]


def _lint_folder(folder: Path) -> list[Finding]:
    yaml_files = sorted({*folder.glob("*.yaml"), *folder.glob("*.yml")})
    config = find_config(folder, or_else=bool(yaml_files))
    findings = [
        each for path in (config.hosts, config.rankfile) if path for each in lint_path(path)
    ]
    for path in yaml_files:
        findings += lint_path(path, config.rankfile or config.hosts)
    return findings


def _hosts_in_rank_order(path: Path) -> list[str]:
    """Return the host of each rank that a rankfile names, or of each slot of a hosts file."""
    if "rankfile" in path.name:
        return [rank.host for rank in read_rankfile(path)]
    return slots_of(read_hosts(path))


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
    if "rank_bindings" not in top:
        from ttkit.train.config.files import check_settings
        from ttkit.train.config.settings import SECTIONS  # Training defines what is in its files.

        if set(top) & set(SECTIONS):
            return findings + check_settings(document)
    if (
        "Mesh" in top and "ChipSpec" in top
    ):  # It is a mesh graph descriptor of the first generation.
        return findings + [old_descriptor(path, path, 1), *check_file(path)[1]]
    hosts = list[str]()
    if hosts_file:
        with contextlib.suppress(TTKitError):  # Linting that file reports it.
            hosts = _hosts_in_rank_order(hosts_file)
    return findings + lint_bindings(document, hosts, hosts_file)


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


# ---------------------------------------------------------------- rank_bindings.yaml
def lint_bindings(
    document: Document, hosts: Sequence[str] = (), hosts_file: Path | None = None
) -> list[Finding]:
    """Return what is wrong or doubtful in a rank_bindings.yaml.

    Args:
        hosts: the host of each slot, in rank order; empty when all ranks run on one host.
        hosts_file: the hosts file or rankfile that names them.
    """
    bindings, findings = check_bindings(document)
    findings += _unknown_keys(document)
    if bindings:
        rules = _Rules(document, bindings, hosts)
        rules.hosts_of_meshes()
        rules.shared_variables()
        rules.slots(hosts_file.name if hosts_file else "")
        rules.visible_devices()
        rules.descriptors()
        findings += rules.findings
    return findings


def _unknown_keys(document: Document) -> Iterator[Finding]:
    """tt-run ignores keys that it does not know, so a misspelt one is silently lost."""
    top = document.value if isinstance(document.value, dict) else {}
    mappings: list[tuple[Where, Any, list[str]]] = [((), top, [*Bindings.model_fields])]
    listed = top.get("rank_bindings")
    for index, item in enumerate(listed if isinstance(listed, list) else ()):
        mappings.append(((*RANKS, index), item, [*RankBinding.model_fields]))
    for where, mapping, known in mappings:
        for key in mapping if isinstance(mapping, dict) else ():
            if key not in known:
                cure = did_you_mean(key, known, RENAMED)
                cure = cure or f"delete it, or use one of {', '.join(known)}"
                rule = f"unknown key {str(key)!r}: tt-run ignores it"
                yield document.finding((*where, str(key)), rule, cure)


class _Rules:
    """The rules for the bindings of one file; each method notes what breaks its rule."""

    def __init__(self, document: Document, bindings: Bindings, hosts: Sequence[str]):
        self.document, self.bindings, self.hosts = document, bindings, hosts
        self.ranks = bindings.rank_bindings
        self.findings: list[Finding] = []
        # `at` says where each rank stands in the file, for the line of a finding.
        listed = enumerate(document.value["rank_bindings"])
        self.at: dict[int, Where] = {int(item["rank"]): (*RANKS, index) for index, item in listed}

    def error(self, where: Where, rule: str, cure: str, severity: str = "error") -> None:
        self.findings.append(self.document.finding(where, rule, cure, severity))

    def warning(self, where: Where, rule: str, cure: str) -> None:
        self.error(where, rule, cure, "warning")

    def hosts_of_meshes(self) -> None:
        """Check that the ranks of a mesh have different host ranks."""
        ranks_of = Counter(binding.mesh_id for binding in self.ranks)
        taken: dict[tuple[object, ...], int] = {}
        for binding in self.ranks:
            mesh, place, rank = binding.mesh_id, binding.mesh_host_rank, binding.rank
            if place is None and ranks_of[mesh] > 1:
                rule = f"rank {rank}: mesh {mesh} has several ranks, so each needs a mesh_host_rank"
                cure = "add mesh_host_rank: 0, 1, ... in the order of the descriptor's "
                self.error(self.at[rank], rule, cure + "host_topology")
                continue
            first = taken.setdefault((self.bindings.descriptor_of(binding), mesh, place), rank)
            if first != rank:
                rule = f"ranks {first} and {rank} both claim mesh_id {mesh}, mesh_host_rank {place}"
                cure = "give each rank a place of its own: another mesh_host_rank on a shared mesh,"
                self.error(self.at[rank], rule, f"{cure} another mesh_id otherwise")

    def shared_variables(self) -> None:
        """Check that no variable of one rank is set for all ranks."""
        if len(self.ranks) > 1 and DEVICES in self.bindings.global_env:
            cure = "move it to env_overrides of each rank"
            self.error(("global_env", DEVICES), f"all ranks get the same {DEVICES}", cure)

    def slots(self, name: str) -> None:
        """Check that there are as many slots as ranks."""
        ranks, slots = len(self.ranks), len(self.hosts)
        if slots and ranks > slots:
            cure = f"raise slots= there to {ranks} in all, or add hosts"
            self.error(RANKS, f"{ranks} ranks, but {name} has {counted(slots, 'slot')}", cure)
        elif slots and ranks < slots:
            rule = f"{counted(ranks, 'rank')}, but {name} has {slots} slots"
            rule += f": {slots - ranks} stay empty"
            self.warning(RANKS, rule, "lower slots= there, or add bindings")

    def visible_devices(self) -> None:
        """Check that no two ranks of one host open the same PCIe device."""
        hosts = self.hosts or [""] * len(self.ranks)
        if len(hosts) < len(self.ranks):
            return  # Hosts of some ranks are unknown; `slots` reports it.
        users: dict[tuple[str, str], int] = {}
        for binding in self.ranks:
            rank, host = binding.rank, hosts[binding.rank]
            on = f" on {host}" if host else ""
            where = (*self.at[rank], "env_overrides", DEVICES)
            value = binding.env_overrides.get(DEVICES)
            if value is None:
                others = [each.rank for each in self.ranks if hosts[each.rank] == host]
                others.remove(rank)
                if others and DEVICES not in self.bindings.global_env:
                    rule = f"rank {rank} sees all devices, but shares its host{on} with "
                    cure = f'env_overrides: {{{DEVICES}: "0,1"}} with devices of its own for each '
                    self.warning(where, rule + numbered("rank", others), cure + "rank")
            elif not re.fullmatch(r"\s*\d{1,4}\s*(,\s*\d{1,4}\s*)*", value) and "$" not in value:
                rule = f"{DEVICES} {value[:40]!r} is not a comma list of device numbers"
                self.error(where, rule, 'as in "0,1", the numbers of /dev/tenstorrent')
            else:
                given = [device.strip() for device in value.split(",")]
                clash = [each for each in given if users.setdefault((host, each), rank) != rank]
                if clash:
                    rule = f"ranks {users[host, clash[0]]} and {rank} both see "
                    cure = "give each rank devices of its own, or its own host in a rankfile"
                    self.error(where, f"{rule}{numbered('device', clash)}{on}", cure)

    def descriptors(self) -> None:
        """tt-run never looks into the descriptor; the ranks do, and stop or hang."""
        ranks_of: dict[Path, list[RankBinding]] = {}
        for binding in self.ranks:
            if path := self.bindings.descriptor_of(binding):
                ranks_of.setdefault(path, []).append(binding)
        for path, ranks in ranks_of.items():
            if path.suffix in (".yaml", ".yml"):
                line = self.document.at("mesh_graph_desc_path")
                self.findings.append(old_descriptor(self.document.path, path, line))
            descriptor, findings = check_file(path)
            self.findings += findings
            if descriptor is not None:
                self.against(descriptor, path.name, ranks)

    def against(self, descriptor: MeshGraphDescriptor, name: str, ranks: list[RankBinding]) -> None:
        """Compare the ranks with the meshes of their descriptor."""
        hosts_of = {mesh.mesh_id: mesh.num_hosts for mesh in descriptor.meshes}
        missing = f"not found in mesh graph descriptor {name}"
        for binding in ranks:
            where, mesh = self.at[binding.rank], binding.mesh_id
            place = binding.mesh_host_rank or 0
            if mesh not in hosts_of:
                rule = f"Local mesh binding mesh_id {mesh} {missing} (it has {sorted(hosts_of)})"
                cure = "use one of those, or add the mesh to the descriptor"
                self.error((*where, "mesh_id"), rule, cure)
            elif place >= hosts_of[mesh]:
                last = hosts_of[mesh] - 1
                rule = f"Local mesh binding host_rank {place} {missing}: mesh {mesh} has "
                cure = f"{f'0 to {last}' if last else '0'}, or change host_topology in the "
                rule += counted(last + 1, "host")
                self.error((*where, "mesh_host_rank"), rule, cure + "descriptor")
        for mesh, number in hosts_of.items():
            have = {binding.mesh_host_rank or 0 for binding in ranks if binding.mesh_id == mesh}
            if lacking := sorted(set(range(number)) - have):
                rule = f"no rank for mesh {mesh}, {numbered('host rank', lacking)} of {name}"
                cure = "add its binding: the fabric waits for every host of the descriptor"
                self.warning(RANKS, rule, cure)


def old_descriptor(where: Path, path: Path, line: int) -> Finding:
    """Return the finding for a descriptor in the form of the first generation."""
    rule = "Mesh graph descriptor file must use the .textproto format: "
    rule += f"{path.name} is MGD 1.0 YAML, which ttnn 0.81.1 refuses"
    cure = f"ttkit convert {path.name} > {path.stem}.textproto, and name that"
    return Finding("warning", str(where), line, rule, cure)


def check_file(path: Path) -> tuple[MeshGraphDescriptor | None, list[Finding]]:
    """Read a mesh graph descriptor, None where it cannot be used, and what is wrong in its file."""
    try:
        loaded = load_text(read_text(path, "mesh graph descriptor"), str(path))
        return loaded.descriptor, list(loaded.findings)
    except TTKitError as error:
        return None, [as_finding(path, error)]


def as_finding(path: Path, error: TTKitError) -> Finding:
    """Return a reader's error as a finding; its line is in the error's text where there is one."""
    text, _, cure = str(error).rpartition("\n  try: ")
    found = re.search(re.escape(str(path)) + r":(\d+)(?::(\d+))?", text)
    line, column = (int(found[1]), int(found[2] or 0)) if found else (1, 0)
    message, cure = (text, cure) if text else (cure, "see above")
    return Finding("error", str(path), line, message, cure, column)
