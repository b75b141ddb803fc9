"""One training step of a model on a mesh, and the comparison of every device's gradients with
those of one device.
"""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import HealthCheck

import ttkit
from ttkit import TTKitError, ttnn
from ttkit.train.config.layout import Layout
from ttkit.train.config.settings import TransformerConfig
from ttkit.train.model.models import create_model
from ttkit.train.parallel.data_parallel import average_gradients
from ttkit.train.run.checkpoint import checkpoints

# Of hypothesis: a step on a mesh takes as long as it takes.
quiet = {"deadline": None, "suppress_health_check": list(HealthCheck)}


def refused(call, *phrases, kind=TTKitError):
    """The message of the error that a call raises: it has all these phrases, and what to try."""
    with pytest.raises(kind) as error:
        call()
    assert all(phrase in str(error.value) for phrase in (*phrases, "try: ")), str(error.value)
    return str(error.value)


def latest(folder):
    """The newest checkpoint in a folder."""
    return next(iter(checkpoints(folder).values()))


def small(kind="gpt2", **changes):
    """A small model; these fields differ."""
    sizes = {"num_heads": 4, "num_groups": 4, "embedding_dim": 32, "dropout_prob": 0.0}
    sizes |= {"num_blocks": 2, "vocab_size": 70, "max_sequence_length": 16}
    return TransformerConfig(kind, **(sizes | changes))


@dataclass(frozen=True)
class Form:
    """How a model lies on a mesh; an axis that nothing is cut along holds copies."""

    shape: tuple = (1, 1)
    ddp_axis: int | None = None
    tp_axis: int | None = None
    cp_axis: int | None = None
    zero: int = 0
    sequence_parallel: bool = False
    ep: bool = False

    def size(self, axis):
        return 1 if axis is None else self.shape[axis]

    def layout(self, mesh, dtype=None):
        axes = {"dp": self.ddp_axis, "tp": self.tp_axis, "cp": self.cp_axis}
        layout = Layout(
            ep=2 if self.ep else 1,
            zero=self.zero,
            sequence_parallel=self.sequence_parallel,
            precision=dtype.name.lower() if dtype else "float32",
            axes=tuple((name, axis) for name, axis in axes.items() if axis is not None),
        )
        return layout.on(mesh) if mesh else layout.along(self.shape)


@dataclass(frozen=True)
class Case:
    """A model, a batch and where they lie."""

    config: TransformerConfig
    form: Form = Form()
    batch: int = 1  # of each device and micro-batch
    length: int = 5
    micro_batches: int = 1
    seed: int = 0
    dtype: object = None

    def tokens(self):
        """Inputs and targets, [micro-batch, batch of all replicas, S]."""
        shape = (self.micro_batches, self.batch * self.form.size(self.form.ddp_axis), self.length)
        return np.random.default_rng(self.seed).integers(0, self.config.vocab_size, (2, *shape))

    def on_one_device(self):
        """The same with the whole batch at once on one device."""
        return replace(
            self,
            form=Form(),
            batch=self.batch * self.form.size(self.form.ddp_axis) * self.micro_batches,
            micro_batches=1,
        )


def opened(form):
    """The mesh of a form."""
    ttkit.use_system("t3000" if np.prod(form.shape) <= 8 else "galaxy")
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    return ttnn.open_mesh_device(ttnn.MeshShape(*form.shape))


def filled(case, mesh):
    """The model of a case with weights that make no gradient vanish: norms not at 1, biases not
    at 0, attention not even.
    """
    model = create_model(case.config, case.form.layout(mesh, case.dtype))
    for index, parameter in enumerate(model.parameters().values()):
        noise = np.random.default_rng([case.seed, index]).normal(
            0, 0.5 / np.sqrt(parameter.global_shape[3]), parameter.global_shape
        )
        parameter.place((parameter.draw(case.seed) + noise).astype(np.float32))
    return model


def backward(case, model):
    """Run all micro-batches of a case and average their gradients between replicas; the loss of
    each device.
    """
    layout = model.layout
    inputs, targets = case.tokens().reshape(2, case.micro_batches, -1, 1, 1, case.length)
    total = 0
    for x, y in zip(inputs, targets):
        loss = model.loss(model(layout.tokens(x)), layout.tokens(y)) * (1 / case.micro_batches)
        loss.backward()
        total = total + np.array([float(v.squeeze()) for v in parts(loss.get_value())])
    average_gradients(model.parameters())
    return total


