"""SVG primitives, and the figure that a notebook shows. All diagrams are made of these.

A drawing uses colours that suit the page, light or dark. The title, the notes and the rows of
several drawings are HTML, so the browser breaks lines and rows to fit the width of the page."""

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from html import escape
from typing import Any

Point = tuple[float, float]
Rectangle = tuple[float, float, float, float]  # A rectangle is (left, top, width, height).
Attributes = dict[str, Any]  # These are attributes of an SVG element; in names, _ stands for -.

INK = "#1c2430"  # Words on a coloured box have this colour in both themes.
# BAD is the colour of faults. ALARM fills the box behind a text about a fault.
BAD, ALARM = "var(--bad)", "var(--alarm)"
BOLD = "600"
# These are the default attributes of the shapes.
RECTANGLE: Attributes = {"rx": 6, "fill": "none", "stroke": "var(--edge)"}
SHAPE: Attributes = {"fill": "none", "stroke": "none", "stroke_width": 1}
LINE: Attributes = {"stroke": "var(--link)", "stroke_width": 1.6}
TEXT: Attributes = {"fill": "var(--ink)", "text_anchor": "middle"}
# A halo, in the colour of the page, separates a text from the lines behind it.
HALO: Attributes = {"stroke": "var(--page)", "stroke_width": "3", "paint_order": "stroke"}
# On a narrow page a drawing shrinks until its smallest words are this many px high. On a narrower
# page it scrolls.
READABLE = 10
# All pictures share one style. It follows the theme of JupyterLab or VS Code. Outside of these it
# follows the theme of the reader's system.
LIGHT = (
    "--ink:#1c2430;--soft:#586274;--chip:#f1f3f7;--edge:#8a94a3;--link:#3466b8;--curve:#a3551f;"
    "--frame:#b4bcc8;--empty:#e6e9ed;--page:#ffffff;--alarm:#fddcd8;--paper:#dde2ea;"
    "--fourth:#9a4fb8;--pale:#a9c0e4;--bad:#c62828;color-scheme:light"
)
DARK = (
    "--ink:#e8ecf2;--soft:#a6b0bd;--chip:#2a313c;--edge:#7b8696;--link:#7fb0ff;--curve:#f0a878;"
    "--frame:#5b6575;--empty:#323944;--page:#15181d;--alarm:#5f2a2a;--paper:#3a4350;"
    "--fourth:#cf9be8;--pale:#4a6896;--bad:#ff7b72;color-scheme:dark"
)
_RULES = (
    # The left edge is that of printed text.
    f".NAME{{{LIGHT};line-height:1.3;margin:6px 0 10px 6px;overflow-x:auto;"
    "font-family:system-ui,'DejaVu Sans',sans-serif}"
    f"@media(prefers-color-scheme:dark){{.NAME{{{DARK}}}}}"
    f'[data-jp-theme-light="true"] .NAME,body.vscode-light .NAME{{{LIGHT}}}'
    f'[data-jp-theme-light="false"] .NAME,body.vscode-dark .NAME{{{DARK}}}'
    ".NAME .NAME{margin-left:0}"
    ".NAME svg{max-width:100%;height:auto;display:block;font-weight:400}"
    # A text lets the mouse through to the box behind it, and is never pale.
    ".NAME text{fill-opacity:1!important;pointer-events:none;stroke-opacity:1!important}"
    ".NAME svg [data-act]:focus{stroke:var(--edge);stroke-opacity:.5}"
    ".NAME svg [data-act]:hover{stroke:var(--link);stroke-opacity:.3}"
    ".NAME .ttkit-chart{min-width:576px;width:614px}"
    ".NAME .ttkit-title{color:var(--ink);font-size:13px;font-weight:600;white-space:pre-line}"
    ".NAME .ttkit-panel{color:var(--ink);display:inline-block;font-size:11px;font-weight:600;"
    "margin:6px 0 2px;max-width:100%;min-width:185px;vertical-align:top}"
    ".NAME .ttkit-panel:has(+.ttkit-panel){margin-right:14px}"
    # A long caption is broken into lines, so that drawings can still stand side by side.
    ".NAME .ttkit-caption{contain:inline-size;text-wrap:balance}"
    ".NAME .ttkit-pause{margin:0 4px 0 14px;vertical-align:middle}"
    "@media print,(prefers-reduced-motion:reduce){"
    ".NAME .ttkit-pause,.NAME .ttkit-pause+span{display:none}}"
    ".NAME .ttkit-note{color:var(--soft);font-size:11px;line-height:15px;max-width:800px}"
    ".NAME .ttkit-button{background:var(--chip);border:1px solid var(--edge);border-radius:5px;"
    "color:var(--ink);cursor:pointer;display:inline-block;font-size:12px;margin:3px;"
    "padding:3px 9px}"
    ".NAME .ttkit-button[aria-pressed=true]{background:var(--frame);color:var(--ink)}"
    ".NAME table{border:0;border-collapse:collapse;color:var(--ink);font-size:12px;"
    "font-variant-numeric:tabular-nums;margin-left:0}"
    ".NAME td,.NAME th{padding:2px 10px 2px 4px;vertical-align:top}"
    ".NAME thead th{border-bottom:1px solid var(--frame);vertical-align:bottom}"
    # A name in a line of its own stands above the headings of the numbers.
    ".NAME thead th[colspan]{color:var(--soft);font-weight:400!important}"
    ".NAME th[style*='align:left']:not(:first-child){padding-left:16px}"
    ".NAME td[style*='align:left']:not(:first-child){padding-left:16px}"
    ".NAME tfoot th{border-top:1px solid var(--frame)}"
    f".NAME .ttkit-alarm{{background:{ALARM};border-radius:6px;color:var(--ink);font-size:13px;"
    "line-height:18px;margin:4px 0;max-width:800px;padding:5px 9px;white-space:pre-line}"
    # With a minimum height of messages, the content below a message stays in place when the message
    # changes.
    ".jupyter-widgets .NAME .ttkit-alarm{align-items:center;display:flex;min-height:36px}"
    "@media(max-width:900px){.jupyter-widgets .NAME .ttkit-alarm{min-height:54px}}"
    ".NAME .ttkit-fine{background:var(--chip);font-size:12px}"
)
# The name of the class contains a hash of the rules. So pictures that were saved with other rules
# keep those rules on the same page.
CLASS = "ttkit-picture-" + sha256(_RULES.encode()).hexdigest()[:6]
STYLE = _RULES.replace("NAME", CLASS)
# These 32 colours fill chips and data that belong to one chip. They are light enough for dark
# words. Their lightness repeats five levels, so that neighbours in a mesh (1, 2, 4, 8 or 16 apart)
# differ in grey, too, and for readers who cannot see green. The hues are as far apart in the OKLab
# colour space as possible.
PALETTE = """
    #e196af #f0dc7d #5f9bdc #69cdff #b8f896 #d2aa50 #82ebbe #6ea55f
    #f0be28 #f5f5c3 #19bec8 #5af0ff #00aa96 #2ddcd2 #a0ffdc #96a5ff
    #fad2aa #dc8200 #b4c891 #e6f5a0 #41c378 #a0e6e1 #e178a5 #fab973
    #fff0e1 #cd96eb #e6dc50 #41a5b9 #d2beb9 #87ffff #f5917d #ebd7d2
""".split()

