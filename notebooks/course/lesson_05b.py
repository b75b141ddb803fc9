"""Lesson 05b, several hosts.

The answers are files; nothing is started and no other host is asked.
"""

from __future__ import annotations

import itertools
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import ttkit
from ttkit.cluster.files.bindings import read_bindings
from ttkit.cluster.files.lint import lint_path
from ttkit.cluster.launch.command import rank_environment
from ttkit.cluster.launch.doctor import Examined
from ttkit.lessons import CheckFailed
from ttkit.lessons.exercises import exercise

BINDINGS = "rank_bindings.yaml"

# ---- 05b.bindings: three hosts with four cards each

HOSTS = "node-1 slots=2\nnode-2 slots=1\nnode-3 slots=1\n"
ALL = "0,1,2,3"
WANTED = {  # host -> what its ranks must be given: mesh, place among the mesh's hosts, cards
    "node-1": {("0", "0", "2,3"), ("1", "0", "0,1")},
    "node-2": {("2", "0", ALL)},
    "node-3": {("2", "1", ALL)},
}

# ---- 05b.mistakes: four ranks on one host

MISTAKES = {  # name -> (file, good line, bad line)
    "duplicate rank": (BINDINGS, "  - rank: 2", "  - rank: 1"),
    "misspelt key": (
        BINDINGS,
        "    mesh_id: 2\n    env_overrides:",
        "    mesh_id: 2\n    env_override:",
    ),
    "no quotes": (BINDINGS, '      TT_VISIBLE_DEVICES: "1"', "      TT_VISIBLE_DEVICES: 1"),
    "no such mesh": (BINDINGS, "    mesh_id: 3", "    mesh_id: 4"),
    "shared card": (BINDINGS, '      TT_VISIBLE_DEVICES: "3"', '      TT_VISIBLE_DEVICES: "0"'),
    "too few slots": ("hosts.txt", "localhost slots=4", "localhost slots=3"),
}
KIND = """mesh_descriptors {{
  name: "{0}"
  arch: WORMHOLE_B0
  device_topology {{ dims: {1} dim_types: [ LINE, LINE ] }}
  host_topology {{ dims: {2} }}
  channels {{ count: 2 policy: RELAXED }}
}}
"""
MESH = 'mesh {{ mesh_descriptor: "{}" mesh_id: {} }}'


def _chain(kinds: str, *names: str) -> str:
    """Return a descriptor of meshes of these kinds, each joined to the next by two links."""
    meshes = [MESH.format(name, number) for number, name in enumerate(names)]
    graph = [f"  instances {{ {mesh} }}" for mesh in meshes]
    for first, second in itertools.pairwise(meshes):
        nodes = f"nodes {{ {first} }} nodes {{ {second} }}"
        graph.append(f"  connections {{ {nodes} channels {{ count: 2 policy: RELAXED }} }}")
    head = 'graph_descriptors {\n  name: "G0"\n  type: "FABRIC"'
    top = '}\ntop_level_instance { graph { graph_descriptor: "G0" graph_id: 0 } }\n'
    return "\n".join([kinds + head, *graph, top])


def machine(folder: str | os.PathLike[str]) -> Path:
    """Write hosts.txt and mgd.textproto of exercise 05b.bindings; return the folder.

    Example:
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     sorted(path.name for path in machine(folder).iterdir())
        ['hosts.txt', 'mgd.textproto']
    """
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    (path / "hosts.txt").write_text(HOSTS)
    kinds = KIND.format("small", [2, 2], [1, 1]) + KIND.format("wide", [2, 8], [1, 2])
    (path / "mgd.textproto").write_text(_chain(kinds, "small", "small", "wide"))
    return path


def spoiled(folder: str | os.PathLike[str], *mistakes: str) -> Path:
    """Write the files of exercise 05b.mistakes with these mistakes, or with all; return the folder.

    Example:
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     print((spoiled(folder, "too few slots") / "hosts.txt").read_text(), end="")
        localhost slots=3
    """
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    for name, text in _spoiled(mistakes or MISTAKES).items():
        (path / name).write_text(text)
    kinds = KIND.format("pair", [1, 2], [1, 1])
    (path / "mgd.textproto").write_text(_chain(kinds, *["pair"] * 4))
    return path


def without_variables(words: Iterable[str]) -> list[str]:
    """Return the words of a command without its variables, `-x NAME=value`.

    Example:
        >>> without_variables(["mpirun", "-x", "TT_MESH_ID=1", "python"])
        ['mpirun', 'python']
    """
    given = list(words)
    return [
        word for i, word in enumerate(given) if word != "-x" and (i == 0 or given[i - 1] != "-x")
    ]


