"""Which hosts a cluster has, and which rank runs on which.

In a hosts.txt (Open MPI's hostfile), a hosts.json (MLX's) or a rankfile.
"""

from __future__ import annotations

import json
import os
import re
import socket
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, NoReturn

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass
from pydantic_core import PydanticCustomError

from ttkit.errors import TTKitError, fail
from ttkit.files import did_you_mean, read_text

# A host's name becomes a word of mpirun's and ssh's command lines, so it must not look like an
# option.
NAME = re.compile(r"[A-Za-z0-9_+][A-Za-z0-9_.@%:\-]*|\[[0-9A-Fa-f:.]+\]")
RANK_LINE = re.compile(r"rank\s+(\d{1,6})\s*=\s*(\S+)\s+slots?\s*=\s*\S+\s*", re.IGNORECASE)
TEXT_CURE = "one line 'host slots=N' for each host, N from 1"
JSON_CURE = 'a list: ["host1", "host2"] or [{"ssh": "host1", "ips": ["10.0.0.1"]}, ...]'


def _checked_name(name: str) -> str:
    if not NAME.fullmatch(name):
        cure = "letters, digits, '.', '-' and '_', as in metal-wh-01 or user@10.0.0.1"
        details = {"name": repr(name[:60]), "cure": cure}
        raise PydanticCustomError("name", "{name} is not a host's name", details)
    return name


Name = Annotated[str, AfterValidator(_checked_name)]


@dataclass(frozen=True)
class Host:
    """One host.

    Args:
        name: for ssh and MPI.
        slots: how many ranks it takes.
    """

    name: Name
    slots: int = Field(default=1, ge=1)


@dataclass(frozen=True)
class RankSlot:
    """One line of a rankfile, counted from 1: this rank runs on that host."""

    rank: int
    host: Name
    line: int = 1


class HostEntry(BaseModel):
    """One host of a hosts.json."""

    model_config = ConfigDict(extra="forbid")
    ssh: Name
    ips: list[Name] = Field(default_factory=list)  # MLX uses `ips` and `rdma`; ttkit does not.
    rdma: Any = None


def read_hosts(path: str | os.PathLike[str]) -> tuple[Host, ...]:
    """Read the hosts of a hosts.txt or hosts.json in the order of the file.

    A host that is named twice has its slots added.

    Raises:
        TTKitError: not there, or not of either form; names the line or the number of the host.

    Example:
        >>> [(host.name, host.slots) for host in read_hosts("configs/2loudboxes/hosts.txt")]
        [('metal-wh-01', 1), ('metal-wh-04', 1)]
    """
    merged: dict[str, Host] = {}
    for host in _from_json(path) if str(path).endswith(".json") else _from_text(path):
        if had := merged.get(host.name):
            host = Host(had.name, had.slots + host.slots)
        merged[host.name] = host
    if not merged:
        fail(f"read {path}", "it names no host", TEXT_CURE)
    return tuple(merged.values())


def _from_text(path: str | os.PathLike[str]) -> Iterable[Host]:
    for number, raw in enumerate(read_text(path, "hosts file").splitlines(), 1):
        words = re.sub(r"\s*=\s*", "=", raw.partition("#")[0]).split()
        if not words:
            continue
        asked = f"read {path}:{number}"
        options = dict(word.partition("=")[::2] for word in words[1:])
        for key in options:
            if key not in ("slots", "max_slots", "max-slots"):
                cure = did_you_mean(key, ["slots", "max_slots"]) or TEXT_CURE
                fail(asked, f"{key[:40]!r} is not known after a host's name", cure)
        try:
            slots: Any = options.get("slots", 1)
            yield Host(name=words[0], slots=slots)
        except ValidationError as error:
            _refuse(asked, error, TEXT_CURE)


def _from_json(path: str | os.PathLike[str]) -> Iterable[Host]:
    try:
        listed = json.loads(read_text(path, "hosts file"))
    except json.JSONDecodeError as error:
        cure = "look at that line and the one above it: commas, quotes, brackets"
        fail(f"read {path}:{error.lineno}", f"malformed JSON: {error.msg}", cure)
    if isinstance(listed, list):
        listed = [{"ssh": each} if isinstance(each, str) else each for each in listed]
    try:
        entries = TypeAdapter(list[HostEntry]).validate_python(listed)
    except ValidationError as error:
        _refuse(f"read {path}", error, JSON_CURE)
    return [Host(entry.ssh) for entry in entries]


