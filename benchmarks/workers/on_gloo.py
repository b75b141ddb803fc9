"""torch with 8 processes over gloo: the collectives, between tensors that are made once."""

from __future__ import annotations

import datetime
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any

ROWS: dict[str, Callable[[Any], None]] = {}


def joined(bench: Any) -> tuple[Any, Any, int, Any]:
    """torch, its distributed module, this process's rank and its team; rank 0 starts the seven
    others.
    """
    import team

    team.end_with_parent()
    rank, port = int(os.environ.get("RANK", "0")), os.environ.get("MASTER_PORT")
    door = None
    # this host's own name may lead nowhere
    os.environ["GLOO_SOCKET_IFNAME"] = next(
        name for _, name in socket.if_nameindex() if name.startswith("lo")
    )
    if rank == 0:
        door = team.listen()
        port = str(free_port())
        shared = os.environ | {"MASTER_PORT": port, "TEAM_PORT": str(door.getsockname()[1])}
        for other in range(1, team.RANKS):  # they end with this process
            subprocess.Popen(
                [sys.executable, *sys.argv],
                env=shared | {"RANK": str(other)},
                stdin=subprocess.DEVNULL,
            )
    import torch
    import torch.distributed as dist

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    torch.set_grad_enabled(False)
    limit = datetime.timedelta(seconds=60)
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://127.0.0.1:{port}",
        rank=rank,
        world_size=team.RANKS,
        timeout=limit,
    )
    return (
        torch,
        dist,
        rank,
        team.Team(bench, rank, door or int(os.environ["TEAM_PORT"]), dist.barrier),
    )


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


def collective(kind: str, size: str) -> Callable[[Any], None]:
    def row(bench: Any) -> None:
        import data

        torch, dist, rank, crew = joined(bench)
        mine = torch.from_numpy(data.collective(size)[rank].copy())
        whole = torch.empty(8 * mine.numel())
        if kind == "all-reduce":
            total = torch.empty(1, mine.numel())
            # gloo adds in place
            crew.serve(lambda: dist.all_reduce(total.copy_(mine[None])), lambda _: total.numpy())
        if kind == "reduce-scatter":
            part, parts = torch.empty(mine.numel() // 8), torch.empty(mine.numel())

            def put_together(_: Any) -> Any:
                dist.all_gather_single(parts, part)
                return parts[None].numpy()

            crew.serve(lambda: dist.reduce_scatter_single(part, mine), put_together)
        if kind == "all-gather":
            crew.serve(
                lambda: dist.all_gather_single(whole, mine), lambda _: whole.reshape(8, -1).numpy()
            )

        def columns() -> Any:
            dist.all_gather_single(whole, mine)
            return torch.cat(list(whole.reshape(8, 128, -1)), dim=1)

        crew.serve(columns, lambda y: y.numpy())

    return row


ROWS |= {
    f"{kind}-{size}": collective(kind, size)
    for kind in ("all-gather", "all-reduce", "reduce-scatter")
    for size in ("4k", "256k", "64m")
}
ROWS["all-gather-columns-64m"] = collective("all-gather-columns", "64m")
