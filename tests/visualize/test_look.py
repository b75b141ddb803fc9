"""How pictures look, as far as it can be measured: nothing overlaps or sticks out, words can be
read, figures do not interfere.
"""

import itertools
import pathlib
import re
import xml.etree.ElementTree as ET
from collections import Counter

import numpy as np
import pytest
from machine import mapper_over

import ttkit
from ttkit import ttnn
from ttkit.hardware import SYSTEMS
from ttkit.plans import (
    all_gather,
    all_reduce,
    broadcast,
    one_f_one_b,
    reduce_scatter,
    topology,
    zb_h1,
)
from ttkit.visualize.drawing import (
    CLASS,
    DARK,
    INK,
    LIGHT,
    PALETTE,
    ROLES,
    Drawing,
    Figure,
    tone,
    width_of,
)
from ttkit.visualize.lanes.schedule import LOOKS, schedule_picture, shade
from ttkit.visualize.mesh import draw_chips, draw_mesh, mesh_grid
from ttkit.visualize.plan import StepCells, draw_plan, draw_step, step_pictures
from ttkit.visualize.tensor import draw_tensor

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
NARROW = 585  # px of a picture in JupyterLab 800 px wide, its side panel closed
SCHEDULES = one_f_one_b(4, 8), zb_h1(4, 8)
SVG = "{http://www.w3.org/2000/svg}"
MESHES = [
    *((name, system.shape) for name, system in SYSTEMS.items()),
    ("t3000", (4, 2)), ("t3000", (1, 8)), ("t3000", (8, 1)), ("galaxy", (4, 8)), ("galaxy", (1, 32)), ("galaxy", (1, 16)), ("galaxy_torus", (4, 8)),
]  # fmt: skip


def linear(colour):
    parts = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def contrast(a, b):
    low, high = sorted(float(linear(c) @ [0.2126, 0.7152, 0.0722]) for c in (a, b))
    return (high + 0.05) / (low + 0.05)


def lab(colour):
    return oklab(linear(colour))


