"""Normalisations and embedding against their formulas on each chip; parameters of modules."""

import numpy as np
import pytest
from formulas import layer_norm, rms_norm, softmax
from hypothesis import given
from hypothesis import strategies as st
from places import many

import ttkit
from ttkit import ttnn

FLOATS = pytest.mark.parametrize("dtype", [ttnn.float32, ttnn.bfloat16], ids=str)
# of the input and of the parameters: replicas with shards and shards with shards, along one axis
# and along both
KINDS = [("RR", "RR"), ("S0R", "RR"), ("RR", "RS0"), ("S0R", "RS0"), ("RS0", "RS0")]
PAIRS = pytest.mark.parametrize("kinds", KINDS, ids="-".join)


def test_chips_of_the_tests_differ(wide, put, distinct):
    assert [distinct(put(wide, (2, 32), kind)) for kind in ("RR", "S0R", "RS0")] == [1, 2, 4]
    mixed = ttnn.layer_norm(put(wide, (8, 32), "S0R"), weight=put(wide, (1, 32), "RS0"))
    assert distinct(mixed) == 8


@FLOATS
@PAIRS
def test_layer_norm(mesh, put, check, dtype, kinds):
    x = put(mesh, (4, 33, 50), kinds[0], dtype)
    shape = (50,) if kinds == ("S0R", "RR") else (1, 50)
    gamma, beta = put(mesh, shape, kinds[1], dtype), put(mesh, shape, kinds[1], dtype)

    made = ttnn.layer_norm(x, epsilon=1e-5, weight=gamma, bias=beta)
    check(made, layer_norm, x, gamma, beta, additions=50)


@FLOATS
@PAIRS
def test_a_residual_is_added_first(mesh, put, check, dtype, kinds):
    x, more = put(mesh, (4, 33, 64), kinds[0], dtype), put(mesh, (4, 33, 64), kinds[1], dtype)
    gamma, before = put(mesh, (1, 64), "RR", dtype), ttkit.to_numpy(ttnn.get_device_tensors(x)[0])
    made = ttnn.rms_norm(x, epsilon=1e-6, weight=gamma, residual_input_tensor=more)
    check(made, lambda x, r, g: rms_norm(x + r, g, 1e-6), x, more, gamma, additions=64)
    made = ttnn.layer_norm(x, epsilon=1e-5, weight=gamma, residual_input_tensor=more)
    check(made, lambda x, r, g: layer_norm(x + r, g, 0), x, more, gamma, additions=64)
    np.testing.assert_array_equal(ttkit.to_numpy(ttnn.get_device_tensors(x)[0]), before)


def test_norm_in_many_blocks_of_rows(wide, put, check):
    x, gamma = put(wide, (700, 256), "S0R"), put(wide, (1, 256), "RS0")
    made = ttnn.layer_norm(x, weight=gamma)
    check(made, lambda x, g: layer_norm(x, g, 0, 1e-12), x, gamma, additions=256)
    check(ttnn.softmax(x), softmax, x, additions=256)


def test_row_major_gamma_in_sticks_of_32(wide, put, check):
    x = put(wide, (32, 64), dtype=ttnn.bfloat16)
    gamma = put(wide, (2, 32), dtype=ttnn.bfloat16, layout=ttnn.ROW_MAJOR_LAYOUT)
    made = ttnn.layer_norm(x, weight=gamma)
    check(made, lambda x, g: layer_norm(x, g.reshape(64), 0, 1e-12), x, gamma, additions=64)


@PAIRS
@pytest.mark.parametrize("layout", [ttnn.ROW_MAJOR_LAYOUT, ttnn.TILE_LAYOUT], ids=["rows", "tiles"])
def test_embedding(mesh, put, check, kinds, layout):
    for front in [(), (1, 1)] if kinds[1] == "RR" else [()]:
        table = put(mesh, (*front, 40, 64), kinds[1], ttnn.bfloat16, layout=ttnn.ROW_MAJOR_LAYOUT)
        tokens = put(mesh, (2, 33), kinds[0], ttnn.uint32, 40, layout=ttnn.ROW_MAJOR_LAYOUT)
        out = ttnn.embedding(tokens, table, layout=layout)
        assert out.layout is layout and out.dtype is ttnn.bfloat16
        check(out, lambda i, w: w.reshape(40, 64)[i], tokens, table)


SHAPES = st.lists(st.integers(1, 40), min_size=2, max_size=4).map(tuple)
MAPPINGS = st.sampled_from(["RR", "S0R", "RS0"])


@many(60)
@given(shape=SHAPES, kinds=st.tuples(MAPPINGS, MAPPINGS), dim=st.integers(-2, 1))
def test_any_shape(wide, put, check, shape, kinds, dim):
    x, gamma = put(wide, shape, kinds[0]), put(wide, (1, shape[-1]), kinds[1])
    check(ttnn.softmax(x, dim), lambda x: softmax(x, dim), x, additions=50)
    norm, magnified = lambda x, g: layer_norm(x, g, 0, 1e-3), 40 * 32  # by 1 / sqrt(epsilon)
    check(ttnn.layer_norm(x, epsilon=1e-3, weight=gamma), norm, x, gamma, additions=magnified)
    made = ttnn.rms_norm(x, epsilon=1e-3, weight=gamma)
    check(made, lambda x, g: rms_norm(x, g, 1e-3), x, gamma, additions=40)


