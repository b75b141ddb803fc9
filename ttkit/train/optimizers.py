"""Optimizers, gradient clipping and the learning rate over time (ttml.optimizers,
ttml.core.clip_grad_norm).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ttkit import ttnn
from ttkit.errors import fail
from ttkit.train.autograd import Value
from ttkit.train.config import TrainingConfig
from ttkit.train.distributed import one_copy
from ttkit.train.modules import Parameter


@dataclass(frozen=True)
class SGDConfig:
    """Settings of SGD, with ttml's names."""

    lr: float = 1e-3
    momentum: float = 0.0
    dampening: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        """Refuse Nesterov's step without momentum, or with dampening."""
        if self.nesterov and (self.momentum <= 0 or self.dampening != 0):
            rule = f"nesterov needs momentum above 0 and no dampening: momentum={self.momentum}"
            fail("SGDConfig", f"{rule}, dampening={self.dampening}", "momentum=0.9, dampening=0")

    @classmethod
    def make(cls, lr: float, *rest: Any, **more: Any) -> SGDConfig:
        """The settings, in ttml's order, which is that of the fields."""
        return cls(lr, *rest, **more)


@dataclass(frozen=True)
class AdamWConfig:
    """Settings of AdamW, with ttml's names.

    Attributes:
        master_weights: keep float32 weights beside bfloat16 ones: small steps are not lost in
        rounding.
    """

    lr: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.01
    master_weights: bool = False

    @classmethod
    def make(cls, lr: float, *rest: Any, **more: Any) -> AdamWConfig:
        """The settings, in ttml's order, which is that of the fields."""
        return cls(lr, *rest, **more)


