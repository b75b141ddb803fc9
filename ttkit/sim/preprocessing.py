"""`ttnn.model_preprocessing`: the parameters of a torch module as ttnn tensors, in the layouts
that ttnn's operations want.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ttkit.errors import fail
from ttkit.sim.creation import from_torch
from ttkit.sim.enums import DataType, Layout
from ttkit.sim.movement import to_device
from ttkit.sim.tensor import Tensor

NAME = "preprocess_model_parameters"
ONE_STEP = "  "
PUBLIC = (
    "ParameterDict",
    "ParameterList",
    "default_preprocessor",
    "make_parameter_dict",
    "preprocess_embedding_weight",
    "preprocess_layernorm_parameter",
    "preprocess_linear_bias",
    "preprocess_linear_weight",
    "preprocess_model_parameters",
)
# The types of plain parameters, which no module's own rule converts: every float becomes bfloat16.
PLAIN = {
    "uint8": DataType.UINT8,
    "int8": DataType.INT8,
    "int16": DataType.UINT16,
    "int32": DataType.INT32,
    "int64": DataType.UINT32,
}


def _tree(value: Any, indent: str = "") -> str:
    """Parameters as text, one to a line."""
    if isinstance(value, (ParameterDict, ParameterList)):
        opening, closing = "{}" if isinstance(value, dict) else "[]"
        inner = indent + ONE_STEP
        entries = (
            [f"{k}: {_tree(v, inner)}" for k, v in value.items()]
            if isinstance(value, dict)
            else [_tree(v, inner) for v in value]
        )
        return (
            opening + "\n" + ",\n".join(inner + e for e in entries) + "\n" + indent + closing
            if entries
            else opening + closing
        )
    if isinstance(value, Tensor):
        return (
            f"ttnn.Tensor(shape={value.shape}, layout=Layout.{value.layout.name}, "
            f"dtype=DataType.{value.dtype.name})"
        )
    return (
        f"torch.Tensor(shape={value.shape}, dtype={value.dtype})"
        if hasattr(value, "detach")
        else repr(value)
    )


class _Missing(AttributeError, KeyError):
    """ttnn raises KeyError for a name that is not there.

    As an AttributeError, `hasattr` works too.
    """

    __str__ = AttributeError.__str__


class ParameterDict(dict):  # type: ignore[type-arg]
    """Parameters by name, also as attributes: `parameters.dense.weight`."""

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        raise _Missing(f"no parameter {name!r}; there are {', '.join(map(str, self)) or 'none'}")

    __repr__ = _tree


class ParameterList(list):  # type: ignore[type-arg]
    """Parameters by number, for a ModuleList; `in` asks for a number, as in ttnn."""

    def __contains__(self, index: object) -> bool:
        return isinstance(index, int) and index < len(self)

    __repr__ = _tree


def make_parameter_dict(dictionary: dict[Any, Any]) -> ParameterDict:
    """A dict, and the dicts in it, as ParameterDict."""
    if isinstance(dictionary, ParameterDict):
        return dictionary
    return ParameterDict(
        {k: make_parameter_dict(v) if isinstance(v, dict) else v for k, v in dictionary.items()}
    )


def preprocess_linear_weight(
    weight: Any, *, dtype: DataType, layout: Layout = Layout.TILE, weights_mesh_mapper: Any = None
) -> Any:
    """A torch weight [out, in] as a ttnn tensor [in, out]."""
    return from_torch(
        weight.T.contiguous(), dtype=dtype, layout=layout, mesh_mapper=weights_mesh_mapper
    )


def preprocess_linear_bias(
    bias: Any, *, dtype: DataType, layout: Layout = Layout.TILE, weights_mesh_mapper: Any = None
) -> Any:
    """A torch bias [out] as a ttnn tensor [1, out]."""
    return from_torch(
        bias.reshape((1, -1)), dtype=dtype, layout=layout, mesh_mapper=weights_mesh_mapper
    )


def preprocess_layernorm_parameter(
    parameter: Any, *, dtype: DataType, layout: Layout = Layout.TILE
) -> Any:
    """A torch parameter [n] as a ttnn tensor [1, n]."""
    return from_torch(parameter.reshape((1, -1)), dtype=dtype, layout=layout)


def preprocess_embedding_weight(weight: Any, *, dtype: DataType) -> Any:
    """A torch table [vocabulary, n] as a row-major ttnn tensor of the same shape."""
    return from_torch(weight, dtype=dtype)


def default_preprocessor(model: Any, name: str, ttnn_module_args: Any) -> ParameterDict:
    """The parameters of a Linear, LayerNorm or Embedding (or of a subclass) as bfloat16 tensors.

    Empty for other modules.
    """
    import torch

    made = ParameterDict()
    if isinstance(model, torch.nn.Linear):
        made["weight"] = preprocess_linear_weight(model.weight, dtype=DataType.BFLOAT16)
        if model.bias is not None:
            made["bias"] = preprocess_linear_bias(model.bias, dtype=DataType.BFLOAT16)
    elif isinstance(model, torch.nn.LayerNorm):
        for key in ("weight", "bias"):
            parameter = getattr(model, key)
            if parameter is None:
                rule = f"{type(model).__name__} has no {key}: 'NoneType' object has no"
                rule += " attribute 'reshape'"
                cure = "a custom_preprocessor for it"
                fail(f"{NAME} at {name or 'the model'}", rule, cure, AttributeError)
            made[key] = preprocess_layernorm_parameter(parameter, dtype=DataType.BFLOAT16)
    elif isinstance(model, torch.nn.Embedding):
        made["weight"] = preprocess_embedding_weight(model.weight, dtype=DataType.BFLOAT16)
    return made


def _own(
    custom: Callable[..., Any], module: Any, name: str, convert: Callable[[Any, str], bool]
) -> Any:
    """What the caller's preprocessor makes of a module.

    It takes (model, name) and, by these names, more.
    """
    parameters = list(inspect.signature(custom).parameters)
    if len(parameters) < 2:
        rule = "Custom preprocessor must have at least two parameters: model and name"
        fail(NAME, rule, "def custom_preprocessor(model, name): ...", RuntimeError)
    extra = {"ttnn_module_args": None, "convert_to_ttnn": convert}
    for parameter in parameters[2:]:
        if parameter not in extra:
            rule = f"Unsupported parameter: {parameter}"
            fail(NAME, rule, "model, name, ttnn_module_args, convert_to_ttnn", RuntimeError)
    return custom(module, name, **{k: v for k, v in extra.items() if k in parameters})


def _convert(
    module: Any, name: str, custom: Callable[..., Any] | None, convert: Callable[[Any, str], bool]
) -> Any:
    import torch

    below = lambda key: f"{name}.{key}" if name else f"{key}"  # noqa: E731
    if isinstance(module, torch.nn.ModuleList):
        return ParameterList(
            _convert(child, below(i), custom, convert) for i, child in enumerate(module)
        )
    if custom is not None:
        own = _own(custom, module, name, convert)
        if own:
            return make_parameter_dict(own)
    children = list(module.named_children())
    plain = [(key, parameter) for key, parameter in module.named_parameters() if "." not in key]
    made = ParameterDict()
    if convert(module, name):
        usual = default_preprocessor(module, name, None)
        if usual:
            if len(usual) != len(children) + len(plain):
                rule = "Not all children or parameters were converted using"
                rule += " default_preprocessor_parameters!"
                asked = f"{NAME} at {name or 'the model'}"
                rule = f"{rule} {type(module).__name__} has more than {', '.join(usual)}"
                fail(asked, rule, "a custom_preprocessor", RuntimeError)
            return usual
        for key, parameter in plain:
            made[key] = from_torch(
                parameter,
                dtype=PLAIN.get(str(parameter.dtype).removeprefix("torch."), DataType.BFLOAT16),
            )
    elif isinstance(module, torch.nn.Linear):
        made["weight"] = module.weight.T.contiguous()
        if module.bias is not None:
            made["bias"] = module.bias
    else:
        made.update(plain)
    for key, child in children:
        inner = _convert(child, below(key), custom, convert)
        if inner:
            made[int(key) if key.isdigit() else key] = inner
    return made


def _moved(parameters: Any, device: Any) -> Any:
    if isinstance(parameters, dict):
        return ParameterDict({k: _moved(v, device) for k, v in parameters.items()})
    if isinstance(parameters, list):
        return ParameterList(_moved(v, device) for v in parameters)
    return to_device(parameters, device) if isinstance(parameters, Tensor) else parameters


def preprocess_model_parameters(
    *,
    model_name: str | None = None,
    version: str | None = None,
    initialize_model: Callable[[], Any] | None = None,
    convert_to_ttnn: Callable[[Any, str], bool] | None = None,
    custom_preprocessor: Callable[..., Any] | None = None,
    device: Any = None,
    prefix: str = "",
) -> Any:
    """The parameters of a torch module as ttnn tensors with the module's own names, on `device`
    where one is given.

    Linear weights come as [in, out] and biases as [1, out], layer norms as [1, n], all in tiles;
    embedding tables and plain parameters row-major in their own shape. Floats become bfloat16. A
    ModuleList gives a list, a Sequential a dict with the numbers as keys, modules without
    parameters nothing. Inside `ttnn.distribute(mapper)` all are cut by that mapper.

    Args:
        model_name, version: for a cache on disk, which the simulator does not keep.
        initialize_model: a function that makes the module.
        convert_to_ttnn: says for a module and its name whether its parameters become ttnn tensors;
            all do without it.
        custom_preprocessor: called with a module and its name first; what it gives is taken as it
            is.
        prefix: the name of the module itself, put before all names that the two functions see.

    Raises:
        TTKitError: torch is not installed.
        TypeError: there is no `initialize_model`.
        RuntimeError: a Linear, LayerNorm or Embedding has parameters of its own besides the usual
            ones.
    """
    try:
        import torch
    except ImportError:
        rule = "Torch is not installed. Model preprocessing functions require torch"
        fail(NAME, rule, "pip install torch, or make the tensors with ttkit.from_numpy")
    if initialize_model is None:
        rule = "initialize_model is missing: 'NoneType' object is not callable"
        fail(NAME, rule, "initialize_model=lambda: model", TypeError)
    model = initialize_model()
    if not isinstance(model, torch.nn.Module):
        rule = f"initialize_model gave a {type(model).__name__}, not a torch.nn.Module"
        fail(NAME, rule, kind=TypeError)
    parameters = _convert(
        model, prefix, custom_preprocessor, convert_to_ttnn or (lambda module, name: True)
    )
    return parameters if device is None else _moved(parameters, device)
