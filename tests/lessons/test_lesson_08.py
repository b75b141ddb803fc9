"""The exercises of lesson 08: right answers, and wrong ones that are told what is wrong."""

import time
from dataclasses import replace

import numpy as np
import pytest
from answers import right, wrong
from machine import strict_with_fabric

import ttkit
from ttkit import TTKitError, lessons, ttnn
from ttkit.lessons import lesson_08
from ttkit.lessons.lesson_08 import ERROR, falcon_backward, layout_pictures, on_links
from ttkit.train import (
    AutoContext,
    DistributedConfig,
    synchronize_gradients,
    training_plan,
)
from ttkit.train.config import DeviceConfig, Settings, TrainingConfig, TransformerConfig


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


def twice(mesh, x, w, y):
    """The sum of the sums of both groups is groups times too large, which a factor hides."""
    return averaged(0, 0, scale=lambda m: 1 / m.get_num_devices() / m.shape[0])(mesh, x, w, y)


def for_two_groups(mesh, x, w, y):
    """N of shards of [32, 32] in two groups, as on one mesh."""
    found, _ = own(mesh, x, w, y)
    return ttnn.multiply(ttnn.all_reduce(found, cluster_axis=0), 2 / (2 * 32 * y.shape[1]))


of_the_first_mesh = averaged(0, scale=lambda mesh: 1 / 8)


def in_two_halves(mesh, x, w, y):
    found, factor = own(mesh, x, w, y)
    found = ttnn.reduce_scatter(found, dim=0, cluster_axis=0)
    found = ttnn.all_gather(found, dim=0, cluster_axis=0)
    return ttnn.multiply(found, factor / mesh.get_num_devices())


def in_two_products(mesh, x, w, y):
    """The product with the error in two: xᵀ(xw) - xᵀy."""
    x, w, part = put(mesh, x, rows=0), put(mesh, w, columns=1), put(mesh, y, 0, 1)
    both = [ttnn.matmul(x, each, transpose_a=True) for each in (ttnn.matmul(x, w), part)]
    found = ttnn.all_reduce(ttnn.subtract(*both), cluster_axis=0)
    return ttnn.multiply(found, 2 / y.size)


def from_the_square_of_x(mesh, x, w, y):
    """The same as (xᵀx)w - xᵀy."""
    x, w, part = put(mesh, x, rows=0), put(mesh, w, columns=1), put(mesh, y, 0, 1)
    square = ttnn.matmul(ttnn.matmul(x, x, transpose_a=True), w)
    found = ttnn.subtract(square, ttnn.matmul(x, part, transpose_a=True))
    return ttnn.multiply(ttnn.all_reduce(found, cluster_axis=0), 2 / y.size)


def of_so_many(features, columns):
    """Sizes of the first call, hard-coded."""

    def answer(*given):
        found = averaged(0)(*given)
        rows, own = found.shape
        return ttnn.slice(found, [0, 0], [min(features, rows), min(columns, own)])

    return answer


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
    def speed(shape):
        device = DeviceConfig(shape, enable_ddp=shape[0] > 1, enable_tp=shape[1] > 1)
        return training_plan(replace(settings, device_config=device), system).tokens_per_s

    return max(shapes, key=speed)


def on_a_t3000(settings, shapes, system):
    return choose(settings, shapes, "t3000")


def in_float32(settings, shapes, system):
    training = replace(settings.training_config, precision="float32")
    return choose(replace(settings, training_config=training), shapes, system)


def with_12_gb(*given):
    fitting = {
        shape: plan.tokens_per_s
        for shape, plan in plans(*given)
        if sum(plan.memory.values()) <= 0.9 * 12e9
    }
    return max(fitting, key=fitting.get, default=None)


