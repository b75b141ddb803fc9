"""Complex numbers as pairs of tensors. Each operation on them is a row of `FUNCTIONS`."""

from typing import NamedTuple

import numpy as np

from ttkit.sim.arguments import refuse
from ttkit.sim.ops import Operands, operation, spread
from ttkit.sim.ops.unary import of_numpy
from ttkit.sim.tensor.tensor import Tensor

# Each function takes an array of complex numbers. For `polar` the real part is the radius, and the
# imaginary part is the angle.
FUNCTIONS = of_numpy("angle conj imag real") | {
    "is_imag": lambda z: z.real == 0,
    "is_real": np.isreal,
    "polar": lambda z: z.real * np.exp(1j * z.imag),
}


class ComplexTensor(NamedTuple):
    """A complex number for each element."""

    real: Tensor
    imag: Tensor


@operation("complex_tensor", "arrange")
def complex_tensor(real: Tensor, imag: Tensor) -> ComplexTensor:
    """Return real + i imag."""
    return ComplexTensor(real, imag)


def _enter(name: str) -> None:
    def call(input_tensor: ComplexTensor):
        if not isinstance(input_tensor, ComplexTensor):
            refuse("the operand is no complex tensor", "ttnn.complex_tensor(real, imag)", TypeError)
        on = Operands(*input_tensor)
        x, y = spread(on.arrays, on.lead)
        z = x.astype(complex)
        z.imag = y
        made = FUNCTIONS[name](z)
        real = on.result(made.real.astype(float))
        return ComplexTensor(real, on.result(made.imag)) if np.iscomplexobj(made) else real

    call.__doc__ = f"Return `{name}` of each complex number."
    operation(name)(call)


for _name in FUNCTIONS:
    _enter(_name)
