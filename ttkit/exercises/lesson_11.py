"""Lesson 11, several hosts.

The answers are files and places in files; nothing is started and no other host is asked.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ttkit.cluster.files.bindings import Bindings, RankBinding, read_bindings
from ttkit.cluster.files.hosts import read_hosts
from ttkit.cluster.files.lint import lint_path
from ttkit.cluster.files.lint_bindings import UNDER_TT_RUN
from ttkit.cluster.launch.command import rank_environment
from ttkit.hardware.findings import Finding
from ttkit.hardware.mgd_write import Link, descriptor_text, mesh_text
from ttkit.lessons import exercise, require

BINDINGS = "rank_bindings.yaml"

# ---- 11.bindings: three hosts with four boards each

HOSTS = "node-1 slots=2\nnode-2 slots=1\nnode-3 slots=1\n"
ALL = "0,1,2,3"
# Host -> what its ranks must be given: mesh, place among the mesh's hosts, boards.
WANTED = {
    "node-1": {("0", "0", "2,3"), ("1", "0", "0,1")},
    "node-2": {("2", "0", ALL)},
    "node-3": {("2", "1", ALL)},
}

# ---- 11.mistakes: four ranks on one host

MISTAKES = {  # name -> (file, good line, bad line)
    "duplicate rank": (BINDINGS, "  - rank: 2", "  - rank: 1"),
    "misspelt key": (
        BINDINGS,
        "    mesh_id: 2\n    env_overrides:",
        "    mesh_id: 2\n    env_override:",
    ),
    "no quotes": (BINDINGS, '      TT_VISIBLE_DEVICES: "1"', "      TT_VISIBLE_DEVICES: 1"),
    "no such mesh": (BINDINGS, "    mesh_id: 3", "    mesh_id: 4"),
    "shared board": (BINDINGS, '      TT_VISIBLE_DEVICES: "3"', '      TT_VISIBLE_DEVICES: "0"'),
    "too few slots": ("hosts.txt", "localhost slots=4", "localhost slots=3"),
}
# The other place where the same mistake may be seen: of two that clash either may be called wrong,
# and slots are the ranks' affair, too.
ALSO = {
    "duplicate rank": (BINDINGS, "  - rank: 1"),
    "shared board": (BINDINGS, '      TT_VISIBLE_DEVICES: "0"'),
    "too few slots": (BINDINGS, "rank_bindings:"),
}


def _meshes(
    number: int, shape: tuple[int, int], hosts: tuple[int, int] = (1, 1), first: int = 0
) -> tuple[str, list[tuple[int, str]]]:
    """A mesh descriptor's text, and the meshes that are made from it: mesh id, name."""
    name = f"M{first}"
    return mesh_text(name, "WORMHOLE_B0", shape, ("LINE", "LINE"), hosts, 2, "RELAXED"), [
        (first + i, name) for i in range(number)
    ]


def _chain(*kinds: tuple[str, list[tuple[int, str]]]) -> str:
    """A descriptor whose meshes are joined one to the next."""
    instances = [instance for _, made in kinds for instance in made]
    links: list[Link] = [
        ((i, i + 1), 2, "RELAXED", (None, None), False) for i in range(len(instances) - 1)
    ]
    return descriptor_text([text for text, _ in kinds], instances, links)


def machine(folder: str | os.PathLike[str]) -> Path:
    """Write the hosts.txt and mgd.textproto of exercise 11.bindings into a folder, which is
    given back; its bindings are the exercise.

    Example:
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     sorted(path.name for path in machine(folder).iterdir())
        ['hosts.txt', 'mgd.textproto']
    """
    path = Path(folder)
    (path / "hosts.txt").write_text(HOSTS)
    (path / "mgd.textproto").write_text(
        _chain(_meshes(2, (2, 2)), _meshes(1, (2, 8), (1, 2), first=2))
    )
    return path


def spoiled(folder: str | os.PathLike[str], *mistakes: str) -> Path:
    """Write the set-up of exercise 11.mistakes into a folder, which is given back, with these
    mistakes, or with all.

    Example:
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     print((spoiled(folder, "too few slots") / "hosts.txt").read_text(), end="")
        localhost slots=3
    """
    path = Path(folder)
    for name, text in _spoiled(mistakes or MISTAKES).items():
        (path / name).write_text(text)
    (path / "mgd.textproto").write_text(_chain(_meshes(4, (1, 2))))
    return path


def _spoiled(mistakes: Iterable[str]) -> dict[str, str]:
    ranks = "".join(
        f"  - rank: {rank}\n    mesh_id: {rank}\n    env_overrides:\n      TT_VISIBLE_DEVICES: "
        f'"{rank}"\n'
        for rank in range(len(MISTAKES) - 2)
    )
    texts = {
        "hosts.txt": "localhost slots=4\n",
        BINDINGS: f"rank_bindings:\n{ranks}mesh_graph_desc_path: mgd.textproto\n",
    }
    for mistake in mistakes:
        name, good, bad = MISTAKES[mistake]
        texts[name] = texts[name].replace(good, bad)
    return texts


