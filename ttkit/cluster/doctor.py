"""Is this host, or is every host of a cluster, ready to run ranks?

All hosts are asked at once, each by a small program (ttkit.cluster.probe) that is sent over ssh;
every question has a time limit."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, cast

from ttkit.cluster import probe, ssh
from ttkit.cluster.bindings import Bindings
from ttkit.cluster.checks import Heard, Line, lines, needs_of
from ttkit.cluster.command import find_mpirun
from ttkit.cluster.lint import as_text
from ttkit.cluster.sync import EXCLUDED
from ttkit.errors import Finding, fail

ANSWER_S = 15.0  # for a host that ssh has reached; measured: 0.7 s
# The probe comes over standard input, its length first, and the questions behind it.
START = "import sys; exec(compile(sys.stdin.read(int(sys.stdin.readline())), 'probe', 'exec'))"
# The Python of this environment, at the same path there; any other where it is missing: the probe
# needs no package.
EITHER = 'if test -x "$0"; then exec "$0" "$@"; else exec python3 "$@"; fi'


def examine(
    hosts: Sequence[str] = (),
    bindings: Bindings | None = None,
    placed: Sequence[str] = (),
    findings: Sequence[Finding] = (),
    open_devices: bool = False,
) -> list[Line]:
    """Check hosts; the lines come in an order that does not depend on who answers first.

    Args:
        hosts: their names for ssh; none means this host alone.
        bindings: the ranks, whose meshes are compared with the devices.
        placed: the host of each rank.
        findings: the linter's.
        open_devices: let ttnn open the devices and count the chips: it takes up to half a minute,
        and nobody else may use them.

    Example:
        >>> [line.check for line in examine() if line.state == "red"]
        []
    """
    this = socket.gethostname()
    names = list(dict.fromkeys(hosts)) or [this]
    here = dict(zip(names, ssh.for_all(ssh.is_here, names))) if hosts else {this: True}
    question = {
        "folder": os.getcwd(),
        "mpirun": find_mpirun(),
        "excluded": EXCLUDED,
        "open": open_devices,
    }
    # "": started on a host that takes no part
    reference = next((name for name in names if here[name]), "")
    probes = {
        name: Probe(name, here.get(name, True), question)
        for name in ([] if reference else [""]) + names
    }
    list(ssh.for_all(lambda name: probes[name].ask(), probes))
    own = probes[reference].heard.answer
    if not own:
        fail(
            "ttkit doctor",
            f"it cannot look around on this host: {probes[reference].heard.said.strip()[-300:]}",
            "try again when the machine is less busy",
        )
    heard = {name: probes[name].heard for name in names}
    places = addresses(heard)
    list(
        ssh.for_all(
            lambda name: probes[name].reach([place for place in places if place[0] != name]), probes
        )
    )
    for each in probes.values():
        each.end()
    needs = needs_of(bindings, [name or names[0] for name in placed]) if bindings else ()
    found = lines(heard, own, needs, os.getcwd())
    for finding in findings:
        found.append(
            Line(
                "files",
                (),
                "red" if finding.severity == "error" else "warn",
                f"{finding.place}: {finding.message}",
                finding.cure,
            )
        )
    return found


class Probe:
    """The program that looks around on one host."""

    def __init__(self, host: str, here: bool, question: Mapping[str, Any]):
        self.heard, self.question = Heard(here), question
        self.limit_s = ANSWER_S + (probe.OPEN_S if question["open"] else 0.0)
        python, pipe = [sys.executable, "-c", START], subprocess.PIPE
        words = python if here else ssh.command(host, ["sh", "-c", EITHER, *python])
        try:
            self.process = subprocess.Popen(
                words, stdin=pipe, stdout=pipe, stderr=pipe, text=True, errors="replace"
            )
        except OSError as error:
            fail(
                "ttkit doctor",
                f"{words[0]} cannot be started: {error.strerror}",
                "apt install openssh-client",
            )

    def ask(self) -> None:
        """What is there?"""
        text = Path(probe.__file__).read_text()
        line = self._exchange(f"{len(text)}\n{text}{json.dumps(self.question)}\n")
        if line.startswith("{"):
            self.heard.answer = json.loads(line)
        else:
            self.process.kill()
            self.heard.said = cast(IO[str], self.process.stderr).read()

    def reach(self, others: Sequence[tuple[str, str, int]]) -> None:
        """Which of these hosts, addresses and ports does it not reach?"""
        if self.heard.answer:
            line = self._exchange(json.dumps(others) + "\n")
            self.heard.lost = (
                json.loads(line) if line.startswith("[") else [host for host, _, _ in others]
            )

    def end(self) -> None:
        """End it: it has kept its port open for the others."""
        self.process.kill()
        self.process.communicate()

    def _exchange(self, text: str) -> str:
        """Say something and hear a line; "" where none comes in time."""
        watchdog = threading.Timer(self.limit_s, self.process.kill)
        watchdog.start()
        try:
            cast(IO[str], self.process.stdin).write(text)
            cast(IO[str], self.process.stdin).flush()
            return cast(IO[str], self.process.stdout).readline()
        except OSError:  # it has gone
            return ""
        finally:
            watchdog.cancel()


def addresses(heard: Mapping[str, Heard]) -> list[tuple[str, str, int]]:
    """(host, address, port) of each probe: the address by which ssh came there; this host's, by
    which it came from here.
    """
    places = []
    caller = next(
        (
            each.answer["seen"][0]
            for each in heard.values()
            if not each.here and each.answer and each.answer["seen"]
        ),
        None,
    )
    for host, each in heard.items():
        if each.answer:
            place = caller if each.here else (each.answer["seen"] or ["", "", None])[2]
            places += [(host, place, each.answer["port"])] if place else []
    return places


def doctors_table(found: Sequence[Line], hosts: int) -> str:
    """The lines as a table, in their order, as wide as the terminal, and a count."""
    from rich.table import Table
    from rich.text import Text

    table = Table("check", "host", "state", "finding", show_lines=False)
    for line in found:
        names = f"all {hosts} hosts" if len(line.hosts) == hosts > 1 else ", ".join(line.hosts)
        text = line.finding + (f"\ntry: {line.cure}" if line.cure and line.state != "ok" else "")
        table.add_row(
            line.check, Text(names, overflow="fold"), line.state, Text(text, overflow="fold")
        )
    count = Counter(line.state for line in found)
    return as_text(table) + ", ".join(f"{count[state]} {state}" for state in ("ok", "warn", "red"))
