"""Parameters of torch modules as ttnn makes them; what is expected here was seen on ttnn 0.81.1."""

import builtins

import pytest

from ttkit import ttnn
from ttkit.errors import TTKitError

PRE = ttnn.model_preprocessing
TILE, ROWS = ttnn.TILE_LAYOUT, ttnn.ROW_MAJOR_LAYOUT


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
    assert (
        isinstance(made.layers, PRE.ParameterList)
        and len(made.layers) == 2
        and made.layers[1] == {}
    )
    assert 1 in made.layers and 2 not in made.layers
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


def test_parameters_of_a_single_module(torch):
    assert seen(make(torch.nn.Linear(4, 3)).weight) == ([4, 3], TILE, ttnn.bfloat16)
    assert make(torch.nn.ReLU()) == {}


def test_as_text(model):
    lines = repr(make(model)).splitlines()
    assert lines[:2] == [
        "{",
        "  scale: ttnn.Tensor(shape=Shape([4, 5]), layout=Layout.ROW_MAJOR, "
        "dtype=DataType.BFLOAT16),",
    ]
    assert "    {}" in lines and lines[-1] == "}"


def test_missing_name(model):
    made = make(model)
    assert not hasattr(made.layers[0], "bias")
    for kind in (AttributeError, KeyError):
        with pytest.raises(kind, match="no parameter 'bias'; there are weight"):
            _ = made.layers[0].bias


def test_on_the_device(wide, model):
    made = make(model, device=wide)
    assert made.steps[0].weight.device() is wide and made.layers[0].weight.device() is wide
    assert len(ttnn.get_device_tensors(made.scale)) == 8


def test_distributed_by_a_mapper(wide, torch):
    linear = torch.nn.Linear(32, 128, bias=False)
    with ttnn.distribute(ttnn.ShardTensor2dMesh(wide, (2, 4), (None, 1))):
        weight = make(linear, device=wide).weight
    assert list(weight.shape) == [32, 32]
    for chip, part in enumerate(ttnn.get_device_tensors(weight)):
        assert ttnn.to_torch(part).equal(
            linear.weight.T[:, chip % 4 * 32 :][:, :32].detach().bfloat16()
        )


def test_distributed_along_the_width(wide, torch):
    linear = torch.nn.Linear(32, 256)
    with ttnn.distribute(ttnn.ShardTensorToMesh(wide, dim=-1)):
        made = make(linear, device=wide)
    assert seen(made.weight) == ([32, 32], TILE, ttnn.bfloat16) and seen(made.bias) == (
        [1, 32],
        TILE,
        ttnn.bfloat16,
    )
    for ours, theirs in ((made.weight, linear.weight.T), (made.bias, linear.bias[None])):
        for part, wanted in zip(
            ttnn.get_device_tensors(ours), theirs.detach().bfloat16().split(32, -1), strict=True
        ):
            assert ttnn.to_torch(part).equal(wanted)


def test_linear_on_a_mesh_with_its_parameters(wide, torch, put, check):
    linear = torch.nn.Linear(64, 96)
    made, x = make(linear, device=wide), put(wide, (32, 64), "S0R", ttnn.bfloat16)
    check(
        ttnn.linear(x, made.weight, bias=made.bias),
        lambda x, w, b: x @ w + b,
        x,
        made.weight,
        made.bias,
    )


def test_subclass_counts_as_its_parent(torch):
    class Column(torch.nn.Linear):
        pass

    assert seen(make(Column(4, 3)).weight) == ([4, 3], TILE, ttnn.bfloat16)

    class More(torch.nn.Linear):
        def __init__(self):
            super().__init__(4, 4)
            self.more = torch.nn.Parameter(torch.zeros(2))

    with pytest.raises(RuntimeError, match="Not all children or parameters were converted"):
        make(More())


def test_choice_of_modules(model, torch):
    names = []
    made = make(
        model,
        convert_to_ttnn=lambda module, name: names.append(name) or name != "x.dense_h_to_4h",
        prefix="x",
    )
    assert names == [
        "x",
        "x.dense_h_to_4h",
        "x.steps",
        *(f"x.steps.{i}" for i in range(3)),
        "x.layers.0",
        "x.layers.1",
        "x.table",
        "x.counts",
        "x.act",
    ]
    assert isinstance(made.dense_h_to_4h.weight, torch.Tensor) and tuple(
        made.dense_h_to_4h.weight.shape
    ) == (32, 64)
    assert isinstance(made.scale, ttnn.Tensor)


def test_own_preprocessor(model, torch):
    def own(module, name, convert_to_ttnn):
        return (
            {"both": {"first": 1}, "converts": convert_to_ttnn(module, name)}
            if isinstance(module, torch.nn.LayerNorm)
            else None
        )

    made = make(model, custom_preprocessor=own)
    assert made.steps[2].both.first == 1 and made.steps[2].converts is True
    assert seen(made.steps[0].weight)[0] == [3, 4]
    with pytest.raises(RuntimeError, match="at least two parameters"):
        make(model, custom_preprocessor=lambda module: None)
    with pytest.raises(RuntimeError, match="Unsupported parameter: extra"):
        make(model, custom_preprocessor=lambda module, name, extra: None)


def test_refused(torch, monkeypatch):
    with pytest.raises(TypeError, match="initialize_model is missing"):
        PRE.preprocess_model_parameters()
    with pytest.raises(TypeError, match="gave a int, not a torch"):
        make(3)
    with pytest.raises(AttributeError, match="has no bias"):
        make(torch.nn.LayerNorm(4, bias=False))
    real = builtins.__import__

    def without_torch(name, *args, **options):
        if name == "torch":
            raise ImportError(name)
        return real(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", without_torch)
    with pytest.raises(TTKitError, match="Torch is not installed"):
        PRE.preprocess_model_parameters(initialize_model=lambda: None)
