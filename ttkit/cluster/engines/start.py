"""The ranks of a Cluster, the commands that start its processes, and their environment.

The ranks are those of a configuration folder, or n ranks that share the cards of this machine.
"""

import importlib.util
import os
import socket
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ttkit.cluster.engines.engine import FOLDER
from ttkit.cluster.files import Config, find_config
from ttkit.cluster.files.bindings import Bindings, Environment, plain_ranks
from ttkit.cluster.launch.command import (
    LOCAL_FOLDER,
    blas_threads,
    find_mpirun,
    mpirun_command,
    mpirun_environment,
)
from ttkit.cluster.processes import Supervised, python_command
from ttkit.errors import fail, is_strict
from ttkit.files import AnyPath
from ttkit.hardware import current_system

# The controller registers an engine at its next heartbeat. With ipyparallel's default of 3000 ms a
# start would take twice as long.
HEARTBEAT_MS = 250
# The command of an engine on another host sets these variables, since mpirun does not send its own
# environment there.
CARRIED = (FOLDER, "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TTKIT_SYSTEM", "TTKIT_STRICT")
CONTROLLER_OPTIONS = (
    "--IPController.use_threads=True",
    "--log-level=WARN",
    f"--HeartMonitor.period={HEARTBEAT_MS}",
    "--HeartMonitor.max_heartmonitor_misses=100000",
    "--nodb",
)


def ranks_of(config: AnyPath | int) -> tuple[Bindings, Config]:
    """Return the ranks of a configuration folder or of a number of engines, and the folder's files.

    Raises:
        TTKitError: the files are wrong, or the cards cannot be shared equally.

    Example:
        >>> bindings, files = ranks_of("configs/2loudboxes")
        >>> files.mpi_words(), len(bindings.rank_bindings)
        (['--hostfile', 'configs/2loudboxes/hosts.txt'], 2)
    """
    if isinstance(config, int):
        return ranks_sharing_cards(config), Config()
    files = find_config(config)
    return files.ranks(), files


def ranks_sharing_cards(number: int) -> Bindings:
    """Return `number` ranks that share the cards equally, in PCIe order.

    Raises:
        TTKitError: the number of cards is not a multiple of `number`.

    Example:
        >>> ranks = ranks_sharing_cards(2).rank_bindings
        >>> [binding.env_overrides["TT_VISIBLE_DEVICES"] for binding in ranks]
        ['0,1', '2,3']
        >>> ranks_sharing_cards(3)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ttkit.errors.TTKitError: Cluster(3): a t3000 has 4 cards, which 3 ranks cannot share ...
          try: Cluster(1), Cluster(2), Cluster(4), or a folder with rank bindings
    """
    cards, what = _cards()
    if number < 1 or len(cards) % number:
        rule = f"{what} has {len(cards)} cards, which {number} ranks cannot share equally; a rank "
        rule += "takes whole cards in PCIe order"
        could = [f"Cluster({n})" for n in range(1, len(cards) + 1) if len(cards) % n == 0]
        fail(f"Cluster({number})", rule, f"{', '.join(could)}, or a folder with rank bindings")
    return plain_ranks(number, list(map(",".join, np.array_split(cards, number))))


def _cards() -> tuple[list[str], str]:
    """Return the PCIe numbers of the usable cards, and the name of their machine for messages."""
    from ttkit.backend import is_simulated

    system = current_system()
    numbers = list(map(str, range(len(system.cards))))
    what = f"a {system.name}"
    cards = [card.name for card in Path("/dev/tenstorrent").glob("[0-9]*")]
    if cards and not is_simulated():
        numbers = sorted(cards, key=int)
        what = "this machine"
    given = os.environ.get("TT_VISIBLE_DEVICES", "").split(",")
    return [part.strip() for part in given if part.strip()] or numbers, what


def start_commands(
    processes: Supervised,
    bindings: Bindings,
    words: Sequence[str],
    hosts: Sequence[str],
    address: str,
) -> tuple[dict[str, list[str]], Environment]:
    """Return the commands of the controller and of mpirun, and their environment.

    Args:
        words: mpirun's options for hosts; empty if all ranks are on this host.
        hosts: the host of each rank.
        address: the address of the controller.
    """
    folder = processes.folder
    if words:
        settings = {"OMPI_MCA_btl": "self,sm,tcp", "OMPI_MCA_btl_tcp_if_exclude": "docker0,lo"}
    else:
        # Messages on one host need no network. Shared memory lies in a folder that the supervisor
        # removes, so a killed rank leaves no file behind.
        settings = {
            "OMPI_MCA_btl": "self,sm",
            "OMPI_MCA_btl_sm_backing_directory": str(processes.shared_memory(len(hosts))),
            "PMIX_MCA_ptl_tcp_if_include": "lo",
        }
    settings |= {
        LOCAL_FOLDER: str(folder),
        # A rank that waits inside MPI gives up its core to a rank that computes.
        "OMPI_MCA_mpi_yield_when_idle": "1",
        **blas_threads(hosts),
    }
    # The shell's values override the settings above, but not the variables below, which name the
    # cluster's folder, the dialect and the machine that the notebook uses.
    environment = mpirun_environment(words, settings) | {
        FOLDER: f"{socket.gethostname()}:{folder}",
        "IPYTHONDIR": str(folder / "ipython"),
        "TTKIT_STRICT": "1" if is_strict() else "",
        "TTKIT_SYSTEM": current_system().name,
    }
    controller = python_command("engines.engine", "controller")
    controller += [f"--ip={address}", f"--profile-dir={folder}", *CONTROLLER_OPTIONS]
    # mpirun does not send its own environment to other hosts, so `env` sets all of these variables
    # there. On this host it sets only the machine and the dialect: otherwise mpirun would give each
    # rank the shell's values of these two, if there are any.
    names = CARRIED if words else ("TTKIT_SYSTEM", "TTKIT_STRICT")
    carried = [f"{name}={environment[name]}" for name in names if name in environment]
    engine = ["env", *carried, *_words_for_ttnn(), *python_command("engines.engine")]
    if not words:  # Engines get an address, since the name of this host may not resolve.
        controller.append(f"--IPController.location={address}")
    ranks = mpirun_command(bindings, engine, find_mpirun(), words, bare=True)
    return {"controller": controller, "mpirun": ranks}, environment


def _words_for_ttnn() -> list[str]:
    """Return the `env ...` prefix of an engine's command that the real ttnn needs.

    ttnn contains its own Open MPI, and a process can use only one, so mpi4py must use that one.
    If the shell does not set TT_METAL_HOME and TT_METAL_RUNTIME_ROOT, `mpirun_command` sets them to
    the current folder, as tt-run does. That is right in a source tree of tt-metal, but an installed
    ttnn would not find its files there. So the prefix unsets them.
    """
    from ttkit.backend import is_simulated

    spec = None if is_simulated() else importlib.util.find_spec("ttnn")
    if spec is None or not spec.origin:
        return []
    library = sorted((Path(spec.origin).parents[1] / "ttnn.libs").glob("libmpi-*.so*"))
    names = [name for name in ("TT_METAL_HOME", "TT_METAL_RUNTIME_ROOT") if name not in os.environ]
    unset = [word for name in names for word in ("-u", name)]
    return ["env", *unset, *(f"LD_PRELOAD={path}" for path in library[:1])]
