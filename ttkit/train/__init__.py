"""Training on a mesh, with ttml's names: the parallelism context, and what a training run would take."""

from ttkit.train.context import AutoContext, DistributedConfig, ParallelismContext

__all__ = ["AutoContext", "DistributedConfig", "ParallelismContext"]
