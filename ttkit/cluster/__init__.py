"""From a folder of files to running ranks: bindings, hosts and settings read and checked, mpirun's command, its launch.

Example:
    >>> from ttkit import cluster
    >>> [mesh.device_dims for mesh in cluster.read_descriptor("configs/2loudboxes/mgd.textproto").meshes]
    [(1, 8), (1, 8)]
    >>> cluster.lint_path("configs/2loudboxes")
    []
"""

from ttkit.cluster.bindings import Bindings, RankBinding, plain_ranks, read_bindings, read_mapping
from ttkit.cluster.command import mpirun_command, rank_environment
from ttkit.cluster.config import Config, find_config
from ttkit.cluster.doctor import examine
from ttkit.cluster.hosts import Host, RankSlot, read_hosts, read_rankfile
from ttkit.cluster.launch import launch
from ttkit.cluster.lint import lint_path
from ttkit.cluster.settings import Settings, read_settings
from ttkit.cluster.sync import sync
from ttkit.hardware.descriptor import (
    Connection,
    MeshGraphDescriptor,
    MeshInstance,
    check_descriptor,
    descriptor_for,
    descriptor_path,
    read_descriptor,
)
from ttkit.hardware.findings import Finding
from ttkit.hardware.mgd_write import write_descriptor

__all__ = [
    "Bindings",
    "Config",
    "Connection",
    "Finding",
    "Host",
    "MeshGraphDescriptor",
    "MeshInstance",
    "RankBinding",
    "RankSlot",
    "Settings",
    "check_descriptor",
    "descriptor_for",
    "descriptor_path",
    "examine",
    "find_config",
    "launch",
    "lint_path",
    "mpirun_command",
    "plain_ranks",
    "rank_environment",
    "read_bindings",
    "read_descriptor",
    "read_hosts",
    "read_mapping",
    "read_rankfile",
    "read_settings",
    "sync",
    "write_descriptor",
]