# Each role has the same colour in all pictures. The first five are kinds of data in a chip's
# memory, in charts. Then come activities of a chip, in lanes, whose boxes have dark words. The last
# are parts of charts.
_ROLES = """
    weights: #5b8fdc, gradients: #cc7a3c, optimizer: #8a939e, activations: #bb7ad3,
    buffers: #3a9a94,
    compute: #a0bf58, forward: #a0bf58, backward: #6fa3e8, input gradient: #e39a5b,
    weight gradient: #b48be0, communication: #adb5c1, exposed communication: #f2948b,
    kept: #a0bf58, dropped: #f2948b, empty: #8a939e, idle: #8a939e,
    inside hosts: #adb5c1, network: #f2948b, hosts: #a0bf58, all-gather: #bcd9d5
"""
ROLES: dict[str, str] = dict(re.findall(r"(\w[\w -]*): (#\w+)", _ROLES))

# A pale part has pale fills and lines. LETTER is the colour of letters on what may become pale.
CLEAR = f"fill-opacity:1;stroke-opacity:1;--letter:{INK}"
PALE = "fill-opacity:.35;stroke-opacity:.35;--letter:var(--ink)"
LETTER = f"var(--letter,{INK})"
STEP_S, GLIDE_S = 1.6, 0.8  # A step takes 1.6 s. Parts that glide do so in its first 0.8 s.
MOTION = (
    "@media screen and (prefers-reduced-motion:no-preference){"
    ".ttkit-pause:checked~.ttkit-panel *{animation-play-state:paused}"
)
PAUSE = (
    '<input type="checkbox" class="ttkit-pause" aria-label="pause">'
    '<span class="ttkit-note">pause</span>'
)


