"""Reading, checking and writing descriptors: lines and cures, warnings, MGD 1.0, the automatic
choice.
"""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ttkit
from ttkit.cluster import (
    Connection,
    MeshGraphDescriptor,
    MeshInstance,
    check_descriptor,
    descriptor_for,
    descriptor_path,
    read_descriptor,
    write_descriptor,
)
from ttkit.descriptors import load_text, text_of

GOOD = """# two meshes, joined
mesh_descriptors {
  name: "M0"
  arch: WORMHOLE_B0
  device_topology { dims: [ 2, 4 ] }
  host_topology { dims: [ 1, 1 ] }
  channels {
    count: 2
  }
}
graph_descriptors {
  name: "G0"
  type: "FABRIC"
  instances { mesh { mesh_descriptor: "M0" mesh_id: 0 } }
  instances { mesh { mesh_descriptor: "M0" mesh_id: 1 } }
  connections {
    nodes { mesh { mesh_descriptor: "M0" mesh_id: 0 device_id: 3 } }
    nodes { mesh { mesh_descriptor: "M0" mesh_id: 1 device_id: 0 } }
    channels { count: 1 policy: RELAXED }
  }
}
top_level_instance { graph { graph_descriptor: "G0" graph_id: 0 } }
"""
LINE = (
    GOOD[: GOOD.index("graph_descriptors")]
    + 'top_level_instance { mesh { mesh_descriptor: "M0" mesh_id: 0 } }\n'
)


@pytest.mark.parametrize(
    "old, new, line, message, cure",
    [
        ('name: "M0"\n', "", 2, "Mesh descriptor 1 has no name", 'name: "M0"'),
        (
            "  arch: WORMHOLE_B0\n",
            "",
            2,
            "valid architecture (Mesh: M0)",
            "arch: WORMHOLE_B0, or BLACKHOLE",
        ),
        (
            "arch: WORMHOLE_B0",
            "arch: WORMHOLE",
            4,
            'Enum type "Architecture" has no value named WORMHOLE',
            "write WORMHOLE_B0",
        ),
        (
            "dims: [ 2, 4 ]",
            "dims: [ 2, 0 ]",
            5,
            "Device topology dimensions must be positive (Mesh: M0)",
            "a number from 1, not 0",
        ),
        (
            "dims: [ 1, 1 ]",
            "dims: [ 1, 3 ]",
            6,
            "divisible by host topology dimensions (Mesh: M0)",
            "divides 4, not 3",
        ),
        (
            "  host_topology { dims: [ 1, 1 ] }\n",
            "",
            2,
            "must be the same size (Mesh: M0)",
            "host_topology { dims: [ 1, 1 ] }",
        ),
        ("count: 2", "count: -2", 8, "Channel count must be positive (Mesh: M0)", "count: 2"),
        ("    count: 2\n", "", 7, "Channel count must be positive (Mesh: M0)", "count: 2"),
        (
            'type: "FABRIC"',
            'type: "POD"',
            13,
            "There can only be one FABRIC level graph (Graph: G0)",
            'type: "FABRIC"',
        ),
        (
            "mesh_id: 1 } }\n  conn",
            "mesh_id: 0 } }\n  conn",
            15,
            "Graph instance id 0 already exists in this graph",
            "for example 1",
        ),
        (
            '"M0" mesh_id: 1 } }',
            '"M1" mesh_id: 1 } }',
            15,
            "Mesh descriptor M1 not found in instance",
            '"M0"',
        ),
        ("device_id: 3", "device_id: 8", 17, "Device id 8 not found in mesh instance", "0 to 7"),
        (
            "channels { count: 1 policy: RELAXED }",
            "",
            16,
            "Connection channel count must be positive (Graph: G0)",
            "count: 2",
        ),
        (
            'graph_descriptor: "G0" g',
            'graph_descriptor: "G1" g',
            22,
            "Graph descriptor G1 not found in instance",
            '"G0"',
        ),
        (
            "device_id: 0 } }\n",
            "device_id: 0 }\n",
            22,
            "Failed to parse MeshGraphDescriptor textproto",
            "missing quote, colon or brace",
        ),
        (
            "dims: [ 1, 1 ]",
            "dims: [ 0, 1 ]",
            6,
            "Host topology dimensions must be positive",
            "0.81.1 crashes on it",
        ),
    ],
)
def test_each_error_has_line_and_cure(written, old, new, line, message, cure):
    path = written(GOOD.replace(old, new, 1))
    (finding,) = check_descriptor(path, "t3000")
    assert (
        (finding.severity, finding.line) == ("error", line)
        and message in finding.message
        and cure in finding.cure
    )
    assert str(finding).startswith(f"{path}:{line}: error: ") and "\n  try: " in str(finding)
    with pytest.raises(ttkit.TTKitError) as caught:
        read_descriptor(path)
    assert str(caught.value).startswith(
        f"read_descriptor('{path}'): Failed to "
        if "FABRIC" in message
        else f"read_descriptor('{path}'): "
    )
    assert message in str(caught.value) and f"\n  try: {path}:{line}: " in str(caught.value)


