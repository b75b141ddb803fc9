"""The report of what a program sent: each bug is named at its line, and right programs are not."""

import json
import linecache

import numpy as np
import pytest

from ttkit import TTKitError, ttnn
from ttkit.profiling import traffic
from ttkit.program import note_line
from ttkit.sim.tape import tape

SHAPE = (2, 4)


def place(mesh, shape, dims):
    values = np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)
    mapper = ttnn.ShardTensor2dMesh(mesh, SHAPE, dims)
    tiles = {"dtype": ttnn.bfloat16, "layout": ttnn.TILE_LAYOUT, "device": mesh}
    return ttnn.from_torch(values, mesh_mapper=mapper, **tiles)


def mlp(mesh, bug=""):
    """A column-parallel and a row-parallel layer, with a bias and a residual, twice."""
    x = place(mesh, (1, 1, 64, 256), (2, None))
    up, bias = place(mesh, (256, 512), (None, 1)), place(mesh, (1, 256), (None, None))
    down = ttnn.typecast(place(mesh, (512, 256), (None, 0)), ttnn.bfloat16)
    for _ in range(2):
        hidden = ttnn.linear(x, up, activation="gelu")
        y = ttnn.linear(hidden, down, bias=bias if bug == "bias" else None)
        if bug == "residual":
            y = ttnn.add(y, x)
        if bug == "activation":
            y = ttnn.linear(hidden, down, activation="silu")
        if bug == "refused":  # The shapes do not fit.
            with pytest.raises(TTKitError):
                ttnn.add(y, up)
        if bug == "product":
            y = ttnn.multiply(y, y)
        if bug != "forgotten":
            y = ttnn.all_reduce(ttnn.multiply(y, 0.5), cluster_axis=0 if bug == "axis" else 1)
        if bug == "doubled":
            y = ttnn.all_reduce(y, cluster_axis=1)
        if bug == "gathered":
            y = ttnn.all_gather(y, 3, cluster_axis=1)
            y = ttnn.slice(y, [0, 0, 0, 0], [1, 1, 32, 256])
        if bug != "residual":
            y = ttnn.add(ttnn.add(y, bias), x)
        y = ttnn.rms_norm(y)
    return y


def seen(program, *how):
    """The lines and the warnings of a program."""
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    with ttnn.open_mesh_device(ttnn.MeshShape(*SHAPE)) as mesh, tape(before=note_line) as calls:
        program(mesh, *how)
    return traffic.sent_by(calls.events)


def source(text):
    """The line of this file that a warning begins with."""
    file, line = text.split(": ")[0].split(":")
    return linecache.getline(file, int(line)).strip()


def test_the_right_program():
    found, wrong = seen(mlp)
    assert wrong == []
    sent = [line for line in found if line.along]
    assert [line[1:6] for line in sent] == [
        (
            "all_reduce",
            "axis 1 of 4 chips",
            "[1,1,32,256] bfloat16 S2 P",
            "[1,1,32,256] bfloat16 S2 R",
            2,
        )
    ]
    assert source(sent[0].where).startswith("y = ttnn.all_reduce(")
    assert sent[0].nbytes > 0
    assert sent[0].time_s > 0
    assert "all_reduce" in repr(traffic.table(found))
    assert [line.result for line in found if not line.along][-1] == "[128,256] bfloat16 R S0"


@pytest.mark.parametrize(
    "bug, line, words",
    [
        ("forgotten", "y = ttnn.rms_norm(y)", "rms_norm uses a partial sum as if it were the sum"),
        ("doubled", "y = ttnn.all_reduce(y, cluster_axis=1)", "adds up equal values"),
        ("axis", "y = ttnn.all_reduce(ttnn.multiply", "adds along axis 0 of 2 chips, and the matmul"),
        ("bias", "y = ttnn.linear(hidden, down, bias", "adds the same term to a partial sum on each chip of axis 1"),
        ("residual", "y = ttnn.add(y, x)", "adds the same term to a partial sum on each chip of axis 1"),
        ("activation", "y = ttnn.linear(hidden, down, act", "linear uses a partial sum"),
        ("refused", "ttnn.add(y, up)", "add uses a partial sum"),
        ("product", "y = ttnn.multiply(y, y)", "multiply uses a partial sum"),
        ("gathered", "y = ttnn.all_gather(y, 3", "gathers equal values"),
    ],
)  # fmt: skip
def test_a_bug_is_named_at_its_line(bug, line, words):
    _, wrong = seen(mlp, bug)
    named = [text for text in wrong if words in text and source(text).startswith(line)]
    assert named
    assert named[0].endswith("(x 2)")


