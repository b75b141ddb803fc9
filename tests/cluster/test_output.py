"""What is made of the output of mpirun: whose line it is, and why the ranks ended."""

import io

import pytest

from ttkit.cluster.launch.output import Output, why_ended
from ttkit.cluster.processes import Ended


def test_no_ssh():
    output = Output(2)
    # mpirun's words, seen on a machine without ssh
    output.framed.append("No available launching agents were found.\n")
    assert "this host has no ssh on its PATH\n  try: install an ssh client" in output.why(250)


def test_lines_are_cut_where_ranks_meet():
    output = Output(3)
    line = b"[1,0]<stdout>: end of 0[1,2]<stdout>: end of 2[1,9]<stdout>: no rank\n"
    assert list(output._parts(line)) == [(0, b"end of 0"), (2, b"end of 2[1,9]<stdout>: no rank\n")]
    assert list(output._parts(b"mpirun's own\n")) == [(None, b"mpirun's own\n")]
    assert list(output._parts(b"[1,1]<stderr>: \n")) == [(1, b"\n")]


def test_a_rank_that_failed_is_named_with_the_role_that_it_printed():
    output = Output(3, ["a"] * 3)
    output.framed.append("process rank 1 with PID 7 on node a exited on\n signal 9 (Killed)\n")
    lines = (
        b"[1,1]<stdout>: Rank 1/3: Running as aggregator (3-tier mode)\n"
        + b"[1,1]<stdout>: a line\n" * 20
    )
    output.pump(io.BytesIO(lines), io.BytesIO())
    assert output.why(137).startswith(
        "rank 1 of 3, aggregator (3-tier mode), on host a was killed by signal 9 "
        "(Killed); the others"
    )


def test_a_rank_that_found_a_connection_closed_is_not_blamed():
    """Seen in 1 of 3 launches over TCP: mpirun names the rank that noticed, not the one that was
    killed.
    """
    text = "  Process name: [prterun-vm-1@1,0]\n  Exit code:    14\n"
    output = Output(3)
    output.framed.append(text)
    output.pump(
        io.BytesIO(
            b"[1,0]<stderr>: [vm:00000] *** An error occurred in Socket closed\n[1,1]<stdout>: step 3\n"
        ),
        io.BytesIO(),
    )
    said = output.why(14)
    assert said.startswith(
        "one of ranks 1, 2 of 3 ended: rank 0 found its connection closed, "
        "and Open MPI does not report which it was; the others"
    )
    assert said.endswith("  their last lines:\n    rank 1: step 3")
    log = text + "[1,0]<stderr>: [vm:00000] *** An error occurred in Socket closed\n"
    why = why_ended(Ended("mpirun", 14, log), 2)
    assert why == "rank 1 of 2 ended silently; the others were stopped"


SILENT = (
    "PRTE has lost communication with a remote daemon.\n  HNP daemon   : "
    "[prterun-a-13@0,0] on node a\n  Remote daemon: [prterun-a-13@0,2] on node b\n"
)


def test_a_host_that_falls_silent_is_named_with_its_ranks():
    output = Output(3, ["a", "me@b", "b"])
    output.framed.append(SILENT)
    said = output.why(0)
    assert said.startswith(
        "host b (ranks 1, 2) does not answer any more; "
        "the ranks on the other hosts were stopped\n  try: ttkit doctor"
    )


@pytest.mark.parametrize(
    "line, said",
    [
        (
            b"ssh: connect to host b port 22: No route to host\r\n",
            "b (rank 1) cannot be reached by ssh: port 22: No route to host",
        ),
        (
            b"ssh: Could not resolve hostname b: Name or service not known\r\n",
            "b (rank 1) cannot be reached by ssh: Name or service not known",
        ),
        (
            b"me@b: Permission denied (publickey).\r\n",
            "b (rank 1) cannot be reached by ssh: Permission denied (publickey).",
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
