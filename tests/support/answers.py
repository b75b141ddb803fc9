"""What the tests of every lesson's exercises do with right answers and with wrong ones."""

import pytest

from ttkit import lessons


def numbered(answers):
    """A name for each, as "07.swiglu-2"."""
    return [f"{name}-{i}" for i, (name, *_) in enumerate(answers)]


def right(answers):
    """A test that the check of its exercise takes each (exercise, answer), and says so first."""

    @pytest.mark.parametrize(("name", "answer"), answers, ids=numbered(answers))
    def test(name, answer, capsys):
        lessons.check(name, answer)
        assert capsys.readouterr().out.startswith(f"exercise {name}: ")

    return test


def wrong(answers):
    """A test that each (exercise, answer, what the feedback must name, as a pattern) is refused
    with such a feedback.
    """

    @pytest.mark.parametrize(("name", "answer", "names"), answers, ids=numbered(answers))
    def test(name, answer, names):
        with pytest.raises(lessons.CheckFailed, match=names):
            lessons.check(name, answer)

    return test