@pytest.mark.parametrize(
    "old, new, line, message",
    [
        ("channels {\n", "chanels { count: 1 }\n  channels {\n", 7, "unknown field 'chanels'"),
        ("count: 2", "count: 2 polcy: RELAXED", 8, "unknown field 'polcy'"),
        ("dims: [ 2, 4 ]", "dims: [ 2, 4 ] dim_types: [ LINE ]", 5, "taken as LINE"),
        ("arch: WORMHOLE_B0", "arch: BLACKHOLE", 4, "arch BLACKHOLE, but this machine (t3000) is WORMHOLE_B0"),
        ("dims: [ 2, 4 ]", "dims: [ 4, 4 ]", 5, "one host has 4x4 = 16 chips of mesh 0, but this machine (t3000) has 8"),
        ("count: 2", "count: 4", 8, "4 links between two chips, but this machine (t3000) has 2"),
        ("graph_descriptors {", 'mesh_descriptors { name: "M1" arch: WORMHOLE_B0 device_topology { dims: [ 1, ' '1 ] } host_topology { dims: [ 1, 1 ] }\n'
         "channels { count: 1 } }\ngraph_descriptors {", 11, "mesh descriptor M1 is not used"),
        (GOOD[GOOD.index("  connections") : GOOD.index("}\ntop")], "", 11, "graph G0 has no links"),
        ("    channels { count: 1", "    directional: true\n    channels { count: 1", 16, "binds no links"),
        ('mesh_id: 1 device_id', 'mesh_id: 0 device_id', 16, "a connection of a mesh with itself"),
    ],
)  # fmt: skip
def test_what_the_library_lets_pass_is_warned_about(written, old, new, line, message):
    assert not check_descriptor(written(GOOD), "t3000")
    findings = check_descriptor(written(GOOD.replace(old, new, 1)), "t3000")
    assert [f.severity for f in findings] == ["warning"] * len(findings)
    assert any(f.line == line and message in f.message and f.cure for f in findings), findings


@pytest.mark.parametrize(
    "dims, shape, severity, message",
    [
        ((2, 4), (2, 4), None, ""),
        ((2, 4), (4, 2), "warning", "transpose"),
        ((2, 4), (1, 8), "warning", "snake"),
        ((2, 4), (8, 1), "warning", "snake"),
        ((2, 4), (2, 2), "warning", "leaves chips"),
        ((1, 8), (1, 8), None, ""),
        ((1, 8), (8, 1), None, ""),
        ((1, 8), (2, 4), "error", "not rotatable"),
        ((2, 2), (2, 4), "error", "requires 8 devices, but only 4"),
        ((2, 4), (0, 4), "error", "not a mesh shape"),
    ],
)
def test_shapes_that_will_be_opened(written, dims, shape, severity, message):
    findings = check_descriptor(
        written(LINE.replace("2, 4", f"{dims[0]}, {dims[1]}")), "t3000", shape
    )
    assert [f.severity for f in findings] == ([severity] if severity else [])
    assert not findings or (message in findings[0].message and findings[0].line == 5)


