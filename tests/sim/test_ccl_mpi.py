"""One mesh over several ranks, split each way: every rank gets what one process gets. A sample here; all of it under make test-long."""

import json

import pytest
from started import passed

CASES = 866  # recorded of the real library, see ranks/conformance.py for those that ask for what ranks have each of their own
TWO_RANKS, FOUR_RANKS = [(1, 2), (2, 1)], [(1, 4), (2, 2)]
SPLITS = TWO_RANKS + FOUR_RANKS  # of a 2x4 mesh, rows x columns of ranks; 4x1 does not divide it
whole = pytest.mark.long


def recorded(run, hosts, every):
    process = run((2, 4), hosts, "conformance.py", every, seconds=400)
    assert process.returncode == 0, process.errors[-4000:]
    reports = [json.loads(line) for line in process.out.splitlines()]
    assert len(reports) == hosts[0] * hosts[1]
    for report in reports:
        assert not report["failed"], "\n".join(f"{case}: {why}" for case, why in report["failed"].items())
        assert report["cases"] == -(-CASES // every) and sum(report["passed"].values()) > 0.85 * report["cases"]


@pytest.mark.parametrize("hosts, every", [((1, 2), 2), ((2, 2), 8)], ids=str)
def test_recorded_cases(run, hosts, every):
    recorded(run, hosts, every)


@whole
@pytest.mark.parametrize("hosts", SPLITS, ids=str)
def test_all_recorded_cases(run, hosts):
    recorded(run, hosts, 1)


@pytest.mark.parametrize("hosts", [(2, 1), (1, 4)], ids=str)
def test_collectives_against_loops(run, hosts):
    passed(run((2, 4), hosts, "collectives.py", 15), 3 * hosts[0] * hosts[1])


@whole
@pytest.mark.parametrize("checks", ["1", "0"], ids=["checked", "unchecked"])
@pytest.mark.parametrize("hosts", SPLITS, ids=str)
def test_all_collectives_against_loops(run, hosts, checks):
    passed(run((2, 4), hosts, "collectives.py", 120, seconds=600, TTKIT_RANK_CHECKS=checks), 3 * hosts[0] * hosts[1])


@pytest.mark.parametrize("hosts", SPLITS, ids=str)
def test_programs_give_what_one_process_gives(run, hosts):
    passed(run((2, 4), hosts, "together.py", "2x4"), 7 * hosts[0] * hosts[1])


@pytest.mark.parametrize("mesh, hosts", [((4, 4), (2, 2)), ((8, 4), (4, 1))], ids=str)
def test_bigger_meshes(run, mesh, hosts):
    names = ["collectives", "mapping", "random_programs"]
    passed(run(mesh, hosts, "together.py", "x".join(map(str, mesh)), *names), 3 * hosts[0] * hosts[1])


def test_without_checks(run):
    """The same with MPI's blocking calls."""
    passed(run((2, 4), (1, 2), "together.py", "2x4", "collectives", "large", "mapping", "random_programs", TTKIT_RANK_CHECKS="0"), 8)


@whole
@pytest.mark.parametrize("hosts", SPLITS, ids=str)
def test_all_without_checks(run, hosts):
    passed(run((2, 4), hosts, "together.py", "2x4", TTKIT_RANK_CHECKS="0"), 7 * hosts[0] * hosts[1])


def test_without_shared_memory(run):
    passed(run((2, 4), (2, 2), "together.py", "2x4", "without_shared_memory"), 4)
