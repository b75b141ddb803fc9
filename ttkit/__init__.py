"""Learn and try distributed programming on Tenstorrent meshes, with or without a card.

`from ttkit import ttnn` gives the real library where there is a Tenstorrent device, and elsewhere a
simulator with the same names, shapes, placements and messages.

Example:
    >>> from ttkit import ttnn
    >>> with ttnn.open_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
    ...     mesh.get_num_devices()
    8
"""

from ttkit.lazy import attach as _attach

__version__ = "0.2.0"

# A name is imported on first use. Each line lists a module and the names that ttkit takes from it.
# If a line has only a module, ttkit offers the module itself.
_NAMES = """
cluster
lessons
plans
train
ttml
backend                  about assert_with_pcc from_numpy pcc to_numpy ttnn
cluster.engines.cluster  Cluster
errors                   CollectiveMismatch DialectWarning OutOfMemoryError TTKitError is_strict
errors                   strict
hardware                 use_system
layouts.search           explore_layouts plan_layouts
profiling                profile
profiling.one_chip       check_on_one_chip
program                  install_as_ttnn
sim.collectives.ccl      last_plan
waiting                  rank_checks
visualize                memory on_one_axis step_through visualize_descriptor visualize_matmul
visualize                visualize_memory visualize_mesh_device visualize_plan visualize_ranks
visualize                visualize_schedule visualize_system_mesh visualize_tensor
"""
__getattr__, __dir__, __all__ = _attach(__name__, _NAMES)
