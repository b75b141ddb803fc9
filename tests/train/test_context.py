"""The parallelism context: the axis rule, the one device, and the messages."""

import pytest
from machine import close_all

import ttkit
from ttkit import TTKitError, ttnn
from ttkit.train import AutoContext, DistributedConfig
from ttkit.train import context as contexts
from ttkit.train.config.layout import Layout


@pytest.fixture(autouse=True)
def clean_machine():
    """Here the code switches the fabric on and off itself."""
    yield
    close_all()


DDP, TP = DistributedConfig(enable_ddp=True), DistributedConfig(enable_tp=True)
BOTH, NONE = DistributedConfig(True, True), DistributedConfig()
FABRIC = ttnn.FabricConfig


@pytest.fixture
def context():
    """A context of its own: what a test leaves open is closed."""
    fresh = AutoContext()
    yield fresh
    fresh.close_device()


def opened(context, shape, config, system="galaxy"):
    ttkit.use_system(system)
    context.open_device(shape)
    context.initialize_parallelism_context(config)
    return context.get_parallelism_context()


AXES = [  # shape, config -> axis and size of DDP, of TP
    ([8, 4], BOTH, (0, 8), (1, 4)),
    ([1, 32], TP, (None, 1), (1, 32)), ([32, 1], DDP, (0, 32), (None, 1)),
    ([1, 8], DDP, (1, 8), (None, 1)), ([1, 1], NONE, (None, 1), (None, 1)),
    ([1, 1], TP, (None, 1), (0, 1)),
]  # fmt: skip


@pytest.mark.parametrize("shape, config, ddp, tp", AXES)
def test_axes(context, shape, config, ddp, tp):
    made = opened(context, shape, config)
    assert (made.get_ddp_axis(), made.get_ddp_size()) == ddp
    assert (made.get_tp_axis(), made.get_tp_size()) == tp
    assert (made.is_ddp_enabled(), made.is_tp_enabled()) == (config.enable_ddp, config.enable_tp)


LINE = (
    "For line mesh topology (shape MeshShape([1, 8])), exactly one parallelism type must be "
    "enabled. Got: ddp={}, tp={}, cp=false"
)
GRID = (
    "For 2D mesh (shape MeshShape([2, 4])), number of enabled parallelization axes ({}) must "
    "equal mesh dimensions (2)."
)
# As the guide's troubleshooting has them.
GUIDES_RULE = (
    "The number of parallelization axes must be equal to the number of mesh shape dimensions"
)
GUIDES_CURE = (
    "a line [1, N] or [N, 1]: only one of enable_ddp and enable_tp; a 2D mesh [M, N]: both"
)
REFUSED = [
    ([1, 8], BOTH, LINE.format("true", "true")),
    ([1, 8], NONE, LINE.format("false", "false")),
    ([1, 1], BOTH, "For line mesh topology (shape MeshShape([1, 1])), exactly one"),
    ([2, 4], DDP, GRID.format(1)),
    ([2, 4], NONE, GRID.format(0)),
    ([2, 4], DistributedConfig(enable_ddp=True, enable_tp=True, enable_cp=True), GRID.format(3)),
]


@pytest.mark.parametrize("shape, config, message", REFUSED)
def test_what_does_not_fit_is_refused(context, shape, config, message):
    ttkit.use_system("t3000")
    context.open_device(shape)
    with pytest.raises(TTKitError) as error:
        context.initialize_parallelism_context(config)
    wrong, _, cure = str(error.value).partition("\n  try: ")
    assert message in wrong and GUIDES_RULE in wrong and GUIDES_CURE in cure
    assert not context.is_parallelism_context_initialized()


def test_a_turned_mesh_opens_with_a_warning(context):
    with pytest.warns(UserWarning, match="4x8 is opened as the transpose of the 8x4"):
        made = opened(context, [4, 8], BOTH)
    assert (made.get_ddp_size(), made.get_tp_size()) == (4, 8)


def test_a_fabric_comes_with_several_chips_and_goes_with_them(context):
    context.open_device()
    assert tuple(context.get_device().shape) == (1, 1)
    assert ttnn.get_fabric_config() == FABRIC.DISABLED
    context.close_device()
    context.open_device((2, 4))
    assert ttnn.get_fabric_config() == FABRIC.FABRIC_1D
    context.close_device()
    assert ttnn.get_fabric_config() == FABRIC.DISABLED
    with pytest.raises(TTKitError):
        context.open_device([3, 3])
    assert ttnn.get_fabric_config() == FABRIC.DISABLED
    ttnn.set_fabric_config(FABRIC.FABRIC_2D)
    context.open_device([2, 4])
    assert ttnn.get_fabric_config() == FABRIC.FABRIC_2D


def test_a_device_opens_once(context):
    assert context.get_device().get_num_devices() == 1  # opened because nobody had
    with pytest.raises(TTKitError, match=r"open_device was called after the device was created\."):
        context.open_device([2, 4])
    context.close_device()
    context.close_device()
    context.open_device([1, 2], device_ids=[6, 2])
    assert context.get_device().get_device_ids() == [6, 2]


def test_closing_forgets_what_was_about_the_device(context):
    opened(context, [2, 4], BOTH, system="t3000")
    context.close_device()
    assert not context.is_parallelism_context_initialized()
    assert opened(context, [1, 8], TP, system="t3000").get_tp_size() == 8
    context.reset_parallelism_context()
    context.initialize_parallelism_context(DDP)
    assert context.get_parallelism_context().get_ddp_size() == 8


def test_ranks(context):
    with pytest.raises(TTKitError, match=r"DistributedContext is not initialized\."):
        context.get_distributed_context()
    context.initialize_distributed_context("program")
    ranks = context.get_distributed_context()
    assert (ranks.rank(), ranks.size()) == (0, 1)


def test_the_layout_of_the_context(context, monkeypatch):
    monkeypatch.setattr(AutoContext, "get_instance", lambda: context)
    ttkit.use_system("galaxy")
    context.open_device([2, 4])
    assert contexts.current_layout() == Layout().on(context.get_device())
    context.initialize_parallelism_context(BOTH)
    layout = contexts.current_layout()
    assert (layout.dp, layout.tp, layout.dp_axis, layout.tp_axis) == (2, 4, 0, 1)
    assert layout == Layout(dp=2, tp=4).on(context.get_device())
