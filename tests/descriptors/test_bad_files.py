"""Whatever is in a file: an answer in the kit's own words, soon; nothing of it is executed."""

import json
import pathlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from spoiled import nothing_is_run, spoiled_bytes

import ttkit
from ttkit.cluster import MeshGraphDescriptor, check_descriptor, read_descriptor
from ttkit.descriptors import seen_through
from ttkit.descriptors.reading import OURS
from ttkit.hardware.systems import SYSTEMS

HERE = pathlib.Path(__file__).resolve().parent
CONFIGS = HERE.parent.parent / "configs"
SLOWEST_S = 5.0
MGD = [
    path.read_text()
    for path in [*sorted(OURS.glob("*.textproto")), *sorted(CONFIGS.rglob("*.textproto"))]
]
MGD += [row["mgd_text"] for row in json.loads((HERE / "more_opens.json").read_text())["opens"]]
OLD = [
    """ChipSpec: {arch: wormhole_b0, ethernet_ports: {N: 2, E: 2, S: 2, W: 2}}
Board: [{ name: lbox, type: Mesh, topology: [1, 8]}, { name: tray, type: Torus, topology: [8, 4]}]
Mesh: [{id: 0, board: lbox, device_topology: [1, 8], host_topology: [1, 1]}, {id: 1, board: tray, host_topology: [2, 1], host_ranks: [[0, 1]]}]
RelaxedGraph: [[M0, M1, 2]]
""",
    "ChipSpec: {arch: blackhole, ethernet_ports: {N: 1, E: 2}}\nBoard:\n- name: b\n  topology: "
    "[2, 2]\nMesh:\n- {id: 0, board: b}\n- {id: 1, board: b}\n"
    "Graph: [[[0, E0], [1, W0]], [[1, W0], [0, E0]], [[0, N1], [1, S1]]]\n",
]
PIECES = [
    "{", "}", "[", "]", "<", ">", ":", ",", ";", '"', "'", "#", "\n", "\\", "\x00", "é", "\u2028", "0", "-1", "1", "99999999999999999999", "0x10",
    "1e9", "1000000", "nan", "name", "dims", "dim_types", "RING", "LINE", "INVALID_TYPE", "policy: RELAXED", "arch: BLACKHOLE", "mesh_id: 7",
    "device_id: 1", "switch { }", "graph { }", "mesh_descriptors { }", "graph_topology { layout_type: ALL_TO_ALL channels { count: 1 } }",
    "pinnings { }", "express_connections { src: 1 dst: 2 }", "[type.googleapis.com/a.b] { }", "[ext.name]: 1", '"a" "b"', "'\\xff'", '"\\377\\400"',
    "&a", "*a", "<<: *a", "!!python/object/apply:os.system ['false']", "!!int x", "!!binary x", "!!timestamp 2001-99-99", "---", "...", "? ", "- ",
    "| ", "> ", "%YAML 9", "{" * 80, "[" * 2000, "a {" * 400, "sub_ref { graph { " * 60,
]  # fmt: skip


@st.composite
def mutated(draw, texts):
    """A text in which pieces were removed, doubled, moved in or replaced."""
    text = draw(st.sampled_from(texts))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 40)))
        other = draw(st.sampled_from(texts))
        cut = draw(st.integers(0, len(other)))
        new = draw(
            st.one_of(
                st.sampled_from(PIECES),
                st.just(""),
                st.just(text[start:end] * 2),
                st.just(other[cut : cut + 60]),
                st.text(max_size=8),
            )
        )
        text = text[:start] + new + text[end:]
    return text


