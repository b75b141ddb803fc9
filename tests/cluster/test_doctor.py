"""What doctor makes of answers, for machines that are not here: hosts with devices, without,
with other versions.
"""

import copy
import json
import subprocess
import sys

import pytest

from ttkit import __main__ as cli
from ttkit.cluster.launch import probe, ssh
from ttkit.cluster.launch.doctor import Examined, lines

ANSWER = {
    "name": "a",
    "folder": True,
    "python": "3.12.1",
    "ttkit": {"version": "1.0"},
    "code": {"a.py": "1", "b.py": "2"},
    "mpi": {"path": "/v/bin/mpirun", "version": "mpirun (Open MPI) 5.0.11"},
    "devices": {"numbers": [0, 1, 2, 3], "ttnn": True},
    "lost": [],
}


def judged(changes=(), **more):
    """{check: line} for host b, which has what a has but for some changes: {"mpi.version":
    "..."}.
    """
    answer = copy.deepcopy(ANSWER)
    for place, value in dict(changes).items():
        *way, last = place.split(".")
        at = answer
        for name in way:
            at = at[name]
        at[last] = value
    examined = {"a": Examined(True, ANSWER), "b": Examined(False, answer, **more)}
    return {line.check: line for line in lines(examined, ANSWER) if "b" in line.hosts}


def test_two_hosts_that_are_the_same():
    found = judged()
    assert {line.state for line in found.values()} == {"ok"}
    assert list(found) == ["ssh", "network", "folder", "Python", "ttkit", "code", "MPI", "devices"]
    assert (
        found["devices"].finding == "4 PCIe devices"
        and found["code"].finding == "2 files, the same as here"
    )


@pytest.mark.parametrize(
    "changes, check, state, words, cure",
    [
        ({"python": "3.12.4"}, "Python", "warn", "Python 3.12.4, here 3.12.1", "the same version"),
        (
            {"python": "3.10.1"},
            "Python",
            "red",
            "Python 3.10.1, here 3.12.1",
            "ttkit sync --apply --install",
        ),
        ({"folder": False}, "folder", "red", "is missing", "ttkit sync --apply"),
        ({"ttkit": {"version": "0.9"}}, "ttkit", "red", "ttkit 0.9, here 1.0", "--install"),
        (
            {"ttkit": {"wrong": "No module named 'numpy'"}},
            "ttkit",
            "red",
            "does not import: No module named 'numpy'",
            "--install",
        ),
        (
            {"code": {"a.py": "1", "b.py": "9"}},
            "code",
            "red",
            "other code than here: b.py",
            "ttkit sync --apply",
        ),
        ({"code": {}}, "code", "red", "other code than here: a.py, b.py", "ttkit sync --apply"),
        ({"mpi": {"path": None, "version": ""}}, "MPI", "red", "there is no mpirun", "--install"),
        (
            {"mpi.version": "mpirun (Open MPI) 4.1.4"},
            "MPI",
            "red",
            "4.1.4, here /v/bin/mpirun, mpirun (Open MPI) 5.0.11",
            "--install",
        ),
        (
            {"mpi.path": "/usr/bin/mpirun"},
            "MPI",
            "red",
            "mpirun is /usr/bin/mpirun, mpirun (Open MPI) 5.0.11, here /v/bin/mpirun",
            "--install",
        ),
        (
            {"devices.numbers": []},
            "devices",
            "red",
            "no /dev/tenstorrent device, a has 4",
            "tt-smi -r (on a Galaxy tt-smi -glx_reset)",
        ),
        (
            {"devices.ttnn": False},
            "devices",
            "warn",
            "4 PCIe devices, but no ttnn",
            "pip install ttnn==0.81.1",
        ),
    ],
)
def test_what_differs(changes, check, state, words, cure):
    line = judged(changes)[check]
    assert line.state == state and words in line.finding and cure in line.cure, line


def test_hosts_that_do_not_answer():
    for said, words, cure in [
        ("ssh: connect to host b port 22: No route to host\n", "No route to host", "ping b"),
        (
            "ssh: connect to host b port 22: Connection refused\n",
            "Connection refused",
            "start sshd",
        ),
        ("me@b: Permission denied (publickey).\n", "Permission denied", "ssh-copy-id b"),
        ("Host key verification failed.\n", "verification", "ssh b once by hand"),
        ("sh: 1: exec: python3: not found\n", "has no Python", "apt install python3"),
        ("", "no answer in time", "ssh b python3 --version"),
    ]:
        (line,) = [
            line
            for line in lines(
                {"a": Examined(True, ANSWER), "b": Examined(False, output=said)}, ANSWER
            )
            if line.hosts == ("b",)
        ]
        assert (
            (line.check, line.state) == ("ssh", "red")
            and words in line.finding
            and cure in line.cure
        ), line


def test_hosts_that_do_not_reach_one_another():
    assert judged({"lost": ["c"]})["network"].state == "ok"  # which does not answer
    line = judged({"lost": ["a"]})["network"]
    assert line.state == "red" and "connection to a" in line.finding and "firewall" in line.cure


def test_this_host_alone(capsys):
    assert cli.main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "0 red" in out and "Python" in out and "ssh" not in out


def test_probe_is_a_program_of_its_own(tmp_path):
    """Any Python can run it, in a folder without ttkit."""
    (tmp_path / "a.py").write_text("x = 1\n")
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "b.py").write_text("")
    others = [["a", "127.0.0.1"], ["b", "no-such-host.invalid"]]
    question = json.dumps([str(tmp_path), "/nowhere/no-mpirun", ["checkpoints"], others])
    words = [sys.executable, "-I", "-S", probe.__file__, question]
    done = subprocess.run(words, capture_output=True, text=True, timeout=280)
    answer = json.loads(done.stdout)
    assert (
        list(answer["code"]) == ["a.py"]
        and answer["mpi"] == {"path": None, "version": ""}
        and answer["lost"] == ["b"]
    ), done.stderr


def test_names_of_this_host():
    assert (
        ssh.is_here("root@127.0.0.1")
        and ssh.is_here("[::1]") in (True, False)
        and not ssh.is_here("no-such-host.invalid")
    )


def test_sync_with_nobody_else(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hosts.txt").write_text("localhost slots=2\n")
    assert cli.main(["sync", "--hostfile", "hosts.txt"]) == 0
    assert "no other host than this one" in capsys.readouterr().out
    assert cli.main(["sync", "--hostfile", "hosts.txt", "--install"]) == 1
    assert "it has no pyproject.toml" in capsys.readouterr().err
