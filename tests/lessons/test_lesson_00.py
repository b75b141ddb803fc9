"""Lesson 00: its quotation, and its exercises with right and with wrong answers."""

import json
import re
from pathlib import Path

import numpy as np
from answers import both, columns, rows

import ttkit
from ttkit import ttnn

ROOT = Path(__file__).resolve().parents[2]


# ---------------------------------------------------------------- the finished thing
def cells(lesson):
    (path,) = (ROOT / "notebooks").glob(f"{lesson}_*.ipynb")
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


def test_the_quoted_text_is_what_lesson_17_prints():
    first = "".join(cells("00")[0]["source"])
    quoted = re.findall(r"(?:^> .*\n)+", first, re.M)
    quotes = [quote.replace("> ", "").strip().removesuffix(" ...") for quote in quoted]
    assert [quote[:7] for quote in quotes] == ["The fox"] * 2
    printed = "".join(
        "".join(output.get("text", ""))
        for cell in cells("17")
        if cell["cell_type"] == "code"
        for output in cell["outputs"]
    )
    assert [quote for quote in quotes if quote not in printed] == []


# ---------------------------------------------------------------- the exercises
def through_the_host(mesh, x):
    host = ttkit.from_numpy(x, layout=ttnn.TILE_LAYOUT)
    return ttnn.distribute_tensor(host, ttnn.shard_tensor_to_mesh_mapper(mesh, 1), mesh)


test_a_right_answer_passes, test_a_wrong_answer_is_told_where = both(
    {
        "00.double": (
            [
                lambda mesh, x: columns(mesh, x) * 2,
                lambda mesh, x: ttnn.add(*[through_the_host(mesh, x)] * 2),
            ],
            {
                "you cut rows (dimension 0); cut columns": lambda mesh, x: rows(mesh, x) * 2,
                "the devices computed nothing: NumPy did it": lambda mesh, x: columns(mesh, 2 * x),
                "device 4 at (0, 0): element [0, 0] should be": lambda mesh, x: (
                    columns(mesh, x) + 2
                ),
                "the target is 24,576": lambda mesh, x: columns(mesh, x) + columns(mesh, x),
            },
        ),
        "00.share": ([384, np.int64(384)], {"is not 5": 5, "divided by eight twice": 48}),
    }
)
