"""The linter: what tt-run refuses in files of a cluster, and what it lets pass that fails later."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from ttkit.cluster.files.documents import BINDINGS, find_config, read_yaml
from ttkit.cluster.files.hosts import Host, read_hosts, read_rankfile, slots_of
from ttkit.cluster.files.lint_bindings import (
    as_finding,
    check_file,
    lint_bindings,
    old_descriptor,
)
from ttkit.errors import TTKitError
from ttkit.files import Finding
from ttkit.words import counted

T = TypeVar("T")
TWICE = "is twice in one mapping; only the last counts"


def lint_path(path: str | os.PathLike[str], hostfile: Path | None = None) -> list[Finding]:
    """Return what is wrong or doubtful in a configuration folder or in one of its files.

    Args:
        path: a folder with rank_bindings.yaml, hosts.txt and so on, one such file, or a training
            configuration.
        hostfile: the hosts of a rank_bindings.yaml that is given without its folder; else all ranks
            run on one host.

    Example:
        >>> lint_path("configs/2loudboxes")
        []
    """
    path = Path(path)
    try:
        if os.path.isdir(path):
            return _lint_folder(path)
        is_yaml = path.suffix in (".yaml", ".yml")
        if path.suffix == ".json" or (re.search(r"hosts?(file)?\b", path.stem) and not is_yaml):
            return lint_hosts(path, read_hosts(path))
        if "rankfile" in path.name:
            read_rankfile(path)
            return []
        if path.suffix == ".textproto":
            return check_file(path)[1]
        return _lint_yaml(path, slots_of(read_hosts(hostfile)) if hostfile else (), hostfile)
    except TTKitError as error:
        return [as_finding(path, error)]


def _lint_folder(folder: Path) -> list[Finding]:
    yaml_files = sorted({*folder.glob("*.yaml"), *folder.glob("*.yml")})
    config = find_config(folder, or_else=bool(yaml_files))
    findings: list[Finding] = []

    def read(reader: Callable[[Path], tuple[T, ...]], path: Path | None) -> tuple[T, ...]:
        try:
            return reader(path) if path else ()
        except TTKitError as error:
            findings.append(as_finding(path or folder, error))
            return ()

    hosts, ranks = read(read_hosts, config.hosts), read(read_rankfile, config.rankfile)
    if config.hosts:
        findings += lint_hosts(config.hosts, hosts)
    places = [rank.host for rank in ranks] or slots_of(hosts)
    for path in yaml_files:
        try:
            if path.name == BINDINGS:
                findings += _lint_yaml(path, places, config.rankfile if ranks else config.hosts)
            else:
                findings += _lint_yaml(path)
        except TTKitError as error:
            findings.append(as_finding(path, error))
    return findings


def _lint_yaml(
    path: Path, hosts: Sequence[str] = (), hosts_file: Path | None = None
) -> list[Finding]:
    document = read_yaml(path, "configuration file")
    cure = "delete one, or make two list items of them"
    findings = [
        Finding("error", str(path), line, f"{key[:60]!r} {TWICE}", cure)
        for line, key in document.twice
    ]
    top = document.value if isinstance(document.value, dict) else {}
    if "rank_bindings" not in top:
        from ttkit.train.config import SECTIONS  # training defines what is in its files
        from ttkit.train.config_files import check_settings

        if set(top) & set(SECTIONS):
            return findings + check_settings(document)
    if "Mesh" in top and "ChipSpec" in top:  # a mesh graph descriptor of the first generation
        return [*findings, old_descriptor(path, path, 1), *check_file(path)[1]]
    return findings + lint_bindings(document, hosts, hosts_file)


def lint_hosts(path: Path, hosts: Sequence[Host]) -> list[Finding]:
    """Return what is doubtful in a hosts file that can be read."""
    findings = []
    known: dict[str, Host] = {}
    for host in hosts:
        for address in (host.name.rpartition("@")[2], *host.ips):
            other = known.setdefault(address, host)
            if other is not host:
                rule = f"hosts {other.name} and {host.name} are both {address}"
                cure = "name each host once, with slots= for several ranks"
                findings.append(Finding("warning", str(path), host.line, rule, cure))
    return findings


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
