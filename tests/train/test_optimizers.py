"""Optimizers against their formulas over many steps, on parameters that are cut and copied.

Their state moves between meshes.
"""

import formulas
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from train.runs import Form, compared, different, opened, refused

import ttkit
from ttkit import ttnn
from ttkit.train.autograd import Tensor
from ttkit.train.config.settings import SchedulerConfig, TrainingConfig
from ttkit.train.model.modules import Parameter, constant
from ttkit.train.run.optimizers import (
    SGD,
    AdamW,
    AdamWConfig,
    SGDConfig,
    clip_grad_norm,
    make_optimizer,
    warmup_linear,
)

SHAPES = {
    "columns": ((1, 1, 12, 5), 2),
    "rows": ((1, 1, 5, 12), 3),
    "table": ((1, 1, 10, 5), 2),
    "copied": ((1, 1, 1, 7), None),
}
WIDE, TALL, ONE = Form((2, 3), 0, 1), Form((4, 1), None, 0), Form()


def adamw(lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
    return AdamWConfig.make(lr, *betas, eps, weight_decay)


# Settings with the formula's names of their fields.
SGDS = {
    "sgd": {},
    "sgd, decay": {"weight_decay": 0.3},
    "sgd, momentum": {"momentum": 0.9},
    "sgd, dampening": {"momentum": 0.9, "dampening": 0.4, "weight_decay": 0.1},
    "sgd, nesterov": {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
}
ADAMS = {
    "adamw": {"weight_decay": 0.01},
    "adamw, no decay": {"weight_decay": 0.0},
    "adamw, other betas": {"betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.2},
}
SETTINGS = {
    name: (SGD, SGDConfig.make(0.1, **how), formulas.sgd, how) for name, how in SGDS.items()
}
SETTINGS |= {name: (AdamW, adamw(0.05, **how), formulas.adamw, how) for name, how in ADAMS.items()}


def placed(form, mesh, dtype=None):
    """Parameters of each kind with random values; the table with rows of zeros that fill it up."""
    found, layout = {}, form.layout(mesh, dtype)
    for i, (name, (shape, dim)) in enumerate(SHAPES.items()):
        found[name] = Parameter(
            shape, constant(0.0), layout, dim, placed_rows=12 if name == "table" else 0
        )
        found[name].name = name
        found[name].place(values(i, shape))
    return found


def values(seed, shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def gradients(step):
    return {name: values([step, i], shape) for i, (name, (shape, _)) in enumerate(SHAPES.items())}


def take(optimizer, parameters, steps):
    for step in steps:
        optimizer.zero_grad()
        assert not any(p.is_grad_initialized() for p in parameters.values())
        for name, grad in gradients(step).items():
            parameters[name].set_grad(parameters[name].distribute(grad))
        optimizer.set_lr(0.05 + 0.01 * (step % 3))
        optimizer.step()


@pytest.mark.parametrize("form", [WIDE, TALL], ids=["2x3", "4x1"])
@pytest.mark.parametrize("name", SETTINGS)
def test_steps_of_the_formula(name, form):
    ours, config, formula, options = SETTINGS[name]
    grads, rates = map(gradients, range(6)), [0.05 + 0.01 * (step % 3) for step in range(6)]
    grads = [{key: grad.astype(np.float64) for key, grad in each.items()} for each in grads]
    with opened(form) as mesh:
        parameters = placed(form, mesh)
        optimizer = ours(parameters, config)
        take(optimizer, parameters, range(6))
        for i, (key, p) in enumerate(parameters.items()):
            first = values(i, SHAPES[key][0]).astype(np.float64)
            want = formula(first, [grad[key] for grad in grads], rates, **options)
            for at, have, part in compared(p.get_value(), p, form, want):
                near = formulas.tolerance(additions=6 * 8)  # a step has some eight operations
                np.testing.assert_allclose(have, part, **near, err_msg=f"{key} at {at}")
        assert optimizer.steps == 6 and optimizer.get_lr() == rates[-1]


@pytest.mark.parametrize("there", [WIDE, ONE], ids=["2x3", "one"])
@pytest.mark.parametrize("name", ["sgd, momentum", "adamw", "master"])
def test_the_state_goes_on_on_another_mesh(name, there):
    narrow = ttnn.bfloat16 if name == "master" else None
    kind, config = (
        (AdamW, AdamWConfig.make(0.05, master_weights=True))
        if name == "master"
        else SETTINGS[name][:2]
    )

    def taken(form, steps, weights=None, state=None):
        """The weights and the state after steps that go on from others."""
        with opened(form) as mesh:
            parameters = placed(form, mesh, narrow)
            optimizer = kind(parameters, config)
            if state:
                optimizer.load_state_dict(state)
                for key, p in parameters.items():
                    p.place(weights[key])
            take(optimizer, parameters, steps)
            return {key: p.gather() for key, p in parameters.items()}, optimizer.state_dict()

    straight, _ = taken(TALL, range(8))
    weights, state = taken(TALL, range(4))
    assert state["steps"] == 4
    shapes = {shape for shape, _ in SHAPES.values()}
    assert {array.shape for array in state["tensors"].values()} == shapes
    moved, _ = taken(there, range(4, 8), weights, state)
    for key in SHAPES:
        # nothing is summed in another order, so to the last bit
        assert np.array_equal(moved[key], straight[key]), key


def test_the_state_of_another_optimizer(one):
    parameters = placed(ONE, one)
    state = {"steps": 1, "tensors": {"exp_avg/rows": np.zeros(SHAPES["rows"][0])}}
    sgd = SGD(parameters, SGDConfig.make(0.1))
    refused(lambda: sgd.load_state_dict(state), "exp_avg/rows is of another optimizer: SGD has mom")


def test_the_configuration_chooses(one):
    parameters = placed(ONE, one)
    adam = make_optimizer(
        TrainingConfig(learning_rate=0.5, beta1=0.7, eps=1e-4, precision="bfloat16"), parameters
    )
    assert (adam.config, adam.get_lr()) == (AdamWConfig(0.5, 0.7, 0.999, 1e-4, 0.01, True), 0.5)
    assert make_optimizer(
        TrainingConfig(optimizer={"type": "SGD", "lr": 0.25, "momentum": 0.5}), parameters
    ).config == SGDConfig(0.25, 0.5)
    assert make_optimizer(TrainingConfig(optimizer={"beta1": 0.6}), parameters).config.beta1 == 0.6


def test_a_parameter_without_gradient_stays(one):
    parameters = placed(ONE, one)
    for kind, config in (
        (SGD, SGDConfig.make(0.1, 0.9, weight_decay=0.1)),
        (AdamW, AdamWConfig.make(0.1)),
    ):
        before = {name: p.gather() for name, p in parameters.items()}
        optimizer = kind(parameters, config)
        optimizer.zero_grad()
        parameters["rows"].set_grad(parameters["rows"].distribute(values(0, SHAPES["rows"][0])))
        optimizer.step()
        assert {
            name for name, p in parameters.items() if not np.array_equal(p.gather(), before[name])
        } == {"rows"}


@pytest.mark.parametrize("kind, config", [(SGD, SGDConfig(0.25)), (AdamW, AdamWConfig(0.25))])
def test_a_tensor_that_is_no_parameter_is_trained(one, kind, config):
    """As in lesson 08: autograd's tensors have own parts, too, all of them."""
    tensor = Tensor(ttkit.from_numpy(np.ones((1, 1, 32, 32), np.float32), device=one))
    tensor.set_grad(ttnn.ones_like(tensor.get_value()))
    assert clip_grad_norm({"w": tensor}, 16.0) == 32 and tensor.to_numpy().max() == 1
    kind({"w": tensor}, config).step()
    left = 1 - 0.25 / 2 if kind is SGD else (1 - 0.25 * 0.01) - 0.25
    assert np.allclose(tensor.to_numpy(), left, rtol=1e-6)


@pytest.mark.parametrize("form", [ONE, WIDE, TALL], ids=["one", "2x3", "4x1"])
@pytest.mark.parametrize("max_norm", [0.5, 7.0, 1000.0])
def test_clipping(form, max_norm):
    grads = gradients(0)
    wanted, norm = formulas.clipped([g.astype(np.float64) for g in grads.values()], max_norm)
    with opened(form) as mesh:
        parameters = placed(form, mesh)
        for name, p in parameters.items():
            p.set_grad(p.distribute(grads[name]))
        assert clip_grad_norm(parameters, max_norm) == pytest.approx(norm, rel=1e-6)
        for (name, p), clipped in zip(parameters.items(), wanted, strict=True):
            for at, have, want in compared(p.get_grad(), p, form, clipped):
                assert not different(have, want), (name, at)


def test_clipping_without_gradients_and_of_bfloat16(one):
    parameters = placed(ONE, one, ttnn.bfloat16)
    assert clip_grad_norm(parameters, 1.0) == 0.0
    parameters["rows"].set_grad(parameters["rows"].distribute(values(0, SHAPES["rows"][0])))
    norm, grad = clip_grad_norm(parameters, 1.0), parameters["rows"].get_grad()
    assert grad.dtype == ttnn.bfloat16 and norm > 1
    assert np.linalg.norm(ttkit.to_numpy(grad)) == pytest.approx(1, rel=0.01)


@pytest.mark.parametrize("form", [ONE, WIDE], ids=["one", "2x3"])
def test_master_weights_keep_what_bfloat16_loses(form):
    """Steps of 0.002 beside weights near 1, whose neighbours in bfloat16 are 0.004 to 0.008
    away.
    """

    def trained(dtype, master):
        with opened(form) as mesh:
            parameters = placed(form, mesh, dtype)
            for p in parameters.values():
                p.place(np.full(p.global_shape, 1.0, np.float32))
            optimizer = AdamW(
                parameters, AdamWConfig.make(0.0005, weight_decay=0.0, master_weights=master)
            )
            for _ in range(40):
                for p in parameters.values():
                    p.set_grad(p.distribute(np.full(p.global_shape, 0.5, np.float32)))
                optimizer.step()
            assert all(p.get_value().dtype == (dtype or ttnn.float32) for p in parameters.values())
            return np.concatenate([p.gather().ravel() for p in parameters.values()])

    exact = trained(None, False)
    assert np.array_equal(trained(None, True), exact)  # float32 needs no master
    with_master, without = (
        np.abs(trained(ttnn.bfloat16, master) - exact).max() for master in (True, False)
    )
    assert with_master < 2**-8 < without


@settings(deadline=None)
@given(
    st.integers(0, 300), st.integers(1, 200), st.integers(0, 50), st.integers(0, 50),
    st.floats(1e-5, 1), st.floats(0, 1),
)  # fmt: skip
def test_warmup_linear_goes_through_its_corners(step, fall, warmup, hold, max_lr, part):
    total = warmup + hold + fall
    have = warmup_linear(step, total, SchedulerConfig(max_lr, part * max_lr, warmup, hold))
    corners, heights = [warmup + hold, total], [max_lr, part * max_lr]
    if warmup:
        corners, heights = [-1, warmup - 1, *corners], [0, max_lr, *heights]
    assert have == pytest.approx(np.interp(step, corners, heights), rel=1e-9)


def test_warmup_linear_without_time_to_fall():
    schedule = SchedulerConfig(1.0, 0.1, warmup_steps=2, hold_steps=9)
    assert [warmup_linear(s, 4, schedule) for s in (0, 1, 3, 4, 9)] == [0.5, 1, 1, 1, 1]
