"""Compute operations on each element of two operands, or of three.

Each operand is a tensor or a number.

A new operation of two operands is one row in `FUNCTIONS`, and in `WHOLE` where it takes whole
numbers.
"""

import math
from typing import Any

import numpy as np

from ttkit.sim.arguments import keywords_of, refuse
from ttkit.sim.blocks import empty
from ttkit.sim.ops import (
    OPERATIONS,
    Array,
    Operands,
    in_place,
    on_mesh,
    operation,
    result,
    values_of,
)
from ttkit.sim.ops.unary import COMPARISONS, Function, activation, gelu_erf, of_numpy, truth
from ttkit.sim.tensor import BcastOpDim, BcastOpMath, DataType, Layout, dtypes
from ttkit.sim.tensor.dtypes import FLOATS
from ttkit.sim.tensor.tensor import Tensor

# This is ttnn's default for activations. All calls share the list, so nothing may write to it.
NONE: list = []


# ---------------------------------------------------------------- the tables
# ttnn refuses floats in these operations.
ONLY_WHOLE = of_numpy("gcd lcm bitwise_and bitwise_or bitwise_xor")
ONLY_WHOLE |= {"bitwise_left_shift": np.left_shift, "bitwise_right_shift": np.right_shift}
FUNCTIONS = ONLY_WHOLE | of_numpy(
    "add subtract multiply divide maximum minimum fmod remainder hypot logaddexp logaddexp2"
    " heaviside nextafter"
)
# Each function takes two arrays, or an array and a number; `polyval` takes an array and a list.
FUNCTIONS |= {
    "rsub": lambda a, b: b - a,
    "pow": np.power,
    "rpow": lambda a, b: b**a,
    "rdiv": lambda a, b: b / a,
    "floor_div": np.floor_divide,
    "div_no_nan": lambda a, b: np.where(b == 0, 0, a / b),
    "atan2": np.arctan2,
    "ldexp": lambda a, b: a * np.exp2(b),
    "xlogy": lambda a, b: np.where(a == 0, 0, a * np.log(b)),
    "bias_gelu": lambda a, b: gelu_erf(a + b),
    "squared_difference": lambda a, b: (a - b) ** 2,
    "fill": np.full_like,
    "leaky_relu": lambda a, b: np.where(a < 0, a * b, a),
    "relu_max": lambda a, b: np.maximum(np.minimum(a, b), 0),
    "relu_min": np.maximum,
    "polyval": lambda a, coefficients: np.polyval(coefficients, a),
}
FUNCTIONS["prelu"] = FUNCTIONS["leaky_relu"]
# Each test gives 1 where it is true and 0 where it is false.
TESTS = COMPARISONS | of_numpy("logical_and logical_or logical_xor")
FUNCTIONS |= {name: truth(test) for name, test in TESTS.items()}
# These take whole numbers, if both operands have one type. Those of `ONLY_WHOLE` take no floats.
WHOLE = {*"add subtract multiply rsub squared_difference maximum minimum clamp fill".split()}
WHOLE |= {*ONLY_WHOLE, *TESTS}

# In these operations the first operand may be a number.
ELEMENTARY = "add subtract multiply divide".split()
# Besides the elementary operations and the tests, these also have a form that replaces the first
# operand.
ALSO = "bias_gelu ldexp logaddexp logaddexp2 rsub squared_difference"
IN_PLACE = {*ELEMENTARY, *TESTS, *ALSO.split()}


# ---------------------------------------------------------------- types
def _check_types(name: str, *given: DataType) -> None:
    """Check the element types of two operands; the result gets the first operand's type."""
    whole = name in WHOLE and given[0] is given[1] not in FLOATS
    floats = name not in ONLY_WHOLE and {*given} <= {*FLOATS}
    if not (whole or floats):
        a, b = (f"DataType::{kind.name}" for kind in given)
        rule = f"Input tensor A dtype {a} with B dtype {b} is not supported for ttnn.{name}"
        refuse(rule, "ttnn.typecast first")


# ---------------------------------------------------------------- two operands
def _binary(
    name: str,
    a,
    b,
    function: Function,
    dtype: DataType | None = None,
    activations: tuple[Any, Any, Any] = ((), (), ()),
) -> Tensor:
    """Compute an operation of two operands.

    Args:
        activations: what to apply to the first operand, to the second, and to the result.
    """
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        on = Operands(a, b)
        like = on.like
        topology = on.topology
        x, y = on.broadcast()
        _check_types(name, a.dtype, b.dtype)
        given = a.dtype
        layout = a.layout if a.layout is b.layout else Layout.TILE
    else:
        like, scalar = (a, b) if isinstance(a, Tensor) else (b, a)
        on_mesh(like)
        given = like.dtype
        layout = like.layout
        topology = like.topology
        values = like.array
        _check_types(name, given, given)
        # A whole number that is too large wraps around; the comparison below finds this.
        number = np.asarray(scalar).astype(values.dtype)[()]
        if given not in FLOATS and number != scalar:
            rule = f"ttnn.{name} with a DataType::{given.name} tensor cannot represent the scalar"
            refuse(f"{rule} {scalar}", "ttnn.typecast the tensor to a float type")
        x, y = (values, number) if like is a else (number, values)
    first, second, after = activations
    values = _through(function(_through(x, first), _through(y, second)), after)
    return result(like, values, dtype=dtype or given, layout=layout, topology=topology)


