"""docs/ttnn.md: made from the code and the names of the real library; and the names that
Tenstorrent's own multi-device programs use.
"""

import json
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "docs"))
import make_ttnn  # noqa: E402

USED = json.loads((ROOT / "tests" / "course" / "upstream_names.json").read_text())["names"]


def test_the_page_is_in_step():
    page = (ROOT / "docs" / "ttnn.md").read_text(encoding="utf-8")
    assert page == make_ttnn.made(), "run docs/make_ttnn.py"


def test_names_of_tenstorrents_programs():
    assert len(USED) == 278
    missing = {n for n in USED if not make_ttnn.is_here(n) and not make_ttnn.out_of_scope(n)}
    assert not missing


def test_what_is_out_of_scope_is_little():
    gone = {name for name in USED if not make_ttnn.is_here(name) and make_ttnn.out_of_scope(name)}
    assert gone == set(
        "Conv2dConfig conv2d experimental.neighbor_pad_async experimental.slice_reshard_async "
        "graph.pretty_print graph.visualize max_pool2d prepare_conv_weights".split()
    )


@pytest.mark.parametrize(
    "name, kind",
    [
        ("add", "here"), ("experimental.nlp_concat_heads", "here"), ("DataType.BFLOAT16", "here"),
        ("MathFidelity.HiFi2", "a hint"), ("moreh_adam", "not here"),
        ("DataType.FP8_E4M3", "not here"), ("generic_op", "out of scope"),
        ("avg_pool2d", "out of scope"),
        ("device.IsProgramRealtimeProfilerActive", "out of scope"),
    ],
)  # fmt: skip
def test_kinds(name, kind):
    assert name in dict(make_ttnn.recorded())
    assert make_ttnn.kind_of(name) == kind


def test_every_name_of_the_simulator_is_the_librarys():
    """No public name of ours is unknown to the real library."""
    from ttkit.sim import ttnn

    known = {name for name, _ in make_ttnn.recorded()}
    ours = {name for name in vars(ttnn) if not name.startswith("_")}
    assert ours - known <= set(make_ttnn.SPACES)
