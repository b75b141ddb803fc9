"""Lesson 26, several hosts: copies of configurations, and an exercise.

The answer is a file; nothing is started and no other host is asked.
"""

import os
import shutil
import tempfile
from pathlib import Path

from ttkit.cluster.files.bindings import read_bindings
from ttkit.cluster.files.lint import lint_path
from ttkit.cluster.launch.command import rank_environment
from ttkit.lessons import CheckFailed
from ttkit.lessons.exercises import Exercise

HOSTS = Path(__file__).with_name("hosts")
BINDINGS = "rank_bindings.yaml"
ALL = "0,1,2,3"
# For each host, these are the mesh, the rank among the mesh's hosts, and the cards of each rank.
WANTED = {
    "node-1": {("0", "0", "2,3"), ("1", "0", "0,1")},
    "node-2": {("2", "0", ALL)},
    "node-3": {("2", "1", ALL)},
}


def files_of(folder: str | os.PathLike[str]) -> Path:
    """Copy the files of the exercise into a folder; return the folder.

    Example:
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     sorted(path.name for path in files_of(folder).iterdir())
        ['hosts.txt', 'mgd.textproto']
    """
    return Path(shutil.copytree(HOSTS, folder, dirs_exist_ok=True))


def copy_of(setup: Path, folder: str | os.PathLike[str]) -> Path:
    """Copy a configuration into a folder; return the folder.

    The copied bindings name the descriptor that is in the same folder.
    """
    copy = Path(shutil.copytree(setup, folder, dirs_exist_ok=True))
    text = (copy / BINDINGS).read_text().replace(f"configs/{setup.name}/", "")
    (copy / BINDINGS).write_text(text)
    return copy


# ---------------------------------------------------------------- 26.bindings
# The bindings give a rank its mesh, its rank among the mesh's hosts, and its cards.
Given = tuple[str, str, str]


def _given(text: str) -> list[Given]:
    """Return what each rank is given by the bindings.

    Raises:
        CheckFailed: the linter finds something. The message is its first error, or its first
            finding if none is an error.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = files_of(folder)
        (path / BINDINGS).write_text(text, encoding="utf-8")
        for one in sorted(lint_path(path), key=lambda finding: finding.severity != "error"):
            place = f"{Path(one.path).name}:{one.line}"
            raise CheckFailed(f"{place}: {one.message}\n  try: {one.cure}")
        bindings = read_bindings(path / BINDINGS)
        ranks = [rank_environment(rank, bindings) for rank in bindings.rank_bindings]
    found = []
    for rank in ranks:  # A rank without a list of devices sees all cards of its host.
        cards = sorted(rank.get("TT_VISIBLE_DEVICES", ALL).replace(" ", "").split(","))
        found.append((rank["TT_MESH_ID"], rank.get("TT_MESH_HOST_RANK", "0"), ",".join(cards)))
    return found


def _misplaced(ranks: list[Given]) -> str:
    """Return which rank is given something that its host does not have, or "".

    The ranks are placed on the hosts in order.
    """
    hosts = [host for host, each in WANTED.items() for _ in each]
    left = {host: set(each) for host, each in WANTED.items()}
    for rank, (host, given) in enumerate(zip(hosts, ranks, strict=True)):
        if given not in left[host]:
            words = "part {1} of mesh {0} (cards {2})".format
            has = " or ".join(words(*each) for each in sorted(left[host]))
            return f"rank {rank} runs on {host}, which has {has}; your binding says {words(*given)}"
        left[host].remove(given)
    return ""


Exercise(
    "26.bindings",
    asks="the text",
    reads=_given,
    rules=_misplaced,
    praise="4 ranks on 3 hosts, each with its mesh, its place in it and its cards; the linter "
    "finds nothing",
    hints=[
        "Ranks fill the slots of hosts.txt from the top. On which host does each of the four run?",
        "Which host has two ranks? Only these need TT_VISIBLE_DEVICES. Which mesh has two hosts? "
        "Only its ranks need mesh_host_rank.",
        "A rank on node-1 looks like this: {rank: 0, mesh_id: 0, env_overrides: "
        '{TT_VISIBLE_DEVICES: "2,3"}}. A rank of mesh 2: {rank: 2, mesh_id: 2, mesh_host_rank: 0}.',
    ],
)
