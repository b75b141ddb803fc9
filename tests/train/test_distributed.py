"""Each collective and its way back against NumPy over devices that all hold something else,
along both axes of meshes that are not square.
"""

import gc
import weakref

import numpy as np
import pytest
from formulas import cross_entropy
from formulas import gradients as gradients_of
from naive import Naive
from train.runs import Form, opened, parts

import ttkit
from ttkit import TTKitError, ttnn
from ttkit.sim.collectives import ccl
from ttkit.train.autograd import Tensor
from ttkit.train.config.layout import Layout
from ttkit.train.model.modules import Parameter, constant
from ttkit.train.parallel import distributed
from ttkit.train.parallel.distributed import (
    GradOutputType,
    all_gather,
    all_reduce,
    broadcast,
    cross_entropy_loss,
    reduce_scatter,
    scatter,
    shifted,
    synchronize_gradients,
)

AXES = [((2, 3), 0), ((3, 2), 1), ((4, 1), 0), ((4, 1), 1), ((2, 4), 1)]
each_axis = pytest.mark.parametrize("shape, axis", AXES, ids=lambda v: str(v).replace(" ", ""))


def spread(mesh, values):
    """A tensor whose device at (r, c) holds values[r, c]."""
    hosts = [
        ttkit.from_numpy(v, layout=ttnn.TILE_LAYOUT) for v in values.reshape(-1, *values.shape[2:])
    ]
    return ttnn.to_device(ttnn.from_host_shards(hosts, mesh.shape), mesh)


def collected(value, shape):
    """[rows, columns, ...]: what each device holds."""
    have = np.stack(parts(value))
    return have.reshape(*shape, *have.shape[1:])


def random(shape, *inner, seed=0):
    return np.random.default_rng(seed).standard_normal((*shape, *inner)).astype(np.float32)


def same(naive, dim, axis):
    return naive


def summed(naive, dim, axis):
    return naive.all_reduce(axis)


# name: (ours(tensor, dim, axis), forward, backward)
COPIES = GradOutputType.REPLICATED
PAIRS = {
    "all_reduce": (lambda t, d, a: all_reduce(t, cluster_axis=a), summed, summed),
    "all_reduce of own parts": (lambda t, d, a: all_reduce(t, True, a), summed, same),
    "broadcast": (lambda t, d, a: broadcast(t, a), same, summed),
    "scatter": (scatter, Naive.partition, Naive.all_gather),
    "reduce_scatter": (reduce_scatter, Naive.reduce_scatter, Naive.all_gather),
    "all_gather": (all_gather, Naive.all_gather, Naive.reduce_scatter),
    "all_gather for copies": (
        lambda t, d, a: all_gather(t, d, a, COPIES),
        Naive.all_gather,
        Naive.partition,
    ),
}
EVERYWHERE = [*AXES, ((2, 3), None)]
EVERY_PAIR = [(name, 3, *where) for name in PAIRS for where in EVERYWHERE]
EVERY_PAIR += [(name, 2, *where) for name in ("scatter", "all_gather") for where in EVERYWHERE]


def naive(values):
    """The same on the naive simulator: values[r, c] at (r, c)."""
    shape = values.shape[:2]
    return Naive(shape, {at: values[at] for at in np.ndindex(*shape)})


@pytest.mark.parametrize("name, dim, shape, axis", EVERY_PAIR)
def test_forward_and_back(name, dim, shape, axis):
    """On [1, 1, 12, 24] arrays, which every mesh axis divides."""
    ours, forward, back = PAIRS[name]
    x = random(shape, 1, 1, 12, 24)
    with opened(Form(shape)) as mesh:
        tensor = Tensor(spread(mesh, x))
        out = ours(tensor, dim, axis)
        want = list(forward(naive(x), dim, axis).parts.values())
        np.testing.assert_allclose(parts(out.get_value()), want, atol=1e-5)
        alone = axis is not None and shape[axis] == 1
        assert (out is tensor) == alone  # nothing to do, nothing to record
        if not alone:
            g = random(shape, *want[0].shape, seed=1)
            out.set_grad(spread(mesh, g))
            out.backward()
            want = list(back(naive(g), dim, axis).parts.values())
            np.testing.assert_allclose(parts(tensor.get_grad()), want, atol=1e-5)


def test_a_mesh_keeps_its_sockets_and_no_socket_keeps_a_mesh(monkeypatch):
    made = []
    create = ttnn.create_socket_pair
    monkeypatch.setattr(ttnn, "create_socket_pair", lambda *a: made.append(a[2]) or create(*a))
    mesh = opened(Form((2, 4)))
    x = random((2, 4), 1, 1, 32, 32)
    for axis in (0, 1):
        for _ in range(3):
            out = shifted(spread(mesh, x), axis)
            assert ttkit.last_plan().collective == "shift" and ttkit.last_plan().axis == axis
            np.testing.assert_array_equal(collected(out, (2, 4)), np.roll(x, 1, axis))
    assert len(made) == 2
    assert all(config.memory_config.fifo_size >= 4 * 32 * 32 for config in made)
    shifted(spread(mesh, random((2, 4), 1, 1, 128, 256)), 1)
    assert len(made) == 3 and made[2].memory_config.fifo_size >= 4 * 128 * 256
    mesh.reshape(ttnn.MeshShape(4, 2))
    four = random((4, 2), 1, 1, 32, 32)
    out = shifted(spread(mesh, four), 0)
    np.testing.assert_array_equal(collected(out, (4, 2)), np.roll(four, 1, 0))
    ttnn.close_mesh_device(mesh)
    gone = weakref.ref(mesh)
    ccl._last.clear()
    del mesh, out, made[:]
    gc.collect()
    assert gone() is None


