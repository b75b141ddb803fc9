"""Functions and classes of ttml whose form differs from that in the rest of `ttkit.train`.

`ttkit.ttml` has them under the names of ttml's modules.
"""

from enum import Enum
from operator import add, mul, sub  # noqa: F401
from types import SimpleNamespace

import numpy as np

from ttkit import ttnn
from ttkit.errors import fail
from ttkit.train.autograd import Tensor
from ttkit.train.config.settings import TransformerConfig
from ttkit.train.context import AutoContext, current_layout
from ttkit.train.model.models import create_model
from ttkit.train.model.modules import Linear, Module, Parameter
from ttkit.train.parallel import distributed
from ttkit.train.run import optimizers
from ttkit.train.run.optimizers import AdamW, Optimizer

DataType = ttnn.DataType
Layout = ttnn.Layout
ones_like = ttnn.ones_like
zeros_like = ttnn.zeros_like
concat_mesh_to_tensor_composer = ttnn.concat_mesh_to_tensor_composer
shard_tensor_to_mesh_mapper = ttnn.shard_tensor_to_mesh_mapper
ModuleBase = Module
OptimizerBase = Optimizer
MorehAdamW = AdamW
# A loss is the mean over a device's elements; ttml has more kinds.
ReduceType = Enum("ReduceType", "MEAN")
RunnerType = Enum("RunnerType", {"Default": "default", "MemoryEfficient": "memory_efficient"})
WeightTyingType = Enum("WeightTyingType", {"Disabled": "disabled", "Enabled": "enabled"})


def enable_fabric(num_devices: int) -> None:
    """Do nothing: `AutoContext.open_device` chooses the fabric."""


def synchronize_gradients(parameters, cluster_axes=None) -> None:
    """Replace each gradient by its mean over the replicas.

    Without `cluster_axes` and without a parallelism context, all devices are replicas.
    """
    if not (cluster_axes or AutoContext.get_instance().is_parallelism_context_initialized()):
        cluster_axes = range(AutoContext.get_instance().get_device().shape.dims())
    distributed.synchronize_gradients(parameters, cluster_axes)


# In December 2025, synchronize_gradients was called synchronize_parameters in ttml.
synchronize_parameters = synchronize_gradients


def empty_like(tensor: Tensor) -> Tensor:
    """Return a tensor of the same shape and type; here its values are zeros."""
    return Tensor(ttnn.zeros_like(tensor.get_value()))


def clip_grad_norm(
    parameters, max_norm: float, p_norm_type: float = 2.0, error_if_nonfinite: bool = False
) -> float:
    """Scale all gradients down if their norm is above `max_norm`; return the unscaled norm."""
    if p_norm_type != 2:
        fail("clip_grad_norm", f"p_norm_type={p_norm_type} is not 2, the only norm here", "2.0")
    norm = optimizers.clip_grad_norm(parameters, max_norm)
    if error_if_nonfinite and not np.isfinite(norm):
        fail("clip_grad_norm", f"the norm is {norm}", "a smaller learning rate")
    return norm


class MemoryUsageTracker:
    """A stand-in for ttml's tracker, whose name programs use; it traces no allocations."""


# ---------------------------------------------------------------- losses
def cross_entropy_loss(prediction: Tensor, target: Tensor, reduce: object = None) -> Tensor:
    """Return the mean over tokens of -log softmax(prediction)[target], [1, 1, 1, 1].

    Args:
        prediction: [B, 1, S, V].
        target: [B, S], UINT32, row-major.
        reduce: a reduction of ttml; it is ignored, because only the mean is available here.
    """
    batch, _, length, width = prediction.shape()
    tokens = current_layout().numbers(width)
    targets = ttnn.reshape(target.get_value(), (batch, 1, 1, length))
    return distributed.cross_entropy_loss(prediction, targets, tokens)


# ---------------------------------------------------------------- models
def _named(root: str, parameters: dict[str, Parameter]) -> dict[str, Parameter]:
    """Return parameters by ttml's paths, such as "linear/weight"."""
    return {f"{root}/{name}".replace(".", "/"): value for name, value in parameters.items()}


class LinearLayer(Linear):
    """A linear layer whose parameters are "linear/weight" and "linear/bias"."""

    def parameters(self) -> dict[str, Parameter]:
        """Return {path: parameter}."""
        return _named("linear", super().parameters())


def create_linear_regression_model(input_size: int, output_size: int) -> LinearLayer:
    """Return a linear layer with initial values."""
    model = LinearLayer(input_size, output_size)
    model.init_weights(AutoContext.get_instance().get_seed())
    return model


class GPT2TransformerConfig(SimpleNamespace):
    """The settings of a GPT, as attributes; see `TransformerConfig` for names and defaults."""

    model_type, root = "gpt2", "transformer"


class LlamaConfig(GPT2TransformerConfig):
    """The settings of a Llama."""

    model_type, root = "llama", "llama"


class Model(Module):
    """A transformer with initial values; as in ttml, it takes tokens [B, 1, 1, S] and a causal
    mask.
    """

    def __init__(self, config: GPT2TransformerConfig, layout=None):
        given = {name: getattr(value, "value", value) for name, value in vars(config).items()}
        settings = TransformerConfig(config.model_type, **given)  # type: ignore[arg-type]
        self.root = config.root
        self.model = create_model(settings, layout)
        self.init_weights(AutoContext.get_instance().get_seed())

    def parameters(self) -> dict[str, Parameter]:
        """Return {path: parameter}; a path is, for example, "llama/norm/weight"."""
        return _named(self.root, self.model.parameters())

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the logits [B, 1, S, V]."""
        values = np.ones((1, 1)) if mask is None else distributed.one_copy(mask.get_value())
        if not np.array_equal(values, np.tril(np.ones_like(values))):
            fail("a mask", "attention is causal here", "ones up to the diagonal")
        return self.model.whole(self.model(ids.get_value()))


create_gpt2_model = create_llama_model = Model
