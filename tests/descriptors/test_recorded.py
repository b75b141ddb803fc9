"""Descriptors and openings as recorded from the real ttnn 0.81.1: tests/descriptors, whose
check.py comes from the real library's side.
"""

import json
import pathlib
import re

import pytest
from started import all_cases_pass

import ttkit
from ttkit import ttnn
from ttkit.cluster import (
    Connection,
    MeshGraphDescriptor,
    MeshInstance,
    check_descriptor,
    descriptor_text,
    read_descriptor,
)

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RECORDED = ROOT / "tests" / "descriptors"
STRICT = "import ttkit; ttkit.strict(); from ttkit import ttnn"
FILES = json.loads((RECORDED / "mgd.json").read_text())["files"]
# more_opens.json was recorded in the same way by this project: rules of the library, and lines,
# rings and small meshes on a T3000.
MORE = json.loads((RECORDED / "more_opens.json").read_text())["opens"]
OPENS = (
    json.loads((RECORDED / "mgd.json").read_text())["opens"]
    + json.loads((RECORDED / "mesh_shapes.json").read_text())["rows"]
    + MORE
)
WHEEL = next(
    ROOT.glob(".real/venv/lib/python3.*/site-packages/ttnn/tt_metal/fabric/mesh_graph_descriptors"),
    None,
)
needs_wheel = pytest.mark.skipif(
    WHEEL is None,
    reason="the descriptors of the ttnn wheel are not here (make test-real brings them)",
)


def fold(text):
    return re.sub(r"\s+", " ", text).strip()


def plain(descriptor):
    """A descriptor as mgd.json has it."""
    keys = ("mesh_id", "arch", "device_dims", "dim_types", "host_dims", "channels", "policy")
    meshes = [
        {k: list(v) if isinstance(v := getattr(m, k), tuple) else v for k in keys}
        for m in descriptor.meshes
    ]
    links = [
        {"meshes": sorted(c.meshes), "channels": c.channels, "policy": c.policy}
        for c in descriptor.connections
    ]
    return {
        "meshes": meshes,
        "total_devices": descriptor.total_devices,
        "total_hosts": descriptor.total_hosts,
        "connections": links,
    }


def sorted_links(record):
    links = sorted(record["connections"], key=lambda link: (link["meshes"], link["channels"]))
    return record | {"connections": links}


def made(record):
    """The descriptor that a record of mgd.json describes."""
    meshes = []
    for mesh in record["meshes"]:
        values = {k: tuple(v) if isinstance(v, list) else v for k, v in mesh.items()}
        name = "M" + "_".join(map(str, [*mesh["host_dims"], *mesh["device_dims"]]))
        meshes.append(MeshInstance(name=name, **values))
    links = [(tuple(c["meshes"]), c["channels"], c["policy"]) for c in record["connections"]]
    return MeshGraphDescriptor(tuple(meshes), tuple(Connection(*link) for link in links))


@pytest.mark.parametrize("name", FILES)
def test_recorded_files_are_written_and_read(name, tmp_path):
    descriptor = made(FILES[name])
    assert plain(descriptor) == FILES[name] and len(descriptor.meshes) > 0
    (tmp_path / name).write_text(descriptor_text(descriptor))
    read = read_descriptor(tmp_path / name)
    assert read == descriptor and plain(read) == FILES[name]


@needs_wheel
def test_every_textproto_of_the_wheel_is_read(tmp_path):
    paths = sorted(WHEEL.glob("*.textproto"))
    assert len(paths) >= 50
    for path in paths:
        descriptor = read_descriptor(path)
        assert not [
            finding
            for finding in check_descriptor(path)
            if finding.severity == "error" or "unknown" in finding.message
        ], path
        again = tmp_path / "again.textproto"
        again.write_text(descriptor_text(descriptor))
        assert read_descriptor(again) == descriptor, path
        if path.name in FILES:
            assert sorted_links(plain(descriptor)) == sorted_links(FILES[path.name])


def named(row):
    words = (
        row["mgd"].removesuffix(".textproto"),
        *map(row.get, ("shape", "offset", "visible", "fabric")),
    )
    return "-".join(filter(None, words))


@pytest.mark.parametrize("row", OPENS, ids=named)
def test_recorded_openings(row, written, monkeypatch):
    if row["mgd"]:
        monkeypatch.setenv("TT_MESH_GRAPH_DESC_PATH", str(written(row["mgd_text"], row["mgd"])))
    if row["visible"]:
        monkeypatch.setenv("TT_VISIBLE_DEVICES", row["visible"])
    shape = ttnn.MeshShape(*map(int, row["shape"].split("x")))
    places = map(int, row["offset"].split(",")) if row["offset"] else ()
    offset = {"offset": ttnn.MeshCoordinate(*places)} if row["offset"] else {}
    fabric = "DISABLED" if row["fabric"] == "none" else row["fabric"]
    ttkit.strict()
    ttnn.set_fabric_config(getattr(ttnn.FabricConfig, fabric))
    if row["ok"]:
        with ttnn.open_mesh_device(shape, **offset) as mesh:
            assert mesh.get_device_ids() == row["ids"]
    else:
        with pytest.raises(ttkit.TTKitError) as caught:
            ttnn.open_mesh_device(shape, **offset)
        assert fold(row["message"]) in fold(str(caught.value))
        assert not row["mgd"] or "\n  try: " in str(caught.value)


@pytest.mark.long
def test_the_recorders_own_check(capsys):
    textprotos = ["--textprotos", str(WHEEL)] if WHEEL else []
    all_cases_pass(capsys, "descriptors", "tests/descriptors/check.py", STRICT, *textprotos)
