"""Interactive pictures: parts that one can touch, buttons that interrupt a cell, steps of plans.

Clicks, keys and drags on the parts of a picture go to a Python function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from ttkit.plans import Plan
from ttkit.visualize.drawing import on_page, size_text
from ttkit.visualize.plan import step_figure, step_pictures
from ttkit.words import in_notebook

# Where the page is narrow, a question breaks its line and a wide picture scrolls in its own box;
# ipywidgets would cut both. A list stands beside its question, not at the far end of the row.
NARROW = """
.ttkit-guess { flex-wrap: wrap; height: auto !important; }
.ttkit-guess > .widget-label {
    flex: 0 1 auto; height: auto; text-align: left; white-space: normal;
}
.ttkit-guess > select { flex: 0 1 auto; }
.ttkit-guess > input { max-width: 240px; }
.jupyter-widgets:has(> .widget-html-content .ttkit-picture),
.widget-html-content:has(.ttkit-picture) { max-width: 100%; min-width: 0; overflow-x: auto; }
"""


@cache
def _kinds() -> tuple[Any, Any]:
    """Return the classes of widgets; anywidget is imported when the first one is made."""
    import anywidget
    import traitlets

    class Touchable(anywidget.AnyWidget):  # type: ignore[misc]
        """The page in a browser, and what a reader does there."""

        _esm = Path(__file__).with_name("live.js")
        _css = NARROW
        page = traitlets.Unicode().tag(sync=True)

    class Buttons(anywidget.AnyWidget):  # type: ignore[misc]
        """The buttons in a browser, and a message beside them."""

        _esm = Path(__file__).with_name("buttons.js")
        labels = traitlets.Dict().tag(sync=True)
        kernel = traitlets.Unicode().tag(sync=True)
        once = traitlets.Bool().tag(sync=True)
        message = traitlets.Unicode().tag(sync=True)

    return Touchable, Buttons


def touchable(page: str, act: Callable[[str], str]):
    """Return a widget that shows a page (HTML) whose parts can be used with mouse and keyboard.

    A part with `data-act="text"` is used by a click, Enter or Space. A part with `data-drag="a"` is
    moved onto one with `data-drop="b"`, or with the arrow keys.

    Args:
        page: what is shown first.
        act: gets the part's text, "a>b" of a drag, "a left" or "a right" of an arrow key; returns
            the page that is shown then.
    """
    widget = _kinds()[0](page=page)

    def receive(_, message: dict[str, str], __) -> None:
        widget.page = act(message["act"])

    widget.on_msg(receive)
    return widget


def show_widget(widget, words: str):
    """Display a widget whose controls get their keys; a saved page has the words.

    Return IPython's handle of what is displayed.

    JupyterLab would take Enter, arrows and letters for itself: only its own text boxes get them.
    """
    import ipywidgets as widgets
    from IPython.display import display

    both = widgets.VBox([widget, _kinds()[0]()])
    return display({**both._repr_mimebundle_(), "text/plain": words}, raw=True, display_id=True)


def buttons(labels: dict[str, str], act: Callable[[str], str], once: bool = False):
    """Return buttons that first interrupt the kernel, even while a cell runs, and then act.

    Widgets wait for the end of the cell; these ask the server that the page comes from. Where the
    page comes from another program, they point to its stop button.

    Args:
        labels: what each is called, by its name.
        act: gets the name once the kernel is free; returns a message to show beside them.
        once: whether a button can be used only once.
    """
    from ipykernel.connect import get_connection_file

    kernel = Path(get_connection_file()).stem.removeprefix("kernel-")
    widget = _kinds()[1](labels=labels, kernel=kernel, once=once)

    def receive(_, message: dict[str, str], __) -> None:
        widget.message = act(message["act"])

    widget.on_msg(receive)
    return widget


def listed(pictures) -> list:
    """Return a picture, or several in a list, as a list."""
    return pictures if isinstance(pictures, list) else [pictures]


def live(widget, words: str, still) -> None:
    """Display a widget, and a still picture for saved pages, which the widget hides while it works.

    Args:
        words: what a saved page says in the widget's place.
        still: a picture, or several in a list.
    """
    import ipywidgets as widgets
    from IPython.display import display

    pictures = listed(still)
    page = "".join(picture._repr_html_() for picture in pictures)
    text = "\n".join(map(repr, pictures))
    # A digest is the same on every machine, so that saved notebooks do not change.
    name = f"ttkit-still-{sha256(text.encode()).hexdigest()[:8]}"
    hides = widgets.HTML(f"<style>#{name}{{display:none}}</style>", layout={"height": "0"})
    show_widget(widgets.VBox([widget, hides]), words)
    display({"text/html": f'<div id="{name}">{page}</div>', "text/plain": text}, raw=True)


def moving(draw: Callable[[dict[str, Any]], str], controls: dict[str, Any]):
    """Return controls (widgets) in a row, below them the page that `draw` makes of their values."""
    import ipywidgets as widgets

    page = widgets.HTML()

    def update(_=None) -> None:
        page.value = draw({name: control.value for name, control in controls.items()})

    for control in controls.values():
        control.observe(update, "value")
    update()
    return widgets.VBox(
        [widgets.HBox([*controls.values()], layout={"flex_flow": "row wrap"}), page]
    )


class Touched:
    """What a reader changes by touching its page; it has `page()`, `act(text)` and `figure()`."""

    hint = ""  # A saved page says this in the widget's place.

    def show(self) -> None:
        """Show it in a notebook, for mouse and keyboard; print it elsewhere."""
        if in_notebook():
            this: Any = self
            live(touchable(this.page(), this.act), self.hint, this.figure())
        else:
            print(self)


def stepper(*plans: Plan, names: Sequence[str] = ()):
    """Return a widget that shows one moment of one plan or several, and a slider.

    A plan of fewer steps stays at its last one."""
    import ipywidgets as widgets

    strips = [step_pictures(plan, names) for plan in plans]

    def draw(values: dict[str, int]) -> str:
        number, pages = values["step"], []
        for plan, strip in zip(plans, strips):
            sent = size_text(sum(plan.bytes_per_step[:number]))
            pages.append(step_figure(strip[min(number, len(strip) - 1)])._repr_html_())
            note = f"Sent so far: {sent} of {size_text(plan.total_bytes)}."
            pages.append(on_page(f'<div class="ttkit-note">{note}</div>'))
        return "".join(pages)

    last = max(map(len, strips)) - 1
    return moving(draw, {"step": widgets.IntSlider(min=0, max=last, description="step")})
