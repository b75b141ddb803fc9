"""No lesson types in what it could count: bytes, times and rates in the notebooks' sources come
from an object, or are listed here with a reason.
"""

import json
import math
import pathlib
import re

import pytest

NOTEBOOKS = sorted((pathlib.Path(__file__).resolve().parents[2] / "notebooks").glob("*.ipynb"))

NUMBER = r"(?<![\w.#])\d(?:[\d,._]*\d)?"
UNIT = r"(?:[KMGT]i?B/s|[KMGT]i?B|B|bytes?|[num\u00b5]s)"
MEASURED = re.compile(rf"{NUMBER}[ -]?{UNIT}(?![\w-])")  # 4,096 bytes; 24KiB; 11.78 GB/s; 137 us
# shard_bytes=4096; bytes_sent = 3 * 1024
SIZED = re.compile(rf"\w*bytes\w*\s*=\s*{NUMBER}(?:\s*[-+*/<]+\s*\d+)*")
LARGE = re.compile(r"(?<![\w.#])\d(?:[,_]?\d){3,}(?!\w)")  # 4096, 4,096
WORKED = re.compile(r"\d+(?: x \d+)+ = (\d[\d,]*)")  # 32 x 32 x 4 = 4,096
SENTENCE = re.compile(r"(?<=[.!?:;|])\s+|\n")

# the lessons that name a model of this size
MODELS = {
    "3B": "10 27", "7B": "20", "8B": "07 11 12 13 18 19 22 23 24 25 26",
    "34B": "28", "70B": "00 06 11 24 26", "405B": "24",
}  # fmt: skip
# (lesson, what is typed): why it may be. What a run would show has no place here.
ALLOWED = {
    ("00", "12 GB"): "published: the about() cell prints it from ttkit/hardware",
    ("01", "64 MiB"): "an input: what each chip passes on",
    ("02", "4 bytes"): "the size of a float32",
    ("02", "2 bytes"): "the size of a bfloat16",
    **{
        (lesson, size): "a model's name: billions of parameters"
        for size, names in MODELS.items()
        for lesson in names.split()
    },
    ("13", "1.9 GB"): "published: Figure 1 of the paper that the cell before computes",
}


def typed_in(source: str) -> list[str]:
    """What somebody typed into a cell: numbers with a unit of bytes or of time, and large ones
    in a sentence that speaks of bytes.
    """
    found = {
        match.start(): match[0] for match in [*SIZED.finditer(source), *MEASURED.finditer(source)]
    }
    at = 0
    for sentence in SENTENCE.split(source):
        start = source.index(sentence, at)
        at = start + len(sentence)
        if re.search(r"\bbytes?\b", sentence):
            for match in LARGE.finditer(sentence):
                found.setdefault(start + match.start(), match[0])
    for match in WORKED.finditer(source):
        product, result = match[0].split(" = ")
        if math.prod(map(int, product.split(" x "))) == int(result.replace(",", "")):
            found.pop(match.start(1), None)  # a sum that is spelled out, and right
    return [" ".join(text.split()) for _, text in sorted(found.items())]


def cells(path: pathlib.Path) -> list[dict]:
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


def sources(path: pathlib.Path) -> list[str]:
    """The sources of code and prose; outputs are what a run printed."""
    return ["".join(cell["source"]) for cell in cells(path)]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_lesson_types_in_a_count(path):
    lesson = path.stem[:2]
    found = {(lesson, text) for source in sources(path) for text in typed_in(source)}
    there = {each for each in ALLOWED if each[0] == lesson}
    assert not found - there, "a cell should print it, or ALLOWED should explain it"


def test_only_the_output_of_widgets_curves_and_of_what_is_installed_is_not_compared():
    unseen = [
        (path.stem[:2], "".join(cell["source"]))
        for path in NOTEBOOKS
        for cell in cells(path)
        if "nbval-ignore-output" in cell["metadata"].get("tags", [])
    ]
    widgets = [lesson for lesson, source in unseen if "step_through(" in source]
    # nbval sees the chart before the first step
    curves = [lesson for lesson, source in unseen if "trainer.fit(" in source]
    # whether torch is here
    says = [lesson for lesson, source in unseen if "activate_torch_cells()" in source]
    assert len(widgets) <= 1 and set(curves) == {"17"} and says == ["07"], unseen
    assert len(unseen) == len(widgets + curves + says), unseen


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("The busiest link carries 4,096 bytes.", ["4,096 bytes"]),
        ("Each chip sends 3 KiB, then 1.5 MiB.", ["3 KiB", "1.5 MiB"]),
        ("a 24-byte message, 512B of it", ["24-byte", "512B"]),
        ("It takes 137 us at 11.78 GB/s.", ["137 us", "11.78 GB/s"]),
        ("Of all the bytes, 7340032 arrive.", ["7340032"]),
        ("Bytes on the busiest link: see above. There are 4096 rows.", []),
        ("| a chip sends | 3,145,728 bytes |", ["3,145,728 bytes"]),
        ("A tile is 32 x 32 x 4 = 4,096 bytes.", []),
        ("A tile is 32 x 32 x 2 = 4,096 bytes.", ["4,096 bytes"]),
        ("plan = Plan('all_gather', row, steps, shard_bytes=4096)", ["shard_bytes=4096"]),
        ("total_bytes = 3 * 1024", ["total_bytes = 3 * 1024"]),
        ("print('each sends 2048 bytes')", ["2048 bytes"]),
        ("print(f'{plan.total_bytes:,} bytes in {len(plan.steps)} steps')", []),
        ("size = 1 << 20  # a shard of one MiB", []),
        ("Plan('broadcast', row, steps, shard_bytes, axis=1, root=1)", []),
        ("shard_bytes=shards[0].nbytes", []),
        ("if plan.total_bytes == 4096: pass", []),
        ("a 2 x 4 mesh, eight chips, seven of eight", []),
        ("ttnn 0.81.1, cell 04-12, in 2024", []),
    ],
)
def test_the_detector(source, found):
    assert typed_in(source) == found
