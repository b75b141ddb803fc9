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
        assert report["cases"] == -(-CASES // every)
        assert sum(report["passed"].values()) > 0.85 * report["cases"]


# For each split, one start of its ranks: programs that give what one process gives, with MPI's
# blocking calls in one split, without shared memory in another, and all of them on a line of four.
@pytest.mark.parametrize(
    "hosts, checks, programs, count",
    [
        ((1, 2), "1", ["without_shared_memory", "seen mapping"], 3),
        ((2, 1), "0", ["collectives exchanges large"], 3),
        ((1, 4), "1", [""], 7),
        ((2, 2), "1", ["collectives meshes_within"], 2),
    ],
    ids=["1x2", "2x1", "1x4", "2x2"],
)
def test_a_split(run, hosts, checks, programs, count):
    several = [f"together.py 2x4 {names}".strip() for names in programs]
    if hosts == (2, 2):
        several.append("conformance.py 8")
    process = run((2, 4), hosts, "several.py", *several, TTKIT_RANK_CHECKS=checks)
    passed(process, count * hosts[0] * hosts[1], "passed ")
    if hosts == (2, 2):
        recorded(process, hosts, 8)


@whole
@pytest.mark.parametrize("hosts", SPLITS, ids=str)
def test_all_recorded_cases(run, hosts):
    recorded(run((2, 4), hosts, "conformance.py", 1, seconds=400), hosts, 1)


@whole
@pytest.mark.parametrize("mesh, hosts", [((4, 4), (2, 2)), ((8, 4), (4, 1))], ids=str)
def test_a_bigger_mesh(run, mesh, hosts):
    names = "collectives", "exchanges", "mapping"
    passed(run(mesh, hosts, "together.py", "{}x{}".format(*mesh), *names), 12)


@whole
@pytest.mark.parametrize("checks", ["0", "1"])
@pytest.mark.parametrize("hosts", SPLITS, ids=str)
def test_all_programs(run, hosts, checks):
    process = run((2, 4), hosts, "together.py", "2x4", TTKIT_RANK_CHECKS=checks)
    passed(process, 7 * hosts[0] * hosts[1])
