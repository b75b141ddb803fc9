"""ttml by name: small programs as tt-train writes them, and names with another form than ours."""

import math

import numpy as np
import pytest

import ttkit
from ttkit import TTKitError, ttml, ttnn

FLOAT32 = ttnn.DataType.FLOAT32


@pytest.fixture(autouse=True)
def closed():
    yield
    ttml.autograd.AutoContext.get_instance().close_device()


def place(array, layout=ttml.Layout.TILE, kind=None):
    return ttml.autograd.Tensor.from_numpy(array, layout, kind)


def test_linear_regression_learns():
    model = ttml.models.linear_regression.create_linear_regression_model(2, 1)
    assert sum(math.prod(p.shape()) for p in model.parameters().values()) == 3
    config = ttml.optimizers.SGDConfig.make(0.1, 0.0, 0.0, 0.0, False)
    optimizer = ttml.optimizers.SGD(model.parameters(), config)
    random = np.random.default_rng(0)
    model.train()
    for _ in range(60):
        x = random.standard_normal((32, 1, 1, 2), dtype=np.float32)
        y = np.float32(x @ [[2], [-3]] + 0.5)
        optimizer.zero_grad()
        loss = ttml.ops.loss.mse_loss(model(place(x)), place(y), ttml.ops.ReduceType.MEAN)
        loss.backward(False)
        optimizer.step()
    found = {name: p.to_numpy(FLOAT32).ravel() for name, p in model.parameters().items()}
    np.testing.assert_allclose(found["weight"], [2, -3], atol=1e-4)
    np.testing.assert_allclose(found["bias"], [0.5], atol=1e-4)


def test_cross_entropy():
    """Unequal values on each of two chips; the value and the gradient by their formulas."""
    context = ttml.autograd.AutoContext.get_instance()
    context.open_device([1, 2])
    random, mesh = np.random.default_rng(0), context.get_device()
    values = random.standard_normal((4, 1, 32, 64), dtype=np.float32)
    targets = random.integers(0, 64, (4, 32), np.uint32)
    mapper = ttml.core.distributed.shard_tensor_to_mesh_mapper(mesh, 0)
    logits = ttml.autograd.Tensor.from_numpy(values, ttml.Layout.TILE, FLOAT32, mapper)
    kinds = ttml.Layout.ROW_MAJOR, ttml.autograd.DataType.UINT32
    loss = ttml.ops.loss.cross_entropy_loss(
        logits, ttml.autograd.Tensor.from_numpy(targets, *kinds, mapper)
    )
    loss.backward(False)
    probs = np.exp(values[:, 0].astype(float))
    probs /= probs.sum(-1, keepdims=True)
    picked = np.take_along_axis(probs, targets[..., None].astype(int), -1)[..., 0]
    composer = ttml.core.distributed.concat_mesh_to_tensor_composer(mesh, 0)
    losses = -np.log(picked).reshape(2, 64).mean(1)
    np.testing.assert_allclose(loss.to_numpy(composer=composer).ravel(), losses, rtol=1e-5)
    slope = ttkit.to_numpy(logits.get_grad(), mesh_composer=composer)[:, 0]
    np.testing.assert_allclose(slope, (probs - np.eye(64)[targets]) / 64, atol=1e-6)


def test_gradient_mode():
    context, modes = ttml.autograd.AutoContext.get_instance(), ttml.autograd.GradMode
    x = place(np.ones((1, 1, 32, 32), np.float32))
    context.set_gradient_mode(modes.DISABLED)
    try:
        assert context.get_gradient_mode() is modes.DISABLED
        y = ttml.ops.unary.relu(x)
    finally:
        context.set_gradient_mode(modes.ENABLED)
    assert not y.get_requires_grad() and context.get_gradient_mode() is modes.ENABLED
    assert ttml.ops.unary.relu(x).get_requires_grad()


def test_refused():
    x = place(np.ones((1, 1, 32, 32), np.float32))
    with pytest.raises(TTKitError, match="a loss is the mean of each device here"):
        ttml.ops.loss.mse_loss(x, x, ttml.ops.ReduceType.SUM)
    with pytest.raises(TTKitError, match="p_norm_type=1 is not 2"):
        ttml.core.clip_grad_norm({}, 1.0, 1)
    with pytest.raises(AttributeError, match="allocations are not traced here"):
        ttml.core.utils.MemoryUsageTracker.begin_capture()
    with pytest.raises(AttributeError, match=r"ttkit\.ttml\.ops\.loss.*nll_loss"):
        ttml.ops.loss.nll_loss  # noqa: B018
