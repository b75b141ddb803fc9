"""A training configuration: its sections and files, and the layout of a step."""

from ttkit.lazy import attach

_NAMES = """
files     read_settings
layout    Layout
settings  DeviceConfig Distributed LayoutConfig MultihostConfig PipelineParallelConfig RopeScaling
settings  SchedulerConfig Settings TrainingConfig TransformerConfig parallel_axes
"""
__getattr__, __dir__, __all__ = attach(__name__, _NAMES)
