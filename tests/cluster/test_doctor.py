"""What doctor makes of answers, for machines that are not here: hosts with devices, without,
with other versions.
"""

import json
import subprocess
import sys

import pytest

from ttkit import __main__ as cli
from ttkit.cluster.launch import probe, remote
from ttkit.cluster.launch.doctor import Examined, doctors_table, lines

ANSWER = {
    "folder": "/project",
    "Python": "Python 3.12",
    "ttkit": "ttkit 1.0",
    "MPI": "mpirun (Open MPI) 5.0.11, /v/bin/mpirun",
    "wrong": {},
    "code": {"a.py": "1", "b.py": "2"},
    "devices": 4,
    "ttnn": True,
    "lost": [],
}


OTHER = {"a.py": "1", "b.py": "9"}
RESET = "tt-smi -r (on a Galaxy tt-smi -glx_reset)"


def judged(wrong=(), **changes):
    """{check: line} for host b, which has what a has but for some changes."""
    answer = {**ANSWER, **changes, "wrong": dict(wrong)}
    for check in dict(wrong):
        del answer[check]
    examined = {"a": Examined(True, ANSWER), "b": Examined(False, answer)}
    return {line.check: line for line in lines(examined, ANSWER) if "b" in line.hosts}


def test_two_hosts_that_are_the_same():
    found = judged()
    assert {line.state for line in found.values()} == {"ok"}
    assert list(found) == ["ssh", "network", "folder", "Python", "ttkit", "code", "MPI", "devices"]
    assert found["devices"].finding == "4 PCIe devices"
    assert found["code"].finding == "2 files, the same as here"


@pytest.mark.parametrize(
    "changes, check, state, words, cure",
    [
        ({"Python": "Python 3.10"}, "Python", "red", "Python 3.10, here Python 3.12", "--install"),
        ({"wrong": {"folder": "/project is missing"}}, "folder", "red", "is missing", "--apply"),
        ({"ttkit": "ttkit 0.9"}, "ttkit", "red", "ttkit 0.9, here ttkit 1.0", "--install"),
        ({"code": OTHER}, "code", "red", "differs from the code here: b.py", "ttkit sync --apply"),
        ({"wrong": {"MPI": "there is no mpirun"}}, "MPI", "red", "no mpirun", "--install"),
        ({"MPI": "mpirun 4, /usr/bin/mpirun"}, "MPI", "red", "mpirun 4, /usr/bin/mpirun, here", ""),
        ({"devices": 0}, "devices", "red", "no /dev/tenstorrent device, a has 4", RESET),
        ({"ttnn": False}, "devices", "warn", "but no ttnn", "pip install ttnn==0.81.1"),
        ({"lost": ["a"]}, "network", "red", "connection to a", "firewall"),
        ({"lost": ["c"]}, "network", "ok", "reaches the others", ""),  # c does not answer
    ],
)
def test_what_differs(changes, check, state, words, cure):
    line = judged(**changes)[check]
    assert line.state == state and words in line.finding and cure in line.cure, line


@pytest.mark.parametrize(
    "said, words, cure",
    [
        ("ssh: connect to host b port 22: No route to host\n", "No route to host", "ping b"),
        ("ssh: connect to host b port 22: Connection refused\n", "refused", "start sshd"),
        ("me@b: Permission denied (publickey).\n", "Permission denied", "ssh-copy-id b"),
        ("Host key verification failed.\n", "verification", "ssh b once by hand"),
        ("sh: exec: python3: not found\n", "fails: sh: exec: python3: not f", "python3 --version"),
        ("", "no answer in time", "ssh b python3 --version"),
    ],
)
def test_a_host_that_does_not_answer(said, words, cure):
    examined = {"a": Examined(True, ANSWER), "b": Examined(False, {}, said)}
    (line,) = [line for line in lines(examined, ANSWER) if line.hosts == ("b",)]
    assert (line.check, line.state) == ("ssh", "red"), line
    assert words in line.finding and cure in line.cure, line


def test_the_table_is_plain_text_in_jupyter_too(monkeypatch):
    """There rich would show the table by itself and leave the text empty, and its kernels ask
    for colours.
    """
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    table = doctors_table(lines({"a": Examined(True, ANSWER)}, ANSWER), 1)
    assert "4 PCIe devices" in table and "0 red" in table and "\x1b" not in table


def test_this_host_alone(capsys, monkeypatch):
    def greeted(*words, call=remote.call):  # as by an `echo` in ~/.bashrc
        done = call(*words)
        return subprocess.CompletedProcess(words, 0, f"Welcome!\n{done.stdout}", done.stderr)

    monkeypatch.setattr(remote, "call", greeted)
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
    assert list(answer["code"]) == ["a.py"] and answer["lost"] == ["b"], done.stderr
    assert answer["wrong"]["MPI"] == "there is no mpirun"


def test_names_of_this_host():
    assert remote.is_here("root@127.0.0.1")
    assert remote.is_here("[::1]") in (True, False)
    assert not remote.is_here("no-such-host.invalid")


def test_sync_with_nobody_else(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hosts.txt").write_text("localhost slots=2\n")
    assert cli.main(["sync", "--hostfile", "hosts.txt"]) == 0
    assert "no other host than this one" in capsys.readouterr().out
