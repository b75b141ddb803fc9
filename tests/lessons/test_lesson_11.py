"""Lesson 11: its exercises with right and with wrong answers."""

from dataclasses import replace

from answers import R, S, both, by_axes

from ttkit import TTKitError, ttnn
from ttkit.train import training_plan
from ttkit.train.config.settings import DeviceConfig


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
        "11.gradient": (
            [summed(0), in_two_halves, in_two_products],
            {
                "the sum over replicas is missing": summed(),
                "went along axis 1, over devices with different columns": summed(1),
                "on MeshDevice(4x2": summed(0, scale=lambda mesh, y: 8 / y.size / mesh.shape[1]),
                "1 collective would do": summed(
                    0, 0, scale=lambda mesh, y: 2 / y.size / mesh.shape[0]
                ),
                "NumPy did it on the host": lambda mesh, x, w, y: by_axes(
                    mesh, 2 / y.size * x.T @ (x @ w - y), R, S(1)
                ),
                "yours got [128, 160] and": everything_everywhere,
            },
        ),
        "11.choose": (
            [choose, with_headroom(0.1, at_least=0.09)],
            {
                "2048 wide on t3000: (4, 2) takes": with_headroom(0),
                "2560 wide on t3000: None, but (1, 8) fits": with_headroom(0.3),
                "on quietbox_bh: None, but (4, 1) fits": lambda a, b, c: choose(a, b, "t3000"),
                "(8, 1) takes": lambda *given: (8, 1),
                "but another shape that fits is": smallest,
            },
        ),
    }
)
