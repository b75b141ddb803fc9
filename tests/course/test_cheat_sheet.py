"""notebooks/cheat_sheet.md: its formulas are those of `ttkit.plans`, its lessons exist."""

import pathlib
import re
from collections import Counter

import pytest

from course.common import candidate
from ttkit import plans
from ttkit.lessons.cli import notebooks
from ttkit.plans.cost import HOP_S, busy_traffic, hop_time_s
from ttkit.train import Layout
from ttkit.train.config import TransformerConfig

PAGE = pathlib.Path(notebooks()[0]).parent / "cheat_sheet.md"
TEXT = PAGE.read_text(encoding="utf-8")
ROWS = {
    cells[0]: cells[1:]
    for line in TEXT.splitlines()
    if line.startswith("| ")
    for cells in [[cell.strip() for cell in line.strip("| ").split("|")]]
}
SIZE = 1 << 20
LINES = {n: (plans.topology("t3000", (1, n)), 1) for n in (2, 4, 8)}
# The rows of a torus are rings of four, its columns rings of eight.
TORUS = plans.topology("galaxy_torus")
RINGS = {4: (TORUS, 1), 8: (TORUS, 0)}
PLANNERS = {
    "all_gather": plans.all_gather,
    "reduce_scatter": plans.reduce_scatter,
    "all_reduce": plans.all_reduce,
    "all_to_all": plans.all_to_all,
    "broadcast from the first chip": plans.broadcast,
    "shift by one": plans.shift,
}


def value(cell, **names):
    """The value of the formula in a cell; a footnote there holds for two chips."""
    if names.get("n") == 2 and "¹" in cell:
        return names["s"]
    return eval(re.search(r"`(.+?)`", cell)[1], {"__builtins__": {}}, names)


def sent(plan):
    return max(plan.bytes_sent.values())


@pytest.mark.parametrize("n", LINES)
@pytest.mark.parametrize("name", PLANNERS)
def test_bytes_and_steps_on_a_line(name, n):
    topology, axis = LINES[n]
    if name == "shift by one" and n == 8:
        pytest.skip("a row of eight is a ring, and a shift uses it")
    options = {} if name == "shift by one" else {"algorithm": "line"}
    plan = PLANNERS[name](topology, SIZE, axis=axis, **options)
    _, _, line, _, steps, _ = ROWS[name]
    assert value(line, n=n, s=SIZE) == sent(plan)
    assert value(steps, n=n, s=SIZE) == len(plan.steps)


@pytest.mark.parametrize("n", RINGS)
@pytest.mark.parametrize("name", PLANNERS)
def test_bytes_and_steps_on_a_ring(name, n):
    topology, axis = RINGS[n]
    plan = PLANNERS[name](topology, SIZE, axis=axis)
    _, _, _, ring, _, steps = ROWS[name]
    assert value(ring, n=n, s=SIZE) == sent(plan)
    assert value(steps, n=n, s=SIZE) == len(plan.steps)


@pytest.mark.parametrize("name", PLANNERS)
def test_two_chips_are_a_line_and_a_ring(name):
    _, _, line, ring, steps_line, steps_ring = ROWS[name]
    assert value(line, n=2, s=SIZE) == value(ring, n=2, s=SIZE)
    assert value(steps_line, n=2, s=SIZE) == value(steps_ring, n=2, s=SIZE)


@pytest.mark.parametrize("n", LINES)
def test_the_tree(n):
    topology, axis = LINES[n]
    plan = plans.all_reduce(topology, SIZE, axis=axis, algorithm="tree")
    _, _, line, _, steps, *_ = ROWS["all_reduce by a tree"]
    assert value(line, n=n, s=SIZE) == sent(plan)
    assert value(steps, n=n, s=SIZE) == len(plan.steps)


@pytest.mark.parametrize("n", LINES)
@pytest.mark.parametrize("name", ["all_gather", "reduce_scatter", "all_reduce"])
def test_the_times(name, n):
    topology, axis = LINES[n]
    plan = PLANNERS[name](topology, SIZE, axis=axis, algorithm="line")
    link, k = topology.link, topology.links
    one, two = (hop_time_s(link, nbytes, busy_traffic(link), k) for nbytes in (SIZE, 2 * SIZE))
    beta = SIZE / (two - one)
    own = {"keep": HOP_S["all_gather"].value, "add": HOP_S["reduce_scatter"].value}
    names = {"n": n, "s": SIZE, "k": k, "alpha": one - SIZE / beta, "beta": beta} | own
    assert value(ROWS[f"time of {name}"][0], **names) == pytest.approx(plans.cost(plan).time_s)


def ring(name, n, size):
    topology, axis = RINGS[n]
    return sent(PLANNERS[name](topology, size, axis=axis))