@each_axis
def test_cross_entropy_over_parts_of_the_vocabulary(shape, axis):
    """Each line of devices has other logits and targets; within a line each device has its part
    of the vocabulary.
    """
    n, other = shape[axis], shape[1 - axis]
    width, batch, length = 40 * n, 2, 5
    whole = random((other,), batch, 1, length, width)
    targets = (
        np.random.default_rng(1).integers(0, width, (other, batch, 1, 1, length)).astype(np.uint32)
    )
    form = Form(shape, 1 - axis, axis)
    with opened(form) as mesh:
        layout = form.layout(mesh)
        joint = whole.reshape(-1, 1, length, width)
        logits = Tensor(layout.place(joint, dtype=ttnn.float32, tp_dim=3, dp_dim=0))
        numbers = layout.place(
            np.arange(width, dtype=np.float32).reshape(1, 1, 1, -1), dtype=ttnn.float32, tp_dim=3
        )
        loss = cross_entropy_loss(
            logits, layout.tokens(targets.reshape(-1, 1, 1, length)), numbers, axis
        )
        loss.backward()
        losses, gradients = collected(loss.get_value(), shape), collected(logits.get_grad(), shape)
    for line in range(other):
        loss_of, x = (
            lambda x, line=line: cross_entropy(x, targets[line]),
            whole[line].astype(np.float64),
        )
        [slopes] = gradients_of(loss_of, 1.0, x)
        np.testing.assert_allclose(np.take(losses, line, 1 - axis).ravel(), loss_of(x), rtol=1e-5)
        have = np.concatenate(list(np.take(gradients, line, 1 - axis)), -1)
        np.testing.assert_allclose(have, slopes, atol=1e-6)


def weights(mesh, **values):
    """Parameters with gradients that differ from device to device."""
    found = {}
    for name, grad in values.items():
        found[name] = Parameter((1, 1, 2, 3), constant(0.0), Layout().on(mesh))
        found[name].name = name
        found[name].place(np.zeros((1, 1, 2, 3), np.float32))
        if grad is not None:
            found[name].set_grad(spread(mesh, grad))
    return found


@each_axis
def test_synchronize_gradients_is_the_mean_over_replicas(shape, axis):
    a, b = random(shape, 1, 1, 2, 3), random(shape, 1, 1, 2, 3, seed=1)
    with opened(Form(shape)) as mesh:
        parameters = weights(mesh, a=a, b=b, without=None)
        synchronize_gradients(parameters, [axis])
        assert not parameters["without"].is_grad_initialized()
        for name, grad in (("a", a), ("b", b)):
            want = np.broadcast_to(grad.mean(axis, keepdims=True), grad.shape)
            np.testing.assert_allclose(
                collected(parameters[name].get_grad(), shape), want, atol=1e-6
            )


def test_synchronize_gradients_says_what_is_missing(mesh, monkeypatch):
    with pytest.raises(
        TTKitError,
        match=r"none of the 1 parameters has a gradient(.|\n)*try: zero_grad\(\), then loss",
    ):
        synchronize_gradients(weights(mesh, a=None), [0])

    class Context:  # one without data parallelism
        get_ddp_axis = staticmethod(lambda: None)
        get_parallelism_context = classmethod(lambda cls: cls)
        get_instance = get_parallelism_context

    monkeypatch.setattr(distributed, "AutoContext", Context)
    with pytest.raises(TTKitError, match=r"data parallelism is off(.|\n)*try: .*enable_ddp=True"):
        synchronize_gradients(weights(mesh, a=random((2, 4), 1, 1, 2, 3)))
    Context.get_ddp_axis = staticmethod(lambda: 1)
    grads = random((2, 4), 1, 1, 2, 3)
    parameters = weights(mesh, a=grads)
    synchronize_gradients(parameters)
    want = np.broadcast_to(grads.mean(1, keepdims=True), grads.shape)
    np.testing.assert_allclose(collected(parameters["a"].get_grad(), (2, 4)), want, atol=1e-6)


def test_without_tensor_parallel_chips_nothing_is_sent(mesh):
    t = Tensor(spread(mesh, random((2, 4), 1, 1, 4, 4)))
    for name in ("enter", "leave", "gathered", "local_part", "used_on_shards"):
        assert getattr(distributed, name)(t, Layout(sequence_parallel=True)) is t, name
