"""Lesson 00: its quotation, its picture, and its exercises with right and with wrong answers."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from answers import both, cut, everywhere, put
from machine import strict_with_fabric

import ttkit
from course.lesson_00 import draw_shares, shares
from ttkit import ttnn
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


test_a_right_answer_passes, test_a_wrong_answer_is_told_where = both(
    {
        "00.double": (
            [
                lambda mesh, x: columns(mesh, x) * 2,
                lambda mesh, x: ttnn.add(*[through_the_host(mesh, x)] * 2),
            ],
            {
                "these are rows, dimension 0": lambda mesh, x: put(mesh, x, cut(mesh, 0)) * 2,
                "every device holds all columns": lambda mesh, x: (
                    put(mesh, x, everywhere(mesh)) * 2
                ),
                "nothing doubled them": columns,
                "doubled twice": lambda mesh, x: columns(mesh, x) * 4,
                "NumPy did it on the host": lambda mesh, x: columns(mesh, 2 * x),
                "device 4 at (0, 0): element [0, 0] should be": lambda mesh, x: (
                    columns(mesh, x) + 2
                ),
                "the target is 24,576": lambda mesh, x: columns(mesh, x) + columns(mesh, x),
            },
        ),
        "00.share": (
            [384, np.int64(384)],
            {"each row has 64 elements": 6, "whole tensor": 48 * 64, "is not 5": 5},
        ),
    }
)