def terminal(*words: str) -> None:
    """Print what `ttkit WORDS` prints in a terminal, ranks in their order, this host as HOST."""
    command = [sys.executable, "-m", "ttkit", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = (done.stdout + done.stderr).replace(socket.gethostname(), "HOST").splitlines()
    print("\n".join(sorted(said) if words[0] == "run" else said))


def copy_of(setup: Path, folder: str | os.PathLike[str]) -> Path:
    """Copy a configuration; its bindings then name the descriptor beside them."""
    copy = Path(shutil.copytree(setup, folder, dirs_exist_ok=True))
    text = (copy / BINDINGS).read_text().replace(f"configs/{setup.name}/", "")
    (copy / BINDINGS).write_text(text)
    return copy


def made_up_hosts() -> tuple[dict[str, Examined], dict[str, Any]]:
    """Return what three hosts answer the doctor, and what this host says of itself.

    node-2 has another train.py, and node-3 lets nobody in.
    """
    good: dict[str, Any] = {
        "folder": True,
        "python": "3.12.3",
        "ttkit": {"version": ttkit.__version__},
        "code": {"model.py": "sum of its bytes", "train.py": "sum of its bytes"},
        "mpi": {"path": "/project/.venv/bin/mpirun", "version": "mpirun (Open MPI) 5.0.11"},
        "devices": {"numbers": [0, 1, 2, 3], "ttnn": True},
    }
    older = good | {"code": good["code"] | {"train.py": "another sum"}}
    answers = {
        "node-1": Examined(True, good),
        "node-2": Examined(False, older),
        "node-3": Examined(False, output="me@node-3: Permission denied (publickey)."),
    }
    return answers, good


def _spoiled(mistakes: Iterable[str]) -> dict[str, str]:
    ranks = "".join(
        f"  - rank: {rank}\n    mesh_id: {rank}\n    env_overrides:\n"
        f'      TT_VISIBLE_DEVICES: "{rank}"\n'
        for rank in range(4)
    )
    texts = {
        "hosts.txt": "localhost slots=4\n",
        BINDINGS: f"rank_bindings:\n{ranks}mesh_graph_desc_path: mgd.textproto\n",
    }
    for mistake in mistakes:
        name, good, bad = MISTAKES[mistake]
        texts[name] = texts[name].replace(good, bad)
    return texts


# ---------------------------------------------------------------- exercises
Given = tuple[str, str, str]  # to a rank: mesh, place among the mesh's hosts, cards


def _given(folder: Path, texts: Mapping[str, str]) -> list[Given]:
    """Return what each rank of a folder with these texts is given.

    Raises:
        CheckFailed: with the linter's first finding, an error if there is one.
    """
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    findings = lint_path(folder)
    for one in sorted(findings, key=lambda finding: finding.severity != "error"):
        place = f"{Path(one.path).name}:{one.line}"
        raise CheckFailed(f"{place}: {one.message}\n  try: {one.cure}")
    bindings = read_bindings(folder / BINDINGS)
    each = [rank_environment(rank, bindings) for rank in bindings.rank_bindings]
    return [
        (
            environment["TT_MESH_ID"],
            environment.get("TT_MESH_HOST_RANK", "0"),
            # A rank without a list of devices sees all.
            ",".join(
                sorted(environment.get("TT_VISIBLE_DEVICES", ALL).replace(" ", "").split(","))
            ),
        )
        for environment in each
    ]


def _on_hosts(text: str) -> list[Given]:
    with tempfile.TemporaryDirectory() as folder:
        return _given(machine(folder), {BINDINGS: text})


def _misplaced(ranks: list[Given]) -> str:
    """Return which rank has what its host has not; ranks fill the slots in their order."""
    hosts = [host for host, each in WANTED.items() for _ in each]
    left = {host: set(each) for host, each in WANTED.items()}
    for rank, (host, given) in enumerate(zip(hosts, ranks, strict=True)):
        if given not in left[host]:
            words = "mesh {}, part {} of it, cards {}".format
            has = " or ".join(words(*each) for each in sorted(left[host]))
            return f"rank {rank} runs on {host}, which has {has}; yours has {words(*given)}"
        left[host].remove(given)
    return ""


exercise(
    "05b.bindings",
    asks="the text",
    reads=_on_hosts,
    rules=_misplaced,
    praise="4 ranks on 3 hosts, each with its mesh, its place in it and its cards; the linter "
    "finds nothing",
    hints=[
        "Ranks fill the slots of hosts.txt from the top. On which host does each of the four run?",
        "Which host has two ranks? Only those need TT_VISIBLE_DEVICES. Which mesh has two hosts? "
        "Only its ranks need mesh_host_rank.",
        "A rank of node-1 is written so: {rank: 0, mesh_id: 0, env_overrides: {TT_VISIBLE_DEVICES: "
        '"2,3"}}. A rank of mesh 2: {rank: 2, mesh_id: 2, mesh_host_rank: 0}.',
    ],
)


def _on_one_host(texts: Mapping[str, str]) -> list[Given]:
    with tempfile.TemporaryDirectory() as folder:
        return _given(spoiled(folder), texts)


def _mixed_up(ranks: list[Given]) -> str:
    for rank, (mesh, _, cards) in enumerate(ranks):
        if not mesh == cards == str(rank):
            has = f"rank {rank} has mesh {mesh} and card {cards}"
            return f"{has}; mesh {rank} and card {rank} are asked for"
    return ""


exercise(
    "05b.mistakes",
    asks="the texts",
    reads=_on_one_host,
    rules=_mixed_up,
    praise="four ranks, each with its mesh and its card; the linter finds nothing",
    hints=[
        "Compare the four ranks line by line. They should differ in their numbers only.",
        "lint_path(broken) gives findings, each with path, line and message. Some mistakes hide "
        "others: correct what it finds, then check again.",
        "Two lines have a slip: a number without quotes, a key without its s. Three have the "
        "number of another rank. One host has too few slots.",
    ],
)