def test_layer_norm_of_rows(wide, put, check):
    x = put(wide, (2, 33, 64), "S0R", layout=ttnn.ROW_MAJOR_LAYOUT)
    out = ttnn.layer_norm(x, epsilon=1e-5)
    assert out.layout is ttnn.ROW_MAJOR_LAYOUT
    check(out, layer_norm, x, additions=64)


@pytest.mark.parametrize("shape", [(2, 1, 33), (2, 1, 1, 33), (1, 1, 1, 1)], ids=str)
def test_embedding_of_higher_ranks(mesh, put, check, shape):
    table = put(mesh, (8, 32), "RS0", ttnn.bfloat16)
    tokens = put(mesh, shape, "S0R", ttnn.uint32, 8, layout=ttnn.ROW_MAJOR_LAYOUT)
    flat = shape[0], shape[-1]
    check(ttnn.embedding(tokens, table), lambda i, w: w[i.reshape(flat)], tokens, table)


# ---------------------------------------------------------------- parameters of torch modules
# What is expected here was seen on ttnn 0.81.1.
PRE, ROWS, TILE = ttnn.model_preprocessing, ttnn.ROW_MAJOR_LAYOUT, ttnn.TILE_LAYOUT


def make(model, **options):
    return PRE.preprocess_model_parameters(initialize_model=lambda: model, **options)


def seen(tensor):
    return list(tensor.shape), tensor.layout, tensor.dtype


@pytest.fixture
def model(torch):
    nn = torch.nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.dense_h_to_4h = nn.Linear(32, 64)
            self.steps = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.LayerNorm(4))
            self.layers = nn.ModuleList([nn.Linear(3, 4, bias=False), nn.ReLU()])
            self.table = nn.Embedding(8, 5)
            self.scale = nn.Parameter(torch.randn(4, 5))
            self.counts = nn.ParameterList([nn.Parameter(torch.arange(4), requires_grad=False)])
            self.act = nn.GELU()

    torch.manual_seed(0)
    return Model()


def test_names_shapes_layouts(model):
    made = make(model)
    assert list(made) == ["scale", "dense_h_to_4h", "steps", "layers", "table", "counts"]
    assert seen(made.dense_h_to_4h.weight) == ([32, 64], TILE, ttnn.bfloat16)
    assert seen(made.dense_h_to_4h.bias) == ([1, 64], TILE, ttnn.bfloat16)
    assert seen(made["steps"][2].weight) == ([1, 4], TILE, ttnn.bfloat16)
    assert seen(made.table.weight) == ([8, 5], ROWS, ttnn.bfloat16)
    assert seen(made.scale) == ([4, 5], ROWS, ttnn.bfloat16)
    assert seen(made.counts["0"]) == ([4], ROWS, ttnn.uint32)
    assert list(made.steps) == [0, 2]  # a Sequential is a dict, a ModuleList a list
    assert isinstance(made.layers, list) and len(made.layers) == 2 and made.layers[1] == {}
    assert list(made.layers[0]) == ["weight"]


def test_values(model, torch):
    made = make(model)
    for ours, theirs in [
        (made.dense_h_to_4h.weight, model.dense_h_to_4h.weight.T),
        (made.dense_h_to_4h.bias, model.dense_h_to_4h.bias[None]),
        (made.table.weight, model.table.weight),
        (made.scale, model.scale),
    ]:
        assert ttnn.to_torch(ours).equal(theirs.detach().bfloat16())


def test_missing_name(model):
    made = make(model)
    assert not hasattr(made.layers[0], "bias")
    with pytest.raises(AttributeError, match="no parameter 'bias'; there are weight"):
        _ = made.layers[0].bias


def test_on_the_device(wide, model):
    made = make(model, device=wide)
    assert made.steps[0].weight.device() is wide and made.layers[0].weight.device() is wide
    assert len(ttnn.get_device_tensors(made.scale)) == 8


def test_a_preprocessor_of_the_program(model, torch):
    names = []

    def halves(module, name):
        names.append(name)
        if isinstance(module, torch.nn.Linear):
            return {"half": ttnn.from_torch(module.weight / 2)}
        return {}

    made = make(model, custom_preprocessor=halves)
    assert names == ["", "dense_h_to_4h", *(f"steps{i}" for i in ("", ".0", ".1", ".2")),
                     "layers.0", "layers.1", "table", "counts", "act"]  # fmt: skip
    half = ttnn.to_torch(made.layers[0].half)
    assert half.equal(model.layers[0].weight / 2)
    assert list(made.dense_h_to_4h) == ["half"] and list(made.table) == ["weight"]


