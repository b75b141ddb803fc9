"""Interactive pictures, and the still pictures that a saved page shows in their place.

Clicks, keys and drags on the parts of a picture go to a Python function."""

from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from ttkit.words import in_notebook

# Controls are side by side, each as wide as its words, so that the picture below them stays in
# sight. On a narrow page, the text of a question wraps, and a wide picture scrolls in its own
# box; ipywidgets alone would cut off both. The input boxes of a card form one column, to the right
# of the longest question. A card has a line above and a line below, but none at its sides, because
# its pictures need the whole width. Without the rule for `pre`, JupyterLab would break printed
# lines inside words.
STYLE = """
.ttkit-controls { align-items: center; flex-flow: row wrap; gap: 2px 20px; height: auto; }
.ttkit-controls > .widget-inline-hbox { margin: 2px 0; max-width: 100%; width: auto; }
.ttkit-controls > .widget-inline-hbox > .widget-label { min-width: max-content; width: auto; }
.ttkit-controls > .widget-checkbox > .widget-label { display: none; }
.ttkit-controls select { padding-right: 26px; width: auto; }
.ttkit-controls .slider-container { margin-left: 14px; width: 120px; }
.ttkit-controls .noUi-handle {
    background: var(--jp-brand-color1, #3466b8); border-color: transparent; box-shadow: none;
}
.ttkit-controls .widget-readout { margin-left: 14px; min-width: 6ch; text-align: left; }
.ttkit-card {
    display: grid; gap: 2px 12px; grid-template-columns: fit-content(min(42em, 65%)) minmax(0, 1fr);
}
.ttkit-card > * { grid-column: 1 / -1; min-width: 0; }
.ttkit-guess {
    align-items: center; display: grid; grid-template-columns: subgrid; height: auto !important;
    width: auto !important;
}
.ttkit-guess > .widget-label {
    height: auto; line-height: 1.4; text-align: left; white-space: normal; width: auto;
}
.ttkit-guess > select {
    height: 28px !important; justify-self: start; max-width: 100%; min-width: 140px;
}
.ttkit-guess > input { max-width: min(140px, 100%); min-width: 0; }
.ttkit-card p { line-height: 1.5; margin: 0 0 6px; }
.ttkit-card b { color: var(--jp-brand-color1, #3466b8); }
[data-verdict="right"] b, [data-verdict="close enough"] b {
    color: var(--jp-success-color0, #388e3c);
}
[data-verdict="right"] b::after, [data-verdict="close enough"] b::after { content: " \\2713"; }
.ttkit-card, .ttkit-to-do, .ttkit-done {
    border-bottom: 1px solid var(--jp-border-color2, #8a94a3);
    border-top: 3px solid var(--jp-brand-color1, #3466b8); margin: 2px 0; padding: 6px 0;
}
.ttkit-card::before, .ttkit-to-do::before, .ttkit-done::before {
    color: var(--jp-ui-font-color2, #586274); font-size: 11px; grid-column: 1 / -1;
    letter-spacing: 0.06em; line-height: 18px; margin-left: 2px; text-transform: uppercase;
}
.ttkit-card::before { color: var(--jp-brand-color1, #3466b8); content: "Predict"; }
.ttkit-to-do::before { content: "Your turn"; }
.ttkit-to-do { border-top-color: var(--jp-border-color1, #8a94a3); }
.ttkit-to-do:has(.ttkit-alarm) { border-top-color: var(--jp-error-color1, #d64545); }
.ttkit-to-do .ttkit-picture .ttkit-alarm { font-size: 13px; line-height: 1.5; }
.jp-OutputArea-child:has(.ttkit-to-do .ttkit-alarm) + .jp-OutputArea-child
.jp-RenderedText:not(:has(span)) { display: none; }
.ttkit-done::before { content: "Done"; }
.ttkit-done { border-top-color: var(--jp-success-color0, #388e3c); }
.ttkit-done .widget-label::before {
    color: var(--jp-success-color0, #388e3c); content: "\\2713\\a0";
}
.ttkit-card button, .ttkit-to-do button, .widget-play button {
    border: 1px solid var(--jp-border-color1, #8a94a3); border-radius: 5px; width: auto;
}
.ttkit-card > .widget-hbox > button:first-child {
    background: var(--jp-brand-color1, #3466b8); border-color: transparent;
    color: var(--jp-ui-inverse-font-color1, white);
}
.widget-play button { margin: 0 2px 0 0; padding: 0 12px; }
:is(.ttkit-to-do, .ttkit-done) .widget-hbox { align-items: center; flex-wrap: wrap; height: auto; }
:is(.ttkit-to-do, .ttkit-done) .widget-label {
    flex: 0 1 auto; font-weight: 600; height: auto; line-height: 1.5; margin-right: 12px;
    max-width: 800px; white-space: pre-line;
}
.ttkit-to-do .jp-RenderedText pre {
    font-family: var(--jp-ui-font-family, sans-serif); line-height: 1.5; max-width: 800px;
    white-space: pre-line;
}
.ttkit-beside { align-items: flex-start; display: flex; flex-wrap: wrap; gap: 0 24px; }
.ttkit-beside > * { max-width: 100%; min-width: 0; }
.ttkit-beside svg { zoom: 1.3; }
.ttkit-beside > :last-child { flex: 1 1 430px; padding-top: 18px; }
.jp-RenderedText pre { overflow-wrap: anywhere; word-break: normal; }
[data-jp-theme-light="false"] .widget-dropdown > select {
    background-image: url("data:image/svg+xml,\
%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 18 18'%3E\
%3Cpath d='M5 7l4 4 4-4' fill='none' stroke='%23e8ecf2' stroke-width='1.5'/%3E%3C/svg%3E");
}
.jupyter-widgets:has(> .widget-html-content .ttkit-picture),
.widget-html-content:has(.ttkit-picture) { max-width: 100%; min-width: 0; overflow-x: auto; }
[aria-busy="true"]:has(> .ttkit-picture) { opacity: 0.4; transition: opacity 0.1s 0.2s; }
"""


