"""Close what earlier cells have left open, so that the cells of a lesson can be run again."""

import sys

from ttkit import backend


def tidy() -> None:
    """Close the meshes, context, clusters and fabric that earlier cells left open.

    A cluster is stopped only if it has a name in the notebook. On cards the same is true of a mesh.
    The sections of a lesson begin with `tidy()`, so that their cells can be run again in any order.

    Example:
        >>> from ttkit import ttnn
        >>> mesh = ttnn.open_mesh_device(ttnn.MeshShape(2, 4))
        >>> tidy()
        >>> mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, 8))  # the chips are free again
        >>> tidy()
    """
    ttnn = backend.load()
    if "ttkit.train.context" in sys.modules:
        sys.modules["ttkit.train.context"].AutoContext.get_instance().close_device()
    if "ttkit.cluster.engines.cluster" in sys.modules:
        for cluster in _named(sys.modules["ttkit.cluster.engines.cluster"].Cluster):
            cluster.stop()
    if backend.is_simulated():
        from ttkit.sim.mesh import opened_meshes

        meshes = opened_meshes[::-1]
    else:
        meshes = _named(ttnn.MeshDevice)
    for mesh in meshes:
        ttnn.close_mesh_device(mesh)
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)


def _named(kind: type) -> list:
    """Return the objects of a type that have a name in the notebook."""
    return [thing for thing in vars(sys.modules["__main__"]).values() if isinstance(thing, kind)]
