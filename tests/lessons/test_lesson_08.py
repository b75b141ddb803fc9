"""Lesson 08: its exercises with right and with wrong answers, and its picture of a layout."""

from dataclasses import replace

import numpy as np
import pytest
from answers import R, S, both, by_axes
from machine import strict_with_fabric

import ttkit
from course.lesson_08 import falcon_backward, layout_pictures, on_links
from ttkit import TTKitError, lessons, ttnn
from ttkit.train import AutoContext, DistributedConfig, synchronize_gradients, training_plan
from ttkit.train.config.settings import DeviceConfig, Settings, TrainingConfig, TransformerConfig


@pytest.fixture(autouse=True)
def as_in_a_lesson():
    with strict_with_fabric():
        yield


def placed(mesh, x, w, y):
    return by_axes(mesh, x, S(0), R), by_axes(mesh, w, R, S(1)), by_axes(mesh, y, S(0), S(1))


def own(mesh, *given):
    """xᵀ(xw - y) of a device's samples and columns."""
    x, w, y = placed(mesh, *given)
    return ttnn.matmul(x, x @ w - y, transpose_a=True)


def summed(*axes, scale=lambda mesh, y: 2 / y.size):
    def hybrid_gradient(mesh, x, w, y):
        found = own(mesh, x, w, y)
        for axis in axes:
            found = ttnn.all_reduce(found, cluster_axis=axis)
        return ttnn.multiply(found, scale(mesh, y))

    return hybrid_gradient


def in_two_halves(mesh, x, w, y):
    part = ttnn.reduce_scatter(own(mesh, x, w, y), dim=0, cluster_axis=0)
    return ttnn.all_gather(part, dim=0, cluster_axis=0) * (2 / y.size)


def in_two_products(mesh, *given):
    """The product with the error in two: xᵀ(xw) - xᵀy."""
    x, w, y = placed(mesh, *given)
    one, other = (ttnn.matmul(x, each, transpose_a=True) for each in (x @ w, y))
    return ttnn.all_reduce(one - other, cluster_axis=0) * (2 / given[2].size)


def everything_everywhere(mesh, *given):
    x, w, y = (by_axes(mesh, array, R, R) for array in given)
    return ttnn.matmul(x, x @ w - y, transpose_a=True) * (2 / given[2].size)


def plans(settings, shapes, system):
    for shape in shapes:
        device = DeviceConfig(shape, enable_ddp=shape[0] > 1, enable_tp=shape[1] > 1)
        try:
            yield shape, training_plan(replace(settings, device_config=device), system)
        except TTKitError:
            pass


def with_headroom(part, at_least=0.0):
    """The fastest shape that leaves this part free, or the slowest that is nearly as fast."""

    def choose(*given):
        speeds = {
            shape: plan.tokens_per_s
            for shape, plan in plans(*given)
            if sum(plan.memory.values()) <= (1 - part) * plan.system.chip.dram_bytes
        }
        best = max(speeds.values(), default=0)
        near = [shape for shape in speeds if speeds[shape] >= (1 - at_least) * best]
        return min(near, key=speeds.get, default=None)

    return choose


choose = with_headroom(0.1)


def smallest(*given):
    return min(plans(*given), key=lambda item: sum(item[1].memory.values()))[0]


