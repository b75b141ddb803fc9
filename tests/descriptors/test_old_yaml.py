"""MGD 1.0: what is converted, and what is wrong with a file."""

import pytest

from ttkit.cluster import (
    Connection,
    MeshInstance,
    check_descriptor,
    descriptor_text,
    read_descriptor,
)

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


def test_mgd_1_is_imported_and_converted(written):
    descriptor = read_descriptor(written(OLD, "mgd.yaml"))
    mesh = MeshInstance(0, "M0", "WORMHOLE_B0", (1, 8), ("LINE", "LINE"), (1, 1), 2, "STRICT")
    assert descriptor.meshes[0] == mesh and [m.mesh_id for m in descriptor.meshes] == [0, 1]
    assert descriptor.connections == (Connection((0, 1), 2, "RELAXED"),)
    assert read_descriptor(written(descriptor_text(descriptor))) == descriptor


@pytest.mark.parametrize(
    "old, new, line, message",
    [
        ("arch: wormhole_b0", "arch: grayskull", 2, "ChipSpec.arch: Input should be 'WORMHOLE_B0'"),
        ("board: lbox", "board: lbx", 9, "no board has the name 'lbx'; known: lbox"),
        ("[M0, M1, 2]", "[M0, M7, 2]", 0, "Mesh instance id 7 not found"),
        ("[M0, M1, 2]", "[M0, M1]", 13, "RelaxedGraph.0.2: Field required"),
        ("Mesh: [", "Meshes: [", 1, "Mesh: Field required"),
        ("host_topology", "host_topolgy", 9, "Mesh.0.host_topolgy: Extra inputs are not permitted"),
        ("host_topology: [1, 1]", "host_topology: [1, 3]", 0, "divisible by host topology"),
    ],
)
def test_findings_in_mgd_1(written, old, new, line, message):
    findings = check_descriptor(written(OLD.replace(old, new, 1), "mgd.yaml"))
    assert any(
        (f.line, f.severity) == (line, "error") and message in f.message and f.cure
        for f in findings
    ), findings


def test_the_smallest_number_of_ports_is_taken(written):
    text = OLD.replace("N: 2", "N: 1", 1)
    assert read_descriptor(written(text, "mgd.yaml")).meshes[0].channels == 1
