"""Pictures of descriptors show each chip with its host, and every pair of meshes that is joined."""

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import ttkit
from ttkit.cluster import (
    Connection,
    MeshGraphDescriptor,
    MeshInstance,
    descriptor_path,
    read_descriptor,
)
from ttkit.visualize.drawing import tone
from ttkit.visualize.mesh import described, draw_descriptor, instance_grid

SPLIT = MeshInstance(0, "M0", "WORMHOLE_B0", (4, 4), ("LINE", "RING"), (2, 1), 2, "STRICT")
RING = tuple(Connection((i, (i + 1) % 4), i + 1, "RELAXED") for i in range(4))
FOUR = MeshGraphDescriptor(
    tuple(replace(SPLIT, mesh_id=i, device_dims=(2, 4), host_dims=(1, 1)) for i in range(4)), RING
)


def words(figure):
    (drawing,) = figure.drawings
    return [
        element.text
        for element in ET.fromstring(drawing.svg()).iter()
        if element.tag.endswith("text")
    ]


def test_one_mesh_over_two_hosts():
    # two T3000
    (drawing,) = draw_descriptor(MeshGraphDescriptor((replace(SPLIT, dim_types=("LINE", "LINE")),)))
    shown = words(drawing)
    assert [w for w in shown if w.startswith("host ")] == ["host 0"] * 8 + ["host 1"] * 8
    assert [w for w in shown if w.startswith("device ")] == [
        f"device {d}" for d in (4, 0, 2, 6, 5, 1, 3, 7) * 2
    ]
    assert [w for w in shown if w.startswith("(")] == [
        f"({r}, {c})" for r in range(4) for c in range(4)
    ]
    svg = drawing._repr_html_()
    assert svg.count(f'fill="{tone(0)}"') == svg.count(f'fill="{tone(1)}"') == 8
    assert svg.count("stroke-dasharray") == 2


def test_wires_are_the_descriptors_links():
    picture = instance_grid(SPLIT)
    pairs = {frozenset(divmod(chip, 4) for chip in pair) for pair in picture.pairs}
    grid = {frozenset(((r, c), (r, c + 1))) for r in range(4) for c in range(3)} | {
        frozenset(((r, c), (r + 1, c))) for r in range(3) for c in range(4)
    }
    assert pairs == grid | {frozenset(((r, 0), (r, 3))) for r in range(4)}
    assert picture.links == 2 and sum(not picture.straight(pair) for pair in picture.pairs) == 4


def test_several_meshes_and_their_links():
    graph, one = draw_descriptor(FOUR)
    assert repr(graph) == "4 meshes, 32 chips, 4 hosts"
    shown = words(graph)
    assert [w for w in shown if w.startswith("mesh ")] == [f"mesh {i}" for i in range(4)]
    assert sorted(w for w in shown if w.isdigit()) == ["1", "2", "3", "4"]
    assert "Identical: mesh 1, 2, 3." in one.notes
    svg = ET.fromstring(graph.drawings[0].svg())
    lines = [line for line in svg if line.tag.endswith("line")]
    downwards = {float(line.get("x1")) for line in lines if line.get("x1") == line.get("x2")}
    numbers = [float(word.get("x")) for word in svg if (word.text or "").isdigit()]
    # a number on a line that goes down would be crossed out
    assert downwards and not downwards & set(numbers)
    alone, _ = draw_descriptor(replace(FOUR, connections=()))
    assert "No links between the meshes" in alone.notes[0]


def test_in_a_notebook_and_on_a_terminal(capsys, tmp_path):
    line = tmp_path / "line.textproto"
    line.write_text(descriptor_path(8).read_text().replace("2, 4", "1, 8"))
    descriptor = read_descriptor(line)
    assert descriptor._repr_html_().count("<svg") == 1
    ttkit.visualize_descriptor(line)
    out = capsys.readouterr().out
    assert out.strip() == described(descriptor)
    assert re.findall(r"device (\d)", out) == list("45102673")
    assert "mesh 3 - mesh 0: 4 links, RELAXED" in described(FOUR)