@pytest.mark.parametrize("n", RINGS)
def test_what_each_parallelism_sends(n):
    shard, m = SIZE // n, 3
    halves = ring("reduce_scatter", n, SIZE) + ring("all_gather", n, shard)
    counted = {
        "data parallel": ring("all_reduce", n, SIZE),
        "data parallel, hierarchical: `h` hosts of `c` chips": halves,
        "ZeRO stage 1": halves,
        "ZeRO stage 2": m * ring("reduce_scatter", n, SIZE) + ring("all_gather", n, shard),
        "ZeRO stage 3 (FSDP)": m * (halves + ring("all_gather", n, shard)),
        "tensor parallel": 4 * ring("all_reduce", n, SIZE),
        "sequence parallel": 4 * halves,
        "context parallel (ring attention)": (3 * n - 2) * ring("shift by one", n, SIZE),
        "expert parallel": 4 * ring("all_to_all", n, SIZE),
    }
    for kind, nbytes in counted.items():
        assert value(ROWS[kind][3], n=n, c=n, m=m, W=SIZE, A=SIZE, s=SIZE) == nbytes, kind


@pytest.mark.parametrize("n", RINGS)
def test_two_levels_send_what_one_ring_over_all_chips_sends(n):
    hosts, levels = 4, ROWS["data parallel, hierarchical: `h` hosts of `c` chips"][3]
    inside, outside = levels.split(",")
    names = {"c": n, "h": hosts, "W": SIZE}
    between = ring("all_reduce", hosts, SIZE // n)
    assert value(outside, **names) == between
    one = value(ROWS["data parallel"][3], n=n * hosts, W=SIZE)
    assert value(inside, **names) + between == one


MODEL = TransformerConfig(
    num_heads=8, embedding_dim=256, num_blocks=2, max_sequence_length=1024, dropout_prob=0
)


def planned(**layout):
    """What the planner counts in a step of a small GPT on rings: {collective: (calls, bytes)}."""
    found = candidate(MODEL, Layout(**layout), 16, 1024, system="galaxy_torus").traffic
    calls, sizes = Counter(), Counter()
    for each in found:
        if "loss" not in each.what:
            calls[each.collective] += each.times
            sizes[each.collective] += each.bytes_sent
    return calls, sizes


def test_the_rows_are_those_of_a_training_step():
    n = 4  # chips of a row, which is a ring
    whole = sum(planned(dp=n)[1].values()) / 2 / (n - 1) * n  # the bytes of all gradients
    for stage, kind in [(1, "ZeRO stage 1"), (2, "ZeRO stage 2"), (3, "ZeRO stage 3 (FSDP)")]:
        for m in (1, 2):
            found = sum(planned(dp=n, zero=stage, micro_batches=m)[1].values())
            # Stage 3 does not gather the tables of tokens and positions for backward.
            near = pytest.approx(found, rel=0.1 if stage == 3 else 0.001)
            assert value(ROWS[kind][3], n=n, m=m, W=whole) == near, kind


def test_tensor_parallel_with_recomputation_repeats_the_forward_all_reduces():
    n = 4  # chips of a row, which is a ring
    cell = ROWS["tensor parallel"][3]
    again, once = map(int, re.search(r"(\d) in place of (\d) with recomputation", cell).groups())
    activations = 16 * 1024 * MODEL.embedding_dim * 4  # float32, of the batch of `planned`
    once_bytes = value(cell, n=n, A=activations)
    (calls, sizes), (more_calls, more) = planned(tp=n), planned(tp=n, recompute=True)
    added = {name: more_calls[name] - calls[name] for name in more_calls}
    assert added == dict.fromkeys(added, 0) | {"all_reduce": MODEL.num_blocks * (again - once)}
    more_bytes = (more["all_reduce"] - sizes["all_reduce"]) / MODEL.num_blocks
    assert once_bytes + more_bytes == again / once * once_bytes


@pytest.mark.parametrize("n", [4, 8])
def test_ring_attention_shifts_forward_and_backward(n):
    shifts = planned(cp=n)[0]["shift"] / MODEL.num_blocks / 2  # of keys, or of values
    assert value(ROWS["context parallel (ring attention)"][3], n=n, s=1) == shifts


def test_the_bubble():
    for p, m in [(2, 4), (4, 8), (8, 8)]:
        timetable = plans.gpipe(p, m).timeline()
        assert value(ROWS["pipeline"][4], p=p, m=m) == pytest.approx(timetable.bubble_fraction)


def test_its_lessons_exist_and_the_map_links_it():
    names = {path.name for path in notebooks()}
    linked = re.findall(r"\[(\d\d)\]\((\S+?\.ipynb)\)", TEXT)
    assert linked and all(name in names and name.startswith(n) for n, name in linked)
    assert "](cheat_sheet.md)" in (PAGE.parent / "welcome.md").read_text(encoding="utf-8")
