"""What moves in a drawing, read from its SVG and the CSS in it as a browser does."""

import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass

SVG = "{http://www.w3.org/2000/svg}"


@dataclass(frozen=True)
class Part:
    """A group that moves: its node, its times in seconds, and how far away it comes from."""

    node: ET.Element
    at: float  # on the clock of the whole drawing
    stay: float
    glide: float
    turn: float
    loops: bool
    way: tuple[float, float]
    ghost: bool
    rests: bool  # it is shown where nothing moves

    def shown(self, second):
        """Whether it is shown at a time (a ghost: not pale)."""
        return not self.stay or (second - self.at) % self.turn < self.stay

    def off(self, second):
        """How far it is then from where it is drawn, as (dx, dy)."""
        since = (second - self.at) % self.turn
        part = max(0.0, 1 - since / self.glide) if self.glide else 0.0
        return part * self.way[0], part * self.way[1]


def parts(svg):
    """The groups that move, in the order of the drawing; what is inside a frame knows when it is."""
    root = ET.fromstring(svg)
    css = "".join(style.text for style in root.iter(SVG + "style") if "@" in style.text)
    if css:
        assert css.startswith("@media screen and (prefers-reduced-motion:no-preference){")
        assert css.count("{") == css.count("}")
    found = []

    def walk(node, begin, hidden):
        how = dict(one.split(":") for one in node.get("style", "").split(";") if ":" in one)
        begin = float(how.get("--begin", f"{begin}s")[:-1])
        hidden = hidden or node.get("visibility") == "hidden"
        if "--at" in how:
            found.append(part(node, css, begin, how, not hidden))
        for child in node:
            walk(child, begin, hidden)

    walk(root, 0.0, False)
    return found


def part(node, css, begin, how, rests):
    """A group with the rule and the keyframes of its class."""
    name = node.get("class")
    rule = rf"\.(\S+) \.{name}{{animation:\1{name} (\S+)s linear calc\(var\(--at\) \+ "
    rule += r"var\(--begin,0s\) - (\S+)s\) (\w+)}"
    clock, turn, begun, turns = re.search(rule, css).groups()
    frames = re.search(rf"@keyframes {clock}{name}{{((?:[^{{}}]*{{[^{{}}]*}})*)}}", css)[1]
    glide = re.search(
        r"^0%{transform:translate\(var\(--dx\),var\(--dy\)\)}(\S+)%{transform:none}", frames
    )
    ways = r"(visibility:inherit|fill-opacity:1)\S*?}\S+%,to{(visibility:hidden|fill-opacity:\.35)"
    stay = re.search(r"0%,([^%]+)%{" + ways, frames)
    turn = float(turn)
    assert float(begun) == (turn if turns == "infinite" else 0)
    return Part(
        node=node,
        at=round(begin + float(how["--at"][:-1]), 6),
        stay=float(stay[1]) * turn / 100 if stay else 0.0,
        glide=float(glide[1]) * turn / 100 if glide else 0.0,
        turn=turn,
        loops=turns == "infinite",
        way=(float(how["--dx"][:-2]), float(how["--dy"][:-2])),
        ghost=bool(stay) and stay[2].startswith("fill"),
        rests=rests,
    )
