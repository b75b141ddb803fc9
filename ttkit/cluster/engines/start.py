"""What a Cluster starts: its ranks, the commands of its processes and their environment.

The ranks are those of a folder of files, or n that share this machine's cards.
"""

from __future__ import annotations

import importlib.util
import os
import resource
import shutil
import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from ttkit.cluster.engines.engine import CONNECTION, FOLDER, OWNER
from ttkit.cluster.files.bindings import (
    Bindings,
    RankBinding,
    plain_ranks,
    read_bindings,
)
from ttkit.cluster.files.documents import find_config
from ttkit.cluster.files.hosts import place_words, placement, read_hosts
from ttkit.cluster.launch import ssh
from ttkit.cluster.launch.command import (
    LOCAL_FOLDER,
    blas_threads,
    mpirun_command,
    mpirun_environment,
    with_plain_path,
)
from ttkit.cluster.processes import Supervised, python_command
from ttkit.descriptors import placed, read_descriptor
from ttkit.dialect import is_strict
from ttkit.errors import TTKitError, fail
from ttkit.hardware import SYSTEMS, current_machine, current_system
from ttkit.hardware.systems import narrow
from ttkit.words import short

# Measured: the controller of 1 engine has 113 files open, that of 4 engines 131.
FILES, FILES_OF_A_RANK = 110, 6
FOLDER_BYTES = 1_000_000  # of logs and mpirun's files; with 64 kB a write ends mpirun with SIGBUS
SHARED_BYTES = 18 << 20  # Open MPI 5.0 asks for 16 MiB and 5 % at the start of a rank
# an engine is registered at the next beat: ipyparallel's 3000 ms double the start
HEARTBEAT_MS = 250
# to ranks on other hosts
CARRIED = (FOLDER, OWNER, "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TTKIT_SYSTEM", "TTKIT_STRICT")
SHARED = "OMPI_MCA_btl_sm_backing_directory"
CLIENT = CONNECTION.with_name("ipcontroller-client.json")
CONTROLLER_OPTIONS = (
    "--IPController.use_threads=True",
    "--log-level=WARN",
    f"--HeartMonitor.period={HEARTBEAT_MS}",
    "--HeartMonitor.max_heartmonitor_misses=100000",
    "--nodb",
)


def ranks_of(config: str | os.PathLike[str] | int) -> Bindings:
    """Return the ranks of a configuration folder, or of a number of engines.

    Raises:
        TTKitError: the files are wrong, or the cards cannot be shared equally.

    Example:
        >>> ranks = ranks_of("configs/t3000_2ranks").rank_bindings
        >>> [binding.env_overrides["TT_VISIBLE_DEVICES"] for binding in ranks]
        ['0,1', '2,3']
    """
    if isinstance(config, int):
        return equal_cards(config)
    files = find_config(config)
    if files.bindings:
        return read_bindings(files.bindings)
    return plain_ranks(sum(host.slots for host in read_hosts(files.hosts or "")))


def places_of(config: str | os.PathLike[str] | int, ranks: int) -> tuple[list[str], list[str]]:
    """Return the words that name the hosts for mpirun, and the host of each rank.

    ([], ["", ...]) where all of them run on this host.

    Example:
        >>> places_of("configs/2loudboxes", 2)
        (['--hostfile', 'configs/2loudboxes/hosts.txt'], ['metal-wh-01', 'metal-wh-04'])
        >>> places_of("configs/t3000_2ranks", 2)
        ([], ['', ''])
    """
    files = None if isinstance(config, int) else find_config(config)
    if files is None or not (files.hosts or files.rankfile):
        return [], [""] * ranks
    words = place_words(files.hosts, files.rankfile)
    names = placement(ranks, words)
    here = ssh.here(names)
    names = ["" if here[name] else name for name in names]
    return words if any(names) else [], names


