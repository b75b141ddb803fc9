"""What lessons share: comparisons, predictions, exercises, challenges, cells that run again.

Feedback names the device, the index and the number.
"""

import sys

from ttkit import backend
from ttkit.lazy import attach
from ttkit.words import in_notebook

# A name is imported on first use. A line has a module and the names that it holds.
_NAMES = """
comparing   CheckFailed device_difference difference same values_mean_something
exercises   challenge check hint solution todo
predicting  predict
"""
__getattr__, _, _names = attach(__name__, _NAMES)
__all__ = [*_names, "course_map", "tidy"]


def __dir__() -> list[str]:
    return sorted(__all__)


def course_map() -> None:
    """Show the lessons, with a tick at each of which you have passed all exercises."""
    from ttkit.lessons.folder import course
    from ttkit.lessons.progress import page_with_ticks

    rows = page_with_ticks(course() / "notebooks" / "welcome.md").splitlines()
    table = "\n".join(row for row in rows if row.startswith("|"))
    if in_notebook():
        from IPython.display import display

        display({"text/markdown": table, "text/plain": table}, raw=True)
    else:
        print(table)


def tidy() -> None:
    """Close every mesh, context, cluster and fabric that an earlier cell left open.

    Each section of a lesson begins with it, so that its cells can be run again, in any order.

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


def _say_which_cell(shell, kind, error, trace, tb_offset=None) -> None:
    """Show a NameError as usual; add that it may be misspelt, or that a cell was not run."""
    shell.showtraceback((kind, error, trace), tb_offset=tb_offset)
    print(
        f"`{error.name}` is not known: misspelt, or made in a cell that has not been run\n"
        "  try: Run > Run All Above Selected Cell"
    )


if in_notebook():
    sys.modules["IPython"].get_ipython().set_custom_exc((NameError,), _say_which_cell)
