"""The simulator as a test finds it and leaves it, and machines that nobody sells."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

import ttkit
from ttkit import ttnn
from ttkit.descriptors.reading import descriptor_path
from ttkit.hardware import SYSTEMS, System
from ttkit.plans import Topology, topology
from ttkit.sim import mesh as sim_mesh


@contextmanager
def strict_with_fabric() -> Iterator[None]:
    """Strict, with a fabric; afterwards no mesh is open, and dialect, fabric and system are the
    default ones.
    """
    ttkit.strict()
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    yield
    close_all()
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)
    ttkit.strict(False)


def close_all() -> None:
    """Close every mesh, and go back to the default system."""
    for opened in list(sim_mesh.opened_meshes):
        opened.close()
    ttkit.use_system(None)


def describe(monkeypatch, folder, chips, *dims):
    """Put the kit's descriptor of so many chips in use, in a file of the folder, with these dims."""
    text, file = descriptor_path(chips).read_text(), folder / "mgd.textproto"
    file.write_text(re.sub(r"dims: \[.*?\]", f"dims: {list(dims)}", text, count=1))
    monkeypatch.setenv("TT_MESH_GRAPH_DESC_PATH", str(file))


def mapper_over(mesh, dims, *more):
    """A mapper that cuts these dims, one for each axis of a mesh; None leaves replicas along it."""
    placements = [ttnn.PlacementReplicate() if d is None else ttnn.PlacementShard(d) for d in dims]
    return ttnn.create_mesh_mapper(mesh, ttnn.MeshMapperConfig(placements, *more))


def grid(
    rows: int, columns: int, wraps: tuple[bool, bool] = (False, False), links: int = 2
) -> Topology:
    """A machine whose ids are not in the order of the mesh, so that a place taken for an id
    shows.
    """
    ids = (
        np.random.default_rng(rows * 100 + columns)
        .permutation(rows * columns)
        .reshape(rows, columns)
    )
    return topology(
        System(
            "grid",
            SYSTEMS["t3000"].chip,
            tuple(tuple(int(i) for i in row) for row in ids),
            links,
            wraps,
        )
    )
