"""Lessons 27 to 29: their exercises with right and with wrong answers; files."""

import json
import pathlib

from answers import both

from course.common import terminal
from ttkit.cluster.launch import Output

BINDINGS = """rank_bindings:
  - {rank: 0, mesh_id: 0, env_overrides: {TT_VISIBLE_DEVICES: "2,3"}}
  - {rank: 1, mesh_id: 1, env_overrides: {TT_VISIBLE_DEVICES: "0,1"}}
  - {rank: 2, mesh_id: 2, mesh_host_rank: 0}
  - {rank: 3, mesh_id: 2, mesh_host_rank: 1}
mesh_graph_desc_path: mgd.textproto
"""


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


test_a_right_answer_passes, test_a_wrong_answer_is_told_where = both(
    {
        "27.hosts": ([4, 4.0], {"each sends 2 (n - 1) / n of": 8, "50 / 8 GB/s": 16}),
        "28.cables": ([8, 8.0], {"add border(mesh, 1) - border(mesh, 4)": 16}),
        "29.bindings": (
            [BINDINGS, other_way_round()],
            {
                "rank 0 runs on node-1, which has part 0 of mesh 0 (cards 2,3) or part 0 of": but(
                    '"2,3"', '"0,2"'
                ).replace('"0,1"', '"1,3"'),
                "rank 2 runs on node-2, which has part 0 of mesh 2": but(
                    "mesh_host_rank: 0", "mesh_host_rank: x"
                )
                .replace("mesh_host_rank: 1", "mesh_host_rank: 0")
                .replace("mesh_host_rank: x", "mesh_host_rank: 1"),
                "both claim mesh_id 2, mesh_host_rank 0": but(", mesh_host_rank: 1", ""),
                "without quotes is not a string\n  try: put quotes": but('"2,3"', "2"),
                "rank 1 sees all devices, but shares node-1 with": but(
                    ', env_overrides: {TT_VISIBLE_DEVICES: "0,1"}', ""
                ),
                "3 ranks, but hosts.txt has 4 slots": but(
                    "  - {rank: 3, mesh_id: 2, mesh_host_rank: 1}\n", ""
                ),
            },
        ),
    }
)


def test_the_record_in_the_lesson_is_what_is_said():
    (path,) = (pathlib.Path(__file__).resolve().parents[2] / "notebooks").glob("27_*.ipynb")
    output = Output(["node-1", "node-2", "node-3"])
    output.framed = ["Remote daemon: [prterun-node-1-7@0,3] on node node-3"]
    said = f"ttkit run: {output.why(1)}"
    assert any(
        f"```\n{said}\n```" in "".join(cell["source"])
        for cell in json.loads(path.read_text())["cells"]
    )


def test_a_terminal_prints_the_command_and_what_went_wrong(capsys):
    terminal("convert", "no-such-file.json", "--to", "txt")
    assert "no-such-file.json" in capsys.readouterr().out
