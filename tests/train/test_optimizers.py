"""Optimizers step as torch's do, on every layout."""

import numpy as np
import pytest
from train.runs import Form, opened

from ttkit import TTKitError, ttnn
from ttkit.cluster.settings import TrainingConfig
from ttkit.train.modules import Parameter, constant
from ttkit.train.optimizers import SGD, AdamW, AdamWConfig, SGDConfig, clip_grad_norm, make_optimizer, warmup_linear

FORMS = [Form((1, 1)), Form((2, 2), 0, 1), Form((1, 4), None, 1)]
SHAPES = {"columns": ((1, 1, 8, 12), 2), "rows": ((1, 1, 4, 16), 3), "whole": ((1, 1, 1, 5), None), "unused": ((1, 1, 1, 3), None)}


def parameters(layout):
    """Named parameters in each way that they are cut, with values of their own; one never gets a gradient."""
    made = {name: Parameter(shape, constant(0.0), layout, dim) for name, (shape, dim) in SHAPES.items()}
    for name, parameter in made.items():
        parameter.name = name
        parameter.place(values(name, 0))
    return made


def values(name, step):
    index = list(SHAPES).index(name)
    return np.random.default_rng([index, step]).standard_normal(SHAPES[name][0]).astype(np.float32)


def give_gradients(made, step):
    for name, parameter in made.items():
        if name != "unused":
            parameter.set_grad(parameter.distribute(values(name, step)))


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize(
    "ours, config, theirs",
    [
        (SGD, SGDConfig.make(0.1), {"lr": 0.1}),
        (SGD, SGDConfig.make(0.1, 0.9, 0.3, 0.01), {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.01}),
        (SGD, SGDConfig.make(0.1, 0.9, nesterov=True), {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
        (AdamW, AdamWConfig.make(0.01), {"lr": 0.01}),
        (AdamW, AdamWConfig.make(0.01, 0.8, 0.95, 1e-3, 0.0), {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.0}),
    ],
    ids=["SGD", "SGD with all", "Nesterov", "AdamW", "AdamW with all"],
)
def test_steps_are_those_of_torch(form, ours, config, theirs):
    torch = pytest.importorskip("torch", reason="torch is not installed (make .venv/with-torch)")
    mirrored = {name: torch.nn.Parameter(torch.tensor(values(name, 0), dtype=torch.float64)) for name in SHAPES}
    reference = getattr(torch.optim, ours.__name__)(mirrored.values(), **theirs)
    with opened(form) as mesh:
        made = parameters(form.layout(mesh))
        optimizer = ours(made, config)
        for step in range(1, 5):
            lr = config.lr * step  # a schedule changes it
            optimizer.set_lr(lr)
            optimizer.zero_grad()
            give_gradients(made, step)
            if step == 3:  # as after a checkpoint
                state = optimizer.state_dict()
                optimizer = ours(made, config)
                optimizer.load_state_dict(state)
                optimizer.set_lr(lr)
            optimizer.step()
            reference.param_groups[0]["lr"] = lr
            for name, mirror in mirrored.items():
                mirror.grad = None if name == "unused" else torch.tensor(values(name, step), dtype=torch.float64)
            reference.step()
        for name, parameter in made.items():
            np.testing.assert_allclose(parameter.gather(), mirrored[name].detach().numpy(), rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_the_norm_is_over_all_shards_once(form):
    wanted = float(np.sqrt(sum((values(name, 1).astype(np.float64) ** 2).sum() for name in SHAPES if name != "unused")))
    with opened(form) as mesh:
        made = parameters(form.layout(mesh))
        give_gradients(made, 1)
        assert clip_grad_norm(made, 1e9) == pytest.approx(wanted, rel=1e-6)
        np.testing.assert_array_equal(made["rows"].gather(made["rows"].get_grad()), values("rows", 1))
        assert clip_grad_norm(made, 0.5) == pytest.approx(wanted, rel=1e-6)
        np.testing.assert_allclose(made["rows"].gather(made["rows"].get_grad()), values("rows", 1) * (0.5 / wanted), rtol=1e-5)
        assert clip_grad_norm(made, 1.0) == pytest.approx(0.5, rel=1e-5)
        made["rows"].set_grad(made["rows"].distribute(values("rows", 1) * np.float32(np.inf)))
        with np.errstate(all="ignore"), pytest.raises(TTKitError, match=r"the norm of the gradients is (inf|nan)"):
            clip_grad_norm(made, 1.0)


def test_state_of_others_is_refused():
    with opened(FORMS[0]) as mesh:
        made = parameters(FORMS[0].layout(mesh))
        give_gradients(made, 1)
        adam = AdamW(made, AdamWConfig.make(0.1))
        adam.step()
        state = adam.state_dict()
        with pytest.raises(TTKitError, match="exp_avg/columns is of another optimizer: SGD remembers momentum"):
            SGD(made, SGDConfig.make(0.1)).load_state_dict(state)
        del made["columns"]
        with pytest.raises(TTKitError, match="2 entries are of other parameters, exp_avg/columns first"):
            AdamW(made, AdamWConfig.make(0.1)).load_state_dict(state)


def test_the_configuration_chooses():
    with opened(FORMS[0]) as mesh:
        made = parameters(FORMS[0].layout(mesh))
        adam = make_optimizer(TrainingConfig(learning_rate=0.5, beta1=0.7, eps=1e-4, precision="bfloat16"), made)
        assert (adam.config, adam.get_lr()) == (AdamWConfig(0.5, 0.7, 0.999, 1e-4, 0.01, True), 0.5)
        sgd = make_optimizer(TrainingConfig(optimizer={"type": "SGD", "lr": 0.25, "momentum": 0.5}), made)
        assert sgd.config == SGDConfig(0.25, 0.5)
        assert make_optimizer(TrainingConfig(optimizer={"beta1": 0.6}), made).config.beta1 == 0.6


def test_the_schedule_at_its_corners():
    assert warmup_linear(0, 10, max_lr=2.0, warmup_steps=0) == 2.0
    assert warmup_linear(9, 10, max_lr=2.0, warmup_steps=20) == 1.0
    assert warmup_linear(50, 10, max_lr=2.0, min_lr=0.5, warmup_steps=2) == 0.5


def test_bfloat16_keeps_its_master():
    with opened(FORMS[1]) as mesh:
        made = parameters(FORMS[1].layout(mesh, ttnn.bfloat16))
        optimizer = AdamW(made, AdamWConfig.make(1e-4, master_weights=True))
        for step in range(1, 4):
            give_gradients(made, step)
            optimizer.step()
        again = AdamW(made, AdamWConfig.make(1e-4, master_weights=True))
        again.load_state_dict(optimizer.state_dict())
        for name, kept in optimizer.memory.items():
            assert kept.dtype == again.memory[name].dtype == ttnn.float32
        master = made["rows"].gather(optimizer.memory["master/rows"])
        np.testing.assert_allclose(made["rows"].gather(), master, rtol=2**-8)
        assert not np.array_equal(made["rows"].gather(), master)