def on_page(content: str) -> str:
    """Return HTML for a notebook, with the style that follows the theme of the notebook."""
    return f'<div class="ttkit-picture {CLASS}"><style>{STYLE}</style>{content}</div>'


def tone(group: int) -> str:
    """Return the fill of a group as #rrggbb. The 33rd group has the same fill as the first."""
    return PALETTE[group % len(PALETTE)]


def letters(fill: str, plain: str = "var(--ink)") -> Attributes:
    """Return the attributes of words on a fill: their colour, `plain` on a fill that suits the
    page, and the trace of their box.
    """
    traced = fill if fill in PALETTE else ""
    return {"fill": LETTER if "#" in fill else plain, "data_trace": traced}


class Drawing:
    """An SVG under construction. Later shapes cover earlier ones.

    Args:
        title: the text alternative, and the caption if a figure has several drawings.
    """

    seconds = STEP_S  # One turn of the clock of a moving drawing takes this many seconds.
    # A drawing that does not loop makes only one turn. If a drawing loops, its figure has a
    # checkbox that pauses it.
    loops = False

    def __init__(self, width: float, height: float, title: str):
        self.width = width
        self.height = height
        self.title = title
        self.smallest = math.inf  # `words` updates it to the size of the smallest words.
        # For each class of moving parts this has the seconds for which they are shown, the seconds
        # of their glide, and whether they are pale while they are not shown.
        self.moves: dict[str, tuple[float, float, bool]] = {}
        self._parts: list[str] = []

    def add(self, tag: str, text: str = "", hover: str = "", **attributes: float | str) -> None:
        """Add an SVG element: `stroke_width=2` is stroke-width="2", an empty value is left out.

        The browser shows `hover` when the mouse is on the element, and a screen reader reads it."""
        if attributes.get("fill") in PALETTE:
            attributes["data_trace"] = attributes["fill"]
        written = "".join(
            f' {name.replace("_", "-")}="{value if isinstance(value, str) else f"{value:g}"}"'
            for name, value in attributes.items()
            if value != ""
        )
        inner = escape(text) + (f"<title>{escape(hover)}</title>" if hover else "")
        self._parts.append(f"<{tag}{written}>{inner}</{tag}>")

    def box(self, area: Rectangle, hover: str = "", **look) -> None:
        """Draw a rectangle with round corners and an edge. `look` has more attributes for `add`."""
        x, y, width, height = area
        self.add("rect", "", hover, x=x, y=y, width=width, height=height, **RECTANGLE | look)

    def blocks(self, boxes: Iterable[Rectangle], **look) -> None:
        """Draw many rectangles of one look as one shape, whose SVG is an eighth as long."""
        path = "".join(f"M{x:g} {y:g}h{w:.4g}v{h:.4g}h{-w:.4g}z" for x, y, w, h in boxes)
        if path:
            self.add("path", d=path, **SHAPE | look)

    def hatch(self, boxes: Iterable[Rectangle], gap: float = 6, colour: str = INK) -> None:
        """Draw slanted lines over boxes, which mark the boxes without a colour.

        Args:
            gap: the distance of the lines in px; 0 draws no lines.

        Example:
            >>> page = Drawing(20, 20, "a hatched box")
            >>> page.hatch([(0, 0, 20, 20)], gap=10)
            >>> page.svg().count("M")
            3
        """
        path = "".join(_slanted(area, gap) for area in boxes) if gap else ""
        if path:
            look = {"stroke": colour, "pointer_events": "none"}
            self.add("path", d=path, fill="none", stroke_width=0.9, **look)

    def line(self, start: Point, end: Point, lift: Point = (0, 0), **look) -> None:
        """Draw a line, or an arc that leaves both ends in the direction `lift`.

        The arc rises by three quarters of `lift`. `look` has more attributes for `add`."""
        (x1, y1), (x2, y2), (dx, dy) = start, end, lift
        if any(lift):
            path = f"M{x1:g} {y1:g}C{x1 + dx:g} {y1 + dy:g} {x2 + dx:g} {y2 + dy:g} {x2:g} {y2:g}"
            self.add("path", d=path, fill="none", **LINE | look)
        else:
            self.add("line", x1=x1, y1=y1, x2=x2, y2=y2, **LINE | look)

    def arrow(
        self, start: Point, end: Point, lift: Point = (0, 0), colour: str = "var(--link)"
    ) -> None:
        """Draw an arrow whose tip is at `end`, straight or along an arc as in `line`."""
        (x1, y1), (x2, y2) = start, end
        dx, dy = (-lift[0], -lift[1]) if any(lift) else (x2 - x1, y2 - y1)
        head = 8 / (math.hypot(dx, dy) or 1)
        ux, uy = dx * head, dy * head
        neck = (x2 - ux, y2 - uy)
        self.line(start, neck, lift, stroke=colour, stroke_width=2)
        corners = (end, (neck[0] - uy / 2, neck[1] + ux / 2), (neck[0] + uy / 2, neck[1] - ux / 2))
        self.add("polygon", points=" ".join(f"{x:.4g},{y:.4g}" for x, y in corners), fill=colour)

    def words(
        self, x: float, y: float, text: str | Sequence[str], size: float = 12, **look
    ) -> None:
        """Write a line of text with baseline `y`, or several, each 13 px below the one before.

        `look` has more attributes for `add`. By default the text is centred around `x`."""
        self.smallest = min(self.smallest, size)
        for i, line in enumerate([text] if isinstance(text, str) else text):
            self.add("text", line, x=x, y=y + i * 13, font_size=size, **TEXT | look)

    def badge(self, x: float, y: float, *lines: str, **look) -> None:
        """Write a few bold letters in a box around a point. `look` has attributes of the box."""
        wide = max(13, *(width_of(line, 11, bold=True) + 4 for line in lines))
        high = 13 * len(lines) + 1
        self.box((x - wide / 2, y - high / 2, wide, high), rx=0, **look)
        self.words(x, y - high / 2 + 11, lines, size=11, **letters(look["fill"]), font_weight=BOLD)

    @contextmanager
    def moving(
        self,
        at: float = 0,
        stay: float = 0,
        way: Point = (0, 0),
        glide: float = GLIDE_S,
        *,
        rest: bool = False,
        ghost: bool = False,
    ) -> Iterator[None]:
        """Return a context in which all that is drawn moves. One turn of the clock takes `seconds`.

        On paper, if the reader does not want motion, and after the last turn, the parts are at
        rest: they stand still at the place where they are drawn.

        Args:
            at: the second of a turn from which the parts are shown.
            stay: for how many seconds the parts are shown. With such a limit they are hidden at
                rest. 0 means without end.
            way: (dx, dy) from the place where the parts are drawn to the place where they start.
            glide: how many seconds the parts take from there to their place.
            rest: whether the parts are shown at rest in spite of `stay`.
            ghost: whether fills and lines are pale, and letters not, while the parts are not
                shown. At rest they are shown.
        """
        glide = glide if any(way) else 0
        name = f"ttkit-{'ghost' if ghost else 'moves'}-{stay * 1000:.0f}-{glide * 1000:.0f}"
        self.moves[name] = stay, glide, ghost
        how = f"--at:{at:g}s;--dx:{way[0]:g}px;--dy:{way[1]:g}px"
        hidden = ' visibility="hidden"' if stay and not (rest or ghost) else ""
        self._parts.append(f'<g class="{name}" style="{how}"{hidden}>')
        yield
        self._parts.append("</g>")

    def svg(self, look: str = "") -> str:
        """Return the drawing as SVG. `look` has attributes for the <svg> tag, as text."""
        inner = "".join(self._parts)
        # While the mouse is on a part that belongs to one chip, chunk or micro-batch, the parts of
        # all others are pale, with the words on them.
        for own in sorted(set(re.findall(r'data-trace="[^"]+"', inner))):
            others = f"svg:has([{own}]:hover) [data-trace]:not([{own}])"
            inner += f"<style>{others}{{{PALE}}}</style>"
        if self.moves:
            clock = f"ttkit-{sha256(inner.encode()).hexdigest()[:6]}"
            rules = "".join(self._rule(clock, *move) for move in sorted(self.moves.items()))
            # While a page loads, a browser starts what it has read so far. The rules of a drawing
            # come last, and have a name of their own, so all its parts start at the same time.
            inner = f'<g class="{clock}">{inner}</g><style>{MOTION}{rules}}}</style>'
        box = f'viewBox="0 0 {self.width:g} {self.height:g}" width="{self.width:g}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {box} role="img"{look}>'
        return f"{head}<title>{escape(self.title)}</title>{inner}</svg>"

    def _rule(self, clock: str, name: str, move: tuple[float, float, bool]) -> str:
        """Return the CSS rules by which the parts of a class move.

        Each class has keyframes of its own. Browsers would compute keyframes for all classes anew
        for each part, many times a second."""
        (stay, glide, ghost), turn, frames = move, self.seconds, ""
        begun, turns = (turn, "infinite") if self.loops else (0, "1")
        how = f"{turn:g}s linear calc(var(--at) + var(--begin,0s) - {begun:g}s) {turns}"
        if glide:
            frames = "0%{transform:translate(var(--dx),var(--dy))}"
            frames += f"{100 * glide / turn:g}%{{transform:none}}"
        if stay:
            end = 100 * stay / turn
            shown, away = (CLEAR, PALE) if ghost else ("visibility:inherit", "visibility:hidden")
            frames += f"0%,{end:g}%{{{shown}}}{end + 0.01:g}%,to{{{away}}}"
        return (
            f".{clock} .{name}{{animation:{clock}{name} {how}}}@keyframes {clock}{name}{{{frames}}}"
        )


