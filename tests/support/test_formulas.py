"""Each formula, the oracle of tests that run without torch, against torch."""

import formulas
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (make .venv/with-torch)")
F = torch.nn.functional

# what torch calls a formula, where that is another name
UNARY = {
    "cbrt": lambda x: x.sign() * x.abs() ** (1 / 3),
    "identity": lambda x: x,
    "log_sigmoid": F.logsigmoid,
    "selu": lambda x: 1.0507 * torch.where(x > 0, x, 1.67326 * torch.expm1(x)),
    "swish": F.silu, "sigmoid_accurate": F.sigmoid,
    "eqz": lambda x: x == 0, "nez": lambda x: x != 0,
    "gtz": lambda x: x > 0, "ltz": lambda x: x < 0,
    "gez": lambda x: x >= 0, "lez": lambda x: x <= 0,
}  # fmt: skip
BINARY = {
    "floor_div": torch.floor_divide, "rsub": lambda a, b: b - a,
    "squared_difference": lambda a, b: (a - b) ** 2,
    "rpow": lambda a, b: b**a, "rdiv": lambda a, b: b / a,
    "div_no_nan": lambda a, b: torch.where(b == 0, 0, a / b),
    "bias_gelu": lambda a, b: F.gelu(a + b),
    "leaky_relu": lambda a, b: torch.where(a < 0, a * b, a),
    "prelu": lambda a, b: torch.where(a < 0, a * b, a),
    "relu_max": lambda a, b: torch.minimum(a, b).clamp(min=0), "relu_min": torch.maximum,
    "outer": lambda a, b: a[..., None] * b[..., None, :],
}  # fmt: skip


def theirs(names, name):
    return names.get(name) or getattr(torch, name, None) or getattr(F, name)


