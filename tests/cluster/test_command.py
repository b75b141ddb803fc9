"""`ttkit run` starts what tt-run 0.81.1 starts: compared with data/ttrun.json, which the real
one made (make test-real makes it again).
"""

import json
import os
import pathlib
import re
import socket
import subprocess

import pytest
from cluster import cases

from ttkit import __main__ as cli
from ttkit.cluster.files import Config
from ttkit.cluster.launch.command import mpirun_environment, pasteable

RECORDED = json.loads((pathlib.Path(__file__).parent / "data/ttrun.json").read_text())
NOTED = ("--mpirun", "mpirun", "--rank-binding", "rb.yaml")
IN_RANK = "<root>/ttkit/cluster/launch/in_rank:"


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    return cases.workshop(tmp_path_factory.mktemp("launch"))


@pytest.fixture
def run(workshop, monkeypatch, capfdbinary):
    """run(args, files) -> (exit code, what was printed, the words that mpirun was given)."""

    def call(args, files, code=0):
        cases.write(workshop, files)
        for name in list(os.environ):
            monkeypatch.delenv(name)
        for name, value in {**cases.environment(workshop), "RECORD_CODE": str(code)}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(workshop)
        try:
            done = cli.main(["run", *args])
        except SystemExit as stop:
            done = stop.code
        read = capfdbinary.readouterr()
        return done, (read.out + read.err).decode(), cases.noted(workshop)

    return call


def differing(words, expected):
    return [(ours, theirs) for ours, theirs in zip(words, expected) if ours != theirs]


def without_unset(words):
    """The words without `env -u NAME ...` before a program, which tt-run lacks."""
    left = list(words)
    while "/usr/bin/env" in left:
        at = left.index("/usr/bin/env")
        del left[at]
        while left[at] == "-u":
            del left[at : at + 2]
    return left


def shared_cache(word):
    """tt-run gives all ranks the shell's."""
    return re.sub(r"^(TT_METAL_CACHE=/cache)_.*_rank\d+$", r"\1", word)


@pytest.mark.parametrize("case", cases.LAUNCHES, ids=lambda case: case["name"])
def test_as_tt_run(run, case):
    code, said, words = run(
        ["--mpirun", "mpirun", *case["args"], "--", *cases.PROGRAM], case["files"]
    )
    expected = RECORDED["launches"][case["name"]]
    assert code == 0 and words is not None, said
    plain = without_unset([shared_cache(word.replace(IN_RANK, "")) for word in words])
    words = without_unset(words)
    assert not differing(plain, expected)
    assert len(words) == len(expected)
    # what ends all ranks when one raises
    assert len([word for word in words if IN_RANK in word]) == words.count("-np")


@pytest.mark.parametrize("config", ["t3000_2ranks", "5loudboxes"])
def test_dry_run_of_a_config(run, workshop, config):
    """The printed command, given to a shell, is tt-run's, but for the cache of each rank."""
    code, said, words = run(
        ["--mpirun", "mpirun", "--config", f"configs/{config}", "--dry-run", *cases.PROGRAM], {}
    )
    assert code == 0 and words is None  # nothing was started
    subprocess.run(["sh", "-c", said], check=True, cwd="/")
    printed = cases.noted(workshop)
    caches = [word for word in printed if word.startswith("TT_METAL_CACHE=")]
    expected = RECORDED["launches"][config]
    ranks = expected.count("-np")
    assert caches == [
        f"TT_METAL_CACHE=/cache_{socket.gethostname()}_rank{rank}" for rank in range(ranks)
    ]
    assert ["TT_METAL_CACHE=/cache" if word in caches else word for word in printed] == expected


