"""Lesson 00: its quotation, its picture, and its exercises with right and with wrong answers."""

import itertools
import json
import re
import sys
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from answers import R, S, by_axes, cut, everywhere, put, right, wrong
from machine import strict_with_fabric

import ttkit
from ttkit import lessons, ttnn
from ttkit.lessons.lesson_00 import draw_shares, shares
from ttkit.train import read_settings, training_plan
from ttkit.words import short

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def as_in_a_lesson():
    with strict_with_fabric():
        yield


# ---------------------------------------------------------------- the finished thing
def cells(lesson):
    (path,) = (ROOT / "notebooks").glob(f"{lesson}_*.ipynb")
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


def test_the_quoted_text_is_what_lesson_12_prints():
    first = "".join(cells("00")[0]["source"])
    quoted = re.findall(r"(?:^> .*\n)+", first, re.M)
    quotes = [quote.replace("> ", "").strip().removesuffix(" ...") for quote in quoted]
    assert [quote[:7] for quote in quotes] == ["The fox"] * 2
    printed = "".join(
        "".join(output.get("text", ""))
        for cell in cells("12")
        if cell["cell_type"] == "code"
        for output in cell["outputs"]
    )
    assert [quote for quote in quotes if quote not in printed] == []


def test_the_map_leads_to_every_other_lesson_in_order():
    text = "".join("".join(cell["source"]) for cell in cells("00"))
    table = text[text.index("## The course") : text.index("## Eight chips")]
    numbers = [name[:-1] for name in re.findall(r"\]\((\d\db?_)", table)]
    assert numbers == ("01 02 03 04 04b 05 05b 06 06b 07 08 09 10 12 13 14 15 16 17 18".split())


@pytest.mark.parametrize("model", ["llama8b", "gpt2-small"])
def test_each_of_n_chips_holds_an_nth_of_the_training_state(model):
    plan = training_plan(read_settings(ROOT / f"configs/models/{model}.yaml"), "t3000")
    state = plan.memory["weights"] + plan.memory["gradients"] + plan.memory["optimizer"]
    # float32: weight, gradient and two moments; biases and norms are padded to tiles
    assert 16 * plan.parameters <= state < 1.05 * 16 * plan.parameters
    first, one, eight = repr(shares(plan, chips=(1, 8))).splitlines()
    assert first.endswith("; a chip has 12 GB")
    assert one.startswith(f"  1 chip: {short(state, 'B')}, ")
    assert eight.startswith(f"  8 chips: {short(state / 8, 'B')}, ")


def test_the_picture_says_whether_it_fits_in_words_and_drawn():
    def held(weights, gradients):
        return {"weights": weights, "gradients": gradients, "optimizer": 0}

    picture = draw_shares("a model", {1: held(9e9, 9e9), 2: held(9e9, 3e9)}, 12e9)
    assert repr(picture).splitlines() == [
        "a model; a chip has 12 GB",
        "  1 chip: 18 GB, does not fit: weights 9 GB, gradients 9 GB, optimizer 0",
        "  2 chips: 12 GB, fits: weights 9 GB, gradients 3 GB, optimizer 0",
    ]
    drawn = picture._repr_html_()
    for words in ("18 GB, does not fit", "12 GB, fits", "<title>2 chips: gradients 3 GB</title>"):
        assert words in drawn


def test_the_bars_are_as_long_as_their_bytes_and_the_line_is_where_the_memory_ends():
    kinds = {"weights": 4.0, "gradients": 4.0, "optimizer": 8.0}
    svg = draw_shares("a model", {1: kinds}, 12.0).drawings[0].svg()
    hovered = re.findall(r'<rect x="([\d.]+)"[^>]* width="([\d.]+)"[^>]*><title>1 chip: (\w+)', svg)
    at = {kind: (float(x), float(width)) for x, width, kind in hovered}
    (start, part), (_, whole) = at["weights"], at["optimizer"]
    assert at["gradients"] == (start + part, part) and whole == 2 * part
    (line,) = re.findall(r'<line x1="([\d.]+)"[^>]*stroke="#d64545"', svg)
    assert float(line) == pytest.approx(start + 3 * part)


# ---------------------------------------------------------------- the exercises
def through_the_host(mesh, x):
    host = ttkit.from_numpy(x, layout=ttnn.TILE_LAYOUT)
    return ttnn.distribute_tensor(host, ttnn.shard_tensor_to_mesh_mapper(mesh, 1), mesh)


def columns(mesh, x):
    return put(mesh, x, cut(mesh, 1))


def there_and_back(mesh, x):
    """Doubled by NumPy, after it was on the devices."""
    composer = ttnn.ConcatMeshToTensor(mesh, dim=1)
    return columns(mesh, 2 * ttkit.to_numpy(columns(mesh, x), mesh_composer=composer))


def by_a_copy(mesh, x):
    """NumPy's numbers over those of x, in a call that returns nothing."""
    tensor = columns(mesh, x)
    host = ttkit.from_numpy(2 * x, layout=ttnn.TILE_LAYOUT, mesh_mapper=cut(mesh, 1))
    ttnn.copy_host_to_device_tensor(host, tensor)
    return tensor * 1


def by_parts(mesh, x):
    parts = np.split(2 * x, mesh.get_num_devices(), 1)
    hosts = [ttkit.from_numpy(part.copy(), layout=ttnn.TILE_LAYOUT) for part in parts]
    return ttnn.to_device(ttnn.from_host_shards(hosts, mesh.shape), mesh) * 1


def in_place(mesh, x):
    tensor = ttkit.from_numpy(x, device=mesh, mesh_mapper=cut(mesh, 1))
    return ttnn.multiply_(ttnn.to_layout(tensor, ttnn.TILE_LAYOUT), 2)


