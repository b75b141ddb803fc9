"""The lessons' helper room: predictions, comparisons, and what Jupyter shows of an error."""

import pickle

import numpy as np
import pytest

from ttkit import lessons, ttnn
from ttkit.lessons.comparing import LINE


@pytest.mark.parametrize(
    ("source", "kind", "last"),
    [
        (
            "def f():\n    ttnn.open_mesh_device(ttnn.MeshShape(3, 3))\nf()",
            "TTKitError",
            ["  in line 3 of your cell", "  in line 2 of your cell"],
        ),
        ("ttnn.relu(3)", "TypeError", ["  in line 1 of your cell"]),
    ],
)
def test_jupyter_shows_the_message_and_the_learners_lines(source, kind, last):
    with pytest.raises(Exception) as error:
        exec(compile(source, "a cell", "exec"), {"__name__": "__main__", "ttnn": ttnn})
    message, *lines = error.value._render_traceback_()
    assert message == f"{kind}: {error.value}" and lines == last
    assert type(pickle.loads(pickle.dumps(error.value))).__name__ == kind


@pytest.mark.parametrize(
    ("want", "have", "said"),
    [
        (np.float32(0.04053971), np.float32(0.0810794), "should be 0.04054, but is 0.08108 "),
        (np.float32(0.04053970), np.float32(0.0810793), "should be 0.04054, but is 0.08108 "),
        (1.23451, 1.23457, "should be 1.23451, but is 1.23457 "),
        (123456.0, 123457.0, "should be 123456, but is 123457 "),
        (np.int32(123456), np.int32(123457), "should be 123456, but is 123457 "),
        (1.5, float("nan"), "should be 1.5, but is nan "),
    ],
)
def test_a_difference_has_as_many_digits_as_show_it(want, have, said):
    """And no more than every CPU agrees on."""
    assert said in lessons.difference(np.array([want]), np.array([have]), rtol=1e-6)


def test_same_names_the_first_difference():
    with pytest.raises(lessons.CheckFailed, match=r"element \[1\] should be 2, but is 3"):
        lessons.same(np.array([1.0, 2.0]), np.array([1.0, 3.0]))
    with pytest.raises(lessons.CheckFailed, match="shape should be"):
        lessons.same(np.ones(2), np.ones(3))


def test_a_long_message_breaks_between_words():
    words = "device 4 at (0, 0): with cluster_axis=1 elements differ\n  try: " + "all_gather " * 30
    (shown,) = lessons.CheckFailed(words.strip())._render_traceback_()
    lines = shown.splitlines()
    assert len(lines) > 3 and max(map(len, lines)) <= LINE
    assert lines[1].startswith("  try: ") and shown.split()[2:] == words.split()