@pytest.mark.parametrize(
    "name, text, phrases",
    [(name, *case) for name, case in cases.BAD_FILES.items()],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_files(run, workshop, name, text, phrases):
    code, said, words = run(["--rank-binding", "rb.yaml", *cases.PROGRAM], {"rb.yaml": text})
    assert (code, words) == (RECORDED["codes"][name], None)
    assert all(phrase in said for phrase in phrases), said
    assert f"{workshop}/rb.yaml:" in said and "try: " in said, "file, line and cure"


@pytest.mark.parametrize("name", cases.BAD_LAUNCHES)
def test_bad_launches(run, name):
    args, files, code, phrases = cases.BAD_LAUNCHES[name]
    got, said, words = run([*args, *cases.PROGRAM], {"rb.yaml": cases.TWO, **files})
    assert (got, words) == (RECORDED["codes"][name], None)
    assert code == got and all(phrase in said for phrase in phrases), said


@pytest.mark.parametrize("name", cases.BAD_PROGRAMS)
def test_bad_programs(run, name):
    program, _, phrases = cases.BAD_PROGRAMS[name]
    code, said, _ = run([*NOTED, *program], {"rb.yaml": cases.TWO}, code=7)
    assert code == RECORDED["codes"][name]
    assert all(phrase in said for phrase in phrases), said


def test_errors_name_the_line(run):
    duplicate = "Duplicate ranks found in bindings: rank 0 on lines 2 and 3"
    for text, *phrases in (
        (
            cases.TWO.replace("rank: 1", "rank: 0"),
            f"rb.yaml:3:6: rank_bindings.1.rank: {duplicate}",
        ),
        ("rank_bindings:\n - {rank: 0, mesh_id: 0\n", "rb.yaml:3: malformed YAML"),
        (
            cases.TWO + "global_env:\n  A: 0\n  B: off\n",
            'try: put quotes around it: A: "0"',
            'B: "0"',
        ),
    ):
        said = run(["--rank-binding", "rb.yaml", "echo"], {"rb.yaml": text})[1]
        assert all(phrase in said for phrase in phrases), said


def test_options_behind_the_program_are_the_programs(run):
    """tt-run eats them."""
    program = "echo -m pytest -v --dry-run --hosts a --bare -- --config x".split()
    code, _, words = run([*NOTED, *program], {"rb.yaml": cases.TWO})
    assert code == 0 and words[-len(program) :] == program


def test_a_rank_that_lacks_a_variable_of_rank_0_has_it_taken_away(run):
    first_only = cases.TWO.replace("mesh_id: 0}", "mesh_id: 0, mesh_host_rank: 0}")
    _, _, words = run([*NOTED, *cases.PROGRAM], {"rb.yaml": first_only})
    unset = ["/usr/bin/env", "-u", "TT_MESH_HOST_RANK", *cases.PROGRAM]
    ends = [at + 1 for at, word in enumerate([*words, ":"]) if word == ":"]
    parts = [words[start : end - 1] for start, end in zip([0, *ends], ends)]
    assert [part[-len(unset) :] == unset for part in parts] == [False, True]
    _, _, words = run([*NOTED, "echo"], {"rb.yaml": cases.TWO})
    assert "/usr/bin/env" not in words


def test_mpirun_does_not_get_what_belongs_to_one_rank(monkeypatch):
    monkeypatch.setenv("TT_MESH_ID", "9")
    assert "TT_MESH_ID" not in mpirun_environment([], {}) and "PATH" in mpirun_environment([], {})
    assert pasteable(["mpirun", "echo"]).partition(" && ")[2].startswith("env -u TT_MESH_ID ")


def test_bindings_in_another_order_are_sorted(run):
    head, first, second, end = cases.TWO.splitlines(keepends=True)
    results = [
        run([*NOTED, "echo"], {"rb.yaml": text})[2]
        for text in (cases.TWO, head + second + first + end)
    ]
    assert results[0] == results[1] is not None


def test_plain_mpi_from_hosts_json(run):
    code, said, words = run(["--mpirun", "mpirun", "--config", "configs/3nodes", "echo"], {})
    assert code == 0, said
    assert words[words.index("--host") + 1] == "10.85.100.220:1,10.85.100.221:1,10.85.100.222:1"
    assert words.count("-np") == 3 and not any(word.startswith("TT_MESH_ID") for word in words)
    assert (
        run(["--mpirun", "mpirun", "--hostfile", "configs/3nodes/hosts.json", "echo"], {})[2]
        == words
    )


def test_a_config_works_from_another_folder(run, workshop, monkeypatch):
    (workshop / "elsewhere").mkdir(exist_ok=True)
    run(["--dry-run", "-n", "1", "echo"], {})
    monkeypatch.chdir(workshop / "elsewhere")
    code = cli.main(["run", "--mpirun", "mpirun", "--config", "../configs/2loudboxes", "echo"])
    words = cases.noted(workshop)
    assert code == 0 and "TT_MESH_GRAPH_DESC_PATH=<work>/configs/2loudboxes/mgd.textproto" in words
    assert words[words.index("--hostfile") + 1] == "../configs/2loudboxes/hosts.txt"


@pytest.mark.parametrize(
    "files, hosts",
    [
        ({}, [socket.gethostname()] * 3),
        ({"hosts": "configs/5loudboxes/hosts.txt"}, ["metal-wh-01", "metal-wh-03", "metal-wh-04"]),
        # more ranks than slots: mpirun decides
        ({"hosts": "configs/2loudboxes/hosts.txt"}, ["", "", ""]),
        ({"rankfile": "nope"}, ["", "", ""]),
    ],
)
def test_the_host_of_each_rank(files, hosts):
    config = Config(**{name: pathlib.Path(path) for name, path in files.items()})
    assert config.hosts_of_ranks(3) == hosts


def test_a_rankfile_decides_before_the_hosts(tmp_path):
    rankfile = tmp_path / "rankfile"
    rankfile.write_text("rank 1=a slot=0\nrank 0=b slot=0\nrank 2=a slot=1\n")
    config = Config(hosts=pathlib.Path("hosts.txt"), rankfile=rankfile)
    assert config.hosts_of_ranks(3) == ["b", "a", "a"]
