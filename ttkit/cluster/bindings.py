"""rank_bindings.yaml: which rank runs on which mesh, and with which environment.

Read as tt-run 0.81.1 reads it.

Three generations of these files are about and all are read: G1 has `rank` and `mesh_id` only, G2
adds `mesh_host_rank` and `env_overrides`, G3 is what `tt-run -m` writes. What is wrong is said with
tt-run's words, the file and line, and what to do; what tt-run lets pass is the linter's business
(ttkit.cluster.lint)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ttkit.cluster.documents import Document, Where, fail_with, find_file, read_yaml
from ttkit.errors import Finding, TTKitError, fail
from ttkit.words import counted

MAPPING_KEY = "subcontext_id_to_rank_bindings"
TOP_KEYS = (
    "rank_bindings",
    "mesh_graph_desc_path",
    "global_env",
    "factory_system_descriptor_path",
    "mock_cluster_rank_binding",
)
BINDING_KEYS = (
    "rank",
    "mesh_id",
    "mesh_host_rank",
    "env_overrides",
    "mesh_graph_desc_path",
    "subcontext_id",
    "subcontext_size",
)


@dataclass(frozen=True)
class RankBinding:
    """One rank: an MPI process, the mesh it belongs to and its place among that mesh's hosts."""

    rank: int
    mesh_id: int | None  # None only for ranks of plain MPI, which have no mesh
    mesh_host_rank: int | None = None
    env_overrides: Mapping[str, str] = field(default_factory=dict)
    mesh_graph_desc_path: Path | None = None
    subcontext_id: int | None = None
    subcontext_size: int | None = None


@dataclass(frozen=True)
class Bindings:
    """All ranks of a launch, in rank order, and what they share."""

    rank_bindings: tuple[RankBinding, ...]
    mesh_graph_desc_path: Path | None = None
    global_env: Mapping[str, str] = field(default_factory=dict)
    factory_system_descriptor_path: Path | None = None
    mock_cluster_rank_binding: Mapping[int, Path] = field(default_factory=dict)


def plain_ranks(number: int) -> Bindings:
    """`number` ranks of plain MPI, with no mesh.

    Example:
        >>> [binding.rank for binding in plain_ranks(3).rank_bindings]
        [0, 1, 2]
    """
    if number < 1:
        fail(f"start {number} ranks", "there must be at least one", "-n 2")
    return Bindings(tuple(RankBinding(rank, None) for rank in range(number)))


def read_bindings(path: str | os.PathLike[str], skip_mgd_check: bool = False) -> Bindings:
    """The ranks that a rank_bindings.yaml describes.

    Args:
        path: looked for where tt-run looks: $TT_METAL_HOME, then the folder you are in.
        skip_mgd_check: do not ask whether the mesh graph descriptor is there.

    Raises:
        TTKitError: what tt-run refuses, all of it at once, each with file and line.

    Example:
        >>> bindings = read_bindings("configs/t3000_2ranks/rank_bindings.yaml")
        >>> [(b.rank, b.mesh_id, b.mesh_host_rank, b.env_overrides["TT_VISIBLE_DEVICES"]) for b in bindings.rank_bindings]
        [(0, 0, 0, '0,1'), (1, 0, 1, '2,3')]
    """
    found = find_file(path, "Configuration file", asked="Configuration error")
    bindings, findings = check_bindings(read_yaml(found, "Configuration file"), skip_mgd_check)
    if bindings is None:
        fail_with(
            "Configuration error",
            lambda n: f"Invalid configuration: {counted(n, 'validation error')} for TTRunConfig",
            findings,
        )
    return bindings


