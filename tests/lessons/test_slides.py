"""The lessons' sliders: each value has its picture, and a page where nothing moves has one, too."""

import pytest

import ttkit.visualize
from ttkit.lessons import slides
from ttkit.visualize.charts import Stacks

PICTURES = {n: Stacks(f"{n} tokens", {"expert": (n,)}, ["kept"]) for n in (1, 2, 3)}


def test_each_value_has_its_picture():
    pytest.importorskip("ipywidgets")
    control, picture = slides.slider(PICTURES.get, "tokens", [1, 2, 3]).children
    assert picture.value == PICTURES[1]._repr_html_()
    control.value = 3
    assert picture.value == PICTURES[3]._repr_html_() != PICTURES[1]._repr_html_()


def test_in_a_notebook_the_slider_is_followed_by_the_picture_that_stays(monkeypatch):
    display = pytest.importorskip("IPython.display")
    pytest.importorskip("ipywidgets")
    shown = []
    for module in (slides, ttkit.visualize):
        monkeypatch.setattr(module, "in_notebook", lambda: True)
    monkeypatch.setattr(display, "display", lambda thing, **_: shown.append(thing))
    slides.slide(PICTURES.get, "tokens", [1, 2, 3], PICTURES[2])
    widget, picture = shown
    assert "application/vnd.jupyter.widget-view+json" in widget
    assert widget["text/plain"] == "Run this cell to move the tokens."
    assert picture["text/plain"] == repr(PICTURES[2])


def test_on_a_terminal_the_picture_is_in_words(capsys):
    slides.slide(PICTURES.get, "tokens", [1, 2, 3], PICTURES[2])
    assert capsys.readouterr().out == "2 tokens\n  expert: 2 kept\n"
