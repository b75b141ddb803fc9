"""The picture of a placement is what the simulator opens: shards, bytes, padding, and refusals."""

import itertools
import math

import numpy as np
import pytest
from machine import close_all, mapper_over

import ttkit
from ttkit import ttnn
from ttkit.errors import is_strict
from ttkit.sim import mesh as sim_mesh
from ttkit.sim.tensor.tensor import bytes_in_use
from ttkit.visualize.tensor import REPLICATE, placement

MESHES = [("t3000", (2, 4)), ("t3000", (1, 8)), ("galaxy", (8, 4)), ("n300", (2, 4))]
SHAPES = [(8, 16), (100, 200), (2, 64, 64), (70,)]
AXES = [REPLICATE, 0, 1]


@pytest.fixture(autouse=True)
def back_to_the_default():
    yield
    close_all()
    ttkit.strict(False)


def made(system, mesh_shape, shape, *axes):
    """What a learner's own program gets: (where each shard lies, bytes on each chip, padding)."""
    ttkit.use_system(system)
    with ttnn.open_mesh_device(ttnn.MeshShape(*mesh_shape)) as mesh:
        mapper = mapper_over(mesh, [None if dim == REPLICATE else dim for dim in axes])
        whole = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
        options = {"dtype": ttnn.bfloat16, "layout": ttnn.TILE_LAYOUT}
        tensor = ttkit.from_numpy(whole, device=mesh, mesh_mapper=mapper, **options)
        used = bytes_in_use()
        assert len({used[device] for device in mesh.get_device_ids()}) == 1
        padding = 1 - math.prod(tensor.shape) / math.prod(tensor.padded_shape)
        shards = dict(zip(mesh.get_device_ids(), ttnn.get_device_tensors(tensor)))
        arrays = {device: ttkit.to_numpy(shard) for device, shard in shards.items()}
        return whole, arrays, used[mesh.get_device_ids()[0]], padding


@pytest.mark.parametrize(("system", "mesh_shape"), MESHES)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_picture_is_what_the_simulator_opens(system, mesh_shape, shape):
    for axes in itertools.product(AXES, AXES):
        asked = (system, mesh_shape, shape, *axes)
        picture = placement(*asked)
        try:
            whole, arrays, nbytes, padding = made(*asked)
        except RuntimeError as error:
            said = str(error).partition(": ")[2]
            assert said in picture.alarm and said in repr(picture), asked
            assert (picture.nbytes, picture.drawings) == (0, [])
            continue
        assert not picture.alarm and picture.nbytes == nbytes, asked
        assert f"{padding:.0%} padding" in repr(picture)
        assert f": {nbytes:,} bytes on each chip" in picture.title
        held = {}
        for line in repr(picture).splitlines()[1:-1]:
            part, _, devices = line.strip().partition(" on device")
            for device in devices.removeprefix("s").split(","):
                held[int(device)] = part
        assert held.keys() == arrays.keys()
        for device, part in held.items():
            values = eval(f"whole{part}", {"whole": whole})
            assert np.allclose(values, arrays[device], rtol=2**-7)
        words = [" ".join([cell.name, *cell.lines]) for cell in picture.drawings[0].cells]
        assert all(f"device {device}" in text for device, text in zip(arrays, words, strict=True))


def test_nothing_of_the_reader_is_changed():
    ttkit.strict()
    ttkit.use_system("n300")
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, 2))
    tensor = ttkit.from_numpy(np.zeros((64, 64), np.float32), device=mesh)
    used = bytes_in_use()
    for asked in (("galaxy", (8, 4)), ("t3000", (4, 4)), ("t3000", (2, 4), (7, 7))):
        placement(*asked, axis_0=1)
        assert sim_mesh.opened_meshes == [mesh] and mesh.is_open
        assert bytes_in_use() == used
        assert ttnn.get_fabric_config() == ttnn.FabricConfig.FABRIC_1D
        assert ttnn.get_num_devices() == 2
        assert ttkit.hardware.current_system().name == "n300"
    assert tensor.is_allocated()
    assert is_strict()


def test_the_code_makes_what_the_picture_shows():
    for axes in [(REPLICATE, 1), (0, REPLICATE), (1, 0)]:
        asked = ("t3000", (2, 4), (100, 200), *axes)
        picture, names = placement(*asked), {"x": np.ones((100, 200), np.float32)}
        exec(picture.code, {"ttnn": ttnn, "ttkit": ttkit}, names)
        tensor, mesh = names["tensor"], names["mesh"]
        assert set(bytes_in_use().values()) == {picture.nbytes}
        assert tensor.dtype == ttnn.bfloat16 and tensor.layout == ttnn.TILE_LAYOUT
        assert max(map(len, picture.code.splitlines())) <= 84
        assert picture._repr_html_().count("ttnn.create_mesh_mapper(") == 1
        ttnn.deallocate(tensor)
        mesh.close()


def test_padding_is_hatched():
    shard = placement("t3000", (2, 4), (100, 200), 0, 1).drawings[1]
    assert shard.title == "one shard: 2 x 2 tiles"
    assert shard.svg().count('stroke-width="0.9"') == 1  # right of the values, and below them
    full = placement("t3000", (2, 4), (256, 512), 0, 1)
    assert 'stroke-width="0.9"' not in full.drawings[1].svg() and "0% padding" in repr(full)


@pytest.mark.parametrize(
    ("system", "mesh_shape"), [("t3000", (4, 2)), ("galaxy", (8, 4)), ("galaxy", (1, 32))]
)
def test_pictures_fit_a_page_and_can_be_read(system, mesh_shape):
    for shape in [(256, 512), *SHAPES[:3]]:
        for drawing in placement(system, mesh_shape, shape).drawings:
            assert drawing.width <= 770 and drawing.height <= 900 and drawing.smallest >= 10