class Frames(Drawing):
    """Drawings of one size that are shown one after the other, in a loop. At rest, the last drawing
    is shown.

    Each drawing is shown for STEP_S seconds. Its own parts move during this time.
    """

    loops = True

    def __init__(self, frames: Sequence[Drawing]):
        super().__init__(frames[0].width, frames[0].height, frames[0].title)
        self.smallest = min(frame.smallest for frame in frames)
        for number, frame in enumerate(frames):
            self._parts.append(f'<g style="--begin:{number * STEP_S:g}s">')
            self.moves |= frame.moves
            with self.moving(stay=STEP_S, rest=frame is frames[-1]):
                self._parts += frame._parts
            self._parts.append("</g>")
        self.seconds = STEP_S * len(frames)


def _slanted(area: Rectangle, gap: float) -> str:
    """Return the path of slanted lines in a box. They continue in the boxes beside it."""
    left, top, width, height = area
    path = ""
    low = left + top
    high = left + top + width + height
    # A slanted line has the same x + y at each of its points.
    along = (math.floor(low / gap) + 1) * gap
    while along < high:
        start = max(left, along - top - height)
        end = min(left + width, along - top)
        path += f"M{start:.5g} {along - start:.5g}L{end:.5g} {along - end:.5g}"
        along += gap
    return path if width > 0 and height > 0 else ""


