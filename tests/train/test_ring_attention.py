"""Ring attention equals attention on one device: results, gradients, models and training runs."""

import numpy as np
import pytest
from train.runs import Case, Form, different, opened, parts, small, wrong
from train.tiny import trainer

import ttkit
from ttkit import TTKitError, ttnn
from ttkit.train import AutoContext
from ttkit.train.autograd import Tensor, ops
from ttkit.train.config.layout import Layout, zigzag
from ttkit.train.config.settings import DeviceConfig, Settings, TransformerConfig
from ttkit.train.context import open_layout
from ttkit.train.parallel.ring_attention import ring_attention_sdpa

MESHES = {
    "1x8": Form((1, 8), cp_axis=1),
    "8x1": Form((8, 1), cp_axis=0),
    "2x4, columns": Form((2, 4), cp_axis=1),
}


def operands(length, heads=4, groups=2, width=32, batch=2):
    """Queries, keys, values and the gradient of the result, with some large scores."""
    rng = np.random.default_rng(length)
    return [
        3 * rng.standard_normal((batch, h, length, width)).astype(np.float32)
        for h in (heads, groups, groups, heads)
    ]


def plain(q, k, v, grad, causal):
    """The result and the gradients of q, k and v by plain attention on one device."""
    with opened(Form()) as mesh:
        layout, (length, copies) = Layout().on(mesh), (q.shape[2], q.shape[1] // k.shape[1])
        mask = np.tile(
            np.triu(np.full((length, length), ops.MASKED_SCORE, np.float32), 1), (copies, 1)
        )
        inputs = [Tensor(layout.place(array)) for array in (q, k, v)]
        out = ops.scaled_dot_product_attention(
            *inputs, layout.place(mask[None, None]) if causal else None
        )
        return results(out, inputs, layout.place(grad))


def results(out, inputs, grad):
    """Each device's result and gradients, [device][which]."""
    value = out.get_value()
    out.set_grad(grad)
    out.backward()
    return list(zip(*(parts(each) for each in (value, *(x.get_grad() for x in inputs)))))


def ring(form, arrays, causal):
    """[which][device] of ring attention on a mesh."""
    with opened(form) as mesh:
        layout = form.layout(mesh)
        *inputs, grad = (layout.place(array, cp_dim=2) for array in arrays)
        inputs = [Tensor(value) for value in inputs]
        return results(ring_attention_sdpa(*inputs, layout, causal), inputs, grad)


def faults(form, length, causal, **sizes):
    """(device, which) of what differs from plain attention."""
    arrays = operands(length, **sizes)
    (wanted,) = plain(*arrays, causal)
    order = zigzag(length, form.size(form.cp_axis)).reshape(form.size(form.cp_axis), -1)
    found = ring(form, arrays, causal)
    return [
        (at, which)
        for at, have in zip(np.ndindex(*form.shape), found, strict=True)
        for which, (mine, whole) in enumerate(zip(have, wanted, strict=True))
        if different(mine, whole[:, :, order[at[form.cp_axis]]])
    ]


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("mesh", MESHES)
def test_result_and_gradients_are_those_of_plain_attention(mesh, causal):
    form = MESHES[mesh]
    assert faults(form, 64 * form.size(form.cp_axis), causal) == []


@pytest.mark.parametrize(("heads", "groups"), [(3, 3), (4, 1)])
def test_heads_share_keys(heads, groups):
    assert faults(MESHES["2x4, columns"], 512, True, heads=heads, groups=groups) == []


def test_causal_attention_costs_half():
    """In each step after the first, each chip multiplies half as much."""
    flops = {}
    for causal in (True, False):
        form = MESHES["1x8"]
        with opened(form) as mesh:
            layout = form.layout(mesh)
            arrays = [layout.place(array, cp_dim=2) for array in operands(512)]
            inputs = [Tensor(value) for value in arrays[:3]]
            with ttkit.profile() as profile:
                results(ring_attention_sdpa(*inputs, layout, causal), inputs, arrays[3])
        flops[causal] = sum(r.flops for r in profile.records if r.name == "matmul")
    assert flops[True] / flops[False] == (3 / 4 + 7 / 2) / 8


def test_what_does_not_fit_is_refused():
    with opened(MESHES["1x8"]) as mesh:
        layout = MESHES["1x8"].layout(mesh)
        tensor = Tensor(layout.place(np.zeros((1, 4, 96, 32), np.float32)))
        words = "a chip's sequence 96 is not divisible by 2 chunks"
        with pytest.raises(TTKitError, match=words):
            ring_attention_sdpa(tensor, tensor, tensor, layout)


# ------------------------------------------------------------ models
def case(kind, form, **changes):
    length = 64 * form.size(form.cp_axis)
    sizes = {"num_heads": 8, "embedding_dim": 64, "num_blocks": 1, "max_sequence_length": length}
    return Case(small(kind, **(sizes | changes)), form, length=length)


LAID = {
    "cp": ("gpt2", Form((1, 4), cp_axis=1)),
    "cp x tp": ("llama", Form((2, 4), None, 1, 0)),
    "tp x cp": ("gpt2", Form((4, 2), None, 0, 1)),
    "ddp x cp on a Galaxy": ("llama", Form((8, 2), 0, None, 1)),
    "cp x copies": ("llama", Form((2, 3), None, None, 0)),
}


@pytest.mark.parametrize("runner_type", ["default", "memory_efficient"])
@pytest.mark.parametrize("laid", LAID)
def test_every_gradient_of_a_model_is_that_of_one_device(laid, runner_type):
    assert wrong(case(*LAID[laid], runner_type=runner_type)) == []


# ------------------------------------------------------------ training
RUNS = {
    "one": DeviceConfig(),
    "CP4": DeviceConfig((1, 4), enable_cp=True),
    "DP2xCP4": DeviceConfig((2, 4), enable_ddp=True, enable_cp=True),
    "CP2xTP2": DeviceConfig((2, 2), enable_cp=True, enable_tp=True),
}

ZERO = {"CP4": 3, "DP2xCP4": 2, "CP2xTP2": 1}


def test_training_is_that_of_one_chip(tmp_path):
    """Losses, validation, what is sampled, and a checkpoint that the next layout opens."""
    model, found = {"max_sequence_length": 256, "model_type": "llama"}, {}
    for index, (name, devices) in enumerate(RUNS.items()):
        how = {"model": model, "eval_every": 2, "max_steps": 4}
        how |= {"zero": ZERO.get(name, 0), "use_clip_grad_norm": True}
        how["sp"] = "TP" in name
        with trainer(devices, **how) as run:
            sharded = [p for p in run.parameters.values() if p.zero_dim is not None]
            assert bool(sharded) == (name in ZERO)
            records = run.fit(show=False)
            found[name] = [(r.loss, r.validation_loss or 0) for r in records]
            said = run.sample("The", 8, temperature=0)
        with trainer(devices, **how, checkpoint_dir=str(tmp_path)) as run:
            found[name] += [(r.loss, 0) for r in run.fit(1, show=False)]
            assert run.steps == index + 1
        assert said == found.setdefault("said", said)
    for name in RUNS:
        np.testing.assert_allclose(found[name][:4], found["one"][:4], rtol=1e-5, err_msg=name)
    together = [found[name][4][0] for name in RUNS]
    np.testing.assert_allclose(together, np.array(found["one"])[:4, 0], rtol=1e-5)


def test_a_sequence_that_does_not_fill_the_chips_is_refused():
    words = "max_sequence_length 128 is not divisible by 8 chunks of whole tiles of 32: 256"
    with pytest.raises(TTKitError, match=words):
        trainer(RUNS["CP4"], model={"max_sequence_length": 128})


def test_the_trainer_opens_a_fabric_that_closes_the_ring():
    """On cards FABRIC_1D has no route from the last chip of a line to the first."""
    long = TransformerConfig(max_sequence_length=256)
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)
    settings = Settings(DeviceConfig((1, 4), enable_cp=True), transformer_config=long)
    open_layout(settings)
    assert ttnn.get_fabric_config() == ttnn.FabricConfig.FABRIC_2D
    AutoContext.get_instance().close_device()
    assert ttnn.get_fabric_config() == ttnn.FabricConfig.DISABLED
