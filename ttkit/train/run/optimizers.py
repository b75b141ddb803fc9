"""Optimizers, gradient clipping and the learning rate over time, with ttml's names."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ttkit import ttnn
from ttkit.errors import fail
from ttkit.train.autograd import Tensor, Value
from ttkit.train.config.settings import SchedulerConfig, TrainingConfig
from ttkit.train.model.modules import Parameter, Parameters
from ttkit.train.parallel.distributed import one_copy


class _Made:
    """The base of the classes of settings, with the constructor `make` that ttml has."""

    @classmethod
    def make(cls, *fields, **more):
        """Make the settings from values in the order of the fields, which is the order in ttml."""
        return cls(*fields, **more)


@dataclass(frozen=True)
class SGDConfig(_Made):
    """Settings of SGD."""

    lr: float = 1e-3
    momentum: float = 0.0
    dampening: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False


@dataclass(frozen=True)
class AdamWConfig(_Made):
    """Settings of AdamW.

    Attributes:
        master_weights: whether to keep float32 weights in addition to the bfloat16 ones, so that
            rounding does not lose small updates.
    """

    lr: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.01
    master_weights: bool = False


class Optimizer:
    """The base of all optimizers: parameters, a learning rate, a count of steps, and a state for
    each parameter.

    Args:
        parameters: what `model.parameters()` returns.
        config: the settings of the optimizer.
    """

    kinds: tuple[str, ...]  # Each key of the state begins with one of these words.

    def __init__(self, parameters: Parameters, config):
        self.parameters = dict(parameters)
        self.config = config
        self.lr = config.lr
        self.steps = 0
        # A key is "<kind>/<parameter>", such as "exp_avg/<parameter>". On each chip, a value has
        # the shape of the shard of the parameter that this chip updates.
        self.state: dict[str, Value] = {}

    def zero_grad(self) -> None:
        """Remove all gradients."""
        for parameter in self.parameters.values():
            parameter.set_grad(None)

    def step(self) -> None:
        """Update every parameter that has a gradient."""
        self.steps += 1
        for name, parameter in self.parameters.items():
            grad = parameter.get_grad()
            if grad is not None:
                self.update(name, parameter, grad)

    def update(self, name: str, parameter: Parameter, grad: Value) -> None:
        """Update one parameter."""
        raise NotImplementedError

    def get_lr(self) -> float:
        """Return the learning rate."""
        return self.lr

    def set_lr(self, lr: float) -> None:
        """Set the learning rate of the next steps."""
        self.lr = lr

    def state_dict(self) -> dict[str, Any]:
        """Return {"steps": int, "tensors": {"exp_avg/<parameter>": global float32 array}}."""
        tensors = {
            key: self._of(key).gather(value, shard=True) for key, value in self.state.items()
        }
        return {"steps": self.steps, "tensors": tensors}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`, on any mesh.

        Raises:
            TTKitError: the state is that of another optimizer.
        """
        for key in state["tensors"]:
            if key.split("/")[0] not in self.kinds:
                mine = f"{type(self).__name__} has {', '.join(self.kinds)}"
                fail(
                    "load_state_dict",
                    f"{key} is of another optimizer: {mine}",
                    "the optimizer that the run began with",
                )
        # With master weights the whole state is in float32, otherwise in the parameter's type.
        dtype = ttnn.float32 if getattr(self.config, "master_weights", False) else None
        self.steps = int(state["steps"])
        self.state = {
            key: self._of(key).distribute(array, dtype, shard=True)
            for key, array in state["tensors"].items()
        }

    def _of(self, key: str) -> Parameter:
        return self.parameters[key.split("/", 1)[1]]


class SGD(Optimizer):
    """Stochastic gradient descent, w <- w - lr (g + weight_decay w), with momentum as in torch."""

    config: SGDConfig
    kinds = ("momentum",)

    def update(self, name: str, parameter: Parameter, grad: Value) -> None:
        """Update one parameter."""
        w, config = parameter.get_shard(), self.config
        if config.weight_decay:
            grad = grad + w * config.weight_decay
        if config.momentum:
            key, velocity = f"momentum/{name}", grad
            if key in self.state:
                velocity = self.state[key] * config.momentum + grad * (1 - config.dampening)
            self.state[key] = velocity
            grad = grad + velocity * config.momentum if config.nesterov else velocity
        parameter.set_shard(w - grad * self.lr)