def oklab(light):
    to_lms = [
        [0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]  # fmt: skip
    to_lab = [
        [0.2104542553, 0.7936177850, -0.0040720468], [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]  # fmt: skip
    return np.array(to_lab) @ np.cbrt(np.array(to_lms) @ light)


def nearest(colours):
    """How far apart the two are that are most alike."""
    pairs = itertools.combinations(map(lab, colours), 2)
    return min(np.linalg.norm(a - b) for a, b in pairs)


def words(root):
    """Each line of text as (left, right, base line, size, text)."""
    for text in root.iter(SVG + "text"):
        size, x = float(text.get("font-size")), float(text.get("x"))
        width = width_of(text.text or "", size, bold=text.get("font-weight") is not None)
        left = x - width * {"start": 0, "middle": 0.5, "end": 1}[text.get("text-anchor")]
        yield left, left + width, float(text.get("y")), size, text.text or ""


def boxes(root):
    return [
        tuple(float(rect.get(k)) for k in ("x", "y", "width", "height"))
        for rect in root.iter(SVG + "rect")
    ]


def check_layout(drawing):
    root = ET.fromstring(drawing.svg())
    for group in root.findall(f"{SVG}g[@class]"):
        for moving in group.findall("*[@visibility='hidden']"):
            group.remove(moving)  # it is seen while it glides only
    for left, right, y, size, text in words(root):
        assert (
            -1 <= left and right <= drawing.width + 1 and size <= y + 1 and y <= drawing.height
        ), text
        assert size >= 10, text
    lines = sorted(words(root), key=lambda w: w[2])
    for one, other in itertools.combinations(lines, 2):
        if other[2] - one[2] < min(one[3], other[3]) * 0.9:  # about the same height on the page
            assert one[1] <= other[0] + 1 or other[1] <= one[0] + 1, (one[4], other[4])
    for x, y, w, h in boxes(root):
        assert x >= 0 and y >= 0 and x + w <= drawing.width and y + h <= drawing.height
    chips = [
        box
        for box, rect in zip(boxes(root), root.iter(SVG + "rect"))
        if rect.get("fill").startswith(("var(--chip", "var(--empty", "#")) and rect.get("rx") == "6"
    ]
    for (x1, y1, w1, h1), (x2, y2, w2, h2) in itertools.combinations(chips, 2):
        assert x1 + w1 < x2 or x2 + w2 < x1 or y1 + h1 < y2 or y2 + h2 < y1
    for x, y, w, h in chips:  # what is written in a chip stays in it
        for left, right, base, _, text in words(root):
            if x < (left + right) / 2 < x + w and y < base - 3 < y + h:
                assert x <= left and right <= x + w + 1 and base < y + h, text
    return root, chips


@pytest.mark.parametrize("name, shape", MESHES)
def test_meshes(name, shape):
    ttkit.use_system(name)
    with ttnn.open_mesh_device(ttnn.MeshShape(*shape)) as mesh:
        picture = mesh_grid(mesh)
        (drawing,) = draw_chips(picture).drawings
        root, chips = check_layout(drawing)
        assert len(chips) == mesh.get_num_devices()
        assert sum(text.startswith("device ") for *_, text in words(root)) == mesh.get_num_devices()
        drawn = [*root.iter(SVG + "line"), *root.iter(SVG + "path")]
        straight = sum(map(picture.straight, picture.pairs))
        curved = len(picture.pairs) - straight  # All links of such a pair are one curve.
        found = Counter(line.get("stroke") for line in drawn)
        expected = {"var(--link)": straight * (picture.links or 0), "var(--curve)": curved}
        assert found == Counter(expected)


@pytest.mark.parametrize("name, shape", MESHES)
@pytest.mark.parametrize(
    "tensor_shape, dims", [((1, 1, 1024, 2048), (2, 3)), ((32, 2, 1, 1, 3, 65536), (0, 5))]
)
def test_tensors(name, shape, tensor_shape, dims):
    ttkit.use_system(name)
    tensor_shape = list(tensor_shape)
    for dim, chips in zip(dims, shape, strict=True):
        tensor_shape[dim] += -tensor_shape[dim] % chips  # The chips must divide it.
    with ttnn.open_mesh_device(ttnn.MeshShape(*shape)) as mesh:
        for cut in (dims, (None, dims[1])):
            how = {"device": mesh, "mesh_mapper": mapper_over(mesh, cut)}
            tensor = ttkit.from_numpy(np.zeros(tensor_shape, np.uint8), **how)
            (drawing,) = draw_tensor(tensor).drawings
            _, chips = check_layout(drawing)
            assert len(chips) == mesh.get_num_devices()


PLANS = [
    all_gather(topology("n300"), 4096), all_gather(topology("t3000"), 5000, 1), reduce_scatter(topology("t3000"), 1 << 20),
    all_reduce(topology("t3000"), 4096, algorithm="tree"),
    broadcast(topology("t3000"), 1 << 20, axis=1), all_gather(topology("galaxy_torus"), 1000 << 10),
    reduce_scatter(topology("galaxy_torus"), 32 << 12), all_reduce(topology("galaxy"), 32 << 12, 0),
]  # fmt: skip


@pytest.mark.parametrize("plan", PLANS, ids=repr)
def test_plans(plan):
    pictures = step_pictures(plan)
    for picture in pictures[:: max(1, len(pictures) // 3)]:
        for small in (False, True):
            _, chips = check_layout(StepCells(picture, small))
            assert len(chips) == len(plan.topology.chips)
    html = draw_plan(plan)._repr_html_()
    assert html.count('class="ttkit-panel"') == html.count("<svg")


@pytest.mark.parametrize("shape", [(1, 4), (2, 4), (4, 2), (1, 8)])
def test_eight_chips_fit_a_narrow_page(shape):
    plans = [all_gather(topology("t3000", shape), 4096, 1)]
    plans.append(all_reduce(topology("t3000", shape), 1 << 20, 1))
    figures = [*map(schedule_picture, SCHEDULES), *(draw_step(plan, 1) for plan in plans)]
    with ttnn.open_mesh_device(ttnn.MeshShape(*shape)) as mesh:
        for size in ((64, 512), (1, 1, 512, 1024)):
            mapper = ttnn.ShardTensorToMesh(mesh, dim=-1)
            tensor = ttkit.from_numpy(np.zeros(size, np.uint8), device=mesh, mesh_mapper=mapper)
            figures.append(draw_tensor(tensor))
        figures += [draw_mesh(mesh), ttkit.memory(mesh)]
    pages = [figure._repr_html_() for figure in figures]
    least = [float(px) for page in pages for px in re.findall(r"min-width:(\d+)px", page)]
    assert len(least) >= len(figures) and max(least) <= NARROW


def test_chips_without_a_shard_and_tensors_on_the_host(mesh):
    how = {"device": mesh, "mesh_mapper": ttnn.ShardTensorToMesh(mesh, dim=0)}
    tensor = ttkit.from_numpy(np.zeros((6, 4), np.float32), **how)
    for one in (tensor, tensor.cpu(), ttkit.from_numpy(np.zeros((3, 4), np.float32))):
        (drawing,) = draw_tensor(one).drawings
        check_layout(drawing)


def test_words_in_the_bars_of_all_chunks_can_be_read():
    for chunks in (1, 2, 3, 4, 8):
        shades = [[shade(kind, chunk, chunks) for chunk in range(chunks)] for kind in LOOKS]
        assert all(contrast(fill, INK) > 4.5 for row in shades for fill in row)
        assert all(len(set(row)) == chunks for row in shades)
    assert nearest([look.fill for look in LOOKS.values()]) > 0.06


def test_each_role_has_a_colour_of_its_own_and_none_is_a_chips():
    assert not set(ROLES.values()) & set(PALETTE)
    # These look like others, which mean the same.
    same = ("forward", "kept", "dropped", "empty", "idle", "inside hosts", "network", "hosts")
    fills = {role: fill for role, fill in ROLES.items() if role not in same}
    assert len(set(fills.values())) == len(fills) and set(ROLES.values()) == set(fills.values())
    held = ("weights", "gradients", "optimizer", "activations", "buffers")
    for role, fill in fills.items():
        for style in (LIGHT, DARK) if role in held else ():
            page = dict(part.split(":") for part in style.split(";"))["--page"]
            assert contrast(fill, page) >= 3, role
        assert role in held or contrast(fill, INK) > 4.5, role


@pytest.mark.parametrize("name", SYSTEMS)
def test_folding_never_moves_two_chips_to_one_spot(name):
    system = SYSTEMS[name]
    ttkit.use_system(name)
    with ttnn.open_mesh_device(ttnn.MeshShape(1, system.num_devices)) as mesh:
        picture = mesh_grid(mesh)
        spots = [picture.spot(i) for i in range(system.num_devices)]
        assert len(set(spots)) == len(spots)
        assert all(0 <= r < picture.drawn[0] and 0 <= c < picture.drawn[1] for r, c in spots)
        for (r1, c1), (r2, c2) in itertools.pairwise(spots):
            assert abs(r1 - r2) + abs(c1 - c2) == 1
        assert picture.labels[-1] == f"(0, {system.num_devices - 1})"


def test_colours():
    assert len(set(PALETTE)) == 32 and tone(32) == tone(0)
    assert min(contrast(colour, INK) for colour in PALETTE) > 4.5
    assert nearest(PALETTE[:8]) > 0.06 and nearest(PALETTE) > 0.045


# What an eye without the receptors for green sees, in linear RGB (Machado, Oliveira and Fernandes,
# 2009, severity 1).
DEUTERANOPIA = np.array([
    [0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
    [-0.011820, 0.042940, 0.968881],
])  # fmt: skip


def lightness(colour):
    """L* of CIELAB, from 0 to 100."""
    return 116 * np.cbrt(linear(colour) @ [0.2126, 0.7152, 0.0722]) - 16


@pytest.mark.parametrize("apart", [1, 2, 4, 8, 16])
def test_neighbours_are_apart_in_grey_and_without_green(apart):
    """Chips beside or below each other in meshes of 1 to 16 columns."""
    for a, b in zip(PALETTE, PALETTE[apart:]):
        assert abs(lightness(a) - lightness(b)) > 5, (a, b)
        seen = [oklab(np.clip(DEUTERANOPIA @ linear(colour), 0, 1)) for colour in (a, b)]
        assert np.linalg.norm(seen[0] - seen[1]) > 0.05, (a, b)


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_words_can_be_read_in_both_themes(theme):
    colours = dict(re.findall(r"--(\w+):(#\w{6})", theme))
    for ground in ("page", "chip", "empty", "alarm"):
        assert contrast(colours["ink"], colours[ground]) > 7
        assert contrast(colours["soft"], colours[ground]) > 4.5
    assert contrast(colours["link"], colours["chip"]) > 4.5
    assert contrast(colours["curve"], colours["chip"]) > 4.5


def test_figures_do_not_interfere(mesh):
    html = mesh._repr_html_()
    assert not re.search(r'\bid="', html)
    style = re.search(r"<style>(.*?)</style>", html)[1]
    rules = re.findall(r"[^{}]+(?=\{)", re.sub("@media[^{]*", "", style))
    assert rules
    assert all(f".{CLASS}" in part for rule in rules if rule.strip() for part in rule.split(","))


def test_a_file_of_its_own_is_a_whole_picture():
    root = ET.parse(ROOT / "docs" / "images" / "mesh.svg").getroot()
    assert root.get("class") == CLASS, "run docs/make_images.py"
    assert root.find(SVG + "style") is not None
    assert root.find(SVG + "title").text.startswith("tensor [64, 256]")


def test_arrows():
    drawing = Drawing(100, 60, "a < b & c")
    drawing.arrow((10, 10), (90, 50))
    drawing.arrow((5, 5), (5, 5))  # of no length
    root = ET.fromstring(drawing.svg())
    assert root.find(SVG + "title").text == "a < b & c"
    points = root.find(SVG + "polygon").get("points").split()
    tip = [tuple(map(float, point.split(","))) for point in points]
    assert tip[0] == (90, 50) and all(abs(x) <= 100 and abs(y) <= 60 for x, y in tip)


def test_a_figure_says_all_in_html_and_in_words():
    drawings = [Drawing(10, 10, "one < two"), Drawing(10, 10, "two")]
    figure = Figure("a < b", drawings, ["a note & more"], "in words", "what is < wrong")
    html = figure._repr_html_()
    assert all(part in html for part in ("a &lt; b", "a note &amp; more", "what is &lt; wrong"))
    assert html.count("one &lt; two") == 2  # the caption, and what a screen reader says
    assert repr(figure) == "in words" and repr(Figure("a < b", drawings)) == "a < b"
    alone = Figure("a", drawings[1:])._repr_html_()
    assert alone.count(">two<") == 1 and "alarm" not in alone.split("</style>")[1]
