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
        from IPython.display import display

        words = {"text/plain": f"Run this cell to move the {name}."}  # on a saved page
        display({**slider(draw, name, values)._repr_mimebundle_(), **words}, raw=True)
    _show(still)


def slider(draw: Callable[[Any], Any], name: str, values: Sequence[Any]) -> Any:
    """Return the widget: a slider, and below it the picture."""
    import ipywidgets as widgets

    how = {"style": {"description_width": "initial"}, "layout": {"width": "420px"}}
    picture = widgets.HTML()
    control = widgets.SelectionSlider(options=values, description=name, **how)

    def show(_: Any = None) -> None:
        picture.value = draw(control.value)._repr_html_()

    control.observe(show, "value")
    show()
    return widgets.VBox([control, picture])
