"""One mesh over several ranks, split each way: every rank gets what one process gets.

A sample here; all of it under make test-long.
"""

import json
import pathlib

import pytest
from started import passed

# recorded of the real library, see ranks/conformance.py for those that ask for what ranks have each
# of their own
RECORDED = pathlib.Path(__file__).resolve().parent.parent / "conformance"
CASES = sum(len(json.loads(path.read_text())["cases"]) for path in RECORDED.glob("*.json"))
# of a 2x4 mesh, rows x columns of ranks; 4x1 does not divide it
SPLITS = [(1, 2), (2, 1), (1, 4), (2, 2)]
whole = pytest.mark.long


def recorded(process, hosts, every):
    """Each rank compared every so many of the recorded cases, and none failed."""
    assert process.returncode == 0, process.errors[-4000:]
    reports = [json.loads(line) for line in process.out.splitlines() if line.startswith("{")]
    assert len(reports) == hosts[0] * hosts[1]
    for report in reports:
        assert not report["failed"], "\n".join(
            f"{case}: {why}" for case, why in report["failed"].items()
        )
        assert (
            report["cases"] == -(-CASES // every)
            and sum(report["passed"].values()) > 0.85 * report["cases"]
        )


# For each split, one start of its ranks: programs that give what one process gives, with MPI's
# blocking calls in one split, without shared memory in another.
@pytest.mark.parametrize(
    "hosts, first, every, checks",
    [
        ((1, 2), "together.py 2x4 without_shared_memory", 0, "1"),
        ((2, 1), "", 0, "0"),
        ((1, 4), "", 0, "1"),
        ((2, 2), "", 8, "1"),
    ],
    ids=["1x2", "2x1", "1x4", "2x2"],
)
def test_a_split(run, hosts, first, every, checks):
    programs, ranks = [first] if first else [], hosts[0] * hosts[1]
    programs.append("together.py 2x4")
    programs += [f"conformance.py {every}"] if every else []
    process = run((2, 4), hosts, "several.py", *programs, TTKIT_RANK_CHECKS=checks)
    passed(process, (7 + bool(first)) * ranks, "passed ")
    if every:
        recorded(process, hosts, every)


@whole
@pytest.mark.parametrize("hosts", SPLITS, ids=str)
def test_all_recorded_cases(run, hosts):
    recorded(run((2, 4), hosts, "conformance.py", 1, seconds=400), hosts, 1)


@whole
@pytest.mark.parametrize("checks", ["1", "0"], ids=["checked", "unchecked"])
@pytest.mark.parametrize("hosts", SPLITS, ids=str)
def test_all_collectives_against_loops(run, hosts, checks):
    process = run((2, 4), hosts, "collectives.py", 120, seconds=600, TTKIT_RANK_CHECKS=checks)
    passed(process, 3 * hosts[0] * hosts[1])


def test_a_bigger_mesh(run):
    passed(run((4, 4), (2, 2), "together.py", "4x4", "collectives", "exchanges"), 8)


@whole
def test_a_tall_mesh(run):
    passed(run((8, 4), (4, 1), "together.py", "8x4", "collectives", "exchanges", "mapping"), 12)


@whole
@pytest.mark.parametrize("hosts", SPLITS, ids=str)
def test_all_without_checks(run, hosts):
    passed(run((2, 4), hosts, "together.py", "2x4", TTKIT_RANK_CHECKS="0"), 7 * hosts[0] * hosts[1])
