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


# For each split, one start of its ranks: programs that give what one process gives, and one or two
# other things.
@pytest.mark.parametrize(
    "hosts, collectives, every",
    [((1, 2), 0, 4), ((2, 1), 15, 0), ((1, 4), 15, 0), ((2, 2), 0, 8)],
    ids=["1x2", "2x1", "1x4", "2x2"],
)
def test_a_split(run, hosts, collectives, every):
    programs, count = ["together.py 2x4"], 8
    if collectives:
        programs, count = [*programs, f"collectives.py {collectives}"], count + 3
    if every:
        programs.append(f"conformance.py {every}")
    process = run((2, 4), hosts, "several.py", *programs)
    passed(process, count * hosts[0] * hosts[1], "passed ")
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


@pytest.mark.parametrize("mesh, hosts", [((4, 4), (2, 2)), ((8, 4), (4, 1))], ids=str)
def test_bigger_meshes(run, mesh, hosts):
    names = ["collectives", "exchanges", "mapping", "random_programs"]
    passed(
        run(mesh, hosts, "together.py", "x".join(map(str, mesh)), *names), 4 * hosts[0] * hosts[1]
    )


def test_without_checks(run):
    """The same with MPI's blocking calls."""
    passed(
        run(
            (2, 4),
            (1, 2),
            "together.py",
            "2x4",
            "collectives",
            "exchanges",
            "large",
            "mapping",
            "random_programs",
            TTKIT_RANK_CHECKS="0",
        ),
        10,
    )


@whole
@pytest.mark.parametrize("hosts", SPLITS, ids=str)
def test_all_without_checks(run, hosts):
    passed(run((2, 4), hosts, "together.py", "2x4", TTKIT_RANK_CHECKS="0"), 8 * hosts[0] * hosts[1])


def test_without_shared_memory(run):
    passed(run((2, 4), (2, 2), "together.py", "2x4", "without_shared_memory"), 4)
