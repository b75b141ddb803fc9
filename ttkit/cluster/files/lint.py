"""The linter: what tt-run refuses in files of a cluster, and what it lets pass that fails later."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Sequence
from pathlib import Path

from ttkit.cluster.files.config import find_config
from ttkit.cluster.files.documents import read_yaml
from ttkit.cluster.files.hosts import read_hosts, read_rankfile, slots_of
from ttkit.cluster.files.lint_bindings import (
    as_finding,
    check_file,
    lint_bindings,
    old_descriptor,
)
from ttkit.errors import TTKitError
from ttkit.files import Finding
from ttkit.words import counted


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
        with contextlib.suppress(TTKitError):  # It is a finding of that file.
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
