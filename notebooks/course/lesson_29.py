"""Lesson 29, files of several hosts: copies of configurations, and an exercise.

The answer is a file; nothing is started and no other host is asked.
"""

import shutil
import tempfile
from pathlib import Path

from ttkit.cluster.files.bindings import read_bindings
from ttkit.cluster.files.lint import lint_path
from ttkit.lessons import CheckFailed
from ttkit.lessons.exercises import Exercise

HOSTS = Path(__file__).with_name("hosts")  # The files of the exercise that are given.
BINDINGS = "rank_bindings.yaml"
ALL = "0,1,2,3"
# What each host has: of each of its ranks the rank among the mesh's hosts, the mesh and the cards.
WANTED = {
    "node-1": {"part 0 of mesh 0 (cards 2,3)", "part 0 of mesh 1 (cards 0,1)"},
    "node-2": {"part 0 of mesh 2 (cards 0,1,2,3)"},
    "node-3": {"part 1 of mesh 2 (cards 0,1,2,3)"},
}


def copy_of(setup: Path, folder: Path) -> Path:
    """Copy a configuration into a folder; return the folder.

    The copied bindings name the descriptor that is in the same folder.
    """
    shutil.copytree(setup, folder, dirs_exist_ok=True)
    text = (folder / BINDINGS).read_text().replace(f"configs/{setup.name}/", "")
    (folder / BINDINGS).write_text(text)
    return folder


# ---------------------------------------------------------------- 29.bindings
def _given(text: str) -> list[str]:
    """Return what each rank is given by the bindings, in the words of `WANTED`.

    Raises:
        CheckFailed: the linter finds something. The message is its first error, or its first
            finding if none is an error.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(shutil.copytree(HOSTS, folder, dirs_exist_ok=True))
        (path / BINDINGS).write_text(text, encoding="utf-8")
        for one in sorted(lint_path(path), key=lambda finding: finding.severity != "error"):
            place = f"{Path(one.path).name}:{one.line}"
            raise CheckFailed(f"{place}: {one.message}\n  try: {one.cure}")
        bindings = read_bindings(path / BINDINGS)
    found = []
    for rank in bindings.rank_bindings:  # One without a list sees all cards of its host.
        cards = (bindings.visible_devices(rank) or ALL).replace(" ", "").split(",")
        part = f"part {rank.mesh_host_rank or 0} of mesh {rank.mesh_id}"
        found.append(f"{part} (cards {','.join(sorted(cards))})")
    return found


def _misplaced(ranks: list[str]) -> str:
    """Return which rank is given something that its host does not have, or "".

    The ranks are placed on the hosts in order. The linter has refused two ranks that are alike.
    """
    hosts = [host for host, each in WANTED.items() for _ in each]
    for rank, (host, given) in enumerate(zip(hosts, ranks, strict=True)):
        if given not in WANTED[host]:
            has = " or ".join(sorted(WANTED[host]))
            return f"rank {rank} runs on {host}, which has {has}; your binding says {given}"
    return ""


Exercise(
    "29.bindings",
    asks="the text",
    reads=_given,
    rules=_misplaced,
    praise="4 ranks on 3 hosts, each with its mesh, its part of it and its cards; the linter "
    "finds nothing",
    hints=[
        "Ranks fill the slots of hosts.txt from the top. On which host does each of the four run?",
        "Which host has two ranks? Only these need TT_VISIBLE_DEVICES. Which mesh has two hosts? "
        "Only its ranks need mesh_host_rank.",
        "A rank on node-1 looks like this: {rank: 0, mesh_id: 0, env_overrides: "
        '{TT_VISIBLE_DEVICES: "2,3"}}. A rank of mesh 2: {rank: 2, mesh_id: 2, mesh_host_rank: 0}.',
    ],
)