def test_ids_of_connections_and_parts(written):
    descriptor = read_descriptor(written(GOOD))
    assert descriptor.connections == (Connection((0, 1), 1, "RELAXED", (3, 0)),)
    assert descriptor.mesh(1).policy == "STRICT" and descriptor.name == "mgd"
    with pytest.raises(
        ttkit.TTKitError, match="Local mesh binding mesh_id 2 not found in mesh graph descriptor"
    ):
        descriptor.mesh(2)
    with pytest.raises(ttkit.TTKitError, match="Local mesh binding host_rank 1 not found"):
        descriptor.mesh(0).part_of(1)


@pytest.mark.parametrize(
    "layout, pairs", [("ALL_TO_ALL", [(0, 1), (0, 2), (1, 2)]), ("RING", [(0, 1), (1, 2), (2, 0)])]
)
def test_graph_topologies_are_expanded(written, layout, pairs):
    third = '  instances { mesh { mesh_descriptor: "M0" mesh_id: 2 } }\n'
    topology = (
        f"  graph_topology {{ layout_type: {layout} channels {{ count: 3 policy: "
        f"RELAXED }} assign_z_direction: true }}\n"
    )
    start, end = GOOD.index("  connections"), GOOD.index("}\ntop")
    descriptor = read_descriptor(written(GOOD[:start] + third + topology + GOOD[end:]))
    assert descriptor.connections == tuple(
        Connection(pair, 3, "RELAXED", (None, None), True) for pair in pairs
    )


sizes = st.integers(1, 6)


@st.composite
def descriptors(draw):
    """Any descriptor that keeps the rules."""
    arch = draw(st.sampled_from(["WORMHOLE_B0", "BLACKHOLE"]))
    meshes = []
    for mesh_id in range(draw(st.integers(1, 5))):
        hosts, parts = (draw(sizes), draw(sizes)), (draw(sizes), 2 * draw(sizes))
        types = (draw(st.sampled_from(["LINE", "RING"])), draw(st.sampled_from(["LINE", "RING"])))
        dims = (hosts[0] * parts[0], hosts[1] * parts[1])
        policy = draw(st.sampled_from(["STRICT", "RELAXED"]))
        meshes.append(
            MeshInstance(mesh_id, f"M{mesh_id}", arch, dims, types, hosts, draw(sizes), policy)
        )
    policy = draw(st.sampled_from(["STRICT", "RELAXED"]))
    links = []
    for a, b in draw(
        st.lists(
            st.sampled_from(list(itertools.combinations(range(len(meshes)), 2)) or [(0, 0)]),
            max_size=6 * (len(meshes) > 1),
        )
    ):
        ends = draw(st.sampled_from([(None, None), (0, meshes[b].num_devices - 1)]))
        links.append(Connection((a, b), draw(sizes), policy, ends, draw(st.booleans())))
    return MeshGraphDescriptor(tuple(meshes), tuple(links))


@settings(deadline=None)
@given(descriptors())
def test_what_is_written_is_read(descriptor):
    loaded = load_text(text_of(descriptor), "mgd.textproto")
    assert loaded.descriptor == descriptor and not [
        f for f in loaded.findings if f.severity == "error"
    ]
    for mesh in descriptor.meshes:
        parts = [mesh.part_of(rank) for rank in range(mesh.num_hosts)]
        places = [(r + i, c + k) for (r, c), (h, w) in parts for i in range(h) for k in range(w)]
        assert sorted(places) == list(itertools.product(*map(range, mesh.device_dims)))
        assert all(mesh.host_of(corner) == rank for rank, (corner, _) in enumerate(parts))


def test_nothing_is_written_that_cannot_be_read(tmp_path):
    wrong = MeshGraphDescriptor(
        (MeshInstance(0, "M0", "WORMHOLE_B0", (2, 4), ("LINE", "LINE"), (1, 3), 2, "STRICT"),)
    )
    with pytest.raises(ttkit.TTKitError, match="must be divisible by host topology dimensions"):
        write_descriptor(wrong, tmp_path / "mgd.textproto")
    assert not (tmp_path / "mgd.textproto").exists()


