"""Lesson 08, hybrid parallel."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ttkit import backend
from ttkit.convert import to_numpy
from ttkit.errors import TTKitError
from ttkit.lessons import CheckFailed, device_difference, exercise, require, values_mean_something
from ttkit.lessons.answers import Answer, asks, numbers


def _factor(values: list[np.ndarray], tensor: Any) -> float | None:
    """By what each device's array must be multiplied to give what the tensor holds there;

    None where no one number does.
    """
    have = [to_numpy(shard) for shard in backend.load().get_device_tensors(tensor)]
    if any(mine.shape != value.shape for mine, value in zip(have, values, strict=True)):
        return None
    factor = float(np.vdot(have, values) / np.vdot(values, values))
    scaled = [factor * value for value in values]
    return (
        None
        if device_difference(scaled, tensor, 1e-4, 1e-4 * float(np.abs(scaled).max()))
        or factor <= 0
        else factor
    )


@exercise("08.gradient")
@asks("hybrid_gradient(mesh, x, w, y)", (2, 4), (2, 3), fabric=True)
def _gradient(hybrid_gradient: Answer, mesh: Any) -> str:
    groups, parts = mesh.shape
    x, w, y = numbers(32 * groups, 160), numbers(160, 32 * parts), numbers(32 * groups, 32 * parts)
    run = hybrid_gradient.on(mesh, x, w, y)
    run.cut("x", x.shape, (32, 160))
    run.cut("w", w.shape, (160, 32))
    run.cut("y", y.shape, (32, 32))
    columns = np.split(2 / y.size * x.T @ (x @ w - y), parts, axis=1)
    if values_mean_something():
        of_group = [
            a.T @ (a @ w - b) for a, b in zip(np.split(x, groups), np.split(y, groups), strict=True)
        ]
        wrong = [
            (
                [part for own in of_group for part in np.split(own, parts, axis=1)],
                "each device has the gradient of its own group: the sum over groups is missing",
            ),
            (
                [sum(np.split(own, parts, axis=1)) for own in of_group for _ in range(parts)],
                "the sum went along axis 1, over devices with different columns of w; "
                "groups with different samples lie along axis 0",
            ),
            (
                [sum(columns)] * groups * parts,
                "the sum went along both axes: along axis 1 devices have different columns, "
                "which do not belong in one sum",
            ),
        ]
        for values, message in wrong:
            if _factor(values, run.tensor()) is not None:
                raise CheckFailed(f"on {mesh!r} {message}")
        factor = _factor(columns * groups, run.tensor())
        if factor is not None and abs(factor - 1) > 1e-3:
            much = (
                f"{factor:.3g} times too large"
                if factor > 1
                else f"{1 / factor:.3g} times too small"
            )
            raise CheckFailed(
                f"on {mesh!r} it is {much}: the loss is a mean over all {y.size} elements of y; "
                f"a device has {y.size // groups // parts} of them"
            )
    run.equals(columns * groups, 1e-4)
    run.summed()
    run.multiplied(((32, 160), (160, 32)), ((32, 160), (32, 32)))
    return (
        f"{parts} parts of one gradient, each on {groups} devices; "
        f"{run.given((32, 160), (160, 32), (32, 32))}"
    )


def _runs() -> list[tuple[str, Any, str, list[tuple[int, int]]]]:
    """Training runs of several sizes: what to call each, its settings, the machine, and the
    shapes that the machine could be opened in.
    """
    from ttkit.train.config import Settings, TrainingConfig, TransformerConfig

    def run(
        width: int, blocks: int, heads: int, precision: Any, system: str = "t3000", **more: Any
    ) -> tuple[str, Any, str, list[tuple[int, int]]]:
        model = TransformerConfig(
            num_heads=heads,
            embedding_dim=width,
            num_blocks=blocks,
            vocab_size=50257,
            max_sequence_length=1024,
            dropout_prob=0,
            **more,
        )
        shapes = {
            "t3000": [(8, 1), (4, 2), (2, 4), (1, 8)],
            "quietbox_bh": [(4, 1), (2, 2), (1, 4)],
        }[system]
        name = f"a GPT {width} wide, {blocks} blocks, {heads} heads, {precision} on {system}"
        return (
            name,
            Settings(
                training_config=TrainingConfig(batch_size=8, precision=precision),
                transformer_config=model,
            ),
            system,
            shapes,
        )

    return [
        run(1536, 24, 16, "float32"),
        run(2048, 24, 16, "bfloat16"),
        run(768, 12, 12, "float32"),  # eight chips cannot share twelve heads
        run(1024, 24, 16, "float32", runner_type="memory_efficient"),
        run(4096, 32, 32, "float32"),  # too large for this machine
        run(1536, 24, 16, "bfloat16", system="quietbox_bh"),
    ]


@exercise("08.choose")
@asks("choose(settings, shapes, system)")
def _choose(choose: Answer) -> str:
    from ttkit.train import training_plan
    from ttkit.train.config import DeviceConfig

    found = []
    for name, settings, system, shapes in _runs():
        plans = {}
        for shape in shapes:
            device = DeviceConfig(shape, enable_ddp=shape[0] > 1, enable_tp=shape[1] > 1)
            try:
                plans[shape] = training_plan(replace(settings, device_config=device), system)
            except TTKitError:
                continue  # heads that do not divide
        fitting = {shape: plan.tokens_per_s for shape, plan in plans.items() if plan.fits}
        best = max(fitting, key=lambda shape: fitting[shape], default=None)
        answer = choose(settings, list(shapes), system)
        if answer is None:
            require(best is None, f"{name}: you found no shape, but {best} fits")
            found.append("none")
            continue
        try:
            mine = tuple(int(n) for n in answer)
        except (TypeError, ValueError):
            raise CheckFailed(
                f"choose should give a shape such as {shapes[0]}, or None; it gave {answer!r}"
            ) from None
        require(mine in shapes, f"{name}: {mine} is not among the shapes {shapes}")
        require(
            mine in plans,
            f"{name}: {mine} is refused: {settings.transformer_config.num_heads} heads do not "
            f"divide among {mine[1]} chips",
        )
        plan = plans[mine]  # type: ignore[index]
        takes = (
            f"{sum(plan.memory.values()) / 1e9:.2f} GB of "
            f"{plan.system.chip.dram_bytes / 1e9:.2f} GB on each chip"
        )
        require(
            plan.fits,
            f"{name}: {mine} does not fit, {takes}"
            + ("" if best else "; no shape does, so the answer is None"),
        )
        faster = fitting[best] / fitting[mine]  # type: ignore[index]
        require(
            faster <= 1 + 1e-9,
            f"{name}: {mine} fits, {takes}, but another shape that fits is {faster:.2f} times as "
            "fast",
        )
        found.append("x".join(map(str, mine)))
    return f"{', '.join(found)}: each fits, and none that fits is faster"