@cache
def _widget_class() -> Any:
    """Return the class of the widget; anywidget is imported when the first one is made."""
    import anywidget
    import traitlets

    class PageWidget(anywidget.AnyWidget):  # type: ignore[misc]
        """A page in a browser, which sends the reader's actions to the kernel."""

        _esm = Path(__file__).with_name("live.js")
        _css = STYLE
        page = traitlets.Unicode().tag(sync=True)
        tallest = traitlets.Unicode().tag(sync=True)
        busy = traitlets.Bool().tag(sync=True)  # The page is pale while another one is made.

    return PageWidget


def touchable(page: str, act: Callable[[str], str], tallest: str = ""):
    """Return a widget that shows a page (HTML) whose parts can be used with mouse and keyboard.

    A reader uses a part with `data-act="text"` by a click, Enter or Space. A reader drags a part
    with `data-drag="a"` onto a part with `data-drop="b"`, or moves it with the arrow keys.

    Args:
        page: the page that is shown first.
        act: a function that takes the text of a used part, "a>b" after a drag, or "a left" or "a
            right" after an arrow key. It returns the page that is shown next.
        tallest: the widget is always as tall as this page, so that the content below it does not
            move; a taller page scrolls.
    """
    widget = _widget_class()(page=page, tallest=tallest)

    def receive(_, message: dict[str, str], __) -> None:
        widget.page = act(message["act"])

    widget.on_msg(receive)
    return widget


def show_widget(widget, words: str) -> None:
    """Display a widget that receives key presses itself; a saved page shows the words.

    JupyterLab uses Enter, arrow keys and letters as shortcuts. A second widget without a page
    prevents that in this output: its script (`live.js`) marks all controls of the output.
    """
    import ipywidgets as widgets
    from IPython.display import display

    both = widgets.VBox([widget, _widget_class()()])
    display({**both._repr_mimebundle_(), "text/plain": words}, raw=True)


def listed(pictures) -> list:
    """Return a list of pictures, given one picture or a list of pictures."""
    return pictures if isinstance(pictures, list) else [pictures]


# A picture with `display:none` would lose the patterns that it shares with pictures on the page.
HIDDEN = "height:0;left:-2000px;overflow:hidden;position:absolute;visibility:hidden;width:1000px"


def live(widget, words: str, still) -> None:
    """Display a widget, and a still picture for saved pages.

    The still picture is hidden while the widget works.

    Args:
        words: the text that a saved page shows in place of the widget.
        still: a picture, or a list of pictures.
    """
    import ipywidgets as widgets
    from IPython.display import display

    pictures = listed(still)
    page = "".join(picture._repr_html_() for picture in pictures)
    text = "\n".join(map(repr, pictures))
    # A digest is the same on every machine, so that saved notebooks do not change.
    name = f"ttkit-still-{sha256(text.encode()).hexdigest()[:8]}"
    hides = widgets.HTML(f"<style>#{name}{{{HIDDEN}}}</style>", layout={"height": "0"})
    show_widget(widgets.VBox([widget, hides]), words)
    display({"text/html": f'<div id="{name}">{page}</div>', "text/plain": text}, raw=True)


class Touched:
    """A base class for objects that a reader changes by using the parts of their page.

    A subclass has `page()`, `act(text)` and `figure()`.
    """

    hint = ""  # A saved page shows this text in place of the widget.

    def show(self) -> None:
        """Show the object in a notebook, for mouse and keyboard; print it elsewhere."""
        if in_notebook():
            this: Any = self
            live(touchable(this.page(), this.act), self.hint, this.figure())
        else:
            print(self)