@dataclass(frozen=True, repr=False)
class Figure:
    """A figure of a notebook: a title, drawings side by side, an alarm, and notes.

    Args:
        text: the text for pages without pictures; by default the title.
        alarm: a message that reports what is wrong; with "" there is none.
    """

    title: str
    drawings: Sequence[Drawing]
    notes: Sequence[str] = ()
    text: str = ""
    alarm: str = ""

    def __repr__(self) -> str:
        return self.text or self.title

    def _repr_html_(self) -> str:
        panels = []
        for drawing in self.drawings:
            # The smallest words stay readable on a narrow page.
            look = f' style="min-width:{drawing.width * min(1, READABLE / drawing.smallest):.0f}px"'
            picture = drawing.svg(look)
            if len(self.drawings) > 1:
                picture = f'<div class="ttkit-caption">{escape(drawing.title)}</div>{picture}'
            panels.append(f'<div class="ttkit-panel">{picture}</div>')
        alarms = [message_box(self.alarm)] if self.alarm else []
        notes = [f'<div class="ttkit-note">{escape(note)}</div>' for note in self.notes]
        title = f'<span class="ttkit-title">{escape(self.title)}</span>'
        pause = PAUSE if any(drawing.loops for drawing in self.drawings) else ""
        return on_page("".join([title, pause, "<br>", *panels, *alarms, *notes]))