class AdamW(Optimizer):
    """Adam with decoupled weight decay (Loshchilov, Hutter 2019)."""

    config: AdamWConfig
    kinds = ("exp_avg", "exp_avg_sq", "master")

    def update(self, name: str, parameter: Parameter, grad: Value) -> None:
        """Update one parameter."""
        config = self.config
        state = self.state
        dtype = parameter.dtype
        exp_avg, exp_avg_sq, master = (f"{kind}/{name}" for kind in self.kinds)
        has_master = config.master_weights and dtype != ttnn.float32
        if has_master:
            grad = ttnn.typecast(grad, ttnn.float32)
            if master not in state:
                state[master] = ttnn.typecast(parameter.get_shard(), ttnn.float32)
        w = state[master] if has_master else parameter.get_shard()
        if exp_avg not in state:
            state[exp_avg], state[exp_avg_sq] = ttnn.zeros_like(w), ttnn.zeros_like(w)
        m = state[exp_avg] * config.beta1
        m = m + grad * (1 - config.beta1)
        v = state[exp_avg_sq] * config.beta2
        v = ttnn.addcmul(v, grad, grad, value=1 - config.beta2)
        state[exp_avg], state[exp_avg_sq] = m, v
        # Both m and v start at 0, so they need a bias correction. Applying it to two scalars saves
        # two operations on tensors.
        correction1 = 1 - config.beta1**self.steps
        correction2 = (1 - config.beta2**self.steps) ** 0.5
        denominator = ttnn.sqrt(v) * (1 / correction2) + config.epsilon
        decayed = w * (1 - self.lr * config.weight_decay) if config.weight_decay else w
        w = ttnn.addcdiv(decayed, m, denominator, value=-self.lr / correction1)
        if has_master:
            state[master] = w
            w = ttnn.typecast(w, dtype)
        parameter.set_shard(w)


def make_optimizer(config: TrainingConfig, parameters: Parameters) -> Optimizer:
    """Make the optimizer of a training_config: AdamW unless `optimizer: {type: SGD, ...}` is
    given.
    """
    given: dict[str, Any] = {"lr": config.learning_rate, **(config.optimizer or {})}
    if given.pop("type", "AdamW") == "SGD":
        return SGD(parameters, SGDConfig(**given))
    defaults = {
        "beta1": config.beta1,
        "beta2": config.beta2,
        "epsilon": config.eps,
        "weight_decay": config.weight_decay,
        "master_weights": config.precision != "float32",
    }
    return AdamW(parameters, AdamWConfig(**(defaults | given)))


def gradient_square(parameters: Iterable[Parameter]) -> float:
    """Return the sum of the squares of all gradients, over all shards."""
    square = 0.0
    for parameter in parameters:
        grad = parameter.get_grad()
        if grad is None or parameter.copy_of:
            continue
        if type(parameter) is Tensor and any(
            isinstance(each, ttnn.PlacementShard) for each in grad.tensor_topology().placements()
        ):
            what = "a plain tensor is sharded, and each chip has only a part of its norm"
            fail("clip_grad_norm", what, "a Parameter, such as those of a layer")
        squares = ttnn.square(ttnn.typecast(grad, ttnn.float32))
        part = ttnn.sum(squares, keepdim=True)
        if parameter.shard_dim is not None:
            part = ttnn.all_reduce(part, cluster_axis=parameter.layout.tp_axis)
        if parameter.expert or parameter.has_sharded_grad:
            for axis in parameter.layout.replica_axes:
                part = ttnn.all_reduce(part, cluster_axis=axis)
        square += float(one_copy(part).item())
    return square


def clip_grad_norm(
    parameters: Parameters,
    max_norm: float,
    sum_over_ranks: Callable[[float], float] = lambda square: square,
) -> float:
    """Scale all gradients down if their norm, over all shards, is above `max_norm`.

    Args:
        parameters: what `model.parameters()` returns.
        max_norm: the largest norm allowed.
        sum_over_ranks: adds up a number over the ranks that have other parts of the model.

    Returns:
        The norm before scaling.
    """
    norm = sum_over_ranks(gradient_square(parameters.values())) ** 0.5
    if norm > max_norm:
        for parameter in parameters.values():
            if (grad := parameter.get_grad()) is not None:
                parameter.set_shard_grad(grad * (max_norm / norm))
    return norm


def warmup_linear(step: int, max_steps: int, schedule: SchedulerConfig) -> float:
    """Return the learning rate of a step; steps are counted from 0.

    The rate rises to max_lr in warmup_steps, stays there for hold_steps, and falls to min_lr at
    max_steps.

    Example:
        >>> schedule = SchedulerConfig(max_lr=1.0, warmup_steps=2, hold_steps=2)
        >>> [round(warmup_linear(step, 10, schedule), 2) for step in (0, 1, 2, 3, 7, 10)]
        [0.5, 1.0, 1.0, 1.0, 0.5, 0.0]
    """
    max_lr = schedule.max_lr
    min_lr = schedule.min_lr
    warmup_steps = schedule.warmup_steps
    if step < warmup_steps:
        return max_lr * (step + 1) / warmup_steps
    held = warmup_steps + schedule.hold_steps
    decay_steps, past = max_steps - held, step - held
    if past <= 0 or decay_steps <= 0:
        return max_lr
    return max(min_lr, max_lr - (max_lr - min_lr) * past / decay_steps)
