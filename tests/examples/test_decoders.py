"""The decoders give one device's hidden states on every mesh, prompt and tokens after it."""

import importlib.util
import pathlib
import sys

import numpy as np
import pytest
from machine import close_all

import ttkit
from ttkit import ttnn, use_system

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "examples" / "decoders"
LEAST = {"bfloat16": 0.99, "bfloat8_b": 0.97}
# system, mesh, the axis of a group
PLACES = {
    "one chip": ("n150", (1, 1), 1), "a line": ("t3000", (1, 8), 1),
    "rows": ("t3000", (2, 4), 1), "columns": ("t3000", (2, 4), 0),
    "galaxy, columns": ("galaxy", (8, 4), 0), "galaxy, rows": ("galaxy", (8, 4), 1),
}  # fmt: skip


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    ttkit.strict()
    yield
    close_all()
    ttkit.strict(False)
    use_system(None)


def load(name):
    """Import a program by its file: the tests of the guide have a module `falcon`, too."""
    spec = importlib.util.spec_from_file_location(f"decoders_{name}", FOLDER / f"{name}.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return importlib.import_module("chips"), module


@pytest.mark.parametrize("dtype", LEAST)
@pytest.mark.parametrize(
    "place",
    [pytest.param(p, marks=pytest.mark.long) if p == "galaxy, columns" else p for p in PLACES],
)
@pytest.mark.parametrize("name", ["llama", "falcon"])
def test_every_mesh_agrees_with_one_device(name, place, dtype):
    chips, model = load(name)
    system, shape, axis = PLACES[place]
    use_system(system)
    how = {"users": 2, "new": 3, "axis": axis, "dtype": getattr(ttnn, dtype)}
    prompt, new = chips.agreement(model, model.Size(layers=1), shape, **how)
    assert min(prompt, new) >= LEAST[dtype], (prompt, new)


@pytest.mark.parametrize("name", ["llama", "falcon"])
def test_32_tokens_one_by_one_are_those_of_a_full_forward(name):
    chips, model = load(name)
    prompt, new = chips.agreement(model, model.Size(), (2, 4), users=1, prompt=64, new=32)
    assert min(prompt, new) >= 0.99, (prompt, new)


def test_a_wrong_cut_is_seen(monkeypatch):
    """The comparison can fail: with the scatter left out of one block it does."""
    chips, model = load("llama")
    monkeypatch.setattr(
        chips.Chips, "scatter", lambda self, x: x[:, :, :, : x.shape[-1] // self.tp]
    )
    prompt, new = chips.agreement(model, model.Size(layers=1), (1, 8), users=1, new=1)
    assert max(prompt, new) < 0.9


def drawn(torch, model, angles):
    """A model's size, and of a layer the inputs, weights, cosines and sines as torch's."""
    size = model.Size(layers=1)
    (w,) = model.random_weights(size)
    x = np.random.default_rng(3).standard_normal((2, 9, size.width), np.float32)
    turns = (torch.from_numpy(t[:9]) for t in angles(size))
    return size, torch.from_numpy(x), {name: torch.from_numpy(t) for name, t in w.items()}, *turns


def is_reference(model, size, given, wanted):
    found = model.reference(given.numpy(), model.random_weights(size), size)
    np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-4, atol=1e-4)


def test_llamas_reference_is_torchs(torch):
    chips, model = load("llama")
    functional, (size, x, w, cos, sin) = torch.nn.functional, drawn(torch, model, chips.angles)

    def heads(y, count):
        return y.view(2, 9, count, size.head).transpose(1, 2)

    def rotary(y):
        pairs = torch.view_as_complex(y.reshape(*y.shape[:-1], -1, 2).contiguous())
        turn = torch.complex(cos[:, ::2], sin[:, ::2])
        return torch.view_as_real(pairs * turn).flatten(-2)

    y = functional.rms_norm(x, (size.width,), w["norm1"], size.epsilon)
    q, k = rotary(heads(y @ w["q"], size.heads)), rotary(heads(y @ w["k"], size.kv_heads))
    v = heads(y @ w["v"], size.kv_heads)
    seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    given = x + seen.transpose(1, 2).reshape(x.shape) @ w["out"]
    y = functional.rms_norm(given, (size.width,), w["norm2"], size.epsilon)
    hidden = functional.silu(y @ w["gate"]) * (y @ w["up"])
    is_reference(model, size, x, given + hidden @ w["down"])


def test_falcons_reference_is_torchs(torch):
    _, model = load("falcon")
    functional, (size, x, w, cos, sin) = torch.nn.functional, drawn(torch, model, model.halves)

    def rotary(y):
        left, right = y.chunk(2, -1)
        return y * cos + torch.cat([-right, left], -1) * sin

    y = functional.layer_norm(x, (size.width,), w["scale"], w["shift"], size.epsilon)
    qkv = (y @ w["qkv"]).view(2, 9, size.heads + 2, size.head).transpose(1, 2)
    q, k, v = rotary(qkv[:, :-2]), rotary(qkv[:, -2:-1]), qkv[:, -1:]
    seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    mlp = functional.gelu(y @ w["up"], approximate="tanh") @ w["down"]
    is_reference(model, size, x, x + seen.transpose(1, 2).reshape(x.shape) @ w["out"] + mlp)
