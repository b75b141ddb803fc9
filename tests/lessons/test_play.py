"""Controls over pictures: each value has its picture, and a page where nothing moves has one."""

import pytest

from ttkit import lessons
from ttkit.lessons.play import play
from ttkit.visualize.charts import Stacks
from ttkit.visualize.widgets.play import panel


def picture(tokens, kind="kept", whole=True):
    if tokens == 3:
        raise RuntimeError("3 tokens do not divide <by> 2")
    return Stacks(f"{tokens} tokens, whole: {whole}", {"expert": (tokens,)}, [kind])


def made(**start):
    controls = {"tokens": [1, 2, 3], "kind": ["kept", "lost"], "whole": True}
    values = {"tokens": 1, "kind": "kept", "whole": True} | start
    return panel(picture, values, controls)


def test_each_value_has_its_picture():
    row, shown = made(tokens=2).children
    tokens, kind, whole = row.children
    assert [one.description for one in row.children] == ["tokens", "kind", "whole"]
    assert shown.page == picture(2)._repr_html_()
    tokens.value, kind.value, whole.value = 1, "lost", False
    assert shown.page == picture(1, "lost", False)._repr_html_()


def test_what_is_refused_is_said_in_red_and_the_next_value_has_its_picture():
    row, shown = made().children
    row.children[0].value = 3
    assert 'role="status">3 tokens do not divide &lt;by&gt; 2<' in shown.page
    row.children[0].value = 2
    assert shown.page == picture(2)._repr_html_()


def test_room_is_kept_for_the_first_picture_or_for_the_tallest():
    _, shown = made(tokens=2).children
    assert shown.tallest == shown.page == picture(2)._repr_html_()
    controls = {"tokens": [1, 2, 4]}
    _, shown = panel(picture, {"tokens": 1}, controls, tallest={"tokens": 4}).children
    assert shown.tallest == picture(4)._repr_html_() != shown.page


def test_in_a_notebook_the_picture_that_stays_is_hidden_while_the_widget_lives(monkeypatch):
    display = pytest.importorskip("IPython.display")
    outputs = []
    monkeypatch.setattr("ttkit.visualize.widgets.play.in_notebook", lambda: True)
    monkeypatch.setattr(display, "display", lambda thing, **_: outputs.append(thing))
    play(picture, tokens=[1, 2, 3], start={"tokens": 2})
    widget, still = outputs
    assert widget["text/plain"] == "Run this cell to change tokens."
    assert "application/vnd.jupyter.widget-view+json" in widget
    assert picture(2)._repr_html_() in still["text/html"]
    assert still["text/plain"] == repr(picture(2))


def test_on_a_terminal_the_picture_is_in_words(capsys):
    play(picture, tokens={"one": 1, "two": 2}, still=[picture(1), picture(2)])
    assert capsys.readouterr().out.count("tokens, whole: True\n") == 2


def test_a_reader_who_touches_a_part_gets_the_next_page():
    from ttkit.visualize.widgets import touchable

    acts = []
    widget = touchable("first", lambda act: acts.append(act) or f"after {act}")
    widget._handle_custom_msg({"act": "4>0"}, [])
    assert acts == ["4>0"] and widget.page == "after 4>0"


def test_tidy_closes_what_was_left_open():
    from ttkit import ttnn
    from ttkit.train import AutoContext

    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    ttnn.open_mesh_device(ttnn.MeshShape(2, 4))  # its name is lost
    lessons.tidy()
    assert ttnn.get_fabric_config() == ttnn.FabricConfig.DISABLED
    context = AutoContext.get_instance()
    context.open_device([2, 4])
    lessons.tidy()
    context.open_device([1, 8])
    lessons.tidy()