RIGHT = [
    ("08.gradient", averaged(0)),
    ("08.gradient", in_two_halves),
    ("08.gradient", in_two_products),
    ("08.gradient", from_the_square_of_x),
    ("08.choose", choose),
    ("08.choose", lambda *given: list(choose(*given) or []) or None),
    ("08.choose", lambda *given: np.array(choose(*given)) if choose(*given) else None),
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
    ("08.gradient", of_so_many(160, 32), r"4x2.* the shape should be \[96, 64\]"),
    ("08.gradient", of_so_many(96, 64), r"2x4.* the shape should be \[160, 32\]"),
    ("08.gradient", on_the_host, "made on the mesh|NumPy did it on the host|not made"),
    ("08.gradient", for_two_groups, r"2x4.* it is 2 times too large: .* all 16384 elements"),
    ("08.gradient", of_the_first_mesh, r"on MeshDevice\(2x3.* 1.33 times too small"),
    ("08.gradient", lambda mesh, x, w, y: averaged(0)(mesh, x, w, 0 * y), "y is missing"),
    (
        "08.gradient",
        averaged(0, scale=lambda mesh: -1 / mesh.get_num_devices()),
        "wrong sign: the error is x @ w - y",
    ),
    ("08.gradient", twice, "one sum is enough, but you called all_reduce, all_reduce"),
    ("08.gradient", everything_everywhere, "x is .* you cut nothing"),
    (
        "08.choose",
        fastest,
        r"2048 wide.* \(4, 2\) has no headroom, .* GB of .* less than 10% stays",
    ),
    ("08.choose", with_headroom(0), r"2048 wide.* \(4, 2\) has no headroom"),
    ("08.choose", with_headroom(0.05), r"1280 wide.* \(4, 2\) has no headroom, .* is None"),
    ("08.choose", with_headroom(0.3), r"768 wide.* you found no shape, but \(4, 2\) fits"),
    ("08.choose", on_a_t3000, r"on quietbox_bh: you found no shape, but \(2, 2\) fits"),
    ("08.choose", with_12_gb, r"on quietbox_bh: you found no shape, but \(2, 2\) fits"),
    ("08.choose", in_float32, r"bfloat16 on t3000: you found no shape, but \(4, 2\) fits"),
    ("08.choose", lambda a, b, c: choose(a, b[1:], c), r"\(1, 8\) fits, .* but another shape"),
    ("08.choose", lambda a, b, c: choose(a, b[:-1], c), r"no shape, but \(1, 8\) fits"),
    ("08.choose", smallest, "fits, .* but another shape that fits is"),
    ("08.choose", first_that_fits, "another shape that fits is"),
    ("08.choose", lambda *given: (4, 2), r"\(4, 2\) has no headroom"),
    ("08.choose", lambda *given: (8, 1), r"\(8, 1\) does not fit, .* GB of"),
    ("08.choose", lambda *given: None, r"you found no shape, but \(4, 2\) fits"),
    ("08.choose", lambda *given: (2, 2), "is not among the shapes"),
    ("08.choose", lambda *given: "4x2", "should give a shape such as"),
    ("08.choose", without_except, "has no headroom|your choose stopped with"),
]


def test_shapes_within_the_error_of_the_model_are_equally_right(monkeypatch, capsys):
    """A shape that is a little slower than the fastest passes; one that is much slower does not."""

    def slower(*given):  # by at most so much
        best = choose(*given)
        near = [s for s, plan in plans(*given) if fitting(plan)]
        speeds = {s: plan.tokens_per_s for s, plan in plans(*given) if s in near}
        return min(
            (s for s in near if speeds[s] * (1 + ERROR) >= speeds[best]),
            key=speeds.get,
            default=None,
        )

    def fitting(plan):
        return sum(plan.memory.values()) <= 0.9 * plan.system.chip.dram_bytes

    lessons.check("08.choose", slower)
    assert "more than 10% faster" in capsys.readouterr().out
    monkeypatch.setattr(lesson_08, "ERROR", -1e-9)
    with pytest.raises(lessons.CheckFailed, match="another shape that fits is"):
        lessons.check("08.choose", slower)


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
        gradients.append([one.gather(one.get_grad()) for one in found.values()])
    for one, shared in zip(*gradients, strict=True):
        np.testing.assert_allclose(one, shared, rtol=1e-3, atol=1e-7)
    ids = context.get_device().get_device_ids()
    assert on_links(seen) == on_links(seen, ids) == 12 * x.nbytes
    assert on_links(seen, ids[:4]) == 0  # a call is of both groups
    lessons.tidy()


def test_each_control_of_the_notebook_is_quick():
    start = time.perf_counter()
    layout_pictures(LARGE, (4, 2), 32, "bfloat16", 2, True)
    assert time.perf_counter() - start < 5  # modelled in about 0.05 s on an idle machine


def test_every_exercise_has_hints_and_four_wrong_answers(capsys):
    for name in ("08.gradient", "08.choose"):
        assert len([1 for wrong, *_ in WRONG if wrong == name]) >= 4
        lessons.hint(name)
    assert "hint 1 of" in capsys.readouterr().out


test_a_right_answer_passes = right(RIGHT)
test_a_wrong_answer_is_told_why = wrong(WRONG)