class Optimizer:
    """What all optimizers share: parameters, a learning rate, a count of steps, and what they
    remember of each parameter.

    Args:
        parameters: what `model.parameters()` gives.
        config: its settings.
    """

    remembers: tuple[str, ...]  # the kinds of entries in its memory

    def __init__(self, parameters: Mapping[str, Parameter], config: Any):
        self.parameters, self.config, self.lr, self.steps = dict(parameters), config, config.lr, 0
        # "exp_avg/<parameter>" -> a tensor that lies as the parameter lies
        self.memory: dict[str, Value] = {}

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for parameter in self.parameters.values():
            parameter.set_grad(None)

    def step(self) -> None:
        """Change every parameter that has a gradient."""
        self.steps += 1
        for name, parameter in self.parameters.items():
            grad = parameter.get_grad()
            if grad is not None:
                self.update(name, parameter, grad)

    def update(self, name: str, parameter: Parameter, grad: Value) -> None:
        """Change one parameter."""
        raise NotImplementedError

    def get_lr(self) -> float:
        """The learning rate."""
        return self.lr

    def set_lr(self, lr: float) -> None:
        """Use another learning rate from the next step."""
        self.lr = lr

    def recalled(self, kind: str, name: str, like: Value) -> Value:
        """What is remembered of a parameter; zeros at first."""
        key = f"{kind}/{name}"
        if key not in self.memory:
            self.memory[key] = ttnn.zeros_like(like)
        return self.memory[key]

    def state_dict(self) -> dict[str, Any]:
        """{"steps": int, "tensors": {"exp_avg/<parameter>": global float32 array}}: the same on
        every mesh.
        """
        return {
            "steps": self.steps,
            "tensors": {
                key: self.parameters[key.split("/", 1)[1]].gather(value)
                for key, value in self.memory.items()
            },
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was taken, on any mesh.

        Raises:
            TTKitError: it remembers parameters that are not there, or is another optimizer's.
        """
        others = [key for key in state["tensors"] if key.split("/", 1)[0] not in self.remembers]
        if others:
            rule = (
                f"{others[0]} is of another optimizer: {type(self).__name__} remembers "
                f"{', '.join(self.remembers)}"
            )
            fail("load_state_dict", rule, "the optimizer that the run began with")
        foreign = [key for key in state["tensors"] if key.split("/", 1)[1] not in self.parameters]
        if foreign:
            fail(
                "load_state_dict",
                f"{len(foreign)} entries are of other parameters, {foreign[0]} first",
                "the state of the same model",
            )
        self.steps = int(state["steps"])
        self.memory = {
            key: self.parameters[key.split("/", 1)[1]].distribute(array, self.dtype_of(key))
            for key, array in state["tensors"].items()
        }

    def dtype_of(self, key: str) -> Any:
        """The type that an entry of the memory has."""
        return self.parameters[key.split("/", 1)[1]].get_value().dtype


class SGD(Optimizer):
    """w <- w - lr (g + weight_decay w), with momentum as torch defines it."""

    config: SGDConfig
    remembers = ("momentum",)

    def update(self, name: str, parameter: Parameter, grad: Value) -> None:
        """One step of one parameter."""
        w, config = parameter.get_value(), self.config
        if config.weight_decay:
            grad = ttnn.add(grad, ttnn.multiply(w, config.weight_decay))
        if config.momentum:
            first = f"momentum/{name}" not in self.memory
            speed = (
                grad
                if first
                else ttnn.add(
                    ttnn.multiply(self.memory[f"momentum/{name}"], config.momentum),
                    ttnn.multiply(grad, 1 - config.dampening),
                )
            )
            self.memory[f"momentum/{name}"] = speed
            grad = (
                ttnn.add(grad, ttnn.multiply(speed, config.momentum)) if config.nesterov else speed
            )
        parameter.set_value(ttnn.subtract(w, ttnn.multiply(grad, self.lr)))


class AdamW(Optimizer):
    """Adam with decoupled weight decay (Loshchilov, Hutter 2019)."""

    config: AdamWConfig
    remembers = ("exp_avg", "exp_avg_sq", "master")

    def update(self, name: str, parameter: Parameter, grad: Value) -> None:
        """One step of one parameter."""
        config, w = self.config, parameter.get_value()
        narrow = w.dtype
        if config.master_weights and narrow != ttnn.float32:
            if f"master/{name}" not in self.memory:
                self.memory[f"master/{name}"] = ttnn.typecast(w, ttnn.float32)
            w, grad = self.memory[f"master/{name}"], ttnn.typecast(grad, ttnn.float32)
        m = ttnn.add(
            ttnn.multiply(self.recalled("exp_avg", name, w), config.beta1),
            ttnn.multiply(grad, 1 - config.beta1),
        )
        v = ttnn.addcmul(
            ttnn.multiply(self.recalled("exp_avg_sq", name, w), config.beta2),
            grad,
            grad,
            value=1 - config.beta2,
        )
        self.memory[f"exp_avg/{name}"], self.memory[f"exp_avg_sq/{name}"] = m, v
        # m and v start at 0, which the powers of beta make up for; both go into two numbers here
        # rather than into two tensors
        rise, fall = 1 - config.beta1**self.steps, (1 - config.beta2**self.steps) ** 0.5
        below = ttnn.add(ttnn.multiply(ttnn.sqrt(v), 1 / fall), config.epsilon)
        kept = ttnn.multiply(w, 1 - self.lr * config.weight_decay) if config.weight_decay else w
        w = ttnn.addcdiv(kept, m, below, value=-self.lr / rise)
        if config.master_weights and narrow != ttnn.float32:
            self.memory[f"master/{name}"] = w
            w = ttnn.typecast(w, narrow)
        parameter.set_value(w)

    def dtype_of(self, key: str) -> Any:
        """float32 beside master weights, else the parameter's own."""
        return ttnn.float32 if self.config.master_weights else super().dtype_of(key)


def make_optimizer(config: TrainingConfig, parameters: Mapping[str, Parameter]) -> Optimizer:
    """The optimizer of a training_config:

    AdamW unless `optimizer: {type: SGD, ...}` says otherwise.

    Raises:
        TTKitError: Nesterov's step without momentum, or with dampening.
    """
    given: dict[str, Any] = {**(config.optimizer or {})}
    name = given.pop("type", "AdamW")
    kinds: dict[str, Any] = {"AdamW": (AdamW, AdamWConfig), "SGD": (SGD, SGDConfig)}
    make, settings = kinds[name]
    given.setdefault("lr", config.learning_rate)
    if name == "AdamW":
        given = {
            "beta1": config.beta1,
            "beta2": config.beta2,
            "epsilon": config.eps,
            "weight_decay": config.weight_decay,
        } | given
        given.setdefault("master_weights", config.precision != "float32")
    return make(parameters, settings.make(**given))


def gradient_square(parameters: Iterable[Parameter]) -> float:
    """The sum of the squares of all gradients, over all shards."""
    square = 0.0
    for parameter in parameters:
        grad = parameter.get_grad()
        if grad is None:
            continue
        part = ttnn.sum(
            ttnn.square(ttnn.typecast(grad, ttnn.float32)), dim=[0, 1, 2, 3], keepdim=True
        )
        if parameter.shard_dim is not None:  # a shard's square; those of replicas are whole already
            part = ttnn.all_reduce(part, cluster_axis=parameter.layout.tp_axis)
        square += float(one_copy(part).ravel()[0])
    return square


def clip_grad_norm(
    parameters: Mapping[str, Parameter], max_norm: float, square: float | None = None
) -> float:
    """Scale all gradients down together where their norm, over all shards of all parameters, is
    above `max_norm`.

    Args:
        parameters: what `model.parameters()` gives.
        max_norm: what the norm may be.
        square: the sum of the squares of all gradients; that of these parameters' unless given, as
        where a rank has a part of the model.

    Returns:
        The norm before.

    Raises:
        TTKitError: the norm is not finite.
    """
    square = gradient_square(parameters.values()) if square is None else square
    norm = square**0.5
    if not np.isfinite(norm):
        fail(
            "clip_grad_norm",
            f"the norm of the gradients is {norm}",
            "a smaller learning rate, or look for the first loss that is not finite",
        )
    if norm > max_norm:
        for parameter in parameters.values():
            if (grad := parameter.get_grad()) is not None:
                parameter.set_grad(ttnn.multiply(grad, max_norm / norm))
    return norm


def warmup_linear(
    step: int,
    max_steps: int,
    *,
    max_lr: float = 1e-3,
    min_lr: float = 0.0,
    warmup_steps: int = 100,
    hold_steps: int = 0,
) -> float:
    """The learning rate of a step, from 0: up to max_lr in warmup_steps, held for hold_steps,
    then down to min_lr at max_steps.

    Example:
        >>> [round(warmup_linear(s, 10, max_lr=1.0, warmup_steps=2, hold_steps=2), 2) for s in (0, 1, 2, 3, 7, 10)]
        [0.5, 1.0, 1.0, 1.0, 0.5, 0.0]
    """
    if step < warmup_steps:
        return max_lr * (step + 1) / warmup_steps
    fall = max_steps - warmup_steps - hold_steps
    past = step - warmup_steps - hold_steps
    return (
        max_lr if past <= 0 or fall <= 0 else max(min_lr, max_lr - (max_lr - min_lr) * past / fall)
    )
