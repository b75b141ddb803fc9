"""Controls for the arguments of a picture, and the still picture that a saved page shows."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ttkit.visualize.drawing import message_box, on_page
from ttkit.visualize.widgets import listed, live, touchable
from ttkit.words import in_notebook

Values = Sequence | Mapping[str, Any] | bool


def play(
    draw: Callable,
    *,
    start: Mapping[str, Any] | None = None,
    still=None,
    purpose: str = "",
    moves: str = "",
    tallest: Mapping[str, Any] | None = None,
    **controls: Values,
) -> None:
    """Show a control for each argument of `draw`, and the picture for the values of the controls.

    On a page without a kernel, the picture of the start values is shown. On a terminal that picture
    is printed. If a picture has an `act` method, its parts can be clicked, as in `touchable`.

    Args:
        draw: a function that takes the value of each control by name, and returns a picture or a
            list of pictures. If it raises an error when a control changes, the message is shown in
            red.
        start: the start values that are not the first values of their controls.
        still: the picture for a page without a kernel; by default that of the start values.
        purpose: the text after "Run this cell to" on a saved page; by default "change" and the
            names of the controls.
        moves: the name of a slider that gets buttons to play and to pause; it then takes a new
            value every 1.6 seconds.
        tallest: the values that give the tallest picture, if the start values do not. Room is kept
            for that picture, so that the page does not jump; a taller picture scrolls.
        controls: the values of each control: a sequence, or a mapping from the words of each value
            to the value. Numbers give a slider, other values a drop-down list. A bool gives a
            checkbox.

    Example:
        >>> from ttkit.visualize.charts import Stacks
        >>> def bars(tokens):
        ...     return Stacks(f"{tokens} tokens", {"expert": (tokens,)}, ["kept"])
        >>> play(bars, tokens=[1, 2, 3], start={"tokens": 2})
        2 tokens
          expert: 2 kept
    """
    values = {name: _first(given) for name, given in controls.items()} | dict(start or {})
    first = draw(**values) if still is None else still
    if in_notebook():
        names = ", ".join(name.replace("_", " ") for name in controls)
        words = f"Run this cell to {purpose or f'change {names}'}."
        live(panel(draw, values, controls, moves, tallest), words, first)
    else:
        for picture in listed(first):
            print(picture)


def _first(given: Values):
    if isinstance(given, bool):
        return given
    return next(iter(given.values() if isinstance(given, Mapping) else given))


def panel(
    draw: Callable,
    values: dict[str, Any],
    controls: Mapping[str, Values],
    moves: str = "",
    tallest: Mapping[str, Any] | None = None,
):
    """Return the widget: a row of controls, and below it the picture for their values."""
    import ipywidgets as widgets

    handles = {name: _handle(name, given, values[name]) for name, given in controls.items()}

    def now():
        return draw(**{name: handle.value for name, handle in handles.items()})

    room = first = page_of(now)
    if tallest:
        # An error here is not shown on the page but raised: the caller gave wrong values.
        pictures = draw(**{**values, **tallest})
        room = page_of(lambda: pictures)
    page = touchable(first, lambda part: now().act(part), room)

    def update(_) -> None:
        page.busy = True
        page.page = page_of(now)
        page.busy = False

    for handle in handles.values():
        handle.observe(update, "value")
    row = list(handles.values())
    if moves:
        player = widgets.Play(max=len(handles[moves].options) - 1, interval=1600)
        widgets.jslink((player, "value"), (handles[moves], "index"))
        row.insert(0, player)
    return widgets.VBox([widgets.HBox(row).add_class("ttkit-controls"), page])


def page_of(draw: Callable) -> str:
    """Return the HTML of the pictures that `draw` returns, or of the error that it raises."""
    try:
        pictures = draw()
    except Exception as error:
        return on_page(message_box(str(error)))
    return "".join(picture._repr_html_() for picture in listed(pictures))


def _handle(name: str, given: Values, value):
    """Return the control for a name: a checkbox, a slider for numbers, or a drop-down list."""
    import ipywidgets as widgets

    how: dict[str, Any] = {"description": name.replace("_", " "), "value": value}
    if isinstance(given, bool):
        return widgets.Checkbox(**how, indent=False)
    named = given if isinstance(given, Mapping) else {str(each): each for each in given}
    numbers = all(isinstance(each, (int, float)) for each in named.values())
    kind = widgets.SelectionSlider if numbers else widgets.Dropdown
    return kind(options=list(named.items()), **how)
