"""Which mesh axis each parallel strategy takes, by ttml's newest rule: on a line of chips, the one
strategy that is on has the axis that is longer than 1, as the training guide promises for [1, 32].
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from ttkit.errors import fail

STRATEGIES = ("ddp", "cp", "tp")  # They take axes in this order; the names are ttml's.
# The training guide quotes this sentence, so that users search for it.
GUIDES_RULE = (
    "The number of parallelization axes must be equal to the number of mesh shape dimensions"
)
GUIDES_CURE = (
    "a line [1, N] or [N, 1]: only one of enable_ddp and enable_tp; a 2D mesh [M, N]: both; "
    "enable_cp can take the place of either"
)
# Each pair is a strategy ("dp", "cp" or "tp") and its mesh axis.
Axes = tuple[tuple[str, int], ...]


def parallel_axes(shape: Sequence[int], enabled: Collection[str]) -> dict[str, int]:
    """Return the mesh axis of each strategy that is on: {"ddp": 0, "tp": 1}.

    Args:
        shape: rows and columns of the mesh.
        enabled: those of "ddp", "tp" and "cp" that are on.

    Raises:
        TTKitError: the wrong number of strategies for the shape, in ttml's words.

    Example:
        >>> parallel_axes((4, 8), ("ddp", "tp")), parallel_axes((1, 32), ("tp",))
        ({'ddp': 0, 'tp': 1}, {'tp': 1})
    """
    on = [name for name in STRATEGIES if name in enabled]
    mesh = f"MeshShape({list(shape)})"
    asked = f"{' and '.join(f'enable_{name}' for name in on) or 'no parallelism'} on {mesh}"
    wide = [axis for axis, size in enumerate(shape) if size > 1]
    if not wide and not on:  # Programs for ttml make no parallelism context for one chip.
        return {}
    if len(wide) < 2 and len(on) != 1:
        got = ", ".join(f"{name}={str(name in on).lower()}" for name in ("ddp", "tp", "cp"))
        rule = (
            f"For line mesh topology (shape {mesh}), exactly one parallelism type must be enabled."
        )
        fail(asked, f"{rule} Got: {got} ({GUIDES_RULE})", GUIDES_CURE)
    if len(wide) == 2 and len(on) != 2:
        rule = f"For 2D mesh (shape {mesh}), number of enabled parallelization axes ({len(on)})"
        fail(asked, f"{rule} must equal mesh dimensions (2). ({GUIDES_RULE})", GUIDES_CURE)
    return dict(zip(on, wide or [0]))


def enabled_axes(shape: Sequence[int], config: Any) -> Axes:
    """Return the axes of the strategies that a `DeviceConfig` or a `DistributedConfig` enables."""
    on = [name for name in STRATEGIES if getattr(config, f"enable_{name}")]
    return tuple((name.replace("ddp", "dp"), at) for name, at in parallel_axes(shape, on).items())