def _through(values, activations):
    """Return values after each of the activations."""
    for which in activations:
        values = activation(which)(values)
    return values


def _register(name: str, function: Function) -> None:
    def call(
        input_tensor_a: Tensor,
        input_tensor_b: Tensor | float,
        *,
        dtype: DataType | None = None,
        activations=NONE,
        input_tensor_a_activations=NONE,
        input_tensor_b_activations=NONE,
        rounding_mode: str | None = None,
    ) -> Tensor:
        after = [rounding_mode, *activations] if rounding_mode else activations
        all_three = (input_tensor_a_activations, input_tensor_b_activations, after)
        return _binary(name, input_tensor_a, input_tensor_b, function, dtype, all_three)

    call.__doc__ = f"Return {name} of two tensors, or of a tensor and a number; sizes of 1 repeat."
    if name in IN_PLACE:
        operation(f"{name}_")(in_place(call))
    operation(name)(call)


for _name, _function in FUNCTIONS.items():
    _register(_name, _function)


# ---------------------------------------------------------------- three operands
@operation("clamp")
def clamp(
    input_tensor: Tensor, min: Tensor | float | None = None, max: Tensor | float | None = None
) -> Tensor:
    """Return each element, or a limit where the element is beyond it; one limit may be left out.

    Args:
        min, max: numbers, or tensors of the same type.
    """
    if min is None and max is None:
        rule = "Only one of 'min' or 'max' can be None. Please provide one value"
        refuse(rule, "min=0.0, for example")
    dtype = input_tensor.dtype
    wide = DataType.FLOAT32 if dtype in FLOATS else dtype  # Only the result is rounded.
    for limit, function in ((min, np.maximum), (max, np.minimum)):
        if limit is not None:
            input_tensor = _binary("clamp", input_tensor, limit, function, wide)
    return result(input_tensor, input_tensor.array, dtype=dtype)


@operation("where")
def where(predicate: Tensor, true_value: Tensor | float, false_value: Tensor | float) -> Tensor:
    """Return `true_value` where the predicate is not zero, `false_value` elsewhere."""
    on, (condition, yes, no) = values_of(predicate, true_value, false_value)
    dtype = on.tensors[:2][-1].dtype
    values = _chosen(condition != 0, yes, no, on.lead)
    values = values.astype(dtypes.numpy_dtype(dtype), copy=False)
    return on.result(values, dtype, layout=on.like.layout)


def _chosen(condition: Array, yes, no, lead: int) -> Array:
    """Return `yes` where the condition holds, else `no`.

    Where each chip has a single condition, whole shards are copied: choosing element by element
    takes five times as long.

    Args:
        lead: how many axes, the first ones, run over the chips.
    """
    chips = condition.shape[:lead]
    one_each = condition.size == math.prod(chips)
    if not (one_each and np.shape(yes) == np.shape(no) and np.shape(yes)[:lead] == chips):
        return np.where(condition, yes, no)
    values = empty(yes.shape, np.result_type(yes, no))
    for chip in np.ndindex(chips):
        values[chip] = (yes if condition[chip].item() else no)[chip]
    return values


# Each function takes three arrays or numbers; two of the functions have the keyword `value`.
THREE: dict[str, Function] = {
    "addcmul": lambda a, b, c, value=1: a + value * b * c,
    "addcdiv": lambda a, b, c, value=1: a + value * b / c,
    "addalpha": lambda a, b, alpha=1: a + alpha * b,
    "subalpha": lambda a, b, alpha=1: a - alpha * b,
    "lerp": lambda a, b, weight: a + weight * (b - a),
    "mac": lambda a, b, c: a * b + c,
    "threshold": lambda a, least, value: _chosen(a > least, a, value, 0),
}


def _enter_of_three(name: str) -> None:
    def call(input_a: Tensor, input_b, input_c, **how) -> Tensor:
        on, values = values_of(input_a, input_b, input_c)
        return on.result(THREE[name](*values, **how), layout=on.like.layout)

    if name.startswith("addc"):
        keywords_of(lambda *, value=1.0: None)(call)
    call.__doc__ = f"Return {name} of tensors and numbers, element by element."
    operation(name)(call)


for _name in THREE:
    _enter_of_three(_name)


@operation("bcast")
def bcast(input_a: Tensor, input_b: Tensor, math_op: BcastOpMath, dim: BcastOpDim) -> Tensor:
    """Return a + b, a - b or a * b, with the first row or column of `input_b` repeated.

    Args:
        input_a: [w, z, y, x].
        input_b: [w, z, 1, x] for H, [w, z, y, 1] for W, [w, z, 1, 1] for HW; w and z may be 1.
    """
    name = ("add", "subtract", "multiply")[math_op.value]
    rows, columns = (None if dim is whole else 1 for whole in (BcastOpDim.W, BcastOpDim.H))
    return _binary(name, input_a, input_b[..., :rows, :columns], FUNCTIONS[name])


# ---------------------------------------------------------------- Python's operators
def _operator(word: str, name: str) -> None:
    call = OPERATIONS[name].call
    setattr(Tensor, f"__{word}__", call)
    if name in ELEMENTARY:
        setattr(Tensor, f"__r{word}__", lambda a, b: call(b, a))


for _word in (*COMPARISONS, "matmul", "add"):
    _operator(_word, _word)
for _word, _name in (("sub", "subtract"), ("mul", "multiply"), ("truediv", "divide")):
    _operator(_word, _name)