def check_bindings(
    document: Document, skip_mgd_check: bool = False
) -> tuple[Bindings | None, list[Finding]]:
    """The bindings of a file that was read (None when tt-run would refuse it), and why it would."""
    check = _Check(document)
    top = document.value
    if not isinstance(top, dict):
        check.wrong(
            (),
            "Input should be a valid dictionary or instance of TTRunConfig",
            "start with the line 'rank_bindings:'",
        )
        return None, check.findings
    ranks = _ranks(check, top)
    global_env = check.environment(("global_env",), top.get("global_env", {}))
    descriptor = check.file(
        ("mesh_graph_desc_path",), top, "Mesh graph descriptor", not skip_mgd_check
    )
    if "mesh_graph_desc_path" not in top:
        check.wrong(
            ("mesh_graph_desc_path",),
            "Field required",
            "add a line 'mesh_graph_desc_path: PATH' that names the .textproto",
        )
    factory = top.get("factory_system_descriptor_path")
    if factory is not None and not isinstance(factory, str):
        check.wrong(
            ("factory_system_descriptor_path",),
            "Input is not a valid path",
            "give the path of a .textproto",
        )
    mock = top.get("mock_cluster_rank_binding", {})
    if not isinstance(mock, dict) or not all(
        isinstance(k, int) and isinstance(v, str) for k, v in mock.items()
    ):
        check.wrong(
            ("mock_cluster_rank_binding",),
            "Input should be a valid dictionary",
            "write one line 'RANK: PATH' for each rank",
        )
    if check.findings:
        return None, check.findings
    return Bindings(
        tuple(sorted(ranks, key=lambda binding: binding.rank)),
        descriptor,
        global_env,
        Path(factory) if factory else None,
        {rank: Path(path) for rank, path in mock.items()},
    ), []


def _ranks(check: _Check, top: dict[Any, Any]) -> list[RankBinding]:
    here = ("rank_bindings",)
    listed = top.get("rank_bindings")
    if "rank_bindings" not in top:
        check.wrong(
            here,
            "Field required",
            "add 'rank_bindings:' and below it one '- rank: 0' with its 'mesh_id:' for each rank",
        )
    elif not isinstance(listed, list):
        check.wrong(
            here, "Input should be a valid list", "start each rank's lines with '- rank: N'"
        )
    elif not listed:
        check.wrong(
            here,
            "List should have at least 1 item after validation, not 0",
            "add one '- rank: 0' with its 'mesh_id:' for each rank",
        )
    else:
        before = len(check.findings)
        bindings = [_binding(check, (*here, index), item) for index, item in enumerate(listed)]
        if len(check.findings) > before:
            return []
        ranks = [binding.rank for binding in bindings]
        for index, rank in enumerate(ranks):
            if rank in ranks[:index]:
                lines = [
                    check.document.at(*here, ranks.index(rank), "rank"),
                    check.document.at(*here, index, "rank"),
                ]
                rule = (
                    f"Duplicate ranks found in bindings: rank {rank} on lines {lines[0]} and "
                    f"{lines[1]}"
                )
                check.wrong(
                    (*here, index, "rank"),
                    rule,
                    f"number the ranks 0 to {len(ranks) - 1}, each once",
                )
                return []
        if sorted(ranks) != list(range(len(ranks))):
            check.wrong(
                here,
                f"Ranks must be contiguous from 0. Got: {sorted(ranks)}",
                f"number the {len(ranks)} ranks 0 to {len(ranks) - 1}",
            )
        return bindings
    return []


def _binding(check: _Check, here: Where, item: Any) -> RankBinding:
    if not isinstance(item, dict):
        check.wrong(
            here,
            "Input should be a valid dictionary or instance of RankBinding",
            "write 'rank: N' and 'mesh_id: M' below each other",
        )
        return RankBinding(0, 0)
    numbers: dict[str, Any] = {}
    for key, least in (
        ("rank", 0),
        ("mesh_id", 0),
        ("mesh_host_rank", 0),
        ("subcontext_id", 0),
        ("subcontext_size", 1),
    ):
        if item.get(key) is not None or (key in item and key in ("rank", "mesh_id")):
            numbers[key] = check.integer((*here, key), item[key], least)
        elif key in ("rank", "mesh_id"):
            check.wrong((*here, key), "Field required", f"add '{key}: 0' to this rank's lines")
    environment = check.environment((*here, "env_overrides"), item.get("env_overrides", {}))
    descriptor = None
    if item.get("mesh_graph_desc_path") not in (None, ""):
        descriptor = check.file(
            (*here, "mesh_graph_desc_path"), item, "Per-rank mesh graph descriptor", True
        )
    return RankBinding(
        **{"rank": 0, "mesh_id": 0, **numbers},
        env_overrides=environment,
        mesh_graph_desc_path=descriptor,
    )


