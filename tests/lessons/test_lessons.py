"""The lessons' helper room: predictions, comparisons, and what Jupyter shows of an error."""

import pickle

import numpy as np
import pytest

import ttkit
from ttkit import lessons, ttnn


def test_an_answer_that_is_not_there_and_an_exercise_that_is_not():
    with pytest.raises(lessons.NotDone):
        lessons.check("00.share", ...)
    with pytest.raises(lessons.NotDone, match="write it"):
        lessons.todo("write it")
    with pytest.raises(lessons.CheckFailed, match="there is no exercise"):
        lessons.check("99.none", 1)


@pytest.mark.parametrize(
    ("guess", "fact", "verdict"),
    [
        (4, 4, "right"),
        (10, 11, "off by 1"),
        (2, 8, "4 times too small"),
        (np.int64(4096), 1024, "4 times too large"),
        (384.0, 384, "you said 384  it is 384  right"),
        (0, 8, "off by 8"),
        (-2, 8, "off by 10"),
        (0.1 + 0.2, 0.3, "off by 5.55112e-17"),
        (1.5, np.float32(3), "2 times too small"),
        ("4", 7, "you said 4  it is 7  not it"),
        ("7", 7, "right"),
        (4, "four", "not it"),
        (8, (8, 4), "it is (8, 4)  not it"),
    ],
)
def test_a_prediction_and_the_fact(guess, fact, verdict, capsys):
    lessons.predict(a=guess).reveal(a=fact)
    assert verdict in capsys.readouterr().out


@pytest.mark.parametrize(
    "guess", ["?", "", " ... ", ..., None, True, float("nan"), float("inf"), [4], 1j]
)
def test_no_number_yet(guess):
    with pytest.raises(lessons.NotDone, match="replace a="):
        lessons.predict(a=guess)


def test_a_fact_that_was_not_predicted(capsys):
    with pytest.raises(ttkit.TTKitError, match="that was not predicted, rows, columns was"):
        lessons.predict(rows=1, columns=2).reveal(rows=1, bytes=3)
    assert not capsys.readouterr().out


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
        (np.float32(0.04053971), np.float32(0.0810794), "should be 0.04054, is 0.08108 "),
        (np.float32(0.04053970), np.float32(0.0810793), "should be 0.04054, is 0.08108 "),
        (1.23451, 1.23457, "should be 1.23451, is 1.23457 "),
        (123456.0, 123457.0, "should be 123456, is 123457 "),
        (np.int32(123456), np.int32(123457), "should be 123456, is 123457 "),
        (1.5, float("nan"), "should be 1.5, is nan "),
    ],
)
def test_a_difference_has_as_many_digits_as_show_it(want, have, said):
    """And no more than every CPU agrees on."""
    assert said in lessons.difference(np.array([want]), np.array([have]), rtol=1e-6)


def test_same_names_the_first_difference():
    with pytest.raises(lessons.CheckFailed, match=r"element \[1\] should be 2, is 3"):
        lessons.same(np.array([1.0, 2.0]), np.array([1.0, 3.0]))
    with pytest.raises(lessons.CheckFailed, match="shape should be"):
        lessons.same(np.ones(2), np.ones(3))
