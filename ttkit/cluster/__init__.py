"""From a folder of files to running ranks: bindings and hosts read and checked, mpirun's
command, its launch.

Example:
    >>> from ttkit import cluster
    >>> [mesh.device_dims for mesh in cluster.read_descriptor("configs/2loudboxes/mgd.textproto").meshes]
    [(1, 8), (1, 8)]
    >>> cluster.lint_path("configs/2loudboxes")
    []
"""

from ttkit.lazy import attach

# What is loaded when it is first asked for: module -> the names that it holds.
_NAMES = {
    "cluster.bindings": "Bindings RankBinding plain_ranks read_bindings read_mapping",
    "cluster.command": "mpirun_command rank_environment",
    "cluster.config": "Config find_config",
    "cluster.doctor": "examine",
    "cluster.hosts": "Host RankSlot read_hosts read_rankfile",
    "cluster.lint": "lint_path",
    "descriptors": "Connection MeshGraphDescriptor MeshInstance check_descriptor descriptor_path "
    "descriptor_text read_descriptor",
    "errors": "Finding",
}
__getattr__, __dir__, __all__ = attach(__name__, _NAMES, below="ttkit")