class _Check:
    """Collects what is wrong in one document; each method gives the value to go on with."""

    def __init__(self, document: Document):
        self.document, self.findings = document, list[Finding]()

    def wrong(self, where: Where, rule: str, cure: str) -> None:
        name = ".".join(map(str, where))
        self.findings.append(
            Finding(
                "error",
                str(self.document.path),
                self.document.at(*where),
                f"{name}: {rule}" if name else rule,
                cure,
            )
        )

    def integer(self, where: Where, value: Any, least: int) -> int:
        """tt-run takes 1, "1" and 1.0 for 1, and no for 0; also 1:30 for 90, which nobody means,
        so that is refused.
        """
        written = self.document.plain.get(where, "")
        if ":" in written and isinstance(value, (int, float)):
            rule = (
                f"Input should be a valid integer: {written[:40]}, "
                f"which YAML 1.1 reads as {_short(value)} (it counts in sixties)"
            )
            self.wrong(where, rule, "write one whole number, such as 0")
            return least
        rule = ""
        try:
            if isinstance(value, float) and not value.is_integer():
                rule = (
                    ", got a number with a fractional part"
                    if value == value and abs(value) != float("inf")
                    else ""
                )
                raise ValueError
            if not isinstance(value, (int, float, str)):
                raise ValueError
            number = int(value)
        except ValueError:
            if isinstance(value, str):
                rule = ", unable to parse string as an integer"
            self.wrong(
                where,
                f"Input should be a valid integer{rule}: {_short(value)}",
                "write a whole number, such as 0",
            )
            return least
        if number < least:
            self.wrong(
                where,
                f"Input should be greater than or equal to {least}: {number}",
                "count ranks and meshes from 0, sizes from 1",
            )
        return number

    def environment(self, where: Where, value: Any) -> dict[str, str]:
        if not isinstance(value, dict):
            self.wrong(
                where,
                f"Input should be a valid dictionary: {_short(value)}",
                "write one line 'NAME: \"value\"' for each variable, or leave the key out",
            )
            return {}
        for name, setting in value.items():
            there = (*where, str(name))
            if not isinstance(name, str) or not name or "=" in name or "\0" in name:
                self.wrong(
                    there,
                    f"Input should be a valid string: {_short(name)} as the name of a variable",
                    "names have letters, digits and _",
                )
            if not isinstance(setting, str):
                written = self.as_written(there, setting)
                cure = f'put quotes around it: {name}: "{written}"'
                self.wrong(
                    there,
                    f"Input should be a valid string: {_short(setting)} without quotes is no text",
                    cure,
                )
            elif "\0" in setting:
                self.wrong(
                    there,
                    "Input should be a valid string: it holds a zero byte",
                    "leave that character out",
                )
        return value

    def as_written(self, where: Where, value: Any) -> str:
        """The text of a value that stands without quotes; 1 and 0 for a switch, as programs read
        them.
        """
        if isinstance(value, (bool, type(None))):
            return {True: "1", False: "0", None: ""}[value]
        return self.document.plain.get(where, _short(value))[:60]

    def file(self, where: Where, top: dict[Any, Any], what: str, must_exist: bool) -> Path | None:
        if where[-1] not in top:
            return None
        path = top[where[-1]]
        if not isinstance(path, str):
            self.wrong(
                where, f"Input is not a valid path: {_short(path)}", "give the path of a .textproto"
            )
            return None
        try:
            return find_file(path, what, self.document.path.parent, must_exist)
        except TTKitError as error:
            rule, _, cure = str(error).partition("\n  try: ")
            self.wrong(where, rule.partition(": ")[2], cure)
            return None


def _short(value: object) -> str:
    text = repr(value) if not isinstance(value, int) or abs(value) < 10**18 else "a huge number"
    return text if len(text) <= 60 else text[:57] + "..."


