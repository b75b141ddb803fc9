"""`ttnn.model_preprocessing`: the parameters of a torch module as ttnn tensors, in the layouts that ttnn's operations want."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ttkit.errors import fail
from ttkit.sim.creation import from_torch
from ttkit.sim.enums import DataType, Layout


class ParameterDict(dict):  # type: ignore[type-arg]
    """Parameters by name, also as attributes: `parameters.dense.weight`."""

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        raise AttributeError(f"no parameter {name!r}; there are {', '.join(map(str, self)) or 'none'}")

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


class ParameterList(list):  # type: ignore[type-arg]
    """Parameters by number, for a list of modules."""


def preprocess_linear_weight(weight: Any, *, dtype: DataType, layout: Layout = Layout.TILE) -> Any:
    """A torch weight [out, in] as a ttnn tensor [in, out]."""
    return from_torch(weight.T.contiguous(), dtype=dtype, layout=layout)


def preprocess_linear_bias(bias: Any, *, dtype: DataType, layout: Layout = Layout.TILE) -> Any:
    """A torch bias [out] as a ttnn tensor [1, out]."""
    return from_torch(bias.reshape(1, -1), dtype=dtype, layout=layout)


def preprocess_layernorm_parameter(parameter: Any, *, dtype: DataType, layout: Layout = Layout.TILE) -> Any:
    """A torch parameter [n] as a ttnn tensor [1, n]."""
    return from_torch(parameter.reshape(1, -1), dtype=dtype, layout=layout)


preprocess_embedding_weight = preprocess_linear_bias


def _module(module: Any, name: str, custom: Callable[..., Any] | None, wanted: Callable[[Any, str], bool]) -> Any:
    import torch

    if custom is not None:
        own = custom(module, name)
        if own:
            return ParameterDict(own) if isinstance(own, dict) else own
    if isinstance(module, (torch.nn.ModuleList, torch.nn.Sequential)):
        return ParameterList(_module(child, f"{name}.{i}".lstrip("."), custom, wanted) for i, child in enumerate(module))
    made = ParameterDict()
    convert = wanted(module, name)
    for key, parameter in module.named_parameters(recurse=False):
        values = parameter.detach()
        if not convert:
            made[key] = values
        elif isinstance(module, torch.nn.Linear):
            made[key] = (
                preprocess_linear_weight(values, dtype=DataType.BFLOAT16) if key == "weight" else preprocess_linear_bias(values, dtype=DataType.BFLOAT16)
            )
        elif isinstance(module, torch.nn.Embedding):
            made[key] = from_torch(values, dtype=DataType.BFLOAT16)
        elif isinstance(module, torch.nn.LayerNorm):
            made[key] = preprocess_layernorm_parameter(values, dtype=DataType.BFLOAT16)
        else:
            made[key] = from_torch(values, dtype=DataType.BFLOAT16, layout=Layout.TILE)
    for key, child in module.named_children():
        below = _module(child, f"{name}.{key}".lstrip("."), custom, wanted)
        if below:
            made[key] = below
    return made


def _moved(parameters: Any, device: Any) -> Any:
    from ttkit.sim.creation import to_device
    from ttkit.sim.tensor import Tensor

    if isinstance(parameters, dict):
        return ParameterDict({k: _moved(v, device) for k, v in parameters.items()})
    if isinstance(parameters, list):
        return ParameterList(_moved(v, device) for v in parameters)
    return to_device(parameters, device) if isinstance(parameters, Tensor) else parameters


def preprocess_model_parameters(
    model_name: str | None = None,
    *,
    version: str | None = None,
    initialize_model: Callable[[], Any] | None = None,
    convert_to_ttnn: Callable[[Any, str], bool] | None = None,
    custom_preprocessor: Callable[..., Any] | None = None,
    device: Any = None,
    prefix: str = "",
    run_model: Any = None,
    reader_patterns_cache: Any = None,
) -> Any:
    """The parameters of a torch module as ttnn tensors with the module's own names, on `device` where one is given.

    Linear weights come as [in, out] and biases as [1, out], both in tiles; embedding tables row-major; layer norms as [1, n].
    All are bfloat16. Inside `ttnn.distribute(mapper)` they are cut by that mapper.

    Args:
        initialize_model: a function that makes the module.
        convert_to_ttnn: says for a module and its name whether its parameters become ttnn tensors; all do without it.
        custom_preprocessor: called with a module and its name first; what it gives is taken as it is.

    Raises:
        TTKitError: torch is not installed, or there is no model.
    """
    try:
        import torch
    except ImportError:
        fail("preprocess_model_parameters", "torch is not installed", "pip install torch, or make the tensors with ttkit.from_numpy")
    if initialize_model is None:
        fail("preprocess_model_parameters", "incompatible function arguments: initialize_model is missing", "initialize_model=lambda: model", TypeError)
    model = initialize_model()
    if not isinstance(model, torch.nn.Module):
        fail("preprocess_model_parameters", f"initialize_model gave a {type(model).__name__}, not a torch.nn.Module", kind=TypeError)
    parameters = _module(model, prefix, custom_preprocessor, convert_to_ttnn or (lambda module, name: True))
    return parameters if device is None else _moved(parameters, device)
