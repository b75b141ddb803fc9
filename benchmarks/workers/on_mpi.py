"""mpi4py with 8 ranks under mpiexec: the collectives, between NumPy arrays that are made once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

ROWS: dict[str, Callable[[Any], None]] = {}


def collective(kind: str, size: str) -> Callable[[Any], None]:
    def row(bench: Any) -> None:
        import data
        import numpy as np
        import team
        from mpi4py import MPI

        team.end_with_parent()
        world = MPI.COMM_WORLD
        rank = world.rank
        door = team.listen() if rank == 0 else None
        port = world.bcast(door.getsockname()[1] if door else None)
        crew = team.Team(bench, rank, door or port, world.Barrier)

        mine = data.collective(size)[rank].copy()
        whole = np.empty((8, mine.size), np.float32)
        if kind == "all-reduce":
            total = np.empty((1, mine.size), np.float32)
            crew.serve(lambda: world.Allreduce(mine, total), lambda _: total)
        if kind == "reduce-scatter":
            part, parts = np.empty(mine.size // 8, np.float32), np.empty((1, mine.size), np.float32)

            def put_together(_: Any) -> Any:
                world.Allgather(part, parts)
                return parts

            crew.serve(lambda: world.Reduce_scatter_block(mine, part), put_together)
        if kind == "all-gather":
            crew.serve(lambda: world.Allgather(mine, whole), lambda _: whole)

        def columns() -> Any:
            world.Allgather(mine, whole)
            return np.concatenate(whole.reshape(8, 128, -1), axis=1)

        crew.serve(columns, lambda y: y)

    return row


ROWS |= {
    f"{kind}-{size}": collective(kind, size)
    for kind in ("all-gather", "all-reduce", "reduce-scatter")
    for size in ("4k", "256k", "64m")
}
ROWS["all-gather-columns-64m"] = collective("all-gather-columns", "64m")