def read_mapping(path: str | os.PathLike[str], skip_mgd_check: bool = False) -> Bindings:
    """Several bindings files run as one launch: the ranks of the second follow those of the
    first, and so on.

    Each file is a sub-context: its ranks see its number in TT_RUN_SUBCONTEXT_ID and everybody's
    sizes in TT_RUN_SUBCONTEXT_SIZES.

    Raises:
        TTKitError: what tt-run refuses, in the mapping file or in a file that it names.
    """
    found = find_file(path, "Rank bindings mapping file", asked="Configuration error")
    document = read_yaml(found, "rank bindings mapping")
    listed = document.value.get(MAPPING_KEY) if isinstance(document.value, dict) else None
    asked = f"Configuration error: {found}:{document.at(MAPPING_KEY)}"
    cure = f"write '{MAPPING_KEY}:' and below it '0: first.yaml', '1: second.yaml'"
    if not isinstance(document.value, dict) or MAPPING_KEY not in document.value:
        fail(asked, f"Rank bindings mapping must contain '{MAPPING_KEY}'", cure)
    if not listed or not isinstance(listed, dict):
        fail(asked, f"'{MAPPING_KEY}' must not be empty", cure)
    try:
        ids = [int(key) for key in listed]
    except (TypeError, ValueError, OverflowError):
        fail(asked, f"'{MAPPING_KEY}' keys must be integers (got {_short(list(listed))})", cure)
    if ids != list(range(len(ids))):
        dense = f"(expected {list(range(len(ids)))}, got {_short(ids)})"
        fail(asked, f"'{MAPPING_KEY}' keys must be dense and monotonic starting at 0 {dense}", cure)

    parts = []
    for overlay in listed.values():
        if not isinstance(overlay, str):
            fail(asked, f"Configuration file not found: {_short(overlay)}", cure)
        beside = found.parent / overlay
        parts.append(read_bindings(beside if os.path.isfile(beside) else overlay, skip_mgd_check))
    shared: dict[str, str] = {}
    ranks: list[RankBinding] = []
    for number, part in enumerate(parts):
        for name, setting in part.global_env.items():
            if shared.setdefault(name, setting) != setting:
                fail(
                    asked,
                    f"global_env conflict on key {name!r} between sub-contexts",
                    "set it in env_overrides of the ranks instead",
                )
        size, first = len(part.rank_bindings), len(ranks)
        for binding in part.rank_bindings:
            merged = {
                "subcontext_id": number,
                "subcontext_size": size,
                "mesh_graph_desc_path": part.mesh_graph_desc_path,
            }
            ranks.append(replace(binding, rank=first + binding.rank, **merged))  # type: ignore[arg-type]
    shared["TT_RUN_SUBCONTEXT_SIZES"] = ",".join(str(len(part.rank_bindings)) for part in parts)
    return Bindings(tuple(ranks), parts[0].mesh_graph_desc_path, shared)


def with_mock_cluster(bindings: Bindings, path: str | os.PathLike[str]) -> Bindings:
    """The same ranks, each on the mock cluster descriptor that a file gives it
    (`rank_to_cluster_mock_cluster_desc: {0: path}`).

    Raises:
        TTKitError: the file or a descriptor is not there, or a rank has none.
    """
    what, key = "Mock cluster rank binding configuration", "rank_to_cluster_mock_cluster_desc"
    found = find_file(path, what)
    value = read_yaml(found, what).value
    paths = {0: found}  # without the key, the file is itself the descriptor of rank 0
    if isinstance(value, dict) and key in value:
        listed = value[key]
        if not isinstance(listed, dict) or not all(
            isinstance(rank, int) and isinstance(named, str) for rank, named in listed.items()
        ):
            fail(
                f"read {found}",
                f"{key} must be a map of rank to path",
                f"{key}: {{0: first.yaml, 1: second.yaml}}",
            )
        paths = {
            rank: find_file(named, f"Mock cluster descriptor for rank {rank}", found.parent)
            for rank, named in listed.items()
        }
    ranks = [binding.rank for binding in bindings.rank_bindings]
    if not set(ranks) <= set(paths):
        fail(
            f"read {found}",
            f"Mock cluster mapping ranks {sorted(paths)} do not match merged rank bindings {ranks}",
            "give each rank a descriptor",
        )
    return replace(bindings, mock_cluster_rank_binding=paths)
