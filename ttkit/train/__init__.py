"""Training on meshes, with ttml's names: autograd, parallelism, models, data, checkpoints, the loop.

Example:
    >>> from ttkit.train import AutoContext, DistributedConfig
    >>> context = AutoContext.get_instance()
    >>> context.open_device([1, 4])
    >>> context.initialize_parallelism_context(DistributedConfig(enable_tp=True))
    >>> context.get_parallelism_context().get_tp_size()
    4
    >>> context.close_device()
"""

from importlib import import_module as _import_module
from typing import Any as _Any

from ttkit.train.context import AutoContext, DistributedConfig, ParallelismContext

# What is loaded when it is first asked for: name -> module that holds it.
_LATER = {
    "AdamW": "optimizers", "AdamWConfig": "optimizers", "GPT": "models", "Llama": "models", "Sampler": "generation", "SGD": "optimizers",
    "SGDConfig": "optimizers", "Tensor": "autograd", "Traced": "generation", "Trainer": "trainer", "clip_grad_norm": "optimizers",
    "create_model": "models", "generate": "generation", "no_grad": "autograd", "synchronize_gradients": "distributed",
    "training_plan": "plan",
}  # fmt: skip
__all__ = ["AutoContext", "DistributedConfig", "ParallelismContext", *_LATER]


def __getattr__(name: str) -> _Any:
    if name not in _LATER:
        raise AttributeError(f"module 'ttkit.train' has no attribute {name!r}")
    value = getattr(_import_module(f"ttkit.train.{_LATER[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
