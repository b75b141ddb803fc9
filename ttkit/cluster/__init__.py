"""Clusters: read and check the files of ranks and hosts, make mpirun's command, start engines.

Example:
    >>> from ttkit import cluster
    >>> meshes = cluster.read_descriptor("configs/2loudboxes/mgd.textproto").meshes
    >>> [mesh.device_dims for mesh in meshes]
    [(1, 8), (1, 8)]
    >>> cluster.lint_path("configs/2loudboxes")
    []
"""

from ttkit.lazy import attach

# A name is imported on first use. Each line lists a module and the names that are taken from it.
_NAMES = """
cluster.files.bindings  Bindings RankBinding plain_ranks read_bindings
cluster.files           Config find_config
cluster.files.hosts     read_hosts read_rankfile
cluster.files.lint      lint_path
cluster.launch.command  mpirun_command rank_environment
cluster.launch.doctor   examine
descriptors.descriptor  Connection MeshGraphDescriptor MeshInstance
descriptors.reading     check_descriptor descriptor_path descriptor_text read_descriptor
files                   Finding
"""
__getattr__, __dir__, __all__ = attach(__name__, _NAMES, parent="ttkit")
