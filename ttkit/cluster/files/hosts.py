"""Read which hosts a cluster has, and which rank runs on which host.

The file is a hosts.txt (Open MPI's hostfile), a hosts.json (MLX's) or a rankfile.
"""

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping

from ttkit.errors import fail
from ttkit.files import AnyPath, read_text, read_yaml

# A host's name becomes a word of mpirun's and ssh's command lines, so it must not look like an
# option.
NAME = r"[A-Za-z0-9_+][A-Za-z0-9_.@%:\-]*|\[[0-9A-Fa-f:.]+\]"
HOST_LINE = rf"(?P<name>{NAME})(\s+slots\s*=\s*(?P<slots>[1-9]\d*)|\s+max[-_]slots\s*=\s*\d+)*"
RANK_LINE = rf"(?i)rank\s+(?P<rank>\d{{1,6}})\s*=\s*(?P<name>{NAME})\s+slots?\s*=\s*\S+"
TEXT_CURE = "one line 'host slots=N' for each host, N from 1, as in metal-wh-01 slots=1"
JSON_CURE = 'a list: ["host1", "host2"] or [{"ssh": "host1", "ips": ["10.0.0.1"]}, ...]'
RANK_CURE = "one line 'rank N=host slot=S' for each rank, as in rank 0=host1 slot=0"


def _lines(path: AnyPath, what: str, pattern: str, cure: str) -> Iterator[re.Match[str]]:
    """Yield the match of each line, without empty lines and comments."""
    for number, raw in enumerate(read_text(path, what).splitlines(), 1):
        if line := raw.partition("#")[0].strip():
            match = re.fullmatch(pattern, line)
            if match is None:
                fail(f"read {path}:{number}", f"{line[:60]!r} is not a line of a {what}", cure)
            yield match


def read_hosts(path: AnyPath) -> Counter[str]:
    """Read {host: number of slots} from a hosts.txt or hosts.json, in the order of the file.

    A slot takes one rank. If the file names a host twice, its slots are added up.

    Raises:
        TTKitError: the file is missing, has another form (the message names the line or the host),
            or names no host.

    Example:
        >>> dict(read_hosts("configs/2loudboxes/hosts.txt"))
        {'metal-wh-01': 1, 'metal-wh-04': 1}
    """
    slots = Counter[str]()
    if str(path).endswith(".json"):
        slots.update(_names_in_json(path))
    else:
        for match in _lines(path, "hosts file", HOST_LINE, TEXT_CURE):
            slots[match["name"]] += int(match["slots"] or 1)
    if not slots:
        fail(f"read {path}", "it names no host", TEXT_CURE)
    return slots


def _names_in_json(path: AnyPath) -> Iterator[str]:
    listed = read_yaml(path, "hosts file").value  # A JSON file is also a YAML file.
    for number, entry in enumerate(listed if isinstance(listed, list) else [listed], 1):
        name = entry.get("ssh") if isinstance(entry, dict) else entry
        if not (isinstance(name, str) and re.fullmatch(NAME, name)):
            fail(f"read {path}, host {number}", f"{str(entry)[:60]} names no host", JSON_CURE)
        yield name


def hosts_text(hosts: Mapping[str, int]) -> str:
    """Return the hosts as a hosts.txt.

    Example:
        >>> print(hosts_text({"a": 1, "b": 4}), end="")
        a slots=1
        b slots=4
    """
    return "".join(f"{name} slots={slots}\n" for name, slots in hosts.items())


def read_rankfile(path: AnyPath) -> dict[int, str]:
    """Read {rank: its host} from a rankfile (`rank 0=host1 slot=0`), in the order of its lines.

    Raises:
        TTKitError: the file is missing, a line has another form, or a rank is repeated or left out.
    """
    lines = _lines(path, "rankfile", RANK_LINE, RANK_CURE)
    entries = [(int(match["rank"]), match["name"]) for match in lines]
    ranks = sorted(rank for rank, _ in entries)
    if ranks != list(range(len(ranks))) or not ranks:
        fail(f"read {path}", f"ranks must be numbered from 0, each once. Got: {ranks}", RANK_CURE)
    return dict(entries)


def rankfile_of(hosts: Mapping[str, int]) -> str:
    """Return a rankfile that fills the hosts in their order, with one rank per slot.

    Example:
        >>> print(rankfile_of({"a": 2, "b": 1}), end="")
        rank 0=a slot=0
        rank 1=a slot=1
        rank 2=b slot=0
    """
    places = [(name, slot) for name, slots in hosts.items() for slot in range(slots)]
    return "".join(f"rank {rank}={name} slot={slot}\n" for rank, (name, slot) in enumerate(places))


def host_of_each_slot(path: AnyPath) -> list[str]:
    """Return the host of each rank of a rankfile, or of each slot of a hosts file, in rank order.

    Example:
        >>> host_of_each_slot("configs/2loudboxes/hosts.txt")
        ['metal-wh-01', 'metal-wh-04']
    """
    if "rankfile" in os.path.basename(path):
        return [host for _, host in sorted(read_rankfile(path).items())]
    return list(read_hosts(path).elements())
