"""all_reduce over four engines that share a 2x4 mesh, against mpi4py's Allreduce of the same bytes:

`make bench-engines`.

Both are timed inside the engines, in turns, each call by itself after a barrier; a call's time is
that of its slowest rank, shown are medians. mpi4py receives into an array that is made once; ttkit
makes a tensor at each call. The aims hold for ranks without checks, where calls are not compared
and waits not polled (`ttkit.rank_checks(on=False)`); with them the times are shown.

A last line says how long it takes from nothing to the first collective of four engines, beside
ipyparallel's own start of engines by MPI."""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import ipyparallel
from rich.console import Console
from rich.table import Table

from ttkit import Cluster
from ttkit.cluster.launch.command import find_mpirun, mpirun_environment

AIMS = {64: 1.5, 1024: 1.1, 4096: 1.1, 16384: 1.1}  # KiB on each rank: times of mpi4py's
PAIRS = {64: 1000, 256: 600, 1024: 300, 4096: 80, 16384: 30}
MESH = """mesh_descriptors {
  name: "M0"
  arch: WORMHOLE_B0
  device_topology { dims: [ 2, 4 ] }
  host_topology { dims: [ 1, 4 ] }
  channels { count: 2 }
}
top_level_instance { mesh { mesh_descriptor: "M0" mesh_id: 0 } }
"""
RANK = "- {{rank: {0}, mesh_id: 0, mesh_host_rank: {0}}}\n"


def measure(kib: int, pairs: int, checks: bool) -> list[list[float]]:
    """On each engine: seconds of each call, mpi4py's and ttkit's."""
    import time

    import numpy as np
    from mpi4py import MPI

    import ttkit
    from ttkit import ttnn

    ttkit.strict()
    ttkit.rank_checks(on=checks)
    if ttnn.get_fabric_config() is ttnn.FabricConfig.DISABLED:
        ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    with ttnn.open_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
        rows = kib * 1024 // 2 // 4 // 64  # of a shard: a rank has two, 64 columns wide
        values = np.random.default_rng(kib).integers(-8, 8, (2 * rows, 4 * 64)).astype(np.float32)
        split = ttnn.ShardTensor2dMesh(mesh, mesh_shape=(2, 4), dims=(0, 1))
        tensor = ttkit.from_numpy(values, device=mesh, layout=ttnn.TILE_LAYOUT, mesh_mapper=split)
        world = MPI.COMM_WORLD
        mine = np.ascontiguousarray(values[:, 64 * world.rank : 64 * (world.rank + 1)])
        total = np.empty_like(mine)
        calls = [
            lambda: world.Allreduce(mine, total),
            lambda: ttnn.all_reduce(tensor, cluster_axis=1),
        ]
        times: list[list[float]] = [[], []]
        for pair in range(-3, pairs):
            for which in (0, 1) if pair % 2 else (1, 0):
                world.Barrier()
                began = time.perf_counter()
                result = calls[which]()
                times[which].append(time.perf_counter() - began)
                if which and pair < 0:
                    world.Allreduce(mine, total)
                    ours = [
                        ttkit.to_numpy(shard) for shard in ttnn.get_device_tensors(result.cpu())
                    ]
                    assert np.array_equal(ours[world.rank], total[:rows]) and np.array_equal(
                        ours[4 + world.rank], total[rows:]
                    )
                del result
    return [taken[3:] for taken in times]


def slowest(ranks: list[Any], which: int) -> list[float]:
    """For each call the time of the rank that took longest."""
    return [max(times) for times in zip(*(rank[which] for rank in ranks), strict=True)]


def first_collective() -> int:
    """On each engine: the sum of all ranks."""
    from mpi4py import MPI

    return int(MPI.COMM_WORLD.allreduce(MPI.COMM_WORLD.rank))


def start_by_ttkit() -> float:
    """Seconds to the first collective of four engines."""
    began = time.perf_counter()
    with Cluster(4) as cluster:
        assert cluster.run(first_collective) == [6] * 4
        return time.perf_counter() - began


def start_by_ipyparallel() -> float:
    """The same by ipyparallel alone, with the mpiexec beside this Python's mpirun and the
    variables that ttkit gives it, too.
    """
    os.environ |= mpirun_environment([], {}) | {
        "PATH": f"{Path(find_mpirun()).parent}{os.pathsep}{os.environ['PATH']}"
    }
    began = time.perf_counter()
    with ipyparallel.Cluster(engines="mpi", n=4, log_level=40) as client:
        assert client[:].apply_sync(first_collective) == [6] * 4
        return time.perf_counter() - began


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--quick", action="store_true", help="a tenth of the pairs")
    options = parser.parse_args()
    table = Table(
        "KiB on a rank",
        "checks",
        "mpi4py, us",
        "ttkit, us",
        "ratio",
        "aim",
        title="all_reduce over 4 engines, medians",
    )
    load, missed = os.getloadavg()[0], []
    rounds = [(start_by_ttkit(), start_by_ipyparallel()) for _ in range(1 if options.quick else 5)]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "mgd.textproto").write_text(MESH)
        Path(folder, "rank_bindings.yaml").write_text(
            "rank_bindings:\n"
            + "".join(map(RANK.format, range(4)))
            + "mesh_graph_desc_path: mgd.textproto\n"
        )
        with Cluster(folder) as cluster:
            for kib, pairs in PAIRS.items():
                for checks in (False, True):
                    ranks = cluster.run(
                        measure, kib, max(10, pairs // 10 if options.quick else pairs), checks
                    )
                    raw, ours = (statistics.median(slowest(ranks, which)) for which in (0, 1))
                    aim = None if checks else AIMS.get(kib)
                    table.add_row(
                        str(kib),
                        "on" if checks else "off",
                        f"{raw * 1e6:.0f}",
                        f"{ours * 1e6:.0f}",
                        f"{ours / raw:.2f}",
                        f"{aim or ''}",
                    )
                    if aim and ours > aim * raw:
                        missed.append(f"{kib} KiB: {ours / raw:.2f}x, aim {aim}x")
    Console(highlight=False).print(table)
    ours, plain = (statistics.median(times) for times in zip(*rounds, strict=True))
    print(
        f"start of 4 engines and first collective: ttkit {ours:.1f} s, "
        f"ipyparallel with MPI {plain:.1f} s (medians of {len(rounds)})"
    )
    print(f"load {load:.1f} before, {os.getloadavg()[0]:.1f} after, on {os.cpu_count()} cores")
    print("\n".join(f"missed: {text}" for text in missed) or "All aims are met.")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