def test_distributed_along_the_width(wide, torch):
    linear = torch.nn.Linear(32, 256)
    with ttnn.distribute(ttnn.ShardTensorToMesh(wide, dim=-1)):
        made = make(linear, device=wide)
    assert seen(made.weight) == ([32, 32], TILE, ttnn.bfloat16)
    assert seen(made.bias) == ([1, 32], TILE, ttnn.bfloat16)
    for ours, theirs in ((made.weight, linear.weight.T), (made.bias, linear.bias[None])):
        wanted = theirs.detach().bfloat16().split(32, -1)
        for part, want in zip(ttnn.get_device_tensors(ours), wanted, strict=True):
            assert ttnn.to_torch(part).equal(want)


def test_subclass_counts_as_its_parent(torch):
    class Column(torch.nn.Linear):
        pass

    assert seen(make(Column(4, 3)).weight) == ([4, 3], TILE, ttnn.bfloat16)

    class More(torch.nn.Linear):
        def __init__(self):
            super().__init__(4, 4)
            self.more = torch.nn.Parameter(torch.zeros(2))

    assert seen(make(More()).more) == ([2], ROWS, ttnn.bfloat16)


NORMS = {"rms_norm": rms_norm, "layer_norm": layer_norm}


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("axis", [0, 1])
def test_a_norm_of_rows_cut_over_chips(box, cut, parts, name, axis):
    """Sums on each chip, gathered, then each chip's part of the rows."""
    random, width = np.random.default_rng(8), 64 * box.shape[axis]
    rows = [None, None]
    rows[axis] = 3
    x = random.standard_normal((1, 2, 40, width), np.float32) + 1
    vectors = [random.standard_normal((1, 1, width // 32, 32), np.float32) for _ in range(2)]
    over = [None if d is None else 2 for d in rows]
    for dtype, close in ((ttnn.bfloat16, 0.05), (ttnn.float32, 1e-5)):
        given = cut(box, x, rows, dtype)
        kept = [cut(box, v, over, dtype, ttnn.ROW_MAJOR_LAYOUT) for v in vectors]
        sums = getattr(ttnn, f"{name}_pre_all_gather")(given, dtype=dtype)
        assert list(sums.shape) == [1, 2, 40, 32 if name == "rms_norm" else 64]
        whole = ttnn.all_gather(sums, dim=3, cluster_axis=axis)
        how = {"epsilon": 1e-5, "weight": kept[0], "bias": kept[1]}
        got = getattr(ttnn, f"{name}_post_all_gather")(given, whole, **how)
        weight, bias = (v.ravel() for v in vectors)
        wanted = NORMS[name](x.astype(np.float64), eps=1e-5) * weight + bias
        for chip, new in enumerate(parts(got)):
            part = np.unravel_index(chip, tuple(box.shape))[axis]
            want = wanted[..., 64 * part : 64 * part + 64]
            np.testing.assert_allclose(new, want, rtol=close, atol=close)


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("residual", [False, True])
def test_statistics_of_rows_in_shards_on_cores(box, cut, parts, name, residual):
    """Means in ttnn's columns; a residual is added into the input, which is then normalised."""
    random, chips = np.random.default_rng(8), box.shape[1]
    x, more = (random.standard_normal((1, 1, 32, 256 * chips), np.float32) for _ in range(2))
    grid, strategy = ttnn.CoreGrid(x=4, y=1), ttnn.ShardStrategy.WIDTH
    config = ttnn.create_sharded_memory_config((1, 1, 32, 256), grid, strategy)
    tensors = [cut(box, v, [None, 3], ttnn.float32) for v in (x, more)]
    on_cores = [ttnn.to_memory_config(tensor, config) for tensor in tensors]
    how = {"residual_input_tensor": on_cores[1]} if residual else {}
    wide = ttnn.WormholeComputeKernelConfig(fp32_dest_acc_en=True)
    made = getattr(ttnn, f"{name}_pre_all_gather")(on_cores[0], compute_kernel_config=wide, **how)
    assert made.dtype is ttnn.bfloat16
    exact = x.astype(np.float64) + (more if residual else 0)
    wanted = [(exact**2, 0)] if name == "rms_norm" else [(exact, 0), (exact**2, 32)]
    shape = tuple(box.shape)
    for chip, (statistics, kept) in enumerate(zip(parts(made), parts(on_cores[0]))):
        column = np.unravel_index(chip, shape)[1]
        here = slice(256 * column, 256 * column + 256)
        np.testing.assert_allclose(kept, exact[..., here], rtol=1e-6, atol=1e-6)
        for values, at in wanted:
            mean = values[..., here].mean(-1)
            np.testing.assert_allclose(statistics[..., at], mean, rtol=2**-8, atol=1e-6)
    gathered = ttnn.all_gather(made, dim=3, cluster_axis=1)
    how = {"epsilon": 1e-5, "compute_kernel_config": wide}
    got = getattr(ttnn, f"{name}_post_all_gather")(on_cores[0], gathered, **how)
    whole = NORMS[name](exact, eps=1e-5)
    for chip, new in enumerate(parts(got)):
        column = np.unravel_index(chip, shape)[1]
        want = whole[..., 256 * column : 256 * column + 256]
        np.testing.assert_allclose(new, want, rtol=0.01, atol=0.01)
