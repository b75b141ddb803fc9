"""How a tensor prints: the two first and two last of each dimension, as ttnn shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ttkit.errors import fail

if TYPE_CHECKING:
    from ttkit.sim.tensor import Tensor

_options: dict[str, object] = {"profile": "short", "sci_mode": "default", "precision": 4}
EDGE = 2  # elements shown at each end of a dimension that is longer than twice this


def set_printoptions(
    *, profile: str = "short", sci_mode: bool | str = "default", precision: int = 4
) -> None:
    """Choose how tensors print.

    Args:
        profile: "short", "full" or "empty".
        sci_mode: True, False, or "default" to let the values decide.
        precision: digits after the point.

    Raises:
        TTKitError: no such profile.
        TypeError: a value of another kind.
    """
    asked = f"set_printoptions(profile={profile!r}, sci_mode={sci_mode!r}, precision={precision!r})"
    if profile not in ("short", "full", "empty"):
        fail(asked, "bad optional access: there is no such profile", "short, full or empty")
    if (
        not (isinstance(sci_mode, bool) or sci_mode == "default")
        or not isinstance(precision, int)
        or precision < 0
    ):
        rule = "incompatible function arguments"
        fail(asked, rule, "sci_mode True, False or 'default'; precision a whole number", TypeError)
    _options.update(profile=profile, sci_mode=sci_mode, precision=precision)


def text_of(tensor: Tensor) -> str:
    """The whole tensor, shard by shard.

    On a device each shard is headed by its device id and coordinate.
    """
    tail = (
        f", shape={tensor.shape!r}, dtype=DataType::{tensor.dtype.name}, "
        f"layout=Layout::{tensor.layout.name})"
    )
    if not tensor.is_allocated():
        return f"ttnn.Tensor(<buffer is not allocated>{tail}"
    texts = []
    for coordinate, shard in zip(tensor.grid.coords, tensor.shards(), strict=True):
        text = "ttnn.Tensor(" + _values(shard) + tail
        if tensor.mesh is not None:
            text = (
                f"device_id: {tensor.mesh.id_at(coordinate, tensor.grid.mesh_shape)}, "
                f"MeshCoordinate({list(coordinate)})\n{text}"
            )
        texts.append(text)
    return "\n".join(texts)


def _values(shard: np.ndarray) -> str:
    if _options["profile"] == "empty":
        return "..."
    if shard.size == 0:
        return "[]"
    form = _form(shard)
    return form(shard[()]) if shard.ndim == 0 else _nested(shard, form, len("ttnn.Tensor("))


def _form(shard: np.ndarray):  # type: ignore[no-untyped-def]
    if shard.dtype.kind != "f":
        return lambda value: f"{int(value):>5}"
    precision, scientific = int(_options["precision"]), _options["sci_mode"]  # type: ignore[call-overload]
    if scientific == "default":
        finite = np.abs(shard[np.isfinite(shard) & (shard != 0)])
        # torch's rule for when fixed-point numbers stop being readable
        scientific = finite.size > 0 and (
            finite.max() > 1e8 or finite.min() < 1e-4 or finite.max() / finite.min() > 1000
        )
    return lambda value: (
        f"{value:>{precision + 7}.{precision}e}"
        if scientific
        else f"{value:>{precision + 3}.{precision}f}"
    )


def _nested(array: np.ndarray, form, indent: int) -> str:  # type: ignore[no-untyped-def]
    n = len(array)
    whole = n <= 2 * EDGE or _options["profile"] == "full"
    chosen = list(range(n)) if whole else [*range(EDGE), None, *range(n - EDGE, n)]
    if array.ndim == 1:
        return "[" + ", ".join(" ..." if i is None else form(array[i]) for i in chosen) + "]"
    gap = "," + "\n" * (array.ndim - 1) + " " * (indent + 1)
    return (
        "["
        + gap.join("..." if i is None else _nested(array[i], form, indent + 1) for i in chosen)
        + "]"
    )