def _places(mistake: str) -> list[str]:
    """Where a mistake stands, as "file:line"; the first is what it is called by."""
    texts, (name, good, _) = _spoiled(()), MISTAKES[mistake]
    there = [(name, good), *([ALSO[mistake]] if mistake in ALSO else [])]
    return [
        f"{name}:{texts[name].partition(text)[0].count(chr(10)) + text.count(chr(10)) + 1}"
        for name, text in there
    ]


def _told(finding: Finding) -> str:
    return f"{Path(finding.path).name}:{finding.line}: {finding.message}\n  try: {finding.cure}"


@exercise("11.bindings")
def _bindings(answer: Any, _: Any) -> str:
    require(
        isinstance(answer, str),
        f"the text of a {BINDINGS} is asked for, this is a {type(answer).__name__}",
    )
    with tempfile.TemporaryDirectory() as tried:
        machine(tried)
        (Path(tried) / BINDINGS).write_text(answer)
        # A rank that has its host alone needs no list of boards; that tt-run gives it rank 0's is
        # no fault of the answer.
        findings = [each for each in lint_path(tried) if UNDER_TT_RUN not in each.message]
        findings.sort(key=lambda finding: finding.severity != "error")
        require(not findings, _told(findings[0]) if findings else "")
        bindings = read_bindings(Path(tried) / BINDINGS)
        require(
            bindings.mesh_graph_desc_path == (Path(tried) / "mgd.textproto").resolve(),
            "mesh_graph_desc_path should be mgd.textproto, beside the bindings",
        )
        hosts = [
            host.name for host in read_hosts(Path(tried) / "hosts.txt") for _ in range(host.slots)
        ]
    given: dict[tuple[str, str], int] = {}  # of each host, the meshes that are taken
    # as many as slots: the linter has looked
    for binding, host in zip(bindings.rank_bindings, hosts, strict=True):
        mesh, place, boards = _identity(binding, bindings)
        on = f"rank {binding.rank} runs on {host}"
        wanted = {want[0]: want for want in WANTED[host]}
        require(
            mesh in wanted,
            f"{on}, which has the boards of mesh {' and '.join(sorted(wanted))}, "
            f"not of mesh {mesh}: ranks fill the slots in their order",
        )
        require(
            place == wanted[mesh][1],
            f"{on}, which is host {wanted[mesh][1]} of mesh {mesh}, and has mesh_host_rank {place}",
        )
        require(
            boards == wanted[mesh][2],
            f"{on} and has mesh {mesh}: that is boards {wanted[mesh][2]}, it sees {boards}",
        )
        require(
            (host, mesh) not in given,
            f"{on} and has mesh {mesh}, as rank {given.get((host, mesh))} has",
        )
        given[host, mesh] = binding.rank
    return (
        f"{len(hosts)} ranks on {len(WANTED)} hosts, each with its mesh, "
        "its place in it and its boards; the linter finds nothing"
    )


def _identity(binding: RankBinding, bindings: Bindings) -> tuple[str, str, str]:
    """Mesh, place and boards as the rank's environment has them; a rank that is told nothing
    sees all boards.
    """
    environment = rank_environment(binding, bindings)
    boards = sorted(part.strip() for part in environment.get("TT_VISIBLE_DEVICES", ALL).split(","))
    return environment["TT_MESH_ID"], environment.get("TT_MESH_HOST_RANK", "0"), ",".join(boards)


@exercise("11.mistakes")
def _mistakes(answer: Any, _: Any) -> str:
    require(
        isinstance(answer, Mapping),
        f'a dictionary is asked for: {{"no quotes": "{BINDINGS}:7", ...}}; '
        f"this is a {type(answer).__name__}",
    )
    strange = [name for name in answer if name not in MISTAKES]
    require(not strange, f"{strange[:1]} is no name of a mistake; they are {', '.join(MISTAKES)}")
    for name, place in answer.items():
        require(
            isinstance(place, str) and ":" in place,
            f"{name}: give the place as 'file:line', such as 'hosts.txt:1'; this is {place!r}",
        )
        if place not in _places(name):
            other = next((mistake for mistake in MISTAKES if place in _places(mistake)), "")
            require(
                False,
                f"{name} is not at {place}"
                + (": something else is wrong there" if other else ", where nothing is wrong"),
            )
    left = [name for name in MISTAKES if name not in answer]
    require(
        not left, f"{len(answer)} of {len(MISTAKES)} are right; not found yet: {', '.join(left)}"
    )
    return f"all {len(MISTAKES)} mistakes, each at its line"