test_a_right_answer_passes, test_a_wrong_answer_is_told_where = both(
    {
        "08.gradient": (
            [summed(0), in_two_halves, in_two_products],
            {
                "the sum over groups is missing": summed(),
                "went along axis 1, over devices with different columns": summed(1),
                "went along both axes": summed(0, 1),
                "it is 8 times too large: the loss is a mean over all elements": summed(
                    0, scale=lambda mesh, y: 2 / y.size * mesh.get_num_devices()
                ),
                "it is 2 times too large: the loss is a mean over all groups": summed(
                    0, scale=lambda mesh, y: 2 / y.size * mesh.shape[0]
                ),
                "on MeshDevice(4x2": summed(0, scale=lambda mesh, y: 8 / y.size / mesh.shape[1]),
                "y is missing": lambda mesh, x, w, y: summed(0)(mesh, x, w, 0 * y),
                "wrong sign": summed(0, scale=lambda mesh, y: -2 / y.size),
                "1 collective would do": summed(
                    0, 0, scale=lambda mesh, y: 2 / y.size / mesh.shape[0]
                ),
                "NumPy did it on the host": lambda mesh, x, w, y: by_axes(
                    mesh, 2 / y.size * x.T @ (x @ w - y), R, S(1)
                ),
                "yours got [128, 160] and": everything_everywhere,
            },
        ),
        "08.choose": (
            [choose, with_headroom(0.1, at_least=0.09)],
            {
                "2048 wide on t3000: (4, 2) does not fit in 90%": with_headroom(0),
                "1280 wide on t3000: (4, 2) does not fit in 90%": with_headroom(0.05),
                "768 wide on t3000: you found no shape, but (4, 2) fits": with_headroom(0.3),
                "on quietbox_bh: you found no shape, but (2, 2) fits": lambda a, b, c: choose(
                    a, b, "t3000"
                ),
                "(8, 1) does not fit in 90%": lambda *given: (8, 1),
                "but another shape that fits is": smallest,
                "(2, 2) is not among the shapes": lambda *given: (2, 2),
            },
        ),
    }
)


LARGE = TransformerConfig(
    num_heads=16,
    embedding_dim=1024,
    num_blocks=24,
    vocab_size=50257,
    max_sequence_length=1024,
    dropout_prob=0,
)


@pytest.mark.parametrize("mesh", [(8, 1), (4, 2), (2, 4), (1, 8)])
def test_the_picture_of_a_layout_has_the_plans_numbers(mesh):
    plan = training_plan(
        Settings(
            DeviceConfig(mesh, enable_ddp=mesh[0] > 1, enable_tp=mesh[1] > 1),
            TrainingConfig(batch_size=8),
            transformer_config=LARGE,
        ),
        "t3000",
    )
    memory, step = layout_pictures(LARGE, mesh, 8)
    assert {kind: row[0] for kind, row in memory.rows.items() if kind in plan.memory} == {
        kind: pytest.approx(size / 1e9) for kind, size in plan.memory.items()
    }
    assert memory.rows["all"][0] == pytest.approx(sum(plan.memory.values()) / 1e9)
    assert memory.rows["a chip has"] == pytest.approx((0, 10.8, 1.2))
    assert sum(step.rows["sending after it"]) == pytest.approx(1e3 * plan.step_time_s)
    assert sum(step.rows["sending beside it"]) <= sum(step.rows["sending after it"])
    assert f"{plan.tokens_per_s:,.0f} tokens/s" in step.title
    peak = plan.system.chip.peak_flops("HiFi3")  # products of float32 on Wormhole
    hidden_s = sum(step.rows["sending beside it"]) / 1e3
    used = float(step.title.rpartition("MFU ")[2].rstrip("%")) / 100
    assert used == pytest.approx(plan.flops / hidden_s / peak, rel=0.1)


def test_the_picture_says_what_fits_and_what_cannot_be():
    def title(*how, **more):
        return layout_pictures(LARGE, *how, **more)[0].title

    assert title((2, 4), 16).endswith("does not fit") and title((8, 1), 8).endswith("too tight")
    assert title((2, 4), 16, recompute=True).endswith("fits")
    with pytest.raises(TTKitError, match="zero 1 needs dp above 1"):
        title((1, 8), 8, zero=1)


def test_the_mlp_is_the_same_on_every_mesh_and_its_bytes_are_counted():
    x = np.random.default_rng(0).standard_normal((4, 1, 32, 128), dtype=np.float32)
    context, gradients = AutoContext.get_instance(), []
    for shape in ([1, 1], [2, 4]):
        lessons.tidy()
        context.open_device(shape)
        if shape == [2, 4]:
            context.initialize_parallelism_context(DistributedConfig(True, True))
        with ttkit.profile() as seen:
            found = falcon_backward(x)
        if shape == [2, 4]:
            synchronize_gradients(found)
        gradients.append([one.gather_grad() for one in found.values()])
    for one, shared in zip(*gradients, strict=True):
        np.testing.assert_allclose(one, shared, rtol=1e-3, atol=1e-7)
    ids = context.get_device().get_device_ids()
    assert on_links(seen) == on_links(seen, ids) == 12 * x.nbytes
    assert on_links(seen, ids[:4]) == 0  # a call is of both groups
    lessons.tidy()
