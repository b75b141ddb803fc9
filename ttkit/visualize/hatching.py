"""Fills that need no colour: slanted lines over a box."""

from __future__ import annotations

from ttkit.visualize.drawing import Drawing, Rectangle


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
    left, top, width, height = area
    path, at = "", gap
    while at < width + height:  # from the left or lower edge to the upper or right one
        x1, y1 = max(0, at - height), min(at, height)
        x2, y2 = min(at, width), max(0, at - width)
        path += f"M{left + x1:.5g} {top + y1:.5g}L{left + x2:.5g} {top + y2:.5g}"
        at += gap
    drawing.add("path", d=path, fill="none", stroke=colour, stroke_width=1.2)
    if hover:
        look = {"fill": "transparent", "stroke": "none"}
        drawing.add("rect", "", hover, x=left, y=top, width=width, height=height, **look)