def test_the_automatic_choice():
    shapes = {
        g: {n: d.meshes[0].device_dims for n in range(40) if (d := descriptor_for(n, g))}
        for g in ("newest", "older")
    }
    assert shapes == {"newest": {8: (2, 4), 32: (8, 4)}, "older": {8: (1, 8), 32: (1, 32)}}
    assert all(
        not check_descriptor(descriptor_path(n, g), {8: "t3000", 32: "galaxy"}[n])
        for n in (8, 32)
        for g in shapes
    )
    with pytest.raises(ttkit.TTKitError, match="no such generation"):
        descriptor_for(8, "oldest")


OLD = """ChipSpec: {
  arch: wormhole_b0,
  ethernet_ports: { N: 2, E: 2, S: 2, W: 2 }
}
Board: [
  { name: lbox, type: Mesh, topology: [1, 8] }
]
Mesh: [
  { id: 0, board: lbox, device_topology: [1, 8], host_topology: [1, 1] },
  { id: 1, board: lbox, device_topology: [1, 8], host_topology: [1, 1] },
]
RelaxedGraph: [
  [M0, M1, 2],
]
"""


def test_mgd_1_is_imported_and_converted(written, tmp_path):
    descriptor = read_descriptor(written(OLD, "mgd.yaml"))
    mesh = MeshInstance(0, "M0", "WORMHOLE_B0", (1, 8), ("LINE", "LINE"), (1, 1), 2, "STRICT")
    assert descriptor.meshes[0] == mesh and [m.mesh_id for m in descriptor.meshes] == [0, 1]
    assert descriptor.connections == (Connection((0, 1), 2, "RELAXED"),)
    assert read_descriptor(write_descriptor(descriptor, tmp_path / "new.textproto")) == descriptor
    ports = (
        "Graph: [[[0, E0], [1, W0]], [[1, W0], [0, E0]], [[0, E1], [1, W1]], [[1, W1], [0, E1]]]\n"
    )
    strict = read_descriptor(written(OLD[: OLD.index("Relaxed")] + ports, "mgd.yaml"))
    assert strict.connections == (Connection((0, 1), 2, "STRICT"),)


@pytest.mark.parametrize(
    "old, new, line, severity, message, cure",
    [
        (
            "arch: wormhole_b0",
            "arch: grayskull",
            2,
            "error",
            "no architecture is called 'grayskull'",
            "wormhole_b0",
        ),
        (
            "board: lbox",
            "board: lbx",
            9,
            "error",
            "no board has the name 'lbx'; known: lbox",
            "to Board",
        ),
        (
            "[M0, M1, 2]",
            "[M0, M7, 2]",
            12,
            "error",
            "Mesh instance id 7 not found",
            "one of [0, 1]",
        ),
        ("[M0, M1, 2]", "[M0, M1]", 13, "error", "a row of RelaxedGraph must be a list of 3", "["),
        ("id: 0", "id: zero", 9, "error", "id must be a whole number, not 'zero'", "0, 1, 2"),
        ("Mesh: [", "Meshes: [", 1, "error", "there is no Mesh", "add Mesh"),
        (
            "host_topology",
            "host_topolgy",
            9,
            "warning",
            "unknown key 'host_topolgy' in a mesh",
            "write host_topology",
        ),
        ("N: 2", "N: 1", 3, "warning", "different numbers of ports", "the same number"),
        ("Board: [", "Board: ]", 5, "error", "not YAML", "bracket"),
        ("type: Mesh", "type: Ring", 6, "error", "no board has the type 'RING'", "Mesh or Torus"),
    ],
)
def test_findings_in_mgd_1(written, old, new, line, severity, message, cure):
    findings = check_descriptor(written(OLD.replace(old, new, 1), "mgd.yaml"), "t3000")
    assert any(
        (f.line, f.severity) == (line, severity) and message in f.message and cure in f.cure
        for f in findings
    ), findings