def parts(value):
    """Each device's array."""
    return [ttkit.to_numpy(shard) for shard in ttnn.get_device_tensors(value)]


def expected_parts(parameter, form, whole):
    """What each device should hold of a global array that lies as the parameter lies."""
    padded = np.pad(whole, [(0, 0), (0, 0), (0, parameter.placed_rows - whole.shape[2]), (0, 0)])
    for at in np.ndindex(*form.shape):
        part = padded
        if parameter.shard_dim is not None:
            part = np.split(part, form.size(form.tp_axis), parameter.shard_dim)[at[form.tp_axis]]
        if parameter.expert:
            part = np.split(part, form.size(form.ddp_axis), 1)[at[form.ddp_axis]]
        yield at, part


def compared(value, parameter, form, whole):
    """(device, its array, its part of the whole) of a tensor that lies as the parameter lies."""
    for have, (at, want) in zip(parts(value), expected_parts(parameter, form, whole), strict=True):
        yield at, have, want


def different(have, want, rtol=1e-5, atol=1e-7, of=None):
    """Whether two arrays are further apart than rounding: a small part of the norm of what was
    wanted, or of the tensor that they are parts of.
    """
    return (
        not np.linalg.norm(np.asarray(have, np.float64) - want)
        <= rtol * np.linalg.norm(want if of is None else of) + atol
    )


def wrong_loss(case, losses, wanted, rtol=1e-5):
    """Whether the mean loss of all tokens is not the wanted one, or devices that have the same
    tokens disagree.
    """
    grid = losses.reshape(case.form.shape)
    axes = [axis for axis in (case.form.ddp_axis, case.form.cp_axis) if axis is not None]
    front = np.moveaxis(grid, axes, range(len(axes)))
    groups = front.reshape(np.prod(front.shape[: len(axes)], dtype=int), -1)
    return bool(
        np.ptp(groups, axis=1).max() > rtol * abs(wanted)
        or different(groups[:, 0].mean(), wanted, rtol)
    )


def run(case):
    """A step on the mesh: the loss of device 0, the global gradients and the global weights."""
    with opened(case.form) as mesh:
        model = filled(case, mesh)
        losses = backward(case, model)
        parameters = model.parameters()
        return (
            losses[0],
            {name: p.gather_grad() for name, p in parameters.items()},
            {name: p.gather() for name, p in parameters.items()},
        )


def right(case):
    """The loss and the gradients of one device, on which no block is computed twice."""
    alone = case.on_one_device()
    return run(replace(alone, config=replace(case.config, runner_type="default")))[:2]


def wrong(case, wanted=None, rtol=1e-5, atol=1e-7):
    """Where a step on the mesh differs from a loss and global gradients, those of one device unless
    given: "loss", or (parameter, device) for each gradient that is not its part of the whole.
    """
    loss, gradients = wanted or right(case)
    with opened(case.form) as mesh:
        model = filled(case, mesh)
        found = ["loss"] * wrong_loss(case, backward(case, model), loss, rtol)
        for name, parameter in model.parameters().items():
            whole = gradients[name]
            if case.form.zero:  # of which a device has a part as ZeRO cuts it
                found += [name] * different(parameter.gather_grad(), whole, rtol, atol)
                continue
            for at, have, want in compared(parameter.get_grad(), parameter, case.form, whole):
                if have.shape != want.shape or different(have, want, rtol, atol, of=whole):
                    found.append((name, at))
        return found


def wrong_by_torch(case):
    """Where the step of one device differs from torch's in float64."""
    from train import oracle

    alone = case.on_one_device()
    loss, gradients, weights = run(alone)
    wanted = oracle.loss_and_gradients(case.config, weights, *alone.tokens()[:, 0])
    assert set(gradients) == set(wanted[1])
    names = [name for name in gradients if different(gradients[name], wanted[1][name])]
    return ["loss"] * different(loss, wanted[0]) + names
