"""The linter: each defect is found, on its line, with a cure; good files have no findings."""

import pathlib
import shutil

import pytest
from cluster import cases

from ttkit import TTKitError
from ttkit import __main__ as cli
from ttkit.cluster import find_config, lint_path, read_bindings, read_descriptor

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CONFIGS = sorted(path.name for path in (ROOT / "configs").iterdir() if path.is_dir())


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A copy of configs/t3000_2ranks to spoil: folder(bindings text, other files) -> its
    findings as "line: severity: message".
    """
    shutil.copytree(ROOT / "configs/t3000_2ranks", tmp_path / "configs/t3000_2ranks")
    monkeypatch.chdir(tmp_path)

    def call(bindings=None, **files):
        here = pathlib.Path("configs/t3000_2ranks")
        if bindings is not None:
            (here / "rank_bindings.yaml").write_text(bindings)
        for name, text in files.items():
            (here / name.replace("_dot_", ".")).write_text(text)
        return {
            f"{finding.line}: {finding.severity}: {finding.message}": finding.cure
            for finding in lint_path(here)
        }

    return call


GOOD = cases.PATTERN_1.replace('"two.textproto"', "configs/t3000_2ranks/mgd.textproto")

DEFECTS = {
    "a place twice": (
        ("host_rank: 1", "host_rank: 0"),
        "6: error: ranks 0 and 1 both claim mesh_id 0, mesh_host_rank 0",
        "another mesh_host_rank",
    ),
    "mesh not in descriptor": (
        ("mesh_id: 0\n    mesh_host_rank: 1", "mesh_id: 4\n    mesh_host_rank: 1"),
        "7: error: Local mesh binding mesh_id 4 not found in mesh graph descriptor mgd.textproto "
        "(it has [0])",
        "use one of those",
    ),
    "host rank not in descriptor": (
        ("host_rank: 1", "host_rank: 2"),
        "8: error: Local mesh binding host_rank 2 not found in mesh graph descriptor "
        "mgd.textproto: mesh 0 has 2 hosts",
        "use 0 to 1, or change host_topology in the descriptor",
    ),
    "host without rank": (
        ("host_rank: 1", "host_rank: 2"),
        "1: warning: no rank has host rank 1 of mesh 0 in mgd.textproto",
        "add its binding",
    ),
    "no quotes, one number": (
        ('"2,3"', "2"),
        "9: error: rank_bindings.1.env_overrides.TT_VISIBLE_DEVICES: "
        "Input should be a valid string: 2 without quotes is not a string",
        '"2"',
    ),
    "unknown key": (
        ("mesh_host_rank: 1", "mesh_host_rnak: 1"),
        "8: error: unknown key 'mesh_host_rnak': tt-run ignores it",
        "did you mean 'mesh_host_rank'?",
    ),
    "unknown key at the top": (
        ("mesh_graph_desc_path:", "global_envs: {}\nmesh_graph_desc_path:"),
        "10: error: unknown key 'global_envs': tt-run ignores it",
        "did you mean 'global_env'?",
    ),
    "devices overlap": (
        ('"2,3"', '"1,2"'),
        "9: error: ranks 0 and 1 both see device 1 on localhost",
        "devices of its own",
    ),
    "no devices named": (
        ('    env_overrides: {TT_VISIBLE_DEVICES: "2,3"}\n', ""),
        "6: warning: rank 1 sees all devices, but shares localhost with rank 0",
        "TT_VISIBLE_DEVICES",
    ),
    "devices for all": (
        (
            '    env_overrides: {TT_VISIBLE_DEVICES: "2,3"}\n',
            'global_env: {TT_VISIBLE_DEVICES: "0"}\n',
        ),
        "6: error: ranks 0 and 1 both see device 0 on localhost",
        "devices of its own",
    ),
    "key twice": (
        ("    mesh_host_rank: 1\n", "    mesh_host_rank: 0\n    mesh_host_rank: 1\n"),
        "9: error: 'mesh_host_rank' is twice in one mapping; only the last counts",
        "delete one",
    ),
    "descriptor not there": (
        ("mgd.textproto", "mgd2.textproto"),
        "10: error: mesh_graph_desc_path: Mesh graph descriptor not found: "
        "configs/t3000_2ranks/mgd2.textproto",
        "cd to the folder",
    ),
}


@pytest.mark.parametrize("config", CONFIGS)
def test_own_configurations_have_no_findings(config, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    assert lint_path(f"configs/{config}") == []
    assert cli.main(["lint", f"configs/{config}"]) == 0
    assert capsys.readouterr().out == "no findings\n"


def test_good_bindings_have_no_findings(folder):
    assert folder(GOOD) == {}


@pytest.mark.parametrize("name", DEFECTS)
def test_each_defect_is_found(folder, name):
    (old, new), said, cure = DEFECTS[name]
    assert GOOD.count(old) == 1
    findings = folder(GOOD.replace(old, new))
    match = [each for each in findings if each.splitlines()[0] == said]
    assert match, "\n".join(findings)
    assert cure in findings[match[0]]


@pytest.mark.parametrize(
    "hosts, said",
    [
        ("localhost slots=1\n", "1: error: 2 ranks, but hosts.txt has 1 slot"),
        ("a slots=2\nb slots=1\n", "1: warning: 2 ranks, but hosts.txt has 3 slots"),
        (
            "localhost slts=2\n",
            "1: error: read configs/t3000_2ranks/hosts.txt:1: 'localhost slts=2' is not a line of "
            "a hosts file",
        ),
        ("# none\n", "1: error: read configs/t3000_2ranks/hosts.txt: it names no host"),
    ],
)
def test_slots_against_ranks(folder, hosts, said):
    assert said in folder(GOOD, hosts_dot_txt=hosts)


def test_on_hosts_of_their_own_ranks_may_see_the_same_devices(folder):
    same = GOOD.replace('"2,3"', '"0,1"')
    assert folder(same, hosts_dot_txt="a slots=1\nb slots=1\n") == {}
    assert folder(
        same,
        hosts_dot_txt="a slots=1\nb slots=1\n",
        rankfile_dot_txt="rank 0=a slot=0\nrank 1=a slot=1\n",
    )


def test_descriptor_of_the_first_generation(folder):
    old = "ChipSpec: {arch: wormhole_b0, ethernet_ports: {N: 2, E: 2, S: 2, W: 2}}\n"
    old += "Board: [{name: lb, type: Mesh, topology: [2, 4]}]\n"
    old += "Mesh: [{id: 0, board: lb, device_topology: [2, 4], host_topology: [1, 2]}]\n"
    findings = folder(GOOD.replace("mgd.textproto", "mgd.yaml"), mgd_dot_yaml=old)
    assert {finding for finding in findings if "must use the .textproto format" in finding}
    assert all("warning" in finding for finding in findings), "ttkit reads it, ttnn 0.81.1 does not"


def test_a_broken_descriptor_is_among_the_findings(folder):
    findings = folder(mgd_dot_textproto="mesh_descriptors { name: 'M0' arch: WORMHOLE_B0 }\n")
    assert any("Top level instance is required" in finding for finding in findings), findings


def test_the_output_and_the_exit_code(folder, capsys):
    folder(GOOD.replace("host_rank: 1", "host_rank: 0"))
    assert cli.main(["lint", "configs/t3000_2ranks"]) == 1
    out = capsys.readouterr().out
    assert "configs/t3000_2ranks/rank_bindings.yaml:6:5: error: ranks 0 and 1 both claim" in out
    assert cli.main(["lint", "configs/nowhere"]) == 1
    assert "configs/nowhere:1" in capsys.readouterr().out


def test_own_configurations_fit_together():
    """What the linter does not say: every config's descriptor has the chips that its name says,
    and G1 and G2 are both there.
    """
    chips = {"n300": 2, "t3000": 8, "t3000_2ranks": 8, "quietbox_4ranks": 4}
    chips |= {"galaxy": 32, "galaxy_pp4": 32, "2loudboxes": 16, "5loudboxes": 40}
    for name, number in chips.items():
        bindings = read_bindings(ROOT / "configs" / name / "rank_bindings.yaml")
        assert read_descriptor(bindings.mesh_graph_desc_path).total_devices == number, name
    assert {*chips, "3nodes", "models", "training"} == set(CONFIGS)
    five = read_bindings(ROOT / "configs/5loudboxes/rank_bindings.yaml").rank_bindings
    assert [binding.mesh_id for binding in five] == [1, 0, 2, 3, 4]
    assert (ROOT / "configs/README.md").read_text().count("\n| `") == len(CONFIGS) + 4


G1 = """rank_bindings:
  - rank: 0
    mesh_id: 1
  - rank: 1
    mesh_id: 0

