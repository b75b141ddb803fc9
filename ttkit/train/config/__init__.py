"""A training configuration: its sections and files, and the layout of a step."""

from ttkit.lazy import attach

_NAMES = {
    "files": "read_settings",
    "layout": "Layout parallel_axes",
    "settings": "DeviceConfig Distributed LayoutConfig MultihostConfig PipelineParallelConfig "
    "RopeScaling SchedulerConfig Settings TrainingConfig TransformerConfig",
}
__getattr__, __dir__, __all__ = attach(__name__, _NAMES)