def random(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def near(have, want):
    np.testing.assert_allclose(have, want.detach().numpy(), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", formulas.UNARY)
def test_one_operand(name):
    x = np.append(random(200), [-25, -3, -1, -0.5, 0, 0.5, 1, 3, 7, 25])
    with np.errstate(all="ignore"):
        near(formulas.UNARY[name](x), theirs(UNARY, name)(torch.tensor(x)))


@pytest.mark.parametrize("name", formulas.BINARY)
def test_two_operands(name):
    first, second = np.append(random(20), [0, 1, 2]), np.append(random(20, seed=1), [1, 1.000005])
    a, b = np.meshgrid(first, second)
    if name in ("pow", "rdiv", "rpow", "xlogy"):
        a, b = np.abs(a) + 0.1, np.abs(b) + 0.1
    near(formulas.BINARY[name](a, b), theirs(BINARY, name)(torch.tensor(a), torch.tensor(b)))


def with_gradients(ours, of_torch, *shapes):
    """The value and, by central differences, the gradients."""
    operands = [random(*shape, seed=i) for i, shape in enumerate(shapes)]
    leaves = [torch.tensor(x, requires_grad=True) for x in operands]
    want = of_torch(*leaves)
    near(ours(*operands), want)
    grad = random(*want.shape, seed=9)
    want.backward(torch.tensor(grad))
    for have, leaf in zip(formulas.gradients(ours, grad, *operands), leaves, strict=True):
        near(have, leaf.grad)


def causal(q, k, v):
    return formulas.attention(q, k, v, formulas.causal(6), 0.3)


# name: ours, torch's, shapes of the operands
LAYERS = {
    "softmax": (lambda x: formulas.softmax(x, 1), lambda x: x.softmax(1), (3, 5, 2)),
    "layer_norm": (
        formulas.layer_norm,
        lambda x, w, b: F.layer_norm(x, (7,), w, b),
        *[(3, 7), (7,), (7,)],
    ),
    "rms_norm": (formulas.rms_norm, lambda x, w: F.rms_norm(x, (7,), w, 1e-5), *[(3, 7), (7,)]),
    "linear": (formulas.linear, F.linear, (2, 5), (3, 5), (3,)),
    "gelu_tanh": (formulas.gelu_tanh, lambda x: F.gelu(x, approximate="tanh"), (3, 7)),
    "attention of groups": (
        formulas.attention,
        lambda *qkv: F.scaled_dot_product_attention(*qkv, enable_gqa=True),
        *[(2, 4, 3, 5), (2, 2, 6, 5), (2, 2, 6, 5)],
    ),
    "causal attention": (
        causal,
        lambda *qkv: F.scaled_dot_product_attention(*qkv, is_causal=True, scale=0.3),
        *[(1, 2, 6, 3)] * 3,
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_and_their_gradients(name):
    ours, of_torch, *shapes = LAYERS[name]
    with_gradients(ours, of_torch, *shapes)


def test_cross_entropy_and_its_gradient():
    targets = np.random.default_rng(0).integers(0, 9, (2, 5))

    def of_torch(x):
        numbers = torch.tensor(targets).flatten()
        return F.cross_entropy(x.flatten(0, 1), numbers)

    with_gradients(lambda x: formulas.cross_entropy(x, targets), of_torch, (2, 5, 9))


def test_slopes():
    x = torch.tensor(random(50), requires_grad=True)
    F.gelu(x).sum().backward()
    near(formulas.slope(formulas.gelu, x.detach().numpy()), x.grad)


def test_rotated_and_heads():
    x, angles = random(2, 3, 4, 6), random(4, 3)
    pairs = torch.view_as_complex(torch.tensor(x).unflatten(-1, (-1, 2)))
    turned = pairs * torch.polar(torch.ones(4, 3).double(), torch.tensor(angles))
    near(formulas.rotated(x, angles), torch.view_as_real(turned).flatten(-2))
    near(formulas.join_heads(x), torch.tensor(x).transpose(1, 2).reshape(2, 1, 4, 18))
    near(formulas.split_heads(formulas.join_heads(x), 3), torch.tensor(x))


def test_bfloat16():
    x = np.random.default_rng(0).integers(0, 2**32, 100_000, np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        want = torch.tensor(x).bfloat16().double().numpy()
        np.testing.assert_array_equal(formulas.bfloat16(x), want)


@pytest.mark.parametrize(
    ("ours", "kind", "options"),
    [
        (formulas.sgd, "SGD", {}),
        (formulas.sgd, "SGD", {"weight_decay": 0.3}),
        (formulas.sgd, "SGD", {"momentum": 0.9, "dampening": 0.4}),
        (formulas.sgd, "SGD", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
        (formulas.adamw, "AdamW", {}),
        (formulas.adamw, "AdamW", {"betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.2}),
    ],
)
def test_optimizers(ours, kind, options):
    w, grads, rates = random(4, 3), [random(4, 3, seed=i) for i in range(9)], [0.1, 0.05, 0.2] * 3
    theirs = torch.tensor(w, requires_grad=True)
    optimizer = getattr(torch.optim, kind)([theirs], lr=0.1, **options)
    for grad, optimizer.param_groups[0]["lr"] in zip(grads, rates):
        theirs.grad = torch.tensor(grad)
        optimizer.step()
    near(ours(w, grads, rates, **options), theirs)


@pytest.mark.parametrize("max_norm", [0.5, 100.0])
def test_clipping(max_norm):
    grads = [random(4, 3), random(5)]
    operands = [torch.zeros(g.shape, dtype=torch.float64, requires_grad=True) for g in grads]
    for operand, grad in zip(operands, grads):
        operand.grad = torch.tensor(grad)
    norm = torch.nn.utils.clip_grad_norm_(operands, max_norm)
    ours, of_all = formulas.clipped(grads, max_norm)
    assert of_all == pytest.approx(norm.item())
    for have, operand in zip(ours, operands):
        np.testing.assert_allclose(have, operand.grad, rtol=1e-5)  # torch adds 1e-6 to the norm
