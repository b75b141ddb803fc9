"""Which mesh axis each parallel strategy takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ttkit.errors import fail

# The strategies that take an axis of the mesh, in this order, with ttml's names.
STRATEGIES = {"dp": "ddp", "cp": "cp", "tp": "tp"}
# Each pair is a strategy and its mesh axis.
Axes = tuple[tuple[str, int], ...]
# The training guide quotes this sentence, so that users search for it.
GUIDES_RULE = (
    "The number of parallelization axes must be equal to the number of mesh shape dimensions"
)
GUIDES_CURE = (
    "a line [1, N] or [N, 1]: only one of enable_ddp and enable_tp; a 2D mesh [M, N]: both; "
    "enable_cp can take the place of either"
)


def enabled(config: Any) -> list[str]:
    """Return the strategies that a `DeviceConfig` or a `DistributedConfig` enables."""
    return [name for name, key in STRATEGIES.items() if getattr(config, f"enable_{key}")]


def parallel_axes(shape: Sequence[int], on: Sequence[str]) -> Axes:
    """Return the mesh axis of each strategy that is on, by ttml's newest rule: on a line of chips,
    the one strategy has the axis that is longer than 1, as the training guide promises for [1, 32].

    Args:
        shape: rows and columns of the mesh.
        on: those of "dp", "cp" and "tp" that are on, in this order.

    Raises:
        TTKitError: the wrong number of strategies for the shape, in ttml's words.

    Example:
        >>> parallel_axes((4, 8), ["dp", "tp"]), parallel_axes((1, 32), ["tp"])
        ((('dp', 0), ('tp', 1)), (('tp', 1),))
    """
    mesh = f"MeshShape({list(shape)})"
    asked = " and ".join(f"enable_{STRATEGIES[name]}" for name in on) or "no parallelism"
    wide = [axis for axis, size in enumerate(shape) if size > 1]
    if not wide and not on:  # Programs for ttml make no parallelism context for one chip.
        return ()
    if len(wide) < 2 and len(on) != 1:
        got = ", ".join(f"{STRATEGIES[s]}={str(s in on).lower()}" for s in ("dp", "tp", "cp"))
        rule = (
            f"For line mesh topology (shape {mesh}), exactly one parallelism type must be enabled."
        )
        fail(f"{asked} on {mesh}", f"{rule} Got: {got} ({GUIDES_RULE})", GUIDES_CURE)
    if len(wide) == 2 and len(on) != 2:
        rule = (
            f"For 2D mesh (shape {mesh}), number of enabled parallelization axes ({len(on)}) must "
            f"equal mesh dimensions (2). ({GUIDES_RULE})"
        )
        fail(f"{asked} on {mesh}", rule, GUIDES_CURE)
    return tuple(zip(on, wide or [0]))
