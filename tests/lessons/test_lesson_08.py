"""The exercises of lesson 08: right answers, and wrong ones that are told what is wrong."""

from dataclasses import replace

import pytest
from answers import right, wrong
from machine import strict_with_fabric

import ttkit
from ttkit import TTKitError, ttnn
from ttkit.train import training_plan
from ttkit.train.config import DeviceConfig


@pytest.fixture(autouse=True)
def as_in_a_lesson():
    with strict_with_fabric():
        yield


def put(mesh, array, rows=None, columns=None):
    placements = [
        ttnn.PlacementReplicate() if dim is None else ttnn.PlacementShard(dim)
        for dim in (rows, columns)
    ]
    mapper = ttnn.create_mesh_mapper(mesh, ttnn.MeshMapperConfig(placements))
    return ttkit.from_numpy(array, device=mesh, layout=ttnn.TILE_LAYOUT, mesh_mapper=mapper)


def own(mesh, x, w, y):
    x, w, y = put(mesh, x, rows=0), put(mesh, w, columns=1), put(mesh, y, 0, 1)
    return ttnn.matmul(
        x, ttnn.subtract(ttnn.matmul(x, w), y), transpose_a=True
    ), 2 / y.logical_volume()


def averaged(*axes, scale=lambda mesh: 1 / mesh.get_num_devices()):
    def hybrid_gradient(mesh, x, w, y):
        found, factor = own(mesh, x, w, y)
        for axis in axes:
            found = ttnn.all_reduce(found, cluster_axis=axis)
        return ttnn.multiply(found, factor * scale(mesh))

    return hybrid_gradient


def on_the_host(mesh, x, w, y):
    return put(mesh, 2 / y.size * x.T @ (x @ w - y), columns=1)


def everything_everywhere(mesh, x, w, y):
    given = [put(mesh, a) for a in (x, w, y)]
    return ttnn.multiply(
        ttnn.matmul(
            given[0], ttnn.subtract(ttnn.matmul(given[0], given[1]), given[2]), transpose_a=True
        ),
        2 / y.size,
    )


def plans(settings, shapes, system):
    for shape in shapes:
        device = DeviceConfig(shape, enable_ddp=shape[0] > 1, enable_tp=shape[1] > 1)
        try:
            yield shape, training_plan(replace(settings, device_config=device), system)
        except TTKitError:
            pass


def with_headroom(part):
    def choose(*given):
        fitting = {
            shape: plan.tokens_per_s
            for shape, plan in plans(*given)
            if sum(plan.memory.values()) <= (1 - part) * plan.system.chip.dram_bytes
        }
        return max(fitting, key=fitting.get, default=None)

    return choose


choose = with_headroom(0.1)


def fastest(*given):
    return max(plans(*given), key=lambda item: item[1].tokens_per_s)[0]


def smallest(*given):
    return min(plans(*given), key=lambda item: sum(item[1].memory.values()))[0]


def first_that_fits(*given):
    dram = 0.9 * ttkit.hardware.systems.system_named(given[2]).chip.dram_bytes
    found = (shape for shape, plan in plans(*given) if sum(plan.memory.values()) <= dram)
    return next(found, None)


def without_except(settings, shapes, system):
    return max(
        shapes,
        key=lambda s: (
            training_plan(
                replace(settings, device_config=DeviceConfig(s, s[0] > 1 or None, s[1] > 1)), system
            ).tokens_per_s
        ),
    )


RIGHT = [
    ("08.gradient", averaged(0)),
    ("08.choose", choose),
    ("08.choose", lambda *given: list(choose(*given) or []) or None),
]
WRONG = [
    ("08.gradient", averaged(), "the sum over groups is missing"),
    ("08.gradient", averaged(1), "went along axis 1, over devices with different columns"),
    ("08.gradient", averaged(0, 1), "went along both axes"),
    (
        "08.gradient",
        averaged(0, scale=lambda mesh: 1),
        "[86] times too large: the loss is a mean over all",
    ),
    (
        "08.gradient",
        averaged(0, scale=lambda mesh: 1 / mesh.shape[0]),
        "[43] times too large: the loss is a mean over all",
    ),
    ("08.gradient", on_the_host, "made on the mesh|NumPy did it on the host|not made"),
    ("08.gradient", everything_everywhere, "x is .* you cut nothing"),
    (
        "08.choose",
        fastest,
        r"2048 wide.* \(4, 2\) has no headroom, .* GB of .* less than 10% stays",
    ),
    ("08.choose", with_headroom(0), r"2048 wide.* \(4, 2\) has no headroom"),
    ("08.choose", with_headroom(0.05), r"1280 wide.* \(4, 2\) has no headroom, .* is None"),
    ("08.choose", with_headroom(0.3), r"1280 wide.* you found no shape, but \(4, 2\) fits"),
    ("08.choose", smallest, "fits, .* but another shape that fits is"),
    ("08.choose", first_that_fits, "another shape that fits is"),
    ("08.choose", lambda *given: (4, 2), r"\(4, 2\) has no headroom"),
    ("08.choose", lambda *given: (8, 1), r"\(8, 1\) does not fit, .* GB of"),
    ("08.choose", lambda *given: None, r"you found no shape, but \(4, 2\) fits"),
    ("08.choose", lambda *given: (2, 2), "is not among the shapes"),
    ("08.choose", lambda *given: "4x2", "should give a shape such as"),
    ("08.choose", without_except, "your choose stopped with"),
]


test_a_right_answer_passes = right(RIGHT)
test_a_wrong_answer_is_told_why = wrong(WRONG)