PILES = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)
FILES = st.one_of(
    st.tuples(st.just("mgd.textproto"), mutated(MGD).map(str.encode)),
    st.tuples(st.just("mgd.yaml"), mutated(OLD).map(str.encode)),
    st.tuples(st.just("mgd.textproto"), spoiled_bytes([text.encode() for text in MGD])),
    st.tuples(st.just("mgd.yaml"), spoiled_bytes([text.encode() for text in OLD])),
    st.tuples(
        st.sampled_from(["mgd.textproto", "mgd.yaml"]),
        st.one_of(st.binary(max_size=200), PILES.map(str.encode)),
    ),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One folder for all files; pytest removes it, also when a later run finds what a killed one
    left.
    """
    return tmp_path_factory.mktemp("bad")


def look_at(folder, name, content):
    """Everything that is done with a file of a user."""
    path = folder / name
    path.write_bytes(content)
    with nothing_is_run(SLOWEST_S):
        findings = check_descriptor(path)
        broken = [finding for finding in findings if finding.severity == "error"]
        assert all(
            finding.path == str(path) and finding.message and finding.line >= 0
            for finding in findings
        )
        try:
            descriptor = read_descriptor(path)
        except ttkit.TTKitError as error:
            assert broken and str(path) in str(error)
        else:
            assert (
                isinstance(descriptor, MeshGraphDescriptor)
                and not broken
                and len(repr(descriptor)) < 400
            )
            descriptor._repr_html_()
        try:
            seen_through(str(path), SYSTEMS["t3000"])
        except ttkit.TTKitError as error:
            assert getattr(error, "ours", False)


quiet = list(HealthCheck)


@settings(max_examples=1000, deadline=None, suppress_health_check=quiet)
@given(FILES)
def test_bad_files(folder, file):
    look_at(folder, *file)


@pytest.mark.long
@settings(max_examples=100_000, deadline=None, suppress_health_check=quiet)
@given(FILES)
def test_a_hundred_thousand_bad_files(folder, file):
    look_at(folder, *file)


@pytest.mark.parametrize(
    "name, content",
    [
        ("mgd.textproto", b"mesh_descriptors {" * 14_000),
        ("mgd.textproto", b"\xff\xfe\x00"),
        ("mgd.textproto", b'mesh_descriptors { name: "' + b"x" * 200_000 + b'" }'),
        ("mgd.textproto", MGD[0].replace("8, 4", "2147483647, 2147483646").encode()),
        ("mgd.yaml", b"[" * 100_000),
        (
            "mgd.yaml",
            b"a: &a [x, x]\n"
            + b"".join(
                b"%c: &%c [*%c, *%c, *%c]\n" % (c + 1, c + 1, c, c, c) for c in range(97, 115)
            ),
        ),
        (
            "mgd.yaml",
            b"a: &a {k: 1}\n"
            + b"".join(
                b"%c: &%c {<<: [*%c, *%c, *%c]}\n" % (c + 1, c + 1, c, c, c) for c in range(97, 115)
            ),
        ),
        ("mgd.yaml", b"Mesh: &m [*m]\nChipSpec: {}\n"),
        ("mgd.yaml", b"- " * 50_000),
    ],
    ids=[
        "deep",
        "no text",
        "long name",
        "huge mesh",
        "deep list",
        "aliases of aliases",
        "merges of merges",
        "a list in itself",
        "lists of one",
    ],
)
def test_files_made_to_hurt(folder, name, content):
    look_at(folder, name, content)


@pytest.mark.parametrize("ending", ["textproto", "yaml"])
def test_a_byte_order_mark_is_passed_over(tmp_path, ending):
    """Editors on Windows write one."""
    path = tmp_path / f"mgd.{ending}"
    text = MGD[0] if ending == "textproto" else OLD[0]
    path.write_text(text, encoding="utf-8")
    plain = repr(read_descriptor(path))
    path.write_text(text, encoding="utf-8-sig")
    assert repr(read_descriptor(path)) == plain


def test_yaml_is_never_executed(tmp_path):
    witness = tmp_path / "executed"
    path = tmp_path / "mgd.yaml"
    path.write_text(f"ChipSpec: !!python/object/apply:os.mkdir ['{witness}']\nMesh: []\n")
    assert check_descriptor(path)[0].severity == "error" and not witness.exists()


def test_what_is_no_file(tmp_path):
    for path, rule in (
        (tmp_path / "none.textproto", "file not found"),
        (tmp_path, "that is not a file"),
    ):
        with pytest.raises(ttkit.TTKitError, match=rule):
            read_descriptor(path)
    large = tmp_path / "large.textproto"
    large.write_text("#" * 300_000)
    with pytest.raises(ttkit.TTKitError, match="more than 262144 bytes"):
        read_descriptor(large)