def sums_by_hand(mesh):
    """A gather and a sum on each chip do what a reduce-scatter and an all-gather do."""
    x, down = place(mesh, (1, 1, 32, 512), (None, 3)), place(mesh, (512, 256), (None, 0))
    parts = ttnn.matmul(x, down)
    first = ttnn.experimental.fast_reduce_nc(ttnn.all_gather(parts, 1, cluster_axis=1), dims=[1])
    shard = ttnn.reduce_scatter(ttnn.add(parts, parts), 3, cluster_axis=1)
    return ttnn.gelu(ttnn.add(first, ttnn.all_gather(shard, 3, cluster_axis=1)))


def data_parallel(mesh):
    """Nothing is summed, and nothing has to be sent."""
    x, weight = place(mesh, (8, 1, 32, 64), (None, 0)), place(mesh, (64, 64), (None, None))
    return ttnn.softmax(ttnn.matmul(x, weight, transpose_b=True), dim=-1)


@pytest.mark.parametrize("program", [sums_by_hand, data_parallel])
def test_no_warning_where_nothing_is_wrong(program):
    assert seen(program)[1] == []


def test_a_tensor_on_a_part_of_the_mesh():
    def gathered(mesh):
        row = mesh.create_submesh(ttnn.MeshShape(1, 4))
        mapper = ttnn.ShardTensorToMesh(row, 0)
        x = ttnn.from_torch(np.zeros((128, 64), np.float32), device=row, mesh_mapper=mapper)
        ttnn.all_gather(x, 0, cluster_axis=1)

    def summed(mesh):
        ttnn.all_reduce(place(mesh, (64, 256), (0, 1)))
        total = ttnn.all_reduce(ttnn.mean(place(mesh, (64, 256), (0, 1))), cluster_axis=1)
        assert total.tensor_topology().placements()[1] == ttnn.PlacementReplicate()

    along = [line.along for line in seen(summed)[0]]
    assert along == ["", "all 8 chips", "axis 1 of 4 chips"]
    found, wrong = seen(gathered)
    assert [line.along for line in found] == ["", "axis 1 of 4 chips"]
    assert wrong == []


def test_chips_that_all_do_the_same():
    _, wrong = seen(lambda mesh: ttnn.gelu(place(mesh, (32, 32), (None, None))))
    assert wrong == ["8 chips computed the same values and sent nothing: no tensor is sharded"]


def test_two_runs_are_compared(tmp_path):
    good, bad = (tmp_path / f"{name}.json" for name in ("good", "bad"))
    traffic.write(seen(mlp)[0], good)
    traffic.write(seen(mlp, "axis")[0], bad)
    assert traffic.read(good) == seen(mlp)[0]
    text = traffic.compare(traffic.read(good), traffic.read(bad))
    marked = [line for line in text.splitlines() if line[0] in "+-"]
    assert [line[0] + line.split("along ")[1][:6] for line in marked] == ["-axis 1", "+axis 0"]
    assert all(source(line.split(" at ")[1]).startswith("y = ttnn.all_reduce(") for line in marked)
    assert "differ at the marked lines" in text
    same = traffic.compare(traffic.read(good), traffic.read(good))
    assert same.endswith("Both send the same.")
    bad.write_text(json.dumps([{"where": "here"}]))
    with pytest.raises(TTKitError, match="it is no report"):
        traffic.read(bad)


def test_the_comparison_names_the_line_of_each_of_two_equal_calls():
    def twice(mesh, times):
        x = place(mesh, (1, 1, 32, 256), (None, 3))
        ttnn.all_reduce(x, cluster_axis=1)
        if times > 1:
            ttnn.all_reduce(x, cluster_axis=1)  # This is the second one.

    text = traffic.compare(seen(twice, 2)[0], seen(twice, 1)[0])
    marked = [line for line in text.splitlines() if line[0] in "+-"]
    assert [source(line.split(" at ")[1])[-11:] for line in marked] == ["second one."]


def test_weights_that_are_dealt_wrongly_show_in_the_comparison():
    """Whole KV heads on each chip send as much as sharded ones: their placement differs."""

    def heads(mesh, dims):
        x, keys = place(mesh, (1, 1, 32, 64), (None, None)), place(mesh, (64, 128), dims)
        return ttnn.matmul(x, keys)

    text = traffic.compare(seen(heads, (None, 1))[0], seen(heads, (1, None))[0])
    marked = [line for line in text.splitlines() if line[0] in "+-"]
    assert [line.split(", 1 call")[0] for line in marked] == [
        "- from_torch: [64,32] bfloat16 R S1", "+ from_torch: [64,64] bfloat16 S1 R",
    ]  # fmt: skip
