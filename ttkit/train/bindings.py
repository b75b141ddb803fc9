"""What ttml has in another form than the rest of `ttkit.train`; `ttkit.ttml` has ttml's names."""

from __future__ import annotations

from enum import Enum
from operator import add, mul, sub  # noqa: F401
from typing import Any

import numpy as np

from ttkit import ttnn
from ttkit.errors import fail
from ttkit.train import distributed, ops, optimizers
from ttkit.train.autograd import Tensor
from ttkit.train.context import AutoContext
from ttkit.train.modules import Linear, Module
from ttkit.train.optimizers import Optimizer

DataType, Layout = ttnn.DataType, ttnn.Layout
ones_like, zeros_like = ttnn.ones_like, ttnn.zeros_like
concat_mesh_to_tensor_composer = ttnn.concat_mesh_to_tensor_composer
shard_tensor_to_mesh_mapper = ttnn.shard_tensor_to_mesh_mapper
LinearLayer, ModuleBase, OptimizerBase = Linear, Module, Optimizer
ReduceType = Enum("ReduceType", "NONE MEAN SUM")


def enable_fabric(num_devices: int) -> None:
    """Do nothing: `AutoContext.open_device` chooses the fabric."""


def clip_grad_norm(
    parameters: Any, max_norm: float, p_norm_type: float = 2.0, error_if_nonfinite: bool = False
) -> float:
    """Scale all gradients down if their norm is above `max_norm`; return the norm before."""
    if p_norm_type != 2:
        fail("clip_grad_norm", f"p_norm_type={p_norm_type} is not 2, the only norm here", "2.0")
    return optimizers.clip_grad_norm(parameters, max_norm)


class _NotTraced:
    """A name of ttml that programs mention, and that does nothing here."""

    def __getattr__(self, name: str) -> Any:
        rule = "allocations are not traced here"
        fail(f"MemoryUsageTracker.{name}", rule, "ttkit python --report PROGRAM", AttributeError)


MemoryUsageTracker = _NotTraced()


# ---------------------------------------------------------------- losses
def _check_mean(reduce: Any) -> None:
    if reduce is not ReduceType.MEAN:
        fail(f"reduce={reduce}", "a loss is the mean of each device here", "ReduceType.MEAN")


def mse_loss(prediction: Tensor, target: Tensor, reduce: Any = ReduceType.MEAN) -> Tensor:
    """Return the mean squared difference on each device, [1, 1, 1, 1]."""
    _check_mean(reduce)
    return ops.mse_loss(prediction, target)


def cross_entropy_loss(prediction: Tensor, target: Tensor, reduce: Any = ReduceType.MEAN) -> Tensor:
    """Return the mean over tokens of -log softmax(prediction)[target], [1, 1, 1, 1].

    Args:
        prediction: [B, 1, S, V].
        target: [B, S], UINT32, row-major.
    """
    _check_mean(reduce)
    batch, _, length, width = prediction.shape()
    numbers = np.arange(width, dtype=np.float32).reshape(1, 1, 1, width)
    tokens = Tensor.from_numpy(numbers).get_value()
    targets = ttnn.reshape(target.get_value(), (batch, 1, 1, length))
    return distributed.cross_entropy_loss(prediction, targets, tokens)


def create_linear_regression_model(input_size: int, output_size: int) -> Linear:
    """Return a linear layer with initial values."""
    model = Linear(input_size, output_size)
    model.init_weights(AutoContext.get_instance().get_seed())
    return model
