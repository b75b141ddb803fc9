"""Who the ranks of a Cluster are: those of a folder of files, or n that share the boards of this
machine.
"""

from __future__ import annotations

import os
from pathlib import Path

from ttkit.cluster import ssh
from ttkit.cluster.bindings import Bindings, RankBinding, plain_ranks, read_bindings, read_mapping
from ttkit.cluster.config import find_config, place_words, placement
from ttkit.cluster.hosts import read_hosts
from ttkit.descriptors import placed, read_descriptor
from ttkit.errors import TTKitError, fail
from ttkit.hardware import current_system
from ttkit.hardware.systems import current_machine, narrow


def ranks_of(config: str | os.PathLike[str] | int) -> Bindings:
    """The ranks of a configuration folder, or of a number of engines.

    Raises:
        TTKitError: the files are wrong, or the boards cannot be shared so.

    Example:
        >>> [binding.env_overrides["TT_VISIBLE_DEVICES"] for binding in ranks_of("configs/t3000_2ranks").rank_bindings]
        ['0,1', '2,3']
    """
    if isinstance(config, int):
        return equal_boards(config)
    files = find_config(config)
    if files.bindings:
        return read_bindings(files.bindings)
    if files.mapping:
        return read_mapping(files.mapping)
    return plain_ranks(sum(host.slots for host in read_hosts(files.hosts or "")))


def places_of(config: str | os.PathLike[str] | int, ranks: int) -> tuple[list[str], list[str]]:
    """(words that tell mpirun where to start the ranks, the host of each):

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
    words = place_words(files.hosts, read_hosts(files.hosts) if files.hosts else (), files.rankfile)
    names = placement(ranks, words)
    here = dict(
        zip(set(names), ssh.for_all(lambda name: not name or ssh.is_here(name), set(names)))
    )
    names = ["" if here[name] else name for name in names]
    return words if any(names) else [], names


def equal_boards(number: int) -> Bindings:
    """`number` ranks, each with as many boards as the others: the first ones in PCIe order, the
    next ones, and so on.

    Raises:
        TTKitError: the boards are not a multiple of the number, or those of one rank are not cabled
        into a mesh.

    Example:
        >>> [binding.env_overrides["TT_VISIBLE_DEVICES"] for binding in equal_boards(2).rank_bindings]
        ['0,1', '2,3']
        >>> equal_boards(3)
        Traceback (most recent call last):
        ttkit.errors.TTKitError: Cluster(3): a t3000 has 4 boards, which 3 ranks cannot share equally; a rank takes whole boards in PCIe order
          try: Cluster(1), Cluster(2) or Cluster(4), or a folder with rank bindings
    """
    boards, what = _boards()
    shared = _share(boards, number)
    if not shared:
        names = [f"Cluster({n})" for n in range(1, len(boards) + 1) if _share(boards, n)]
        rule = f"{what} has {len(boards)} boards, which {number} ranks cannot share equally"
        if number > 0 and len(boards) % number == 0:
            rule = (
                f"{what} has {len(boards)} boards, and {len(boards) // number} of them in PCIe "
                "order are not always cabled into a mesh"
            )
        could = " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
        fail(
            f"Cluster({number})",
            f"{rule}; a rank takes whole boards in PCIe order",
            f"{could}, or a folder with rank bindings",
        )
    ranks = [
        RankBinding(rank, None, env_overrides={"TT_VISIBLE_DEVICES": ",".join(own)})
        for rank, own in enumerate(shared)
    ]
    return Bindings(tuple(ranks))


def check_fit(bindings: Bindings) -> None:
    """Whether each rank's mesh is in its descriptor and, on the simulator, fits on its boards:
    said before a process starts, not by a cell.

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
            visible = visible_devices(bindings, binding)
            placed(
                narrow(current_machine(), visible) if visible else current_machine(),
                mesh,
                bool(descriptor.pinnings),
            )


def visible_devices(bindings: Bindings, binding: RankBinding) -> str:
    """The boards that a rank is given, as TT_VISIBLE_DEVICES has them; "" where its binding does
    not say.
    """
    return (
        binding.env_overrides.get("TT_VISIBLE_DEVICES")
        or bindings.global_env.get("TT_VISIBLE_DEVICES")
        or ""
    )


def _boards() -> tuple[list[str], str]:
    """The PCIe numbers of the boards that may be used, and what they are boards of."""
    visible = [
        part.strip() for part in os.environ.get("TT_VISIBLE_DEVICES", "").split(",") if part.strip()
    ]
    cards = sorted((int(card.name) for card in Path("/dev/tenstorrent").glob("[0-9]*")), key=int)
    if cards and os.environ.get("TTKIT_BACKEND", "") != "sim":
        return visible or [str(card) for card in cards], "this machine"
    system = current_system()
    return visible or [str(board) for board in range(len(system.boards))], f"a {system.name}"


def _share(boards: list[str], number: int) -> list[list[str]]:
    """The boards of each rank; [] where they cannot be shared so."""
    if number < 1 or len(boards) % number:
        return []
    each = len(boards) // number
    shared = [boards[rank * each : (rank + 1) * each] for rank in range(number)]
    try:
        # of the system as this process sees it, where boards are numbered from 0
        for rank in range(number):
            narrow(
                current_system(),
                ",".join(str(board) for board in range(rank * each, (rank + 1) * each)),
            )
    except TTKitError:
        return []
    return shared
