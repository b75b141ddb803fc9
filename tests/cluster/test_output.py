"""What is made of the output of mpirun: whose line it is, and why the ranks ended."""

import io

import pytest

from ttkit.cluster.launch.mpirun import Output, why_ended
from ttkit.cluster.processes import Ended


def test_lines_are_cut_where_ranks_meet():
    output = Output(3)
    line = b"[1,0]<stdout>: end of 0[1,2]<stdout>: end of 2[1,9]<stdout>: no rank\n"
    assert list(output._parts(line)) == [(0, b"end of 0"), (2, b"end of 2[1,9]<stdout>: no rank\n")]
    assert list(output._parts(b"mpirun's own\n")) == [(None, b"mpirun's own\n")]
    assert list(output._parts(b"[1,1]<stderr>: \n")) == [(1, b"\n")]


SILENT = (
    "PRTE has lost communication with a remote daemon.\n  HNP daemon   : "
    "[prterun-a-13@0,0] on node a\n  Remote daemon: [prterun-a-13@0,2] on node b\n"
)


def test_a_host_that_falls_silent_is_named_with_its_ranks():
    output = Output(3, ["a", "me@b", "b"])
    output.framed.append(SILENT)
    said = output.why(0)
    assert said.startswith(
        "host b (ranks 1 and 2) does not answer any more; "
        "the ranks on the other hosts were stopped\n  try: ttkit doctor"
    )


@pytest.mark.parametrize(
    "line, said",
    [
        (
            b"ssh: connect to host b port 22: No route to host\r\n",
            "a host cannot be reached by ssh: connect to host b port 22: No route to host",
        ),
        (
            b"ssh: Could not resolve hostname b: Name or service not known\r\n",
            "a host cannot be reached by ssh: Could not resolve hostname b: Name or service not known",
        ),
        (
            b"me@b: Permission denied (publickey).\r\n",
            "a host cannot be reached by ssh: me@b: Permission denied (publickey).",
        ),
        (
            b"Host key verification failed.\r\n",
            "a host cannot be reached by ssh: Host key verification failed.",
        ),
    ],
)
def test_a_host_that_ssh_cannot_reach_is_named(line, said):
    output, stream = Output(2, ["a", "b"]), io.BytesIO()
    output.pump(io.BytesIO(line), stream)
    assert stream.getvalue().strip() == line.strip()
    assert output.why(255).splitlines()[0] == said


def test_a_message_that_names_no_rank_is_passed_on():
    output = Output(2)
    output.framed.append("Something new went wrong.\n")
    assert output.why(3) == (
        "mpirun ended with code 3\n  its last lines:\n    Something new went wrong."
    )


def test_a_log_that_is_cut_inside_a_message():
    ruler = "-" * 60 + "\n"
    log = f"of a message\n{ruler}{ruler}  Process name: [prterun-vm-1@1,0]\n  Exit code: 3\n{ruler}"
    why = why_ended(Ended("mpirun", 3, log), 2)
    assert why == "rank 0 of 2 exited with code 3; the others were stopped"
