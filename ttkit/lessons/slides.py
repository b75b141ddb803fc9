"""A slider whose picture answers a question, and the picture that stays where nothing moves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ttkit.visualize import _show
from ttkit.words import in_notebook


def slide(draw: Callable[[Any], Any], name: str, values: Sequence[Any], still: Any) -> None:
    """Show a slider over `values` with the picture of each; below it, the one that stays.

    Args:
        draw: makes the picture of a value.
        name: what the slider changes.
        still: for pages where nothing moves.
    """
    if in_notebook():
        show(slider(draw, name, values), name)
    _show(still)


def slider(draw: Callable[[Any], Any], name: str, values: Sequence[Any]) -> Any:
    """Return the widget: a slider, and below it the picture."""
    import ipywidgets as widgets

    how = {"style": {"description_width": "initial"}, "layout": {"width": "420px"}}
    control = widgets.SelectionSlider(options=values, description=name, **how)
    return followed(control, lambda value: draw(value)._repr_html_())


def followed(control: Any, page: Callable[[Any], str]) -> Any:
    """Return the widget: a control, and below it the page (HTML) of its value."""
    import ipywidgets as widgets

    picture = widgets.HTML()

    def update(_: Any = None) -> None:
        picture.value = page(control.value)

    control.observe(update, "value")
    update()
    return widgets.VBox([control, picture])


def show(widget: Any, name: str = "slider") -> None:
    """Display a widget; a saved page says what to move."""
    from IPython.display import display

    words = {"text/plain": f"Run this cell to move the {name}."}
    display({**widget._repr_mimebundle_(), **words}, raw=True)
