"""Find reference functions in torch for operations of ttnn; tests compare with them."""

from typing import Any

from ttkit.errors import fail
from ttkit.sim.ops import OPERATIONS
from ttkit.sim.ops.binary import FUNCTIONS
from ttkit.sim.ops.unary import UNARY


def _rms_norm(x, weight=None, *, epsilon=1e-12):
    import torch

    return torch.rms_norm(x, x.shape[-1:], weight, epsilon)


def _layer_norm(x, *, weight=None, bias=None, epsilon=1e-12, **_):
    import torch

    return torch.layer_norm(x, x.shape[-1:], weight, bias, epsilon)


def _attention_softmax(x, *, head_size=None, attention_mask=None):
    x = x / (head_size or 1) ** 0.5
    return (x if attention_mask is None else x + attention_mask).softmax(-1)


def _split_heads(x, kv=None, *, num_heads, num_kv_heads=None, transpose_key=True):
    import torch

    heads = [num_heads] + 2 * [num_kv_heads or num_heads]
    joined = x if kv is None else torch.cat([x, kv], -1)
    q, k, v = joined.unflatten(-1, (sum(heads), -1)).transpose(1, 2).split(heads, 1)
    return q, k.mT if transpose_key else k, v


OWN = {
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "transformer.attention_softmax": _attention_softmax,
    "transformer.concatenate_heads": lambda x: x.transpose(1, 2).flatten(2),
    "transformer.split_query_key_value_and_split_heads": _split_heads,
}
# Where torch has a function under one of these names, it has the same meaning.
KNOWN = {
    *OWN,
    *UNARY,
    *FUNCTIONS,
    *"""addcdiv addcmul clamp concat cumsum matmul mean permute prod reshape softmax std sum tril
    triu var where""".split(),
}


def get_golden_function(operation: Any) -> Any:
    """Return a function of torch tensors that computes what an operation of ttnn does.

    The function is one of `OWN`, or else torch's function of the same name and meaning. For an
    operation in place, the function returns the result.

    Raises:
        TTKitError: the kit has no reference for this operation.

    Example:
        >>> from ttkit import ttnn
        >>> softmax = ttnn.get_golden_function(ttnn.transformer.attention_softmax)
        >>> softmax.__name__  # Functions of `OWN` are found without importing torch.
        '_attention_softmax'
    """
    name = operation.python_fully_qualified_name.removeprefix("ttnn.").removesuffix("_")
    if name in OWN:
        return OWN[name]
    import torch

    known = vars(torch.nn.functional) | vars(torch)
    if name not in KNOWN & known.keys():
        fail("get_golden_function", f"no reference for ttnn.{name}", "torch's own functions")
    return known[name]


def get_golden_function_for_activation(activation: Any) -> Any:
    """Return a function of torch tensors for a fused activation; None for None.

    The tests of tt-metal import it from `ttnn.operations.activations`. When ttkit runs them, that
    name means this module.

    Args:
        activation: a name, a `UnaryOpType`, or a `UnaryWithParam`.
    """
    if activation is None:
        return None
    kind = getattr(activation, "op_type", activation)
    name = getattr(kind, "name", kind).lower().removesuffix("_approx")
    return get_golden_function(OPERATIONS[name].call)
