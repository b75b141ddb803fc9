"""The simulator as a test finds it and leaves it."""

from collections.abc import Iterator
from contextlib import contextmanager

import ttkit
from ttkit import ttnn
from ttkit.sim import mesh as sim_mesh


@contextmanager
def strict_with_fabric() -> Iterator[None]:
    """Strict, with a fabric; afterwards no mesh is open, and dialect, fabric and system are the default ones."""
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
