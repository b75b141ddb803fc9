"""Mixtures of experts: routing against loops, loss and every gradient against torch on one device
and against one device on every mesh, and a trainer's run on any layout.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from train.pipelines import SAME, differences_between, fitted, pipelined
from train.runs import (
    Case,
    Form,
    backward,
    different,
    filled,
    opened,
    refused,
    right,
    small,
    wrong,
    wrong_by_torch,
)
from train.tiny import TEXT, tiny

import ttkit
from ttkit import ttnn
from ttkit.train import Trainer
from ttkit.train.autograd import no_grad
from ttkit.train.config.layout import Layout
from ttkit.train.config.settings import DeviceConfig, LayoutConfig, MultihostConfig
from ttkit.train.model import experts
from ttkit.train.model.models import create_model
from ttkit.train.run import optimizers

ONE = Form()
SMALL = small(intermediate_dim=64, num_experts=8, capacity_factor=1.0, balance_loss=0.3)


def case(kind="gpt2", form=ONE, length=12, **changes):
    changes = {"bias": kind == "gpt2", **changes}
    return Case(replace(SMALL, model_type=kind, **changes), form, batch=2, length=length)


# ---------------------------------------------------------------- routing
def routed(probs, k, size):
    """What the module makes of probabilities [B, S, E]: choices, and places [B, S, E, C]."""
    with ttnn.open_mesh_device(ttnn.MeshShape(1, 1)) as mesh:
        place = Layout().on(mesh).place
        numbers = np.arange(100, dtype=np.float32).reshape(1, 1, 1, -1)
        count = place(numbers[..., : probs.shape[-1]])
        chosen = experts.choices(place(probs[:, None]), k, count)
        found = experts.places(chosen, place(numbers[..., :size]))
        return ttkit.to_numpy(chosen)[:, 0], ttkit.to_numpy(found)


@settings(max_examples=10, deadline=None)
@given(st.data())
def test_places_in_the_order_of_tokens(data):
    """No place has two tokens, none is beyond the capacity, and the first tokens have them; equal
    probabilities choose no more than k.
    """
    count, length = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 40))
    k, size = data.draw(st.integers(1, count)), data.draw(st.integers(1, length))
    levels = data.draw(st.sampled_from([1, 3, 10_000]))
    seed = np.random.default_rng(data.draw(st.integers(0, 99)))
    probs = seed.integers(1, 1 + levels, (2, length, count)).astype(np.float32)
    chosen, found = routed(probs, k, size)
    assert set(np.unique(found)) <= {0, 1}
    assert (chosen.sum(-1) == k).all()
    assert (np.where(chosen > 0, probs, np.inf).min(-1) >= np.where(chosen, 0, probs).max(-1)).all()
    assert found.sum(1).max() <= 1
    queue = np.cumsum(chosen, 1)
    assert (found.sum(-1) == chosen * (queue <= size)).all()
    place = np.argmax(found, -1)
    assert (place == queue - 1)[found.sum(-1) > 0].all()


def test_no_token_depends_on_a_later_one():
    given = case(experts_per_token=2, capacity_factor=0.5)
    ids = given.tokens()[0].reshape(-1, 1, 1, given.length)
    with opened(given.form) as mesh, no_grad():
        model = filled(given, mesh)
        model.eval()

        def logits(tokens):
            return ttkit.to_numpy(model(model.layout.tokens(tokens)).get_value())[:, 0, :, :70]

        changed = ids.copy()
        changed[..., 7:] = (changed[..., 7:] + 1) % 70
        before, after = logits(ids), logits(changed)
    assert not different(after[:, :7], before[:, :7])
    assert different(after[:, 7:], before[:, 7:])


# ---------------------------------------------------------------- one device
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
@pytest.mark.parametrize(("k", "factor"), [(1, 0.5), (2, 1.0), (3, 8.0), (8, 1.0)])
def test_one_device_has_torchs_loss_and_gradients(torch, kind, k, factor):
    """Every token through every expert in float64, with and without dropped choices."""
    assert wrong_by_torch(case(kind, experts_per_token=k, capacity_factor=factor)) == []


def test_the_balance_loss_counts_once_and_in_training_only():
    given = case()
    plain = replace(given, config=replace(given.config, balance_loss=0.0))
    ids = given.tokens().reshape(2, -1, 1, 1, 12)

    def number(value):
        return ttkit.to_numpy(value).item()

    def loss(asked, train):
        with opened(asked.form) as mesh, no_grad():
            model = filled(asked, mesh)
            model.train(train)
            place = model.layout.tokens
            value = model.loss(model(place(ids[0])), place(ids[1]))
            each = [number(layer.balance) for layer in model.experts()]
            return number(value.get_value()), sum(each)

    (right, _), (with_it, part) = loss(plain, True), loss(given, True)
    assert with_it == pytest.approx(right + part, rel=1e-6)
    assert part >= 2 * 0.3 * 0.9
    assert loss(given, False) == loss(plain, False) == (pytest.approx(right), 0)


# ---------------------------------------------------------------- meshes
EP = [Form((8, 1), 0, ep=True), Form((1, 4), 1, ep=True)]
EP += [Form((4, 2), 0, 1, ep=True), Form((2, 4), 1, 0, ep=True)]
OTHERS = [Form((2, 2), 0, 1), Form((1, 4), None, 1)]
AGAIN = {"runner_type": "memory_efficient"}
CASES = [case("gpt2", form) for form in EP + OTHERS]
CASES += [case("llama", form, experts_per_token=2) for form in EP + OTHERS]
CASES += [replace(case("llama", form, **AGAIN), micro_batches=2) for form in (EP[1], EP[3])]
SHARED = Form((2, 2), 0, 1, ep=True, sequence_parallel=True)
CASES += [case("llama", SHARED, length=64, max_sequence_length=64)]
ODD = {"num_heads": 12, "num_groups": 12, "embedding_dim": 48, "intermediate_dim": 36}
ODD |= {"num_blocks": 1, "num_experts": 6, "max_sequence_length": 33}
CASES += [
    case("gpt2", Form((2, 3), 0, 1, ep=True), 33, experts_per_token=5, capacity_factor=0.3, **ODD),
    case("llama", Form((3, 2), 0, 1, ep=True), 1, experts_per_token=6, **ODD, **AGAIN),
]


@pytest.mark.parametrize("given", CASES, ids=range(len(CASES)))
def test_every_gradient_is_that_of_one_device(given):
    """With blocks computed again and the sequence shared between the layers, too."""
    assert wrong(given) == []


def test_bfloat16_loosely():
    """Places are counted in float32: bfloat16 has 8 bits."""
    given = case("llama", EP[3], length=300, max_sequence_length=300, num_experts=4)
    given = replace(given, config=replace(given.config, num_blocks=1))
    loss = right(given)[0]
    narrow = replace(given, dtype=ttnn.bfloat16)
    with opened(narrow.form) as mesh:
        losses = backward(narrow, filled(narrow, mesh))
    assert not different(losses.mean(), loss, rtol=0.02)


# ---------------------------------------------------------------- whole runs
TINY = {"num_experts": 4, "balance_loss": 0.1, "num_blocks": 2}
LAYOUTS = {
    "one": (DeviceConfig(), {}),
    "EP2": (DeviceConfig((1, 2), enable_ddp=True), {}),
    "EP4": (DeviceConfig((1, 4), enable_ddp=True), {}),
    "EP2xTP2": (DeviceConfig((2, 2), enable_ddp=True, enable_tp=True), {}),
    "EP2, ZeRO 3": (DeviceConfig((1, 2), enable_ddp=True), {"zero": 3}),
}


def mixture(form, **training):
    """Settings of a run, clipped, whose replicas share the experts."""
    devices, layout = LAYOUTS[form]
    how = {"use_clip_grad_norm": True, "clip_grad_norm_max_norm": 0.3}
    how |= {"optimizer": {"type": "SGD", "lr": 0.1}, **training}
    layout = LayoutConfig(expert_parallel=devices.enable_ddp, **layout)
    return replace(tiny(devices, model=TINY, **how), layout=layout)


def trained(form, steps=3, **training):
    with Trainer(mixture(form, **training), text=TEXT) as trainer:
        return fitted(trainer, steps)


@pytest.fixture(scope="module")
def alone():
    from machine import strict_with_fabric

    with strict_with_fabric():
        return trained("one")


@pytest.mark.parametrize("form", [form for form in LAYOUTS if form != "one"])
def test_a_run_is_that_of_one_device(alone, form):
    """With clipping, whose norm counts every chip's experts."""
    assert differences_between(trained(form), alone) == SAME


