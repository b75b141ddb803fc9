"""Which mesh axis data and tensor parallelism take, and what their sizes must divide.

The rule is ttml's newest: the one strategy of a line has the axis that is longer than 1, as the
training guide promises for [1, 32]."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ttkit.errors import fail

STRATEGIES = ("ddp", "cp", "tp")  # in the order in which they take axes
# what the guide has people search for
GUIDES_RULE = (
    "The number of parallelization axes must be equal to the number of mesh shape dimensions"
)
GUIDES_CURE = (
    "a line [1, N] or [N, 1]: only one of enable_ddp and enable_tp; a 2D mesh [M, N]: both"
)


def parallel_axes(shape: Sequence[int], enabled: Collection[str]) -> dict[str, int]:
    """The mesh axis of each strategy that is on: {"ddp": 0, "tp": 1}.

    Args:
        shape: rows and columns of the mesh.
        enabled: of "ddp", "tp" and "cp", those that are on.

    Raises:
        TTKitError: the wrong number of strategies for the shape, in ttml's words; context
        parallelism.

    Example:
        >>> parallel_axes((4, 8), ("ddp", "tp")), parallel_axes((1, 32), ("tp",))
        ({'ddp': 0, 'tp': 1}, {'tp': 1})
    """
    on = [name for name in STRATEGIES if name in enabled]
    printed = f"MeshShape({list(shape)})"
    asked = f"{' and '.join(f'enable_{name}' for name in on) or 'no parallelism'} on {printed}"
    if "cp" in on:
        fail(
            asked,
            "enable_cp: context parallelism is not built here: ttml has the name, "
            "and so has this kit",
            "enable_ddp and enable_tp",
        )
    wide = [axis for axis, size in enumerate(shape) if size > 1]
    if len(wide) < 2:
        # one chip alone: ttml's programs then make no context, and need not differ here
        if not wide and not on:
            return {}
        if len(on) != 1:
            got = ", ".join(f"{name}={str(name in on).lower()}" for name in ("ddp", "tp", "cp"))
            rule = (
                f"For line mesh topology (shape {printed}), exactly one parallelism type must "
                f"be enabled. Got: {got}"
            )
            fail(asked, f"{rule} ({GUIDES_RULE})", GUIDES_CURE)
        return {on[0]: wide[0] if wide else 0}
    elif len(on) != len(shape):
        rule = (
            f"For 2D mesh (shape {printed}), number of enabled parallelization axes "
            f"({len(on)}) must equal mesh dimensions ({len(shape)})."
        )
        fail(asked, f"{rule} ({GUIDES_RULE})", GUIDES_CURE)
    return {name: axis for axis, name in enumerate(on)}


def check_divisible(what: str, size: int, by: str, parts: int, of: str = "") -> None:
    """Nothing, where `parts` divides `size`.

    Args:
        what, by, of: their names, for the message.

    Raises:
        TTKitError: with the equation and the nearest sizes that would do.

    Example:
        >>> check_divisible("batch_size", 8, "the DDP size", 4)
        >>> check_divisible("batch_size", 6, "the DDP size", 4)
        Traceback (most recent call last):
        ttkit.errors.TTKitError: cut batch_size into 4: batch_size 6 is not divisible by the DDP size 4: 6 % 4 = 2
          try: batch_size 4 or 8
    """
    if size % parts:
        near = [n for n in (size // parts * parts, (size // parts + 1) * parts) if n]
        rule = (
            f"{what} {size} is not divisible by {by} {parts}{of}: {size} % {parts} = {size % parts}"
        )
        fail(f"cut {what} into {parts}", rule, f"{what} {' or '.join(map(str, near))}")
