"""Operations as textbooks write them, in float64 NumPy: the results that ttkit must give.

They share no code with ttkit; `test_formulas.py` compares each one with torch.
"""

import math

import numpy as np

from ttkit import ttnn


# ---------------------------------------------------------------- how near a result must be
def tolerance(dtype=ttnn.float32, additions=1, roundings=1):
    """Return {rtol, atol} between a result and its formula in float64.

    ttkit computes in float32, where each operation rounds its result by at most 2**-24 of it.
    The longest formula of one element has about 30 operations (the error of erf's polynomial,
    1.5e-7, is less than 3 of these roundings). A sum of n terms rounds n - 1 times, in whatever
    order the BLAS kernel adds. So the bound is (32 + n) * 2**-24 for terms of size one, on every
    CPU. A store as bfloat16 rounds by 2**-9 of the value, and by twice that beside a tie.

    Args:
        additions: terms of the longest sum.
        roundings: stores of the value, one after the other; the terms have those before the last.
    """
    computed = (32 + additions) * 2**-24
    stored = {ttnn.float32: 0, ttnn.bfloat16: 2**-8}.get(dtype, 0)
    return {"rtol": computed + roundings * stored, "atol": computed + (roundings - 1) * stored}


def bfloat16(x):
    """The nearest numbers of 8 significant bits, the even one of two; from 2**128 on infinite."""
    _, exponent = np.frexp(np.asarray(x, np.float64))
    step = np.ldexp(1.0, np.maximum(exponent, -125) - 8)  # subnormals are as far apart
    rounded = np.where(np.isfinite(x), np.rint(x / step) * step, x)
    return np.where(np.abs(rounded) >= 2.0**128, np.copysign(np.inf, x), rounded)


# ---------------------------------------------------------------- gradients
# A central difference errs by STEP**2 / 6 of the third derivative and 2**-52 / STEP of the value.
STEP = 1e-6


def slope(function, *operands, by=0):
    """Return the derivative of an elementwise function by operand `by`; the error is about 1e-9."""
    near = [
        [x + (sign * STEP if i == by else 0) for i, x in enumerate(operands)] for sign in (1, -1)
    ]
    return (function(*near[0]) - function(*near[1])) / (2 * STEP)


def gradients(function, grad, *operands):
    """Return the gradient of sum(grad * function(*operands)) by each element of each operand."""
    found = [np.zeros(x.shape) for x in operands]
    for x, into in zip(operands, found):
        for i in np.ndindex(x.shape):
            value, ends = x[i], []
            for x[i] in (value + STEP, value - STEP):
                ends.append((grad * function(*operands)).sum())
            x[i], into[i] = value, (ends[0] - ends[1]) / (2 * STEP)
    return found


# ---------------------------------------------------------------- one operand, element by element
erf, erfc = (np.vectorize(f, otypes=[np.float64]) for f in (math.erf, math.erfc))


def gelu(x):
    return x * (1 + erf(x / math.sqrt(2))) / 2


def gelu_tanh(x):
    return x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return np.where(x == -np.inf, 0, x * sigmoid(x))  # the limit; the product is -inf * 0


def softplus(x):
    return np.where(x > 20, x, np.logaddexp(0, x))


def relu(x):
    return np.maximum(x, 0)


def hardsigmoid(x):
    return np.clip((x + 3) / 6, 0, 1)


UNARY = {
    "abs": np.abs, "neg": lambda x: -x, "identity": lambda x: x, "sign": np.sign,
    "square": lambda x: x**2, "reciprocal": lambda x: 1 / x,
    "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "cbrt": np.cbrt,
    "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "frac": lambda x: x - np.trunc(x),
    "exp": np.exp, "exp2": lambda x: 2.0**x, "expm1": np.expm1, "log": np.log, "log2": np.log2,
    "log10": np.log10, "log1p": np.log1p,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "deg2rad": lambda x: x * math.pi / 180,
    "rad2deg": lambda x: x * 180 / math.pi,
    "erf": erf, "erfc": erfc, "gelu": gelu, "sigmoid": sigmoid,
    "sigmoid_accurate": sigmoid, "silu": silu, "swish": silu,
    "relu": relu, "relu6": lambda x: np.clip(x, 0, 6),
    "i0": np.i0, "hardsigmoid": hardsigmoid, "hardswish": lambda x: x * hardsigmoid(x),
    "log_sigmoid": lambda x: -np.logaddexp(0, -x),
    "mish": lambda x: x * np.tanh(np.logaddexp(0, x)), "softsign": lambda x: x / (1 + np.abs(x)),
    "tanhshrink": lambda x: x - np.tanh(x),
    "softplus": softplus, "round": np.round, "elu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "hardshrink": lambda x: np.where(np.abs(x) <= 0.5, 0, x), "hardtanh": lambda x: np.clip(x, -1, 1),
    "celu": lambda x: np.where(x > 0, x, np.expm1(x)), "logit": lambda x: np.log(x / (1 - x)),
    "selu": lambda x: np.where(x > 0, 1.0507 * x, 1.0507 * 1.67326 * np.expm1(x)),
    "softshrink": lambda x: x - np.clip(x, -0.5, 0.5),
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "isposinf": np.isposinf, "isneginf": np.isneginf, "signbit": np.signbit,
    "isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite, "logical_not": lambda x: x == 0,
    "eqz": lambda x: x == 0, "nez": lambda x: x != 0, "gtz": lambda x: x > 0,
    "ltz": lambda x: x < 0, "gez": lambda x: x >= 0, "lez": lambda x: x <= 0,
}  # fmt: skip