def equal_cards(number: int) -> Bindings:
    """Return `number` ranks that share the cards equally, in PCIe order.

    Raises:
        TTKitError: the cards are not a multiple of the number, or those of one rank are not cabled
            into a mesh.

    Example:
        >>> ranks = equal_cards(2).rank_bindings
        >>> [binding.env_overrides["TT_VISIBLE_DEVICES"] for binding in ranks]
        ['0,1', '2,3']
        >>> equal_cards(3)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ttkit.errors.TTKitError: Cluster(3): a t3000 has 4 cards, which 3 ranks cannot share ...
          try: Cluster(1), Cluster(2) or Cluster(4), or a folder with rank bindings
    """
    cards, what = _cards()
    shared = _share(cards, number)
    if not shared:
        names = [f"Cluster({n})" for n in range(1, len(cards) + 1) if _share(cards, n)]
        rule = f"{what} has {len(cards)} cards, which {number} ranks cannot share equally"
        if number > 0 and len(cards) % number == 0:
            rule = f"{what} has {len(cards)} cards, and {len(cards) // number} of them in PCIe "
            rule += "order are not always cabled into a mesh"
        could = " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
        rule += "; a rank takes whole cards in PCIe order"
        fail(f"Cluster({number})", rule, f"{could}, or a folder with rank bindings")
    ranks = []
    for rank, own in enumerate(shared):
        environment = {"TT_VISIBLE_DEVICES": ",".join(own)}
        ranks.append(RankBinding(rank=rank, mesh_id=None, env_overrides=environment))
    return Bindings(rank_bindings=tuple(ranks))


def check_fit(bindings: Bindings) -> None:
    """Check that each rank's mesh is in its descriptor and, simulated, fits on its cards.

    A mesh that ranks share is the machine that the simulator plays, so it fits.

    Raises:
        TTKitError: it is not, or does not.
    """
    from ttkit.backend import is_simulated

    for binding in bindings.rank_bindings:
        path = binding.mesh_graph_desc_path or bindings.mesh_graph_desc_path
        if path is None or binding.mesh_id is None:
            continue
        descriptor = read_descriptor(path)
        mesh = descriptor.mesh(binding.mesh_id)
        if mesh.num_hosts > 1:
            # fails where the descriptor has no such host rank
            mesh.part_of(binding.mesh_host_rank or 0)
        elif is_simulated():
            visible, machine = bindings.visible_devices(binding), current_machine()
            machine = narrow(machine, visible) if visible else machine
            placed(machine, mesh, bool(descriptor.pinnings))


def _cards() -> tuple[list[str], str]:
    """Return the PCIe numbers of the usable cards, and the machine that has them."""
    given = os.environ.get("TT_VISIBLE_DEVICES", "").split(",")
    visible = [part.strip() for part in given if part.strip()]
    cards = sorted(int(card.name) for card in Path("/dev/tenstorrent").glob("[0-9]*"))
    if cards and os.environ.get("TTKIT_BACKEND", "") != "sim":
        return visible or [str(card) for card in cards], "this machine"
    system = current_system()
    return visible or [str(card) for card in range(len(system.cards))], f"a {system.name}"


def _share(cards: list[str], number: int) -> list[list[str]]:
    """Return the cards of each rank; [] where they cannot be shared equally."""
    if number < 1 or len(cards) % number:
        return []
    each = len(cards) // number
    firsts = range(0, len(cards), each)
    try:
        for first in firsts:  # of the system as this process sees it, where cards count from 0
            narrow(current_system(), ",".join(map(str, range(first, first + each))))
    except TTKitError:
        return []
    return [cards[first : first + each] for first in firsts]


def check_host(asked: str, ranks: int) -> None:
    """Check what this host must have before a cluster starts: else processes end without a cause.

    Raises:
        TTKitError: the working folder is gone, or a process may open too few files.
    """
    try:
        os.getcwd()
    except OSError:
        rule = "the working folder was deleted, and each rank starts in it"
        fail(asked, rule, "os.chdir to a folder that exists, or restart the kernel")
    limit, needed = resource.getrlimit(resource.RLIMIT_NOFILE)[0], FILES + FILES_OF_A_RANK * ranks
    if limit != resource.RLIM_INFINITY and limit < needed:
        rule = f"a process may open {limit} files here, and the controller needs {needed}"
        fail(asked, rule, f"`ulimit -n {max(1024, needed)}` in the shell, then start Python again")


