"""The exercises of lesson 05b, whose answers are files and places in files, with right answers
and with wrong ones.
"""

import json
import pathlib

from answers import right, wrong

from ttkit.cluster import lint_path
from ttkit.cluster.launch.output import Output
from ttkit.lessons import lesson_05b

BINDINGS = """rank_bindings:
  - {rank: 0, mesh_id: 0, env_overrides: {TT_VISIBLE_DEVICES: "2,3"}}
  - {rank: 1, mesh_id: 1, env_overrides: {TT_VISIBLE_DEVICES: "0,1"}}
  - {rank: 2, mesh_id: 2, mesh_host_rank: 0}
  - {rank: 3, mesh_id: 2, mesh_host_rank: 1}
mesh_graph_desc_path: mgd.textproto
"""
PLACES = {
    "duplicate rank": "rank_bindings.yaml:10",
    "misspelt key": "rank_bindings.yaml:12",
    "no quotes": "rank_bindings.yaml:9",
    "no such mesh": "rank_bindings.yaml:15",
    "shared card": "rank_bindings.yaml:17",
    "too few slots": "hosts.txt:1",
}


def but(old, new):
    assert old in BINDINGS
    return BINDINGS.replace(old, new)


def other_way_round():
    """Ranks 0 and 1 may have the two meshes of their host in either order."""
    return but(
        'mesh_id: 0, env_overrides: {TT_VISIBLE_DEVICES: "2,3"}',
        'mesh_id: 1, env_overrides: {TT_VISIBLE_DEVICES: "1, 0"}',
    ).replace(
        'rank: 1, mesh_id: 1, env_overrides: {TT_VISIBLE_DEVICES: "0,1"}',
        'rank: 1, mesh_id: 0, env_overrides: {TT_VISIBLE_DEVICES: "2,3"}',
    )


RIGHT = [
    ("05b.bindings", BINDINGS),
    ("05b.bindings", other_way_round()),
    (
        "05b.bindings",
        but(
            "mesh_host_rank: 1}",
            'mesh_host_rank: 1, env_overrides: {TT_VISIBLE_DEVICES: "0,1,2,3"}}',
        ),
    ),
    ("05b.mistakes", PLACES),
    ("05b.mistakes", {f" {name.upper()} ": place for name, place in PLACES.items()}),
    ("05b.mistakes", {name: f"/tmp/work/broken/{place}" for name, place in PLACES.items()}),
    ("05b.mistakes", {name: place.replace(":", ": ") for name, place in PLACES.items()}),
    (
        "05b.mistakes",
        PLACES
        | {
            "duplicate rank": "rank_bindings.yaml:6",
            "shared card": "rank_bindings.yaml:5",
            "too few slots": "rank_bindings.yaml:1",
        },
    ),
]
WRONG = [
    ("05b.bindings", but("mesh_id: 0", "mesh_id: 2").replace("rank: 2, mesh_id: 2, mesh_host_rank: 0", "rank: 2, mesh_id: 0"), "several ranks, so each needs"),
    ("05b.bindings", but('"2,3"', '"x"').replace('"0,1"', '"2,3"').replace('"x"', '"0,1"'), "rank 0 runs on node-1 and has mesh 0: that is cards 2,3, it sees 0,1"),
    ("05b.bindings", but("mesh_host_rank: 0", "mesh_host_rank: 9").replace("mesh_host_rank: 1", "mesh_host_rank: 0").replace("9", "1"), "which is host 0 of mesh 2"),
    ("05b.bindings", but(", mesh_host_rank: 1", ""), "mesh 2 has several ranks, so each needs a mesh_host_rank"),
    ("05b.bindings", but('{TT_VISIBLE_DEVICES: "2,3"}', "{TT_VISIBLE_DEVICES: 2}"), r"rank_bindings.yaml:2: .*without quotes is no text\n  try: put quotes"),
    ("05b.bindings", but(', env_overrides: {TT_VISIBLE_DEVICES: "0,1"}', ""), "rank 1 sees all devices, but shares its host"),
    ("05b.bindings", but("  - {rank: 3, mesh_id: 2, mesh_host_rank: 1}\n", ""), "3 ranks, but hosts.txt has 4 slots"),
    ("05b.bindings", but("rank: 3, mesh_id: 2", "rank: 3, mesh_id: 3"), "mesh_id 3 not found"),
    (
        "05b.bindings",
        but("rank: 1, mesh_id: 1", "rank: 1, mesh_id: x").replace("rank: 2, mesh_id: 2, mesh_host_rank: 0", "rank: 2, mesh_id: 1").replace(
            "mesh_id: x", "mesh_id: 2, mesh_host_rank: 0"
        ),
        "rank 1 runs on node-1, which has the cards of mesh 0 and 1, not of mesh 2: " "ranks fill the slots",
    ),
    ("05b.bindings", {"rank_bindings": []}, "the text of a rank_bindings.yaml is asked for, this is a dict"),
    ("05b.bindings", "\ud800" + BINDINGS, "the check cannot read your answer: .*surrogates"),
    ("05b.mistakes", PLACES | {"no quotes": "rank_bindings.yaml:8,9"}, "no quotes is not at"),
    ("05b.bindings", "", "Input should be a valid dictionary"),
    ("05b.mistakes", PLACES | {"no quotes": "rank_bindings.yaml:5"}, "no quotes is not at rank_bindings.yaml:5: something else is wrong there"),
    ("05b.mistakes", PLACES | {"misspelt key": "rank_bindings.yaml:8"}, "misspelt key is not at rank_bindings.yaml:8, where nothing is wrong"),
    ("05b.mistakes", {"no quotes": "rank_bindings.yaml:9"}, "1 of 6 are right; not found yet: duplicate rank, misspelt key"),
    ("05b.mistakes", {"a typo": "hosts.txt:1"}, "is no name of a mistake; they are duplicate rank"),
    ("05b.mistakes", PLACES | {"no quotes": 9}, "give the place as 'file:line'"),
    ("05b.mistakes", list(PLACES), "a dictionary is asked for"),
]  # fmt: skip


