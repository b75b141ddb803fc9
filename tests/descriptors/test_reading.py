"""Reading, checking and writing descriptors: lines and cures, warnings, the automatic choice."""

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
    descriptor_path,
    descriptor_text,
    read_descriptor,
)
from ttkit.descriptors.reading import load_text

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
        ("arch: WORMHOLE_B0", "arch: WORMHOLE", 4, "no value named WORMHOLE", "write WORMHOLE_B0"),
        ("dims: [ 1, 1 ]", "dims: [ 1, 3 ]", 6, "divisible by host topology", "divide the rows"),
        ("    count: 2\n", "", 7, "Channel count must be positive (Mesh: M0)", "count: 2"),
        ('type: "FABRIC"', 'type: "POD"', 13, "only be one FABRIC level graph", 'type: "FABRIC"'),
        ("mesh_id: 1 } }\n  conn", "mesh_id: 0 } }\n  conn", 15, "id 0 already", "example 1"),
        ('"M0" mesh_id: 1 } }', '"M1" mesh_id: 1 } }', 15, "M1 not found in instance", '"M0"'),
        ("device_id: 3", "device_id: 8", 17, "Device id 8 not found in mesh instance", "0 to 7"),
        ("channels { count: 1 policy: RELAXED }", "", 16, "channel count must be", "count: 2"),
        ('graph_descriptor: "G0" g', 'graph_descriptor: "G1" g', 22, "G1 not found", '"G0"'),
        ("device_id: 0 } }\n", "device_id: 0 }\n", 22, "Failed to parse", "missing quote, colon"),
    ],
)
def test_each_error_has_line_and_cure(written, old, new, line, message, cure):
    path = written(GOOD.replace(old, new, 1))
    (finding,) = check_descriptor(path)
    assert (finding.severity, finding.line) == ("error", line)
    assert message in finding.message
    assert cure in finding.cure
    assert str(finding).startswith(f"{path}:{line}: error: ") and "\n  try: " in str(finding)
    with pytest.raises(ttkit.TTKitError) as caught:
        read_descriptor(path)
    failed = "Failed to " if "FABRIC" in message else ""
    assert str(caught.value).startswith(f"read_descriptor('{path}'): {failed}")
    assert message in str(caught.value) and f"\n  try: {path}:{line}: " in str(caught.value)


@pytest.mark.parametrize(
    "old, new, line, message",
    [
        ("channels {\n", "chanels { count: 1 }\n  channels {\n", 7, "unknown field 'chanels'"),
        ("count: 2", "count: 2 polcy: RELAXED", 8, "unknown field 'polcy'"),
    ],
)  # fmt: skip
def test_what_the_library_lets_pass_is_warned_about(written, old, new, line, message):
    assert not check_descriptor(written(GOOD))
    findings = check_descriptor(written(GOOD.replace(old, new, 1)))
    assert [f.severity for f in findings] == ["warning"] * len(findings)
    assert any(f.line == line and message in f.message and f.cure for f in findings), findings


def test_ids_of_connections_and_parts(written):
    descriptor = read_descriptor(written(GOOD))
    assert descriptor.connections == (Connection((0, 1), 1, "RELAXED", (3, 0)),)
    assert descriptor.mesh(1).policy == "STRICT" and descriptor.name == "mgd"
    rule = "Local mesh binding mesh_id 2 not found in mesh graph descriptor"
    with pytest.raises(ttkit.TTKitError, match=rule):
        descriptor.mesh(2)
    with pytest.raises(ttkit.TTKitError, match="Local mesh binding host_rank 1 not found"):
        descriptor.mesh(0).block_of_host(1)


@pytest.mark.parametrize(
    "layout, pairs", [("ALL_TO_ALL", [(0, 1), (0, 2), (1, 2)]), ("RING", [(0, 1), (1, 2), (2, 0)])]
)
def test_graph_topologies_are_expanded(written, layout, pairs):
    third = '  instances { mesh { mesh_descriptor: "M0" mesh_id: 2 } }\n'
    topology = (
        f"  graph_topology {{ layout_type: {layout} channels {{ count: 3 policy: RELAXED }} }}\n"
    )
    start, end = GOOD.index("  connections"), GOOD.index("}\ntop")
    descriptor = read_descriptor(written(GOOD[:start] + third + topology + GOOD[end:]))
    assert descriptor.connections == tuple(Connection(pair, 3, "RELAXED") for pair in pairs)


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
    pairs = list(itertools.combinations(range(len(meshes)), 2))
    for a, b in draw(st.lists(st.sampled_from(pairs), max_size=6)) if pairs else ():
        ends = draw(st.sampled_from([(None, None), (0, meshes[b].num_devices - 1)]))
        links.append(Connection((a, b), draw(sizes), policy, ends))
    return MeshGraphDescriptor(tuple(meshes), tuple(links))


@settings(deadline=None, max_examples=50)
@given(descriptors())
def test_what_is_written_is_read(descriptor):
    loaded = load_text(descriptor_text(descriptor), "mgd.textproto")
    assert loaded.descriptor == descriptor
    assert not [f for f in loaded.findings if f.severity == "error"]
    for mesh in descriptor.meshes:
        parts = [mesh.block_of_host(rank) for rank in range(mesh.num_hosts)]
        places = [(r + i, c + k) for (r, c), (h, w) in parts for i in range(h) for k in range(w)]
        assert sorted(places) == list(itertools.product(*map(range, mesh.device_dims)))
        assert all(mesh.host_of(corner) == rank for rank, (corner, _) in enumerate(parts))


def test_the_automatic_choice():
    paths = {number: path for number in range(40) if (path := descriptor_path(number))}
    shapes = {number: read_descriptor(path).meshes[0].device_dims for number, path in paths.items()}
    assert shapes == {8: (2, 4), 32: (8, 4)}
    assert not any(map(check_descriptor, paths.values()))
