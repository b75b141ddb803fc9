"""Controls whose picture answers a question, and the picture that stays where nothing moves."""

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
    """Show a control for each argument of `draw`, and the picture of their values.

    Where no kernel runs, the picture of the first values stays. On a terminal it is printed. The
    parts of a picture that has an `act` method can be clicked, as those of `touchable`.

    Args:
        draw: takes a value of each control by name; returns a picture, or several in a list. What
            it refuses (RuntimeError, TypeError, ValueError) is shown in red, in its words.
        start: the values to begin with, where they are not the first.
        still: the picture that stays, where it is another one than the first.
        purpose: what the controls are for, after "Run this cell to"; by default to change them.
        moves: the slider that has buttons to play and to pause, one value every 1.6 seconds.
        tallest: the values of the tallest picture, where it is not the first. Room is kept for it,
            so that the page does not jump; a taller one scrolls.
        controls: for each name its values: a sequence of numbers (a slider), of words or a
            mapping from words to values (a list), or a bool (a box to tick).

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
    """Return the widget: the controls in a row, below them the picture of their values."""
    import ipywidgets as widgets

    handles = {name: _handle(name, given, values[name]) for name, given in controls.items()}

    def now():
        return draw(**{name: handle.value for name, handle in handles.items()})

    room = first = page_of(now)
    if tallest:
        pictures = draw(**{**values, **tallest})  # What it refuses is a fault of the caller.
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
    """Return the HTML of what is drawn, or of the words that refuse it."""
    try:
        pictures = draw()
    except (RuntimeError, TypeError, ValueError) as error:
        return on_page(message_box(str(error)))
    return "".join(picture._repr_html_() for picture in listed(pictures))


def _handle(name: str, given: Values, value):
    """Return the control for a name: a box to tick, a slider for numbers, a list for words."""
    import ipywidgets as widgets

    how: dict[str, Any] = {"description": name.replace("_", " "), "value": value}
    if isinstance(given, bool):
        return widgets.Checkbox(**how, indent=False)
    options = list(given.items()) if isinstance(given, Mapping) else list(given)
    if isinstance(given, Mapping) or any(isinstance(one, str) for one in options):
        return widgets.Dropdown(options=options, **how)
    return widgets.SelectionSlider(options=options, **how)
