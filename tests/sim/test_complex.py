"""Operations on complex numbers, pairs of tensors, against NumPy's on each chip."""

import numpy as np
import pytest

from ttkit import ttnn

FUNCTIONS = {
    "real": np.real, "imag": np.imag, "angle": np.angle, "conj": np.conj, "is_real": np.isreal,
    "is_imag": lambda z: z.real == 0, "polar": lambda z: z.real * np.exp(1j * z.imag),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_chip_has_numpys_values(mesh, put, check, name):
    x, y = put(mesh, (2, 33, 20), "S0R"), put(mesh, (2, 33, 20), "RS0")
    x, y = (ttnn.where(ttnn.gtz(t), t, 0.0) for t in (x, y))  # Half of the parts are 0.

    def reference(x, y):
        z = FUNCTIONS[name](x + 1j * y)
        return [z.real, z.imag] if np.iscomplexobj(z) else z.astype(float)

    made = getattr(ttnn, name)(ttnn.complex_tensor(x, y))
    check([made.real, made.imag] if isinstance(made, tuple) else made, reference, x, y)
