"""The fabric example on this host; on three hosts: tests/cluster/test_several_hosts.py."""

import functools
import sys

import pytest
from started import needs_mpirun, of_example

run = functools.partial(of_example, "fabric_minimal_example")


@needs_mpirun
@pytest.mark.parametrize(
    "config, ranks, devices, shape",
    [("2loudboxes", 2, 8, "1x8"), pytest.param("5loudboxes", 5, 8, "1x8", marks=pytest.mark.long)],
)
def test_all_ranks_on_this_host(config, ranks, devices, shape):
    done = run("./runner.sh", "--rank-bindings", f"../../configs/{config}/rank_bindings.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    for rank in range(ranks):
        assert f"[Rank {rank}/{ranks}] rank {rank} of {ranks} on " in done.stdout
        assert f": a {shape} mesh" in done.stdout
    total = ranks * (ranks + 1) // 2 * devices
    assert f"sum over {ranks} ranks and {devices} chips: {total}, expected {total}" in done.stdout


def test_one_process_alone():
    done = run(sys.executable, "example.py")
    assert done.returncode == 0, done.stderr
    assert "sum over 1 ranks and 8 chips: 8, expected 8" in done.stdout


def test_an_option_that_is_none():
    done = run("./runner.sh", "--hosts", "a")
    assert done.returncode == 1 and done.stderr.startswith("usage: runner.sh")
    assert run("./runner.sh", "--hostfile").returncode == 1
