"""Launches that are given to the real tt-run (tests/real/record_ttrun.py) and to `ttkit run`
(test_command.py), and must come out the same.
"""

import json
import pathlib
import shlex
import shutil
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CONFIGS = ("n300", "t3000", "t3000_2ranks", "galaxy", "galaxy_pp4", "2loudboxes", "5loudboxes")
PROGRAM = ["python3", "-c", "print('two  words')"]

TWO = """rank_bindings:
  - {rank: 0, mesh_id: 0}
  - {rank: 1, mesh_id: 1}
mesh_graph_desc_path: two.textproto
"""
# The four patterns of the guide's section 2.4.3; the descriptors are only names to tt-run.
PATTERN_1 = """rank_bindings:
  - rank: 0
    mesh_id: 0
    mesh_host_rank: 0
    env_overrides: {TT_VISIBLE_DEVICES: "0,1"}
  - rank: 1
    mesh_id: 0
    mesh_host_rank: 1
    env_overrides: {TT_VISIBLE_DEVICES: "2,3"}
mesh_graph_desc_path: "two.textproto"
"""
PATTERN_2 = """rank_bindings:
  - rank: 0
    mesh_id: 0
    env_overrides: {TT_VISIBLE_DEVICES: "0"}
  - rank: 1
    mesh_id: 1
    env_overrides: {TT_VISIBLE_DEVICES: "1"}
mesh_graph_desc_path: "two.textproto"
"""
PATTERN_3 = """rank_bindings:
  - {rank: 0, mesh_id: 0, mesh_host_rank: 0, env_overrides: {TT_VISIBLE_DEVICES: "0,1"}}
  - {rank: 1, mesh_id: 0, mesh_host_rank: 1, env_overrides: {TT_VISIBLE_DEVICES: "2,3"}}
mesh_graph_desc_path: "two.textproto"
"""
RANKFILE = "# where each rank sits\nrank 0=localhost slot=0\nrank 1=localhost slot=1\n"
FAR = "rank 1=host1 slot=0\nrank 0=host2 slot=0\n"
ENVIRONMENT = f"""{TWO}global_env:
  {{SAME: '1', TT_METAL_LOGGER_LEVEL: INFO, EXPANDED: '${{USER}}/x:$NOPE', PATH: /mine}}
"""
OWN = "mesh_host_rank: 3, env_overrides: {SAME: '2', MESH_DEVICE: N300, HOME: '$HOME/b'}"
OVERRIDES = TWO.replace("mesh_id: 1", f"mesh_id: 1, {OWN}") + "global_env: {SAME: '1'}\n"
LENIENT = """rank_bindings:
  - {rank: "0", mesh_id: 0.0, mesh_host_rank: null, unknown: 1, mesh_graph_desc_path: ""}
  - {rank: 1, mesh_id: yes, mesh_graph_desc_path: other.textproto}
mesh_graph_desc_path: two.textproto
also_unknown: [1]
"""


def launch(name, bindings, words, **files):
    """A launch with these words beside the bindings, and these files beside rb.yaml."""
    files = {key.replace("__", "/").replace("_dot_", "."): text for key, text in files.items()}
    args = ["--rank-binding", bindings, *shlex.split(words)]
    return {"name": name, "args": args, "files": {"rb.yaml": TWO, **files}}


def rb(name, text, words="", **files):
    return launch(name, "rb.yaml", words, rb_dot_yaml=text, **files)


def config(name):
    hosts = f"--mpi-args '--hostfile configs/{name}/hosts.txt'"
    return launch(name, f"configs/{name}/rank_bindings.yaml", hosts)


LAUNCHES = [
    *map(config, CONFIGS),
    rb("pattern 1: one big mesh", PATTERN_1),
    rb("pattern 2: a mesh for each rank", PATTERN_2),
    rb("pattern 3: several hosts on one", PATTERN_3),
    rb(
        "pattern 4: a cluster with a rankfile",
        PATTERN_1,
        "--mpi-args '--rankfile hosts.txt --mca btl tcp'",
        hosts_dot_txt=FAR,
    ),
    rb("bare", TWO, "--bare"),
    rb("interface", TWO, "--tcp-interface lo"),
    rb("own btl", TWO, "--mpi-args '--mca btl self,sm'"),
    rb("own interface", TWO, "--mpi-args '--mca btl_tcp_if_include eth0'"),
    rb("own interface twice", TWO, "--tcp-interface lo --mpi-args '--mca btl_tcp_if_exclude lo'"),
    rb("own binding", TWO, "--mpi-args '--bind-to core'"),
    rb("own binding, joint", TWO, "--mpi-args '--bind-to=core --tag-output'"),
    rb("rankfile plain, auto", TWO, "--mpi-args '--rankfile sub/rf'", sub__rf=RANKFILE),
    rb("rankfile joint, auto", TWO, "--mpi-args '--rankfile=sub/rf'", sub__rf=RANKFILE),
    rb("rankfile, hosts in the file's order", TWO, "--mpi-args '--rankfile rf'", rf=FAR),
    rb("rankfile and hosts", TWO, "--mpi-args '--rankfile rf --host host1,host2'", rf=FAR),
    rb("hosts with slots", TWO, "--mpi-args '--host a:2'"),
    rb("oversubscribe", TWO, "--mpi-args --oversubscribe"),
    rb(
        "oversubscribe, own waiting",
        TWO,
        "--mpi-args '--oversubscribe --mca mpi_yield_when_idle 0'",
    ),
    rb("map-by", TWO, "--mpi-args '--map-by ppr:1:node'"),
    rb("environment", ENVIRONMENT),
    rb("overrides", OVERRIDES),
    rb("what tt-run lets pass", LENIENT),
]