global_env:
  TT_METAL_HOME: "/home/ttuser/git/tt-metal"
mesh_graph_desc_path: "configurations/2loudboxes/mgd.yaml"
"""


def test_bindings_of_the_reference_document(tmp_path, monkeypatch):
    """The G1 file of the multi-host examples, YAML descriptor and all."""
    here = tmp_path / "configurations/2loudboxes"
    here.mkdir(parents=True)
    (here / "rank_bindings.yaml").write_text(G1)
    (here / "mgd.yaml").write_text("")
    monkeypatch.chdir(tmp_path)
    bindings = read_bindings("configurations/2loudboxes/rank_bindings.yaml")
    assert [(b.rank, b.mesh_id) for b in bindings.rank_bindings] == [(0, 1), (1, 0)]
    assert bindings.global_env == {"TT_METAL_HOME": "/home/ttuser/git/tt-metal"}
    assert bindings.mesh_graph_desc_path == here / "mgd.yaml"


def test_where_files_are_looked_for(tmp_path, monkeypatch):
    """$TT_METAL_HOME, then the folder one is in, then, beyond tt-run, the folder of the bindings
    and those above.
    """
    text = "rank_bindings: [{rank: 0, mesh_id: 0}]\nmesh_graph_desc_path: m/x.textproto\n"
    for place in ("home", "here", "up/config"):
        (tmp_path / place).mkdir(parents=True)
    (tmp_path / "up/config/rb.yaml").write_text(text)
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("TT_METAL_HOME", str(tmp_path / "home"))
    found = []
    for place in ("up", "up/config", "here", "home"):
        (tmp_path / place / "m").mkdir()
        (tmp_path / place / "m/x.textproto").write_text("")
        found.append(
            read_bindings("../up/config/rb.yaml").mesh_graph_desc_path.parent.parent.relative_to(
                tmp_path
            )
        )
    assert list(map(str, found)) == ["up", "up/config", "here", "home"]


def test_a_config_that_is_none(tmp_path):
    assert "Input/output error" in lint_path("/proc/self/mem")[0].message
    with pytest.raises(TTKitError, match="there is no such folder"):
        find_config(ROOT / "configs/t300")
    with pytest.raises(TTKitError, match=r"it has neither rank_bindings\.yaml nor hosts\.txt"):
        find_config(tmp_path)