def _refuse(asked: str, error: ValidationError, cure: str) -> NoReturn:
    """Raise the first fault that pydantic found."""
    fault = error.errors(include_url=False)[0]
    kind, rule, where = fault["type"], fault["msg"], [*fault["loc"]]
    if where and isinstance(where[0], int):
        asked = f"{asked}, host {int(where.pop(0)) + 1}"
    if kind == "extra_forbidden":
        cure = did_you_mean(where[-1], HostEntry.model_fields) or cure
        fail(asked, f"unknown key {str(where[-1])[:40]!r}", cure)
    if kind == "name":
        fail(asked, rule, fault["ctx"]["cure"])
    key = ".".join(map(str, where))
    fail(asked, f"{key or 'file'}: {rule}, got {repr(fault['input'])[:60]}", cure)


def hosts_text(hosts: Iterable[Host]) -> str:
    """Return the hosts as a hosts.txt.

    Example:
        >>> print(hosts_text([Host("a"), Host("b", 4)]), end="")
        a slots=1
        b slots=4
    """
    return "".join(f"{host.name} slots={host.slots}\n" for host in hosts)


def read_rankfile(path: str | os.PathLike[str]) -> tuple[RankSlot, ...]:
    """Read the lines of a rankfile (`rank 0=host1 slot=0`) in rank order.

    Raises:
        TTKitError: not there; a line of another form; a rank twice or left out.
    """
    entries = []
    for number, raw in enumerate(read_text(path, "rankfile").splitlines(), 1):
        line = raw.partition("#")[0].strip()
        if not line:
            continue
        match = RANK_LINE.fullmatch(line)
        if match is None or not NAME.fullmatch(match[2]):
            rule = f"{line[:60]!r} is not a line of a rankfile"
            fail(f"read {path}:{number}", rule, "rank 0=host1 slot=0")
        entries.append(RankSlot(int(match[1]), match[2], number))
    entries.sort(key=lambda entry: entry.rank)
    ranks = [entry.rank for entry in entries]
    if ranks != list(range(len(ranks))) or not ranks:
        misplaced = (entry.line for number, entry in enumerate(entries) if entry.rank != number)
        rule = f"ranks must be numbered from 0, each once. Got: {ranks}"
        cure = "one line 'rank N=host slot=S' for each rank"
        fail(f"read {path}:{next(misplaced, 1)}", rule, cure)
    return tuple(entries)


def rankfile_of(hosts: Iterable[Host]) -> str:
    """Return a rankfile that fills the hosts in their order, one rank a slot.

    Example:
        >>> print(rankfile_of([Host("a", 2), Host("b")]), end="")
        rank 0=a slot=0
        rank 1=a slot=1
        rank 2=b slot=0
    """
    places = [(host.name, slot) for host in hosts for slot in range(host.slots)]
    return "".join(f"rank {rank}={name} slot={slot}\n" for rank, (name, slot) in enumerate(places))


def hosts_of_rankfile(entries: Iterable[RankSlot]) -> tuple[Host, ...]:
    """Return the hosts of a rankfile in rank order, with a slot for each of their ranks.

    Example:
        >>> entries = [RankSlot(0, "a"), RankSlot(1, "b"), RankSlot(2, "a")]
        >>> [(host.name, host.slots) for host in hosts_of_rankfile(entries)]
        [('a', 2), ('b', 1)]
    """
    slots = Counter(entry.host for entry in entries)
    return tuple(Host(name, number) for name, number in slots.items())


def placement(ranks: int, mpi_args: Sequence[str]) -> list[str]:
    """Return the host of each rank as far as the arguments of mpirun name it, else "".

    mpirun fills the slots of the hosts in order unless a rankfile or another mapping
    decides otherwise. Files that cannot be read are mpirun's to report.

    Example:
        >>> placement(3, ["--host", "a:2,b"])
        ['a', 'a', 'b']
    """
    words = [part for arg in mpi_args for part in re.split("=", arg, maxsplit=1)]
    unknown = [""] * ranks
    hosts: list[str] = []
    try:
        for word, value in zip(words, [*words[1:], ""]):
            if word == "--rankfile":
                return ([entry.host for entry in read_rankfile(value)] + unknown)[:ranks]
            if word in ("--map-by", "--rank-by"):
                return unknown
            if word == "--host":
                for part in value.split(","):
                    name, _, slots = part.partition(":")
                    hosts += [name] * (int(slots) if slots.isdigit() else 1)
            elif word == "--hostfile":
                hosts += slots_of(read_hosts(value))
    except TTKitError:
        return unknown
    if not hosts:
        return [socket.gethostname()] * ranks
    return hosts[:ranks] if len(hosts) >= ranks else unknown


def slots_of(hosts: Iterable[Host]) -> list[str]:
    """Return the host of each slot, in the order in which ranks fill them."""
    return [host.name for host in hosts for _ in range(host.slots)]