# ---------------------------------------------------------------- two operands, element by element
BINARY = {
    "add": lambda a, b: a + b, "subtract": lambda a, b: a - b, "rsub": lambda a, b: b - a,
    "multiply": lambda a, b: a * b, "divide": lambda a, b: a / b,
    "pow": lambda a, b: a**b, "floor_div": lambda a, b: np.floor(a / b),
    "fmod": lambda a, b: a - b * np.trunc(a / b),
    "remainder": lambda a, b: a - b * np.floor(a / b),
    "squared_difference": lambda a, b: (a - b) ** 2,
    "maximum": np.maximum, "minimum": np.minimum, "atan2": np.arctan2,
    "hypot": lambda a, b: np.sqrt(a**2 + b**2), "ldexp": lambda a, b: a * 2.0**b,
    "logaddexp": lambda a, b: np.log(np.exp(a) + np.exp(b)),
    "logaddexp2": lambda a, b: np.log2(2.0**a + 2.0**b),
    "xlogy": lambda a, b: a * np.log(b), "bias_gelu": lambda a, b: gelu(a + b),
    "rpow": lambda a, b: b**a, "rdiv": lambda a, b: b / a, "heaviside": np.heaviside,
    "div_no_nan": lambda a, b: np.where(b == 0, 0, a / b),
    "leaky_relu": lambda a, b: np.where(a < 0, a * b, a), "relu_min": np.maximum,
    "relu_max": lambda a, b: relu(np.minimum(a, b)), "prelu": lambda a, b: np.where(a < 0, a * b, a),
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
    "logical_and": lambda a, b: (a != 0) & (b != 0), "logical_or": lambda a, b: (a != 0) | (b != 0),
    "logical_xor": lambda a, b: (a != 0) ^ (b != 0),
}  # fmt: skip


# ---------------------------------------------------------------- layers
def softmax(x, dim=-1):
    powers = np.exp(x - x.max(dim, keepdims=True))
    return powers / powers.sum(dim, keepdims=True)


def layer_norm(x, weight=1.0, bias=0.0, eps=1e-5):
    """Over the last dimension; weight and bias are [..., n] or a number."""
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps) * weight + bias


def rms_norm(x, weight=1.0, eps=1e-5):
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * weight


def linear(x, weight, bias=0.0):
    """torch's and ttml's: weight is [out, in]."""
    return x @ weight.T + bias


def causal(length):
    """The mask to add to scores [length, length], so that no token sees a later one."""
    return np.where(np.tri(length), 0, -np.inf)


def attention(q, k, v, mask=0.0, scale=None):
    """softmax(q k^T * scale + mask) v for q [B, heads, S, d] and k, v [B, groups, T, d].

    heads / groups heads share one group.
    """
    k, v = (np.repeat(x, q.shape[1] // k.shape[1], 1) for x in (k, v))
    return softmax(q @ k.swapaxes(-1, -2) * (scale or 1 / math.sqrt(q.shape[-1])) + mask) @ v


def rotated(x, angles):
    """x [..., S, n] with each pair of neighbours a complex number, turned by angles [S, n / 2]."""
    turned = (x[..., ::2] + 1j * x[..., 1::2]) * np.exp(1j * angles)
    return np.stack([turned.real, turned.imag], -1).reshape(x.shape)


def split_heads(x, heads):
    """[B, ..., S, heads * d] as [B, heads, S, d]."""
    return x.reshape(x.shape[0], x.shape[-2], heads, -1).swapaxes(1, 2)


def join_heads(x):
    """[B, heads, S, d] as [B, 1, S, heads * d]."""
    return x.swapaxes(1, 2).reshape(x.shape[0], 1, x.shape[2], -1)


def cross_entropy(logits, targets):
    """The mean over rows of logits [..., V] of log(sum(exp(row))) - row[target of the row]."""
    rows = logits.reshape(-1, logits.shape[-1])
    top = rows.max(-1)
    sums = top + np.log(np.exp(rows - top[:, None]).sum(-1))
    return (sums - rows[np.arange(len(rows)), np.ravel(targets)]).mean()


# ---------------------------------------------------------------- weights after all steps
def sgd(w, grads, rates, momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False):
    velocity = None
    for g, rate in zip(grads, rates, strict=True):
        g = g + weight_decay * w
        velocity = g if velocity is None else momentum * velocity + (1 - dampening) * g
        w = w - rate * (g + momentum * velocity if nesterov else velocity if momentum else g)
    return w


def adamw(w, grads, rates, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
    m = v = 0.0
    for step, (g, rate) in enumerate(zip(grads, rates, strict=True), 1):
        m, v = betas[0] * m + (1 - betas[0]) * g, betas[1] * v + (1 - betas[1]) * g**2
        w = w - rate * weight_decay * w
        w = w - rate * (m / (1 - betas[0] ** step)) / (np.sqrt(v / (1 - betas[1] ** step)) + eps)
    return w


def clipped(grads, max_norm):
    """The gradients, made shorter together where their norm is above max_norm, and that norm."""
    norm = math.sqrt(sum((g**2).sum() for g in grads))
    return [g * min(1, max_norm / norm) for g in grads], norm
