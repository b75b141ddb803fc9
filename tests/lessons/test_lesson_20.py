"""Lesson 20, whose answers are files: its exercises with right and with wrong answers."""

import json
import pathlib

import pytest
from answers import both
from visualize.test_chart import svg_of

from course import lesson_20
from course.lesson_20 import ways_out
from ttkit.cluster.launch import Output
from ttkit.hardware import SYSTEMS

BINDINGS = """rank_bindings:
  - {rank: 0, mesh_id: 0, env_overrides: {TT_VISIBLE_DEVICES: "2,3"}}
  - {rank: 1, mesh_id: 1, env_overrides: {TT_VISIBLE_DEVICES: "0,1"}}
  - {rank: 2, mesh_id: 2, mesh_host_rank: 0}
  - {rank: 3, mesh_id: 2, mesh_host_rank: 1}
mesh_graph_desc_path: mgd.textproto
"""
NAMES = ("hosts.txt", "rank_bindings.yaml")
SPOILED = {name: (lesson_20.HOSTS / "mistakes" / name).read_text() for name in NAMES}
RANKS = "".join(
    f"  - rank: {rank}\n    mesh_id: {rank}\n    env_overrides:\n"
    f'      TT_VISIBLE_DEVICES: "{rank}"\n'
    for rank in range(4)
)
GOOD = {"hosts.txt": "localhost slots=4\n"}
GOOD["rank_bindings.yaml"] = f"rank_bindings:\n{RANKS}mesh_graph_desc_path: mgd.textproto\n"


def but(old, new):
    assert old in BINDINGS
    return BINDINGS.replace(old, new)


def with_bindings(old, new):
    """Right files but for one thing."""
    assert old in GOOD["rank_bindings.yaml"]
    return GOOD | {"rank_bindings.yaml": GOOD["rank_bindings.yaml"].replace(old, new)}


def other_way_round():
    """Ranks 0 and 1 may have the two meshes of their host in either order."""
    return but(
        'mesh_id: 0, env_overrides: {TT_VISIBLE_DEVICES: "2,3"}',
        'mesh_id: 1, env_overrides: {TT_VISIBLE_DEVICES: "1, 0"}',
    ).replace(
        'rank: 1, mesh_id: 1, env_overrides: {TT_VISIBLE_DEVICES: "0,1"}',
        'rank: 1, mesh_id: 0, env_overrides: {TT_VISIBLE_DEVICES: "2,3"}',
    )


def swapped_meshes():
    text = GOOD["rank_bindings.yaml"].replace("mesh_id: 0", "mesh_id: x")
    text = text.replace("mesh_id: 1", "mesh_id: 0").replace("mesh_id: x", "mesh_id: 1")
    return GOOD | {"rank_bindings.yaml": text}


test_a_right_answer_passes, test_a_wrong_answer_is_told_where = both(
    {
        "20.bindings": (
            [BINDINGS, other_way_round()],
            {
                "rank 0 runs on node-1, which has mesh 0, part 0 of it, cards 2,3 or mesh 1": but(
                    '"2,3"', '"0,2"'
                ).replace('"0,1"', '"1,3"'),
                "rank 2 runs on node-2, which has mesh 2, part 0 of it": but(
                    "mesh_host_rank: 0", "mesh_host_rank: x"
                )
                .replace("mesh_host_rank: 1", "mesh_host_rank: 0")
                .replace("mesh_host_rank: x", "mesh_host_rank: 1"),
                "both claim mesh_id 2, mesh_host_rank 0": but(", mesh_host_rank: 1", ""),
                "without quotes is no text\n  try: put quotes": but('"2,3"', "2"),
                "rank 1 sees all devices, but shares its host": but(
                    ', env_overrides: {TT_VISIBLE_DEVICES: "0,1"}', ""
                ),
                "3 ranks, but hosts.txt has 4 slots": but(
                    "  - {rank: 3, mesh_id: 2, mesh_host_rank: 1}\n", ""
                ),
            },
        ),
        "20.mistakes": (
            [
                GOOD,
                with_bindings('TT_VISIBLE_DEVICES: "3"', "TT_VISIBLE_DEVICES: '3'"),
                GOOD | {"hosts.txt": "# one host\nlocalhost slots=4"},
            ],
            {
                "rank_bindings.yaml:": SPOILED,
                "slots": GOOD | {"hosts.txt": SPOILED["hosts.txt"]},
                "ranks 0 and 3 both see device 0": with_bindings('"3"', '"0"'),
                "mesh_id 4 not found": with_bindings("mesh_id: 3", "mesh_id: 4"),
                "rank 0 has mesh 1 and card 0; mesh 0 and card 0": swapped_meshes(),
            },
        ),
    }
)


def test_the_record_in_the_lesson_is_what_is_said():
    (path,) = (pathlib.Path(__file__).resolve().parents[2] / "notebooks").glob("20_*.ipynb")
    output = Output(3, ["node-1", "node-2", "node-3"])
    output.framed = ["Remote daemon: [prterun-node-1-7@0,3] on node node-3"]
    said = f"ttkit run: {output.why(1)}"
    assert any(
        f"```\n{said}\n```" in "".join(cell["source"])
        for cell in json.loads(path.read_text())["cells"]
    )


def test_a_terminal_prints_the_command_and_what_went_wrong(capsys):
    lesson_20.terminal("convert", "no-such-file.json", "--to", "txt")
    assert "no-such-file.json" in capsys.readouterr().out


# ---------------------------------------------------------------- the ways out of a host
T3000 = SYSTEMS["t3000"]


def test_the_rates_are_those_of_the_hardware_and_are_shared():
    chart = ways_out(mib_a_chip=1e9 / 2**20, system=T3000)
    dram, link, cable, network = (1 / seconds for (seconds,) in chart.rows.values())
    rate = T3000.chip.link.rates[0].gb_per_s
    wanted = T3000.chip.dram_bandwidth.value, 2 * rate, 2 * rate / 8, 100 / 8 / 8
    assert (dram, link, cable, network) == pytest.approx(wanted)
    single = ways_out(system=SYSTEMS["n150"])  # which has no links
    names = [name.split(":")[0] for name in single.rows]
    assert names == [
        "its own DRAM",
        "to the other host, 2 chip links",
        "to the other host, network",
    ]


def test_the_text_says_where_each_number_comes_from():
    text = repr(ways_out(network_gbit_per_s=1, mib_a_chip=1024, system=T3000))
    assert "published" in text and "measured by Tenstorrent" in text
    assert "68.7 s at 0.0156 GB/s (assumed 1 Gbit/s, shared by 8 chips)" in text
    assert round(ways_out(system=T3000).slower()) == 184
    page = svg_of(ways_out(system=T3000)._repr_html_())
    assert ">10 ms<" in page and "assumed 100" in page and "mathdefault" not in page