def check_space(asked: str, folder: Path, shared: Path | None) -> None:
    """Check that a cluster's folder, and the one for memory that its ranks share, have space.

    Args:
        shared: None where the ranks share memory elsewhere.

    Raises:
        TTKitError: one has too little.
    """
    for place, needed, why in (
        (folder, FOLDER_BYTES, "a cluster keeps its logs and mpirun's files there"),
        (shared, SHARED_BYTES, "Open MPI keeps the memory there that ranks share"),
    ):
        if place is not None and (free := shutil.disk_usage(place).free) < needed:
            free_of = f"{short(free, 'B')} free of the {short(needed, 'B')} needed"
            cure = "free some, or name another folder in the variable TMPDIR"
            fail(asked, f"{place.parent} has {free_of}: {why}", cure)


def commands(
    processes: Supervised,
    environment: Mapping[str, str],
    bindings: Bindings,
    place: Sequence[str],
    mpirun: str,
    address: str,
) -> dict[str, list[str]]:
    """Return the commands of the controller and of mpirun.

    Args:
        place: mpirun's words for hosts; none where all ranks are here.
        address: of the controller.
    """
    controller = python_command("engines.engine:controller")
    controller += [f"--ip={address}", f"--profile-dir={processes.folder}", *CONTROLLER_OPTIONS]
    if not place:  # the name of this host may have no address
        controller.append(f"--IPController.location={address}")
    engine = [*_for_ttnn(), *python_command("engines.engine:main")]
    if place:  # mpirun's environment does not go to other hosts by itself
        carried = [f"{name}={environment[name]}" for name in CARRIED if name in environment]
        engine = ["env", *carried, *engine]
    engines = mpirun_command(bindings, engine, mpirun, place, bare=True)
    return {"controller": controller, "mpirun": with_plain_path(engines, processes.folder)}


def environment(
    asked: str, processes: Supervised, hosts: Sequence[str], place: Sequence[str], mpirun: str
) -> dict[str, str]:
    """Return the environment of the controller and of mpirun; the shell's own values win.

    Raises:
        TTKitError: too little space, or a system that the engines cannot look up.
    """
    folder, system = processes.folder, current_system()
    if system.name not in SYSTEMS:
        rule = f"the system {system.name!r} is one of your own, which the engines cannot look up"
        fail(asked, rule, "use_system of a known name")
    given = mpirun_environment([mpirun, *place])
    given |= {FOLDER: str(folder), "IPYTHONDIR": str(folder / "ipython")}
    if place:
        given[OWNER] = socket.gethostname()
        way = {"OMPI_MCA_btl": "self,sm,tcp", "OMPI_MCA_btl_tcp_if_exclude": "docker0,lo"}
    else:  # all ranks are here: messages need no network
        shared = processes.shared_memory(len(hosts))  # ours, so that a kill leaves nothing there
        chosen = any(name in os.environ for name in ("OMPI_MCA_btl", SHARED))
        check_space(asked, folder, None if chosen else shared)
        way = {
            "OMPI_MCA_btl": "self,sm",
            SHARED: str(shared),
            "PMIX_MCA_ptl_tcp_if_include": "lo",
        }
    way |= {
        LOCAL_FOLDER: str(folder),
        # a rank that waits leaves the core to one that works
        "OMPI_MCA_mpi_yield_when_idle": "1",
        **blas_threads(max(Counter(hosts).values())),
        "TTKIT_SYSTEM": system.name,
    }
    given |= {name: value for name, value in way.items() if name not in os.environ}
    return given | ({"TTKIT_STRICT": "1"} if is_strict() else {})


def _for_ttnn() -> list[str]:
    """Return what comes before an engine's command where it will run the real ttnn.

    ttnn brings an Open MPI of its own, and a process has room for one: mpi4py must use it too. And
    the variables that tt-run sets to the current folder, where the shell has none, are for a source
    tree of tt-metal: an installed ttnn does not find its files there.
    """
    from ttkit.backend import is_simulated

    spec = None if is_simulated() else importlib.util.find_spec("ttnn")
    if spec is None or not spec.origin:
        return []
    library = sorted((Path(spec.origin).parents[1] / "ttnn.libs").glob("libmpi-*.so*"))
    names = [name for name in ("TT_METAL_HOME", "TT_METAL_RUNTIME_ROOT") if name not in os.environ]
    unset = [word for name in names for word in ("-u", name)]
    return ["env", *unset, *(f"LD_PRELOAD={path}" for path in library[:1])]