test_a_right_answer_passes = right(RIGHT)
test_a_wrong_answer_is_told_where = wrong(WRONG)


def test_the_linter_finds_each_mistake_where_the_check_expects_it(tmp_path):
    for mistake in lesson_05b.MISTAKES:
        places = {
            f"rank_bindings.yaml:{finding.line}"
            for finding in lint_path(lesson_05b.spoiled(tmp_path, mistake))
            if finding.severity == "error"
        }
        assert len(places) == 1 and places <= set(lesson_05b._places(mistake)), mistake
    assert {mistake: lesson_05b._places(mistake)[0] for mistake in lesson_05b.MISTAKES} == PLACES


def test_without_mistakes_the_folder_is_right(tmp_path):
    lesson_05b.spoiled(tmp_path)
    for name, text in lesson_05b._spoiled(()).items():
        (tmp_path / name).write_text(text)
    assert lint_path(tmp_path) == []


def test_the_record_in_the_lesson_is_what_is_said():
    (path,) = (pathlib.Path(__file__).resolve().parents[2] / "notebooks").glob("05b_*.ipynb")
    output = Output(3, ["node-1", "node-2", "node-3"])
    output.framed = ["Remote daemon: [prterun-node-1-7@0,3] on node node-3"]
    said = f"ttkit run: {output.why(1)}"
    assert any(
        f"```\n{said}\n```" in "".join(cell["source"])
        for cell in json.loads(path.read_text())["cells"]
    )


def test_a_terminal_prints_the_command_and_what_went_wrong(capsys):
    lesson_05b.terminal("convert", "no-such-file.json", "--to", "txt")
    assert "no-such-file.json" in capsys.readouterr().out


def test_a_command_without_its_variables():
    words = ["mpirun", "-x", "A=1", "-x", "B=2", "-np", "1", "python"]
    assert lesson_05b.without_variables(words) == ["mpirun", "-np", "1", "python"]