RANK = "rank_bindings:\n  - {rank: 0, mesh_id: 0}\n"
END = "mesh_graph_desc_path: two.textproto\n"
FIELD = "Configuration error: Invalid configuration: 1 validation error for TTRunConfig"
# name: (the bindings, what both must say of the one thing that is wrong)
ONE_ERROR = {
    "a rank twice": (
        f"{RANK}  - {{rank: 0, mesh_id: 1}}\n{END}",
        "Duplicate ranks found in bindings",
    ),
    "a gap": (
        f"{RANK}  - {{rank: 2, mesh_id: 1}}\n{END}",
        "Ranks must be contiguous from 0. Got: [0, 2]",
    ),
    "no mesh_id": (
        f"rank_bindings: [{{rank: 0}}]\n{END}",
        "rank_bindings.0.mesh_id",
        "Field required",
    ),
    "no descriptor key": (RANK, "mesh_graph_desc_path", "Field required"),
    "no ranks": (
        f"rank_bindings: []\n{END}",
        "List should have at least 1 item after validation, not 0",
    ),
    "binding no mapping": (
        f"rank_bindings: [3]\n{END}",
        "Input should be a valid dictionary or instance of RankBinding",
    ),
    "negative": (
        f"rank_bindings: [{{rank: 0, mesh_id: -1}}]\n{END}",
        "Input should be greater than or equal to 0",
    ),
    "text for a number": (
        f"rank_bindings: [{{rank: a, mesh_id: 0}}]\n{END}",
        "Input should be a valid integer, unable to parse string as an integer",
    ),
    "unquoted value": (
        f"{RANK}{END}global_env: {{TT_VISIBLE_DEVICES: 0}}\n",
        "global_env.TT_VISIBLE_DEVICES",
        "Input should be a valid string",
    ),
    "empty": ("", "Input should be a valid dictionary or instance of TTRunConfig"),
    "descriptor not there": (
        f"{RANK}mesh_graph_desc_path: nope.textproto\n",
        "Mesh graph descriptor not found: nope.textproto",
        "Searched in: [",
        "Tip: Use an absolute path or ensure the file exists relative to the launch directory.",
    ),
    "rank's descriptor not there": (
        f"rank_bindings: [{{rank: 0, mesh_id: 0, mesh_graph_desc_path: nope}}]\n{END}",
        "Per-rank mesh graph descriptor not found: nope",
    ),
}
BAD_FILES = {name: (text, [FIELD, *said]) for name, (text, *said) in ONE_ERROR.items()}
BAD_FILES["two things"] = (
    "rank_bindings: [{rank: 0}]\n",
    ["Invalid configuration: 2 validation errors for TTRunConfig", "Field required"],
)
# name: (arguments, files, exit code, what both must say)
BAD_LAUNCHES = {
    "no file": (
        ["--rank-binding", "nope.yaml"],
        {},
        1,
        ["Configuration error: ", "Configuration file not found: nope.yaml"],
    ),
    "nothing asked": ([], {}, 1, ["Specify exactly one of --"]),
}
BAD_PROGRAMS = {
    "no program": ([], 1, ["No program specified. Please provide a program to run."]),
    "program not there": (["no-such-program"], 1, ["Program not found: no-such-program"]),
    "program fails": (["--", *PROGRAM], 7, []),
}


NOTE = """import json, os, sys
if '--version' in sys.argv:
    print('mpirun (Open MPI) 5.0.11')
    sys.exit()
json.dump(sys.argv[1:], open(os.environ['RECORD_WORDS'], 'w'))
sys.exit(int(os.environ.get('RECORD_CODE', 0)))
"""


def workshop(folder):
    """A folder to launch from: the configurations, two descriptors, an mpirun that only notes
    its words.
    """
    folder = pathlib.Path(folder).resolve()
    shutil.copytree(ROOT / "configs", folder / "configs")
    for name in ("two.textproto", "other.textproto"):
        shutil.copy(ROOT / "configs/2loudboxes/mgd.textproto", folder / name)
    (folder / "bin").mkdir()
    # Through a shell, with quotes: the first line of a script cannot name a path that has a blank.
    (folder / "bin/mpirun.py").write_text(NOTE)
    words = shlex.join([sys.executable, "-S", str(folder / "bin/mpirun.py")])
    (folder / "bin/mpirun").write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    (folder / "bin/mpirun").chmod(0o755)
    return folder


def environment(folder):
    """What the launching shell has: variables that pass, variables that must not, and nothing of
    this machine.
    """
    ours = {"PYTHONPATH": str(ROOT), "RECORD_WORDS": f"{folder}/words.json", "LC_ALL": "C.UTF-8"}
    shell = {"PATH": f"{folder}/bin:/usr/bin:/bin", "HOME": "/home/u", "USER": "u"}
    passed = {"TT_METAL_CACHE": "/cache", "MESH_DEVICE": "T3K", "WH_ARCH_YAML": "w"}
    blocked = {"TT_VISIBLE_DEVICES": "9", "TT_MESH_ID": "9", "TT_METAL_CLUSTER_ID": "c"}
    return ours | shell | passed | blocked | {"OTHER": "not passed"}


def write(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def general(folder, text):
    """Text without what differs from machine to machine."""
    return text.replace(str(folder), "<work>").replace(str(ROOT), "<root>")


def noted(folder):
    """The words that the noting mpirun was given, or None."""
    path = pathlib.Path(folder) / "words.json"
    if not path.exists():
        return None
    words = json.loads(path.read_text())
    path.unlink()
    return [general(folder, word) for word in words]
