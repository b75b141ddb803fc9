"""The picture of x @ w over chips."""

import re

import numpy as np
import pytest
from machine import mapper_over
from motion import parts

import ttkit
from ttkit import ttnn
from ttkit.visualize.drawing import GLIDE_S, STEP_S
from ttkit.visualize.matmul import draw_matmul


@pytest.fixture
def place():
    ttkit.use_system("t3000")
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(2, 4))

    def put(shape, *dims):
        mapper = mapper_over(mesh, dims)
        array = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
        layout = ttnn.TILE_LAYOUT
        return ttkit.from_numpy(array, device=mesh, layout=layout, mesh_mapper=mapper)

    yield put
    mesh.close()


def lines(figure):
    return repr(figure).splitlines()


@pytest.mark.parametrize(
    ("cut", "chip_1"),
    [
        ("samples", "x[2:4, :] @ w[:, :] -> result[2:4, :]"),
        ("columns", "x[:, :] @ w[:, 4:8] -> result[:, 4:8]"),
        ("rows", "x[:, 3:6] @ w[3:6, :] -> a partial sum of result[:, :]"),
        ("both", "x[2:4, :] @ w[:, 4:8] -> result[2:4, 4:8]"),
        ("nothing", "x[:, :] @ w[:, :] -> result[:, :]"),
    ],
)
def test_each_cut_says_what_a_chip_computes(cut, chip_1):
    assert lines(draw_matmul(cut=cut, chips=4))[2] == f"  chip 1: {chip_1}"


def test_blocks_that_no_chip_computes_are_hatched_and_counted():
    figure = draw_matmul(cut="both", chips=4)
    assert "96 of 128 numbers" in repr(figure)
    assert sum(box.hatched for box in figure.drawings[0].cells[3].boxes) == 12


def test_partial_sums_are_sheets_until_they_are_added():
    sheets, one = (draw_matmul(cut="rows", reduced=added) for added in (False, True))
    (box,) = sheets.drawings[0].cells[3].boxes
    assert [name for name, _ in box.sheets] == [f"chip {i}" for i in range(4)]
    assert "adds the 4 partial sums: the sheets become one" in repr(one)
    assert not parts(sheets.drawings[0].svg())


@pytest.mark.parametrize("chips", [2, 8])
def test_partial_sums_fall_into_one(chips):
    still = draw_matmul(cut="rows", chips=chips).drawings[0].svg()
    svg = draw_matmul(cut="rows", chips=chips, reduced=True).drawings[0].svg()
    before, after, *sheets = parts(svg)
    assert len(sheets) == chips and after.rests and not before.rests
    corners = [[float(s.node[0].get(k)) for k in "xy"] for s in sheets]
    for second in (STEP_S, STEP_S + 0.3):  # at first each sheet is where it was before
        spots = [(x + s.off(second)[0], y + s.off(second)[1]) for s, (x, y) in zip(sheets, corners)]
        assert len(set(spots)) == chips
        for x, y in spots if second == STEP_S else ():
            assert re.search(rf'<rect x="{x:g}" y="{y:g}"', still)
    assert len(set(map(tuple, corners))) == 1 and not any(s.rests for s in sheets)
    assert all(s.shown(STEP_S + GLIDE_S) and not s.shown(2 * STEP_S - 0.1) for s in sheets)
    assert f">all {chips} chips</text>" in svg


def test_adding_blocks_that_are_no_partial_sums_is_refused():
    for cut in ("columns", "nothing"):
        with pytest.raises(ttkit.TTKitError, match="the chips hold no partial sums"):
            draw_matmul(cut=cut, reduced=True)


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"cut": "diagonal"}, "samples, columns, rows, both, nothing"),
        ({"shape": (8, 12, 15)}, "15 columns of w do not make 4 equal parts"),
    ],
)
def test_what_cannot_be_cut_is_refused(options, names):
    with pytest.raises(ttkit.TTKitError, match=names):
        draw_matmul(**options)


def test_tensors_are_drawn_as_they_are_placed(place):
    picture = draw_matmul(place((8, 12), 0, 1), place((12, 16), None, 0))
    assert lines(picture)[2] == (
        "  device 0: x[0:4, 3:6] @ w[3:6, :] -> a partial sum of result[0:4, :]"
    )
    inner = "the columns of x (and rows of w)"
    assert f"the samples (rows of x) and {inner} are cut" in picture.title


def test_the_values_of_a_result_tell_whether_it_was_added(place):
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)
    x, w = place((8, 12), None, 1), place((12, 16), None, 0)
    assert "all_reduce adds the 4 sheets" in repr(draw_matmul(x, w, ttnn.matmul(x, w)))
    assert "sheets become one" in repr(draw_matmul(x, w, place((8, 16), None, None)))


def test_parts_that_do_not_belong_together_are_named():
    with ttnn.open_mesh_device(ttnn.MeshShape(2, 2)) as mesh:
        x, w = (
            ttkit.from_numpy(array, device=mesh, mesh_mapper=mapper_over(mesh, dims))
            for array, dims in (
                (np.zeros((8, 12), np.float32), (None, 1)),
                (np.zeros((12, 16), np.float32), (0, None)),
            )
        )
        assert "columns 0:6 of x by rows 6:12 of w" in draw_matmul(x, w).alarm


@pytest.mark.parametrize("cut", ["samples", "columns", "rows", "both", "nothing"])
@pytest.mark.parametrize("chips", [1, 8, 32])
def test_it_fits_a_notebook(cut, chips):
    (drawing,) = draw_matmul(cut=cut, chips=chips).drawings
    assert drawing.width <= 800 and drawing.height <= 820


def test_it_prints_on_a_terminal(capsys):
    ttkit.visualize_matmul(cut="rows", chips=2)
    assert "chip 0: x[:, 0:6] @ w[0:6, :] -> a partial sum" in capsys.readouterr().out
