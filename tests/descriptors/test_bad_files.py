"""Whatever is in a file: a descriptor, or errors in the kit's own words."""

import json
import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from places import many

import ttkit
from tests.descriptors.test_old_yaml import OLD
from ttkit.cluster import read_descriptor
from ttkit.descriptors.reading import DESCRIPTOR_FOLDER, load_text

HERE = pathlib.Path(__file__).resolve().parent
CONFIGS = HERE.parent.parent / "configs"
TEXTS = [
    path.read_text()
    for path in [
        *sorted(DESCRIPTOR_FOLDER.glob("*.textproto")),
        *sorted(CONFIGS.rglob("*.textproto")),
    ]
]
TEXTS += [row["mgd_text"] for row in json.loads((HERE / "more_opens.json").read_text())["opens"]]
PIECES = [
    "{", "}", "[", "]", ":", ",", '"', "#", "\n", "0", "-1", "99999999999999999999", "name", "dims", "dim_types", "RING", "INVALID_TYPE",
    "policy: RELAXED", "arch: BLACKHOLE", "mesh_id: 7", "device_id: 1", "switch { }", "graph { }", "mesh_descriptors { }", "graph_descriptors { }",
    "graph_topology { layout_type: ALL_TO_ALL channels { count: 1 } }", "pinnings { }", "express_connections { src: 1 dst: 2 }",
]  # fmt: skip


@st.composite
def mutated(draw):
    """A text in which pieces were removed, doubled or replaced."""
    text = draw(st.sampled_from(TEXTS))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 40)))
        new = draw(st.sampled_from([*PIECES, "", text[start:end] * 2]))
        text = text[:start] + new + text[end:]
    return text


@many(200)
@given(mutated())
def test_a_changed_file_is_read_or_has_errors(text):
    loaded = load_text(text, "mgd.textproto")
    errors = [finding for finding in loaded.findings if finding.severity == "error"]
    assert (loaded.descriptor is None) == bool(errors)
    assert all(finding.message and finding.cure and finding.line > 0 for finding in errors)


@pytest.mark.parametrize("ending", ["textproto", "yaml"])
def test_a_byte_order_mark_is_passed_over(tmp_path, ending):
    """Editors on Windows write one."""
    path = tmp_path / f"mgd.{ending}"
    text = TEXTS[0] if ending == "textproto" else OLD
    path.write_text(text, encoding="utf-8")
    plain = repr(read_descriptor(path))
    path.write_text(text, encoding="utf-8-sig")
    assert repr(read_descriptor(path)) == plain


def test_what_is_no_file(tmp_path):
    for path in (tmp_path / "none.textproto", tmp_path):
        with pytest.raises(ttkit.TTKitError, match="descriptor file not found"):
            read_descriptor(path)
