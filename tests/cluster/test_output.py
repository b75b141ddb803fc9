"""What is made of the output of mpirun: whose line it is, and why the ranks ended."""

import io

import pytest

from ttkit.cluster.launch import Output, why_ended
from ttkit.cluster.processes import Ended


def test_lines_are_cut_where_ranks_meet():
    output, stream = Output([""] * 3), io.BytesIO()
    lines = b"[1,0]<stdout>: end of 0[1,2]<stdout>: end of 2\nmpirun's own\n[1,1]<stderr>: \n"
    output.pump(io.BytesIO(lines), stream)
    assert stream.getvalue().decode() == (
        "[Rank 0/3] end of 0\n[Rank 2/3] end of 2\nmpirun's own\n[Rank 1/3] \n"
    )
    assert [list(last) for last in output.last] == [["end of 0"], [], ["end of 2"]]


SILENT = (
    "PRTE has lost communication with a remote daemon.\n  HNP daemon   : "
    "[prterun-a-13@0,0] on node a\n  Remote daemon: [prterun-a-13@0,2] on node b\n"
)


def test_a_host_that_falls_silent_is_named_with_its_ranks():
    output = Output(["a", "me@b", "b"])
    output.framed.append(SILENT)
    said = output.why(0)
    assert said.startswith(
        "host b (ranks 1 and 2) no longer answers; "
        "the ranks on the other hosts were stopped\n  try: ttkit doctor"
    )


@pytest.mark.parametrize(
    "line", ["connect to host b port 22: No route to host", "me@b: Permission denied (publickey)."]
)
def test_a_host_that_ssh_cannot_reach_is_named(line):
    output, stream = Output(["a", "b"]), io.BytesIO()
    text = f"{'' if '@' in line else 'ssh: '}{line}\r\n".encode()
    output.pump(io.BytesIO(text), stream)
    assert stream.getvalue().strip() == text.strip()
    assert output.why(255).splitlines()[0] == f"a host cannot be reached by ssh: {line}"


@pytest.mark.parametrize(
    "text, code, how",
    [
        ("process rank 1 with PID 7 on node a exited on\n  signal 9 (Killed).", 137, "was killed by signal 9 (Killed)"),
        ("  Process name: [prterun-vm-1@1,1]\n  Exit code: 3\n", 3, "exited with code 3"),
        ("due to process rank 1 with PID 7 on node a calling 'abort'. Thi", 5, "exited with code 5"),
        ("unable to find the specified executable file, and therefore.\n\n"
         "This error was first reported for process\n  rank 1; it may", 5, "could not start: unable to find the specified executable file"),
    ],
)  # fmt: skip
def test_mpiruns_own_reports(text, code, how):
    output = Output([""] * 2)
    output.framed = [text]
    assert output.exit_code(5) == code and output.exit_code(0) == 0
    where = " on host a" if "node a" in text and output.hosts[1] else ""
    assert output.why(5) == f"rank 1 of 2{where} {how}; the others were stopped"


def test_a_message_that_names_no_rank_is_passed_on():
    output = Output([""] * 2)
    output.framed.append("Something new went wrong.\n")
    assert output.why(3) == (
        "mpirun ended with code 3\n  its last lines:\n    Something new went wrong."
    )


def test_a_log_that_is_cut_inside_a_message():
    ruler = "-" * 60 + "\n"
    log = f"of a message\n{ruler}{ruler}  Process name: [prterun-vm-1@1,0]\n  Exit code: 3\n{ruler}"
    why = why_ended(Ended("mpirun", 3, log), ["", ""])
    assert why == "rank 0 of 2 exited with code 3; the others were stopped"
