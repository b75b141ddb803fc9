"""The linter's rules for rank_bindings.yaml: what tt-run lets pass that fails or hangs later."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from ttkit.cluster.files.bindings import Bindings, RankBinding, check_bindings
from ttkit.cluster.files.documents import Document, Where, did_you_mean, read_text
from ttkit.descriptors import MeshGraphDescriptor, load_text
from ttkit.errors import TTKitError
from ttkit.files import Finding
from ttkit.words import counted

# Names of the design document and of older files -> today's.
RENAMED = {
    "host_rank_id": "mesh_host_rank",
    "mesh_graph_path": "mesh_graph_desc_path",
    "TT_METAL_MESH_ID": "mesh_id",
    "TT_METAL_HOST_RANK_ID": "mesh_host_rank",
    "env": "env_overrides",
}
UNDER_TT_RUN = "under tt-run, "  # starts what concerns tt-run only, not ttkit run
SET_BY_TT_RUN = ("TT_MESH_ID", "TT_MESH_HOST_RANK", "TT_MESH_GRAPH_DESC_PATH", "TT_RUN_RANK")
DEVICES, CACHE = "TT_VISIBLE_DEVICES", "TT_METAL_CACHE"
RANKS: Where = ("rank_bindings",)


def lint_bindings(
    document: Document, hosts: Sequence[str] = (), hosts_file: Path | None = None
) -> list[Finding]:
    """Return what is wrong or doubtful in a rank_bindings.yaml.

    Args:
        hosts: the host of each slot, in rank order; empty when all ranks run on one host.
        hosts_file: the hosts file or rankfile that names them.
    """
    bindings, findings = check_bindings(document)
    rules = _Rules(document, bindings or Bindings(rank_bindings=()), hosts, hosts_file)
    rules.unknown_keys()
    if bindings is not None:
        rules.plain_values()
        rules.places()
        rules.variables()
        rules.inherited()
        rules.slots()
        rules.visible_devices()
        rules.order()
        rules.descriptors()
    return findings + rules.findings


class _Rules:
    """The rules for one file; each method notes what breaks its rule."""

    def __init__(
        self,
        document: Document,
        bindings: Bindings,
        hosts: Sequence[str],
        hosts_file: Path | None,
    ):
        self.document, self.bindings = document, bindings
        self.hosts, self.hosts_file = hosts, hosts_file
        self.ranks = bindings.rank_bindings
        self.findings: list[Finding] = []

    def error(self, where: Where, rule: str, cure: str, severity: str = "error") -> None:
        line, column = self.document.place(*where)
        self.findings.append(Finding(severity, str(self.document.path), line, rule, cure, column))

    def warning(self, where: Where, rule: str, cure: str) -> None:
        self.error(where, rule, cure, "warning")

    @cached_property
    def at(self) -> dict[int, Where]:
        """Where each rank is bound, in the order of the file."""
        listed = self.document.value["rank_bindings"]
        return {int(item["rank"]): (*RANKS, index) for index, item in enumerate(listed)}

    def unknown_keys(self) -> None:
        """tt-run ignores keys that it does not know, so a misspelt one is silently lost."""
        top = self.document.value
        if not isinstance(top, dict):
            return
        listed = top.get("rank_bindings")
        mappings: list[tuple[Where, dict[Any, Any], list[str]]] = [
            ((), top, [*Bindings.model_fields])
        ]
        for index, item in enumerate(listed if isinstance(listed, list) else ()):
            if isinstance(item, dict):
                mappings.append(((*RANKS, index), item, [*RankBinding.model_fields]))
        for where, mapping, known in mappings:
            for key in mapping:
                if key not in known:
                    cure = did_you_mean(key, known, RENAMED)
                    cure = cure or f"delete it, or use one of {', '.join(known)}"
                    rule = f"unknown key {str(key)[:60]!r}: tt-run ignores it"
                    self.error((*where, str(key)), rule, cure)

    def plain_values(self) -> None:
        """0,1 without quotes happens to be text, but 0 is a number and 1:30 is ninety."""
        for where, text in self.document.plain.items():
            key = where[-1] if where else ""
            is_variable = len(where) in (2, 4) and where[-2] in ("global_env", "env_overrides")
            if is_variable and re.fullmatch(r"[\d,.: _-]+", text) and where in self.document.lines:
                rule = f"{key}: {text} has no quotes; "
                rule += "with one number only tt-run would refuse it"
                self.warning(where, rule, f'{key}: "{text}"')
            elif key in RankBinding.model_fields and re.fullmatch(r"[\d_]+(:\d+)+", text):
                rule = f"{key}: YAML 1.1 reads {text} as a number that counts in sixties"
                self.error(where, rule, "write one whole number, such as 0")

    def places(self) -> None:
        """Each rank has a place of its own."""
        ranks_of = Counter(binding.mesh_id for binding in self.ranks)
        taken: dict[tuple[object, ...], int] = {}
        for binding in self.ranks:
            mesh, place, rank = binding.mesh_id, binding.mesh_host_rank, binding.rank
            if place is None and ranks_of[mesh] > 1:
                rule = f"rank {rank}: mesh {mesh} has several ranks, so each needs a mesh_host_rank"
                cure = "add mesh_host_rank: 0, 1, ... in the order of the descriptor's "
                self.error(self.at[rank], rule, cure + "host_topology")
                continue
            first = taken.setdefault((binding.mesh_graph_desc_path, mesh, place), rank)
            if first != rank:
                rule = f"ranks {first} and {rank} both claim mesh_id {mesh}, mesh_host_rank {place}"
                cure = "give each rank a place of its own: another mesh_host_rank on a shared mesh,"
                self.error(self.at[rank], rule, f"{cure} another mesh_id otherwise")

    def variables(self) -> None:
        """Variables that no file should set, or not for all ranks."""
        shared = self.bindings.global_env
        places: list[Where] = [("global_env", name) for name in shared]
        for binding in self.ranks:
            here = (*self.at[binding.rank], "env_overrides")
            places += [(*here, name) for name in binding.env_overrides]
        for where in places:
            if where[-1] in SET_BY_TT_RUN:
                rule = f"{where[-1]} set by hand hides the value of the binding"
                self.warning(where, rule, "delete it; mesh_id, mesh_host_rank and rank set it")
        if len(self.ranks) > 1 and DEVICES in shared:
            cure = "move it to env_overrides of each rank"
            self.error(("global_env", DEVICES), f"all ranks get the same {DEVICES}", cure)
        if len(self.ranks) > 1 and CACHE in shared:
            rule = f"all ranks share one {CACHE} and overwrite each other's kernels"
            cure = "delete it (ttkit run gives each rank its own) or set it in env_overrides"
            self.warning(("global_env", CACHE), rule, cure)

    def inherited(self) -> None:
        """Under tt-run, mpirun 5.0.11 gives what rank 0 sets to every rank that does not."""
        first, *others = self.ranks
        here = self.at[first.rank]
        shared = self.bindings.global_env
        found: list[tuple[str, Where, list[int]]] = []
        if first.mesh_host_rank:  # a rank without one is 0
            lacking = [binding.rank for binding in others if binding.mesh_host_rank is None]
            found.append(("TT_MESH_HOST_RANK", (*here, "mesh_host_rank"), lacking))
        for name in first.env_overrides:
            lacking = [binding.rank for binding in others if name not in binding.env_overrides]
            found.append((name, (*here, "env_overrides", name), [] if name in shared else lacking))
        for name, where, lacking in found:
            if lacking:
                rule = f"{UNDER_TT_RUN}{name} of rank 0 reaches {_listed('rank', lacking)} too"
                rule += ": mpirun 5.0.11 gives it to every rank that does not set it"
                cure = f"write {where[2]} for every rank; ttkit run gives each rank its own only"
                self.warning(where, rule, cure)

    def slots(self) -> None:
        """As many slots as ranks."""
        ranks, slots = len(self.ranks), len(self.hosts)
        name = self.hosts_file and self.hosts_file.name
        if slots and ranks > slots:
            cure = f"raise slots= there to {ranks} in all, or add hosts"
            self.error(RANKS, f"{ranks} ranks, but {name} has {counted(slots, 'slot')}", cure)
        elif slots and ranks < slots:
            rule = f"{counted(ranks, 'rank')}, but {name} has {slots} slots"
            rule += f": {slots - ranks} stay empty"
            self.warning(RANKS, rule, "lower slots= there, or add bindings")

    def visible_devices(self) -> None:
        """Two ranks of one host must not open the same PCIe device."""
        hosts = self.hosts or [""] * len(self.ranks)
        if len(hosts) < len(self.ranks):
            return  # see slots; which rank goes where is not known
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
                    self.warning(where, rule + _listed("rank", others), cure + "rank")
            elif not re.fullmatch(r"\s*\d{1,4}\s*(,\s*\d{1,4}\s*)*", value) and "$" not in value:
                rule = f"{DEVICES} {value[:40]!r} is not a comma list of device numbers"
                self.error(where, rule, 'as in "0,1", the numbers of /dev/tenstorrent')
            else:
                given = [device.strip() for device in value.split(",")]
                clash = [each for each in given if users.setdefault((host, each), rank) != rank]
                if clash:
                    rule = f"ranks {users[host, clash[0]]} and {rank} both see "
                    cure = "give each rank devices of its own, or its own host in a rankfile"
                    self.error(where, f"{rule}{_listed('device', clash)}{on}", cure)

    def order(self) -> None:
        """Ranks in the order of their numbers."""
        if [*self.at] != sorted(self.at):
            rule = "ranks are not listed in order; tt-run 0.81.1 then puts the ':' between programs"
            self.warning(RANKS, f"{rule} wrongly", "list them as 0, 1, 2, ...")

    def descriptors(self) -> None:
        """tt-run never looks into the descriptor; the ranks do, and stop or hang."""
        ranks_of: dict[Path, list[RankBinding]] = {}
        for binding in self.ranks:
            path = binding.mesh_graph_desc_path or self.bindings.mesh_graph_desc_path
            if path is not None:
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
                rule = f"no rank for mesh {mesh}, {_listed('host rank', lacking)} of {name}"
                cure = "add its binding: the fabric waits for every host of the descriptor"
                self.warning(RANKS, rule, cure)


def _listed(what: str, numbers: Sequence[object]) -> str:
    """Return "rank 1" or "ranks 1, 2", the first eight of them.

    Example:
        >>> _listed("rank", [1, 2])
        'ranks 1, 2'
    """
    return f"{what}{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers[:8]))}"


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