def message_box(text: str, fine: bool = False) -> str:
    """Return a box with a text that screen readers announce. The box is red unless `fine`."""
    return f'<div class="ttkit-alarm{" ttkit-fine" * fine}" role="status">{escape(text)}</div>'


# ---------------------------------------------------------------- words in pictures
def width_of(text: str, size: float, bold: bool = False) -> float:
    """Return the approximate width of a line in DejaVu Sans, the widest font of the pictures."""
    widths = {"W": 0.99} | dict.fromkeys(" ,.|[]():;·-ijl", 0.37)
    wide = sum(widths.get(c, 0.76 if c.isupper() else 0.63) for c in text)
    return size * wide * (1.1 if bold else 1)


def size_text(nbytes: float) -> str:
    """Return a number of bytes as text.

    Example:
        >>> size_text(1000), size_text(4096), size_text(1.5 * 2**20)
        ('1000 B', '4 KiB', '1.5 MiB')
    """
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if nbytes >= size:
            amount = nbytes / size
            return f"{amount:.0f} {unit}" if amount >= 100 else f"{amount:.3g} {unit}"
    return f"{nbytes:g} B"


def ranges(numbers: Iterable[int]) -> str:
    """Return whole numbers as a short text in which three or more in sequence are a range.

    Example:
        >>> ranges([0, 1, 2, 3, 7, 9, 10])
        '0-3, 7, 9, 10'
    """
    texts: list[str] = []
    for _, run in itertools.groupby(enumerate(sorted(numbers)), key=lambda pair: pair[1] - pair[0]):
        found = [n for _, n in run]
        texts += [f"{found[0]}-{found[-1]}"] if len(found) > 2 else map(str, found)
    return ", ".join(texts)