RIGHT = [
    ("00.double", lambda mesh, x: columns(mesh, x) * 2),
    ("00.double", lambda mesh, x: 2 * put(mesh, x, cut(mesh, -1))),
    ("00.double", lambda mesh, x: ttnn.multiply(columns(mesh, x), 2.0)),
    ("00.double", lambda mesh, x: ttnn.add(*[through_the_host(mesh, x)] * 2)),
    ("00.double", lambda mesh, x: columns(mesh, x) + columns(mesh, x)),
    ("00.double", lambda mesh, x: columns(mesh, x) * columns(mesh, np.full_like(x, 2))),
    ("00.double", in_place),
    ("00.share", 384),
    ("00.share", np.int64(384)),
    ("00.share", 384.0),
    ("00.share", Fraction(384)),
    ("00.share", Decimal("384.0")),
]


# (exercise, wrong answer, what the feedback must name)
WRONG = [
    ("00.double", lambda mesh, x: put(mesh, x, cut(mesh, 0)) * 2, "you cut dimension 0 in 8"),
    ("00.double", lambda mesh, x: put(mesh, x, everywhere(mesh)) * 2, "you cut nothing"),
    ("00.double", lambda mesh, x: by_axes(mesh, x, R, S(1)) * 2, "you cut dimension 1 in 4"),
    ("00.double", lambda mesh, x: put(mesh, x.T.copy(), cut(mesh, 0)) * 2, "shape should be [24, 2]"),
    ("00.double", columns, "nothing doubled them"),
    ("00.double", lambda mesh, x: columns(mesh, x) * 4, "doubled twice"),
    ("00.double", lambda mesh, x: columns(mesh, 2 * x) * 2, "doubled twice"),
    ("00.double", lambda mesh, x: columns(mesh, x) + 2, "device 4 at (0, 0): element [0, 0] should be"),
    ("00.double", lambda mesh, x: columns(mesh, x) * columns(mesh, x), "element [0, 0] should be"),
    ("00.double", lambda mesh, x: columns(mesh, np.flip(x, 1).copy()) * 2, "device 4 at (0, 0)"),
    ("00.double", lambda mesh, x: ttkit.from_numpy(2 * x, mesh_mapper=cut(mesh, 1)), "host memory"),
    ("00.double", lambda mesh, x: columns(mesh, 2 * x), "NumPy did it on the host"),
    ("00.double", lambda mesh, x: through_the_host(mesh, 2 * x), "NumPy did it on the host"),
    ("00.double", lambda mesh, x: columns(mesh, 2 * x) * 1, "you put other numbers than the given ones"),
    ("00.double", lambda mesh, x: columns(mesh, x / 2) * 4, "you put other numbers than the given ones"),
    ("00.double", lambda mesh, x: columns(mesh, 2 * x) + columns(mesh, 0 * x), "NumPy computed on the host"),
    ("00.double", lambda mesh, x: columns(mesh, x) * 0 + columns(mesh, 2 * x), "NumPy computed on the host"),
    ("00.double", lambda mesh, x: ttnn.clone(columns(mesh, 2 * x)), "on the host"),
    ("00.double", by_a_copy, "NumPy computed on the host"),
    ("00.double", by_parts, "NumPy computed on the host"),
    ("00.double", there_and_back, "NumPy did it on the host"),
    ("00.double", lambda mesh, x: there_and_back(mesh, x) * 1, "NumPy computed on the host"),
    ("00.double", lambda mesh, x: None, "does it end in `return`"),
    ("00.double", lambda mesh, x: 2 * x, "gave a ndarray"),
    ("00.double", lambda mesh, x: ttkit.to_numpy(columns(mesh, x) * 2, mesh_composer=ttnn.ConcatMeshToTensor(mesh, dim=1)), "gave a ndarray"),
    ("00.double", lambda mesh: mesh, "it is called as double(mesh, x)"),
    ("00.double", lambda mesh, x: x.nothing, "your double stopped with AttributeError"),
    ("00.double", lambda mesh, x: mesh.close(), "closes the mesh"),
    ("00.double", np.ones(3), "without brackets"),
    ("00.share", 48 * 64, "whole tensor"),
    ("00.share", 48 * 64 // 4, "four devices"),
    ("00.share", 6, "rows a chip holds; each row has 64"),
    ("00.share", 48, "how many rows"),
    ("00.share", 64, "one row"),
    ("00.share", 8, "that cuts columns"),
    ("00.share", 1536, "bytes in float32"),
    ("00.share", "384", "whole number"),
    ("00.share", (6, 64), "whole number"),
    ("00.share", True, "whole number"),
    ("00.share", 10**400, "a whole number below 1e+18, is 1000"),
    ("00.share", 10**5000, "a whole number below 1e+18, is a int"),
    ("00.share", Fraction(10**400), "whole number"),
    ("00.share", Decimal("sNaN"), "whole number"),
    ("00.double", lambda mesh, x: sys.exit(), "your double stopped with SystemExit"),
    ("00.double", lambda mesh, x: itertools.count(), "gives values without end"),
]  # fmt: skip

test_a_right_answer_passes = right(RIGHT)
test_a_wrong_answer_is_told_where = wrong(
    [(name, answer, re.escape(names)) for name, answer, names in WRONG]
)


@pytest.mark.parametrize("name", ["00.double", "00.share"])
def test_an_exercise_has_wrong_answers_and_hints(name):
    assert sum(answer[0] == name for answer in WRONG) >= 4
    assert 2 <= len(lessons._HINTS[name]) <= 4