def test_the_norm_counts_all_experts(monkeypatch):
    given = case(form=Form((1, 4), 1, ep=True))
    gradients = right(given)[1]
    with opened(given.form) as mesh:
        model = filled(given, mesh)
        backward(given, model)
        square = optimizers.gradient_square(model.parameters().values())
    assert square == pytest.approx(sum((g.astype(float) ** 2).sum() for g in gradients.values()))


def test_a_checkpoint_opens_on_another_layout(alone, tmp_path):
    where = {"checkpoint_dir": str(tmp_path)}
    trained("EP4", 2, **where)
    losses, found = trained("EP2xTP2", 1, **where)
    assert differences_between((losses, found), (alone[0][2:], alone[1])) == SAME


@pytest.mark.parametrize("form", ["one", "EP2"])
def test_a_pipelines_stages_have_their_balance_losses(alone, form):
    """Stages on a chip each, and stages whose two chips have half of the experts each."""
    given = mixture(form, gradient_accumulation_steps=2)
    given = replace(given, multihost_config=MultihostConfig(True, 2))
    with pipelined(given, TEXT) as trainer:
        assert differences_between(fitted(trainer, 3), alone) == SAME


# ---------------------------------------------------------------- messages
@pytest.mark.parametrize(
    ("changes", "form", "text"),
    [
        ({"num_experts": 6}, Form((1, 4), 1, ep=True), "num_experts 6 is not divisible by the DDP"),
        ({}, Form((1, 4), cp_axis=1), "share the slots of an expert, but each of 4 chips"),
        ({"intermediate_dim": 30}, Form((1, 4), None, 1), "Output features must be divisible"),
    ],
)
def test_models_that_do_not_fit(changes, form, text):
    refused(lambda: create_model(case(form=form, **changes).config, form.layout(None)), text)
