"""Fills that need no colour: slanted lines over a box."""

from __future__ import annotations

import math

from ttkit.visualize.drawing import Drawing, Rectangle


def slanted(area: Rectangle, gap: float) -> str:
    """Return the path of lines that rise through a box, and meet those of the boxes beside it.

    Example:
        >>> slanted((0, 0, 10, 10), 10)
        'M0 10L10 0'
    """
    left, top, width, height = area
    path, low, high = "", left + top, left + top + width + height
    along = (math.floor(low / gap) + 1) * gap  # the line on which x + y is this
    while along < high:
        start, end = max(left, along - top - height), min(left + width, along - top)
        path += f"M{start:.5g} {along - start:.5g}L{end:.5g} {along - end:.5g}"
        along += gap
    return path if width > 0 and height > 0 else ""


def hatch(
    drawing: Drawing,
    area: Rectangle,
    *,
    gap: float = 7,
    colour: str = "var(--edge)",
    hover: str = "",
) -> None:
    """Draw slanted lines over a box.

    Args:
        area: left, top, width and height.
        gap: from line to line.
        hover: what the box says under the mouse.

    Example:
        >>> page = Drawing(20, 20, "a hatched box")
        >>> hatch(page, (0, 0, 20, 20), gap=10)
        >>> page.svg().count("M")
        3
    """
    if path := slanted(area, gap):
        drawing.add("path", d=path, fill="none", stroke=colour, stroke_width=1.2)
    if hover:
        left, top, width, height = area
        look = {"fill": "transparent", "stroke": "none"}
        drawing.add("rect", "", hover, x=left, y=top, width=width, height=height, **look)
