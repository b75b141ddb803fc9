"""Run by every rank: what goes wrong, and what is said. python faults.py NAME"""

import os
import pathlib
import signal
import sys
import threading
import time

import ttkit
from ttkit import ttnn
from ttkit.errors import CollectiveMismatch

RANK = int(os.environ["OMPI_COMM_WORLD_RANK"])
os.environ.setdefault("TT_MESH_ID", "0")
os.environ.setdefault("TT_MESH_HOST_RANK", str(RANK))


def mesh():
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    return ttnn.open_mesh_device(ttnn.MeshShape(2, 4))


def ones(mesh, shape=(32, 32), dtype=ttnn.float32):
    return ttnn.ones(list(shape), dtype=dtype, layout=ttnn.TILE_LAYOUT, device=mesh)


def mismatch():
    """Another axis, kind, shape, type or order: all ranks say who called what, and can go on
    afterwards.
    """
    here = mesh()
    t, wide, narrow = ones(here), ones(here, (64, 32)), ones(here, dtype=ttnn.bfloat16)
    reduce, gather, composer = ttnn.all_reduce, ttnn.all_gather, ttnn.ConcatMeshToTensor(here, 0)
    for one, other in (
        (lambda: reduce(t, cluster_axis=0), lambda: reduce(t, cluster_axis=1)),
        (lambda: reduce(t, cluster_axis=0), lambda: gather(t, 0, cluster_axis=0)),
        (lambda: gather(t, 0, cluster_axis=1), lambda: gather(wide, 0, cluster_axis=1)),
        (lambda: reduce(t, cluster_axis=1), lambda: reduce(narrow, cluster_axis=1)),
        (
            lambda: ttkit.to_numpy(t, mesh_composer=composer),
            lambda: ttnn.get_device_tensors(t.cpu()),
        ),
    ):
        try:
            (other if RANK == 1 else one)()
        except CollectiveMismatch as error:
            print(f"rank {RANK}: {error}", flush=True)
        else:
            raise AssertionError("not noticed")
    own = here.grid.covers.index(here.grid.coords[0])
    total = ttnn.get_device_tensors(reduce(t, cluster_axis=1))[own]
    assert ttkit.to_numpy(total).max() == 4
    print(f"passed {RANK}", flush=True)


def late():
    """Rank 1 stays away: the others name it when the time is over, and do not begin again as if
    nothing had been.
    """
    t = ones(mesh())
    # from here to the call, a busy machine has the time that the ranks wait
    ttnn.distributed_context_barrier()
    ttkit.rank_checks(timeout_s=5)
    if RANK != 1:
        for _ in range(2):
            try:
                ttnn.all_reduce(t, cluster_axis=1)
            except CollectiveMismatch as error:
                print(f"rank {RANK}: {error}", flush=True)
    print(f"passed {RANK}", flush=True)


def dies():
    """Rank 1 dies while the others wait for it."""
    t = ones(mesh())
    if RANK == 1:
        os._exit(3)
    ttnn.all_reduce(t, cluster_axis=1)


def interrupted():
    """Ctrl-C reaches a rank that waits, which says for whom."""
    t = ones(mesh())
    done = pathlib.Path(os.environ["TT_MESH_GRAPH_DESC_PATH"]).with_name("interrupted")
    if RANK == 0:
        threading.Timer(1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            ttnn.all_reduce(t, cluster_axis=0)
        except KeyboardInterrupt as stop:
            print(f"rank 0: {stop}", flush=True)
        done.touch()
    else:
        while not done.exists():
            time.sleep(0.05)
    print(f"passed {RANK}", flush=True)


def twice():
    """Two ranks with one binding."""
    os.environ["TT_MESH_HOST_RANK"] = "0"
    try:
        t = ones(mesh())
        ttnn.all_reduce(t, cluster_axis=1)
    except RuntimeError as error:
        print(f"rank {RANK}: {error}", flush=True)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
