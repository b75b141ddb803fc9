"""Which hosts a cluster has: hosts.txt (Open MPI's hostfile), hosts.json (MLX's), rankfiles;
each converted into the others.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from ttkit.cluster.documents import did_you_mean, read_json, read_text
from ttkit.errors import fail

# What may stand in a host's name: it becomes a word of mpirun's and ssh's command lines, so it must
# not look like an option.
NAME = re.compile(r"[A-Za-z0-9_+][A-Za-z0-9_.@%:\-]*|\[[0-9A-Fa-f:.]+\]")
RANK_LINE = re.compile(r"rank\s+(\d{1,6})\s*=\s*(\S+)\s+slots?\s*=\s*(\S+)\s*", re.IGNORECASE)
MAX_SLOTS = 10_000


@dataclass(frozen=True)
class Host:
    """One host: its name for ssh and MPI, how many ranks it takes, its addresses (of
    hosts.json), its line in the file.
    """

    name: str
    slots: int = 1
    ips: tuple[str, ...] = ()
    line: int = 1


@dataclass(frozen=True)
class RankSlot:
    """One line of a rankfile: this rank runs on that host, bound to that slot ("0", "0:1-3")."""

    rank: int
    host: str
    slot: str = "0"
    line: int = 1


def read_hosts(path: str | os.PathLike[str]) -> tuple[Host, ...]:
    """The hosts of a hosts.txt or hosts.json, in the order of the file; a host named twice has
    its slots added.

    Raises:
        TTKitError: not there, not of either form, with the line.

    Example:
        >>> [(host.name, host.slots) for host in read_hosts("configs/2loudboxes/hosts.txt")]
        [('metal-wh-01', 1), ('metal-wh-04', 1)]
    """
    hosts = _from_json(path) if str(path).endswith(".json") else _from_text(path)
    merged: dict[str, Host] = {}
    for host in hosts:
        had = merged.get(host.name, replace(host, slots=0, ips=()))
        merged[host.name] = replace(
            had, slots=had.slots + host.slots, ips=tuple(dict.fromkeys(had.ips + host.ips))
        )
    if not merged:
        fail(f"read {path}", "it names no host", "one line 'host slots=1' for each host")
    return tuple(merged.values())


def _from_text(path: str | os.PathLike[str]) -> Iterable[Host]:
    for number, raw in enumerate(read_text(path, "hosts file").splitlines(), 1):
        words = re.sub(r"\s*=\s*", "=", raw.partition("#")[0]).split()
        if not words:
            continue
        asked = f"read {path}:{number}"
        slots = 1
        for word in words[1:]:
            key, _, value = word.partition("=")
            if key not in ("slots", "max_slots", "max-slots"):
                hint = (
                    did_you_mean(key, ["slots", "max_slots"])
                    or "one line 'host slots=1' for each host"
                )
                fail(asked, f"'{word[:40]}' is not known after a host's name", hint)
            if not (
                value.isascii()
                and value.isdigit()
                and len(value) < 6
                and 0 < int(value) <= MAX_SLOTS
            ):
                fail(
                    asked,
                    f"{key} must be a whole number from 1 to {MAX_SLOTS}, got '{value[:40]}'",
                    "give one slot for each rank on that host",
                )
            slots = int(value) if key == "slots" else slots
        yield Host(_name(asked, words[0]), slots, (), number)


def _from_json(path: str | os.PathLike[str]) -> Iterable[Host]:
    listed = read_json(path, "hosts file")
    cure = 'a list: ["host1", "host2"] or [{"ssh": "host1", "ips": ["10.0.0.1"]}, ...]'
    if not isinstance(listed, list):
        fail(f"read {path}", f"a hosts.json is a list, not {type(listed).__name__}", cure)
    for number, entry in enumerate(listed, 1):
        asked = f"read {path}, host {number}"
        if isinstance(entry, str):
            entry = {"ssh": entry}
        if not isinstance(entry, dict) or not isinstance(entry.get("ssh"), str):
            fail(asked, "it has no 'ssh' with the host's name", cure)
        ips = entry.get("ips", [])
        if not isinstance(ips, list) or not all(isinstance(ip, str) for ip in ips):
            fail(asked, "'ips' must be a list of addresses", cure)
        unknown = [key for key in entry if key not in ("ssh", "ips", "rdma")]
        if unknown:
            fail(
                asked,
                f"{unknown[0][:40]!r} is not known",
                did_you_mean(unknown[0], ["ssh", "ips"]) or cure,
            )
        yield Host(_name(asked, entry["ssh"]), 1, tuple(_name(asked, ip) for ip in ips))


def _name(asked: str, name: str) -> str:
    if not NAME.fullmatch(name) or len(name) > 253:
        fail(
            asked,
            f"{name[:60]!r} is not a host's name",
            "letters, digits, '.', '-' and '_', as in metal-wh-01 or user@10.0.0.1",
        )
    return name


def hosts_text(hosts: Iterable[Host]) -> str:
    """The hosts as a hosts.txt.

    Example:
        >>> print(hosts_text([Host("a"), Host("b", 4)]), end="")
        a slots=1
        b slots=4
    """
    return "".join(f"{host.name} slots={host.slots}\n" for host in hosts)


def hosts_json(hosts: Iterable[Host]) -> str:
    """The hosts as MLX's hosts.json; a host of several slots stands there several times.

    Example:
        >>> print(hosts_json([Host("a", 1, ("10.0.0.1",))]), end="")
        [
          {"ssh": "a", "ips": ["10.0.0.1"]}
        ]
    """
    entries: list[Any] = [
        {"ssh": host.name, "ips": list(host.ips)} for host in hosts for _ in range(host.slots)
    ]
    return "[\n" + ",\n".join(f"  {json.dumps(entry)}" for entry in entries) + "\n]\n"


def read_rankfile(path: str | os.PathLike[str]) -> tuple[RankSlot, ...]:
    """The lines of a rankfile (`rank 0=host1 slot=0`), in rank order.

    Raises:
        TTKitError: not there; a line of another form; a rank twice or left out.
    """
    entries = []
    for number, raw in enumerate(read_text(path, "rankfile").splitlines(), 1):
        line = raw.partition("#")[0].strip()
        if not line:
            continue
        asked = f"read {path}:{number}"
        match = RANK_LINE.fullmatch(line)
        if match is None:
            fail(asked, f"'{line[:60]}' is not a line of a rankfile", "rank 0=host1 slot=0")
        entries.append(RankSlot(int(match[1]), _name(asked, match[2]), match[3], number))
    entries.sort(key=lambda entry: entry.rank)
    ranks = [entry.rank for entry in entries]
    if ranks != list(range(len(ranks))) or not ranks:
        got = str(ranks if len(ranks) < 20 else ranks[:20] + ["..."])  # type: ignore[operator]
        wrong = next(
            (entry.line for number, entry in enumerate(entries) if entry.rank != number), 1
        )
        fail(
            f"read {path}:{wrong}",
            f"ranks must be numbered from 0, each once. Got: {got}",
            "one line 'rank N=host slot=S' for each rank",
        )
    return tuple(entries)


def rankfile_of(hosts: Iterable[Host]) -> str:
    """A rankfile that fills the hosts in their order, one rank a slot.

    Example:
        >>> print(rankfile_of([Host("a", 2), Host("b")]), end="")
        rank 0=a slot=0
        rank 1=a slot=1
        rank 2=b slot=0
    """
    places = [(host.name, slot) for host in hosts for slot in range(host.slots)]
    return "".join(f"rank {rank}={name} slot={slot}\n" for rank, (name, slot) in enumerate(places))


def hosts_of_rankfile(entries: Iterable[RankSlot]) -> tuple[Host, ...]:
    """The hosts that a rankfile names, in rank order, with a slot for each of their ranks.

    Example:
        >>> [(host.name, host.slots) for host in hosts_of_rankfile([RankSlot(0, "a"), RankSlot(1, "b"), RankSlot(2, "a")])]
        [('a', 2), ('b', 1)]
    """
    slots: dict[str, int] = {}
    for entry in entries:
        slots[entry.host] = slots.get(entry.host, 0) + 1
    return tuple(Host(name, number) for name, number in slots.items())
