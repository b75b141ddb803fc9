"""The search: what fits and what does not, its order, its speed; the table, the page, the YAML."""

import itertools
import json
import pathlib
import subprocess
import sys
from dataclasses import replace
from html import unescape
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ttkit
from tests.layouts.test_launching import planned_alike
from ttkit import TTKitError
from ttkit import __main__ as cli
from ttkit.hardware.systems import SYSTEMS
from ttkit.layouts.costs import CHIPS, HOSTS, compute_s, parameters_of
from ttkit.layouts.dry_run import Job, Stage
from ttkit.layouts.places import Machine, place_of
from ttkit.layouts.report import Candidate, Layouts
from ttkit.layouts.search import plan_layouts
from ttkit.plans.pipelines import schedule_of
from ttkit.train import read_settings
from ttkit.train.config.layout import Layout
from ttkit.train.config.settings import TrainingConfig, TransformerConfig

ROOT = pathlib.Path(__file__).parents[2]
# Four chips are searched in a fifth of the time of eight; tensor parallelism of four is refused.
BOX = "quietbox_bh"
GPT = TransformerConfig(
    num_heads=2, embedding_dim=1024, num_blocks=8, vocab_size=5000, max_sequence_length=512, dropout_prob=0.0
)  # fmt: skip
LLAMA8B = str(ROOT / "configs/models/llama8b.yaml")


@pytest.fixture(scope="module")
def gpt():
    return plan_layouts(GPT, BOX, batch=8)


def test_all_chips_are_used_and_the_fastest_is_first(gpt):
    assert {each.layout.chips for each in (*gpt.fitting, *gpt.refused)} == {4}
    speeds = [each.tokens_per_s for each in gpt.fitting]
    assert speeds == sorted(speeds, reverse=True) and gpt.best is gpt.fitting[0]
    names = [str(each.layout) for each in gpt.fitting]
    assert len(set(names)) == len(names)
    for technique in ("DP4", "ZeRO-3", "SP", "PP", "recompute"):
        assert any(technique in name for name in names), technique
    refused = {str(each.layout): each.refused for each in gpt.refused}
    assert refused["CP4"] == "dp in place of cp fits, and sends less"


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), max_size=12))
def test_the_front_is_what_no_other_beats(points):
    named = [
        Candidate(Layout(), memory=SimpleNamespace(total=size), tokens_per_s=speed)
        for size, speed in points
    ]
    found = Layouts(Job(GPT, 8, 32, TrainingConfig()), Machine(SYSTEMS[BOX]), named)
    front = [(each.memory.total, each.tokens_per_s) for each in found.front]
    assert front[::-1] == sorted(
        (size, speed)
        for size, speed in set(points)
        if not any(
            small <= size and fast >= speed and (small, fast) != (size, speed)
            for small, fast in points
        )
    )


def test_what_is_explored_is_planned_once_for_each_choice(monkeypatch):
    made = []
    monkeypatch.setattr("ttkit.visualize.widgets.play.in_notebook", lambda: True)
    monkeypatch.setattr("ttkit.visualize.widgets.play.live", lambda widget, *_: made.append(widget))
    start = {"model": GPT, "system": "n300", "sequence": 32}  # The batch begins with the first.
    choices = {"system": ["n300", BOX], "batch": [4, 8], "sequence": [32, 64]}
    ttkit.explore_layouts(start, **choices)
    row, shown = made[0].children
    system, batch, sequence = row.children
    assert "ttkit-controls" in row._dom_classes
    first = shown.page
    assert "batch 4 x 32 tokens on n300, 2 chips" in unescape(first)
    system.value, batch.value, sequence.value = BOX, 8, 64
    assert "batch 8 x 64 tokens on quietbox_bh, 4 chips" in unescape(shown.page)
    shown._handle_custom_msg({"act": "1"}, [])
    second = plan_layouts(GPT, BOX, 8, 64).fitting[1].layout
    assert f"{second}: memory of a chip, fits" in shown.page
    monkeypatch.setattr("ttkit.layouts.cli.plan_layouts", None)  # Nothing is planned again.
    system.value, batch.value, sequence.value = "n300", 4, 32
    assert shown.page == first


def test_what_fits_has_room_and_what_does_not_a_reason():
    """1.2 billion parameters, of 16 bytes each with their gradients and AdamW, on 2 x 12 GB."""
    found = plan_layouts(replace(GPT, embedding_dim=4096, num_blocks=6), "n300", batch=2)
    room = 12e9 * 0.9
    assert found.fitting and all(each.memory.total <= room for each in found.fitting)
    too_large = [each for each in found.refused if each.memory]
    assert any("GB; 10.8 of 12 may be used: optimizer" in each.refused for each in too_large)
    assert all(each.memory.total > room for each in too_large)
    # The smallest layout is one whose memory is complete, though the weights of others are fewer.
    least = min(sum(each.memory[:3]) for each in plan_layouts(GPT, "n300", batch=64).fitting)
    none = plan_layouts(GPT, "n300", batch=64, headroom=1 - (least + 1) / 12e9)
    assert not none.fitting and none.why_nothing_fits()[1].startswith("a shorter sequence")


def test_headroom_and_shapes_that_may_hang_are_conditions():
    """A model that 32 chips can only train as four replicas of tensor parallelism over eight."""
    only = TransformerConfig(num_heads=8, embedding_dim=1024, num_blocks=1, max_sequence_length=32)
    found = plan_layouts(only, "galaxy", batch=4)
    assert not found.fitting and any("may find no route" in e.refused for e in found.refused)
    more = plan_layouts(only, "galaxy", batch=4, may_hang=True)
    assert {each.place.shape for each in more.fitting} == {(4, 8)}
    most = max(each.memory.total for each in more.fitting)
    for part, fits in ((1.01, True), (0.99, False)):
        free = 1 - part * most / 12e9
        found = plan_layouts(only, "galaxy", batch=4, may_hang=True, headroom=free)
        assert (len(found.fitting) == len(more.fitting)) == fits


@pytest.mark.parametrize(
    "layout, found",
    [
        (Layout(dp=8, tp=4), (8, 4)),
        (Layout(tp=32), (1, 32)),
        (Layout(dp=4, tp=4, pp=2), (4, 4)),
        (Layout(tp=4, pp=8), (1, 4)),
        (Layout(tp=8, pp=4), (8, 1)),  # a Galaxy has no four lines of eight along its rows
        (Layout(tp=16, pp=2), "8x4 chips have no room for 2 lines of 16"),
        (Layout(dp=16, tp=2), "no room for a mesh of 16x2"),
        (Layout(dp=8, tp=2, pp=4), "no room for 4 meshes of 8x2"),
        (Layout(dp=2, tp=2, cp=2, pp=4), "a mesh has axes for two of them"),
    ],
)
def test_places(layout, found):
    place = place_of(SYSTEMS["galaxy"], layout, (1, 1))
    assert found in place if isinstance(place, str) else place.shape == found


def test_overlap_hides_communication():
    plain, beside = (plan_layouts(GPT, BOX, 8, overlap=on) for on in (False, True))
    one, other = (found.find("DP4").times for found in (plain, beside))
    assert one.hidden == other.hidden > 0
    assert other.total == pytest.approx(one.total - one.hidden)
    assert other.communication + other.hidden == pytest.approx(one.communication)
    sent = [each.time_s for each in beside.find("DP4").traffic if each.what == "DDP gradients"]
    stage = Stage(beside.job, beside.find("DP4").layout, blocks=GPT.num_blocks)
    _, backward = compute_s(stage, SYSTEMS[BOX].chip)
    assert other.hidden == pytest.approx(min(sum(sent), backward))
    # Nothing hides what backward completes last.
    assert "DDP embedding gradients" in {each.what for each in beside.find("DP4").traffic}


def test_a_forward_hides_the_weights_that_zero_1_gathers_before_it():
    beside = plan_layouts(GPT, "n300", 2, overlap=True)
    found = beside.find("DP2 ZeRO-1")
    stage = Stage(beside.job, found.layout, blocks=GPT.num_blocks)
    room = compute_s(stage, SYSTEMS["n300"].chip)
    sent = [
        sum(each.time_s for each in found.traffic if each.what == what)
        for what in ("DDP weights", "DDP gradients")
    ]
    hidden = sum(min(pair) for pair in zip(sent, room, strict=True))
    assert sent[0] > room[0] and found.times.hidden == pytest.approx(hidden)


@pytest.mark.parametrize(
    "zero, once", [(0, {"gradients"}), (1, {"gradients", "weights"}), (2, {"weights"}), (3, set())]
)
def test_a_bubble_holds_what_is_sent_in_each_micro_batch(zero, once):
    plans = plan_layouts(GPT, BOX, 8).fitting
    both = (p for p in plans if p.layout.pp > 1 < p.layout.dp and p.layout.chunks == 1)
    found = next(p for p in both if p.layout.zero == zero)
    sent = [each for each in found.traffic if each.what.startswith("DDP")]
    assert {each.what.split()[-1] for each in sent if each.once} == once
    assert all(each.once in (0, each.times) for each in found.traffic)
    repeated = sum(each.time_s for each in found.traffic if not each.once)
    layout, times = found.layout, found.times
    waits = times.compute + repeated  # 1F1B: p - 1 of m micro-batches more
    assert times.bubble == pytest.approx(waits * (layout.pp - 1) / layout.micro_batches)


def test_hosts_have_a_slower_link():
    one, two = (plan_layouts(GPT, "n300", 4 * hosts, hosts=hosts) for hosts in (1, 2))
    across = two.find("DP4")
    assert "batch over 2 hosts" in two._repr_html_()
    assert {each.link for each in across.traffic} == {CHIPS, HOSTS}
    slow = next(each for each in across.traffic if each.link == HOSTS)
    # each host sends and receives the whole gradient once (a ring of two), at 12.5 GB/s
    assert slow.bytes_sent == 4 * parameters_of(GPT)
    assert slow.time_s == pytest.approx(slow.bytes_sent / 12.5e9)
    assert across.tokens_per_s < 2 * one.find("DP2").tokens_per_s
    fast = plan_layouts(GPT, "n300", 8, hosts=2, network_gb_per_s=100.0)
    assert fast.find("DP4").tokens_per_s > across.tokens_per_s
    # Both hide behind the backward pass, of which the head's forward is no part.
    stage = Stage(two.job, across.layout, blocks=GPT.num_blocks)
    forward, backward = compute_s(stage, SYSTEMS["n300"].chip)
    names, sent = ("DDP gradients", "hosts gradients"), across.traffic
    kinds = [sum(each.time_s for each in sent if each.what == name) for name in names]
    assert across.times.hidden == pytest.approx(sum(min(kind, backward) for kind in kinds))
    assert backward < 1.8 * forward


def test_zero_shares_the_optimizers_state_over_hosts():
    """As many bytes go over the network as without, and each host holds half the state."""
    found = plan_layouts(GPT, "n300", 8, hosts=2)
    plain, shared = found.find("DP4"), found.find("DP4 ZeRO-1")
    held = plain.memory.optimizer / 4
    assert held <= shared.memory.optimizer < 1.01 * held  # Whole parameters do not split evenly.
    sent = [
        {each.what: each.bytes_sent for each in one.traffic if each.link == HOSTS}
        for one in (plain, shared)
    ]
    half = 2 * parameters_of(GPT)
    assert sent[1] == {"hosts gradients": half, "hosts weights": half}
    assert sent[0] == {"hosts gradients": 2 * half}
    # Replicas whose meshes have one chip share it, too.
    alone = plan_layouts(GPT, "n300", 8, hosts=2).find("DP2 TP2 ZeRO-1")
    assert alone.place.replicas == 2


def test_tables_and_a_page(gpt):
    text = repr(gpt)
    assert "layouts fit" in text and "tokens/s" in text and "Refused" in text
    assert "<table" in gpt._repr_html_()
    page = gpt.explain(gpt.find("DP4 ZeRO-1"))
    assert all(word in repr(page) for word in ("optimizer", "DDP gradients", "mesh_shape", "MFU"))
    refused = next(each for each in gpt.refused)
    assert "mesh_shape" not in repr(gpt.explain(refused))
    with pytest.raises(TTKitError, match="the layout 'DP77'"):
        gpt.find("DP77")


def test_a_million_tokens_are_too_many():
    """Planned for many rows at once, their scores would be larger than any array."""
    found = plan_layouts(LLAMA8B, "n300", batch=2, sequence=1 << 20)
    assert not found.fitting and all(each.refused for each in found.refused)
    assert {"CP2", "DP2"} <= {str(each.layout).split()[0] for each in found.refused}


def test_inference():
    found = plan_layouts(LLAMA8B, "galaxy", batch=32, mode="inference")
    assert found.best.tokens_per_s == max(plan.tokens_per_s for plan in found.fitting)
    assert "tokens/s/user" in repr(found) and "tp 16 does not divide" in repr(found)
    with pytest.raises(TTKitError, match="the modes are training and inference"):
        plan_layouts(LLAMA8B, "galaxy", mode="both")


def test_the_command(capsys, tmp_path):
    words = ["plan", "--model", str(ROOT / "configs/models/nanogpt.yaml"), "--system", "n300"]
    assert cli.main([*words, "--batch", "4"]) == 0
    assert "layouts fit" in capsys.readouterr().out
    assert cli.main([*words, "--batch", "4", "--explain", "DP2 ZeRO-1"]) == 0
    assert "memory of a chip" in capsys.readouterr().out.replace("\n", " ").replace("  ", " ")
    assert cli.main([*words, "--batch", "4", "--explain", "CP2"]) == 0
    assert "dp in place of cp" in capsys.readouterr().out
    words[-1] = "n150"
    options = ["--hosts", "2", "--batch", "4", "--json", "--optimizer", "sgd", "--network"]
    figures = []
    for rate in ("12.5", "1"):
        assert cli.main([*words, *options, rate, "--write", str(tmp_path / rate)]) == 0
        shown = capsys.readouterr()
        figures.append(json.loads(shown.out))
        assert "ttkit run" in shown.err
    rates = [{one["layout"]: one for one in each["fitting"]} for each in figures]
    fast, slow = (rate["DP2"] for rate in rates)
    assert fast["memory"] == slow["memory"] and fast["memory"]["optimizer"] == 0
    times = fast["times_s"]
    assert fast["step_s"] == pytest.approx(sum(times.values()) - times["hidden"])
    assert 0 < fast["step_s"] < slow["step_s"]
    assert cli.main([*words, "--mode", "inference", "--batch", "4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["fitting"][0]["tokens_per_s"] > 0
    assert cli.main([*words, "--explain", "DP3"]) == 1
    assert "the layout 'DP3'" in capsys.readouterr().err
    assert cli.main([*words, "--hosts", "2", "--batch", "4", "--explain", "DP2 ZERO-1"]) == 1
    assert "try: DP2 ZeRO-1" in capsys.readouterr().err


def test_a_reader_that_ends_early():
    """As in `ttkit plan ... | head -1`."""
    words = ["--model", str(ROOT / "configs/models/nanogpt.yaml"), "--system", "n150"]
    command = [sys.executable, "-m", "ttkit", "plan", *words]
    with subprocess.Popen(command, stdout=-1, stderr=-1) as done:
        done.stdout.close()
        assert done.stderr.read() == b""
    assert done.returncode == 1


@pytest.mark.long
def test_llama_70b_on_four_galaxies():
    """A chip has 9.1 GB of state, so the first stage needs fewer blocks beside its embedding."""
    model = str(ROOT / "configs/models/llama70b.yaml")
    found = plan_layouts(model, "galaxy", hosts=4, precision="bfloat16")
    assert str(found.best.layout).startswith("DP8 TP4 PP4 ZeRO-3 SP")
    assert [each for each in found.fitting if each.layout.blocks[:1] == (19,)]


@pytest.mark.long
def test_thirty_two_galaxies():
    config = read_settings(LLAMA8B).transformer_config
    found = plan_layouts(config, "galaxy", batch=32 * 32, sequence=2048 + 1024, hosts=32)
    assert found.machine == Machine(SYSTEMS["galaxy"], 32) and found.fitting


def asked():
    """Every model on three systems. Training on more than two chips is long, and so are the two
    models that differ from those of the other tests by their sizes only."""
    models = sorted(path.stem for path in (ROOT / "configs/models").glob("*.yaml"))
    sizes = [("n300", 1), ("n300", 4), ("t3000", 1), ("t3000", 4), ("galaxy", 1), ("galaxy", 4)]
    for model, (system, hosts), mode in itertools.product(models, sizes, ["training", "inference"]):
        quick = (system, hosts) == sizes[0] and model not in ("nanogpt", "gpt2-small")
        marks = () if quick or mode == "inference" else pytest.mark.long
        yield pytest.param(model, system, hosts, mode, marks=marks)


@pytest.mark.parametrize("model, system, hosts, mode", list(asked()))
def test_every_model_has_an_answer(model, system, hosts, mode, capsys):
    words = ["--model", str(ROOT / f"configs/models/{model}.yaml"), "--system", system]
    assert cli.main(["plan", *words, "--hosts", str(hosts), "--mode", mode]) == 0
    shown = capsys.readouterr()
    assert "tokens/s" in shown.out and not shown.err
    rows = [line for line in shown.out.splitlines() if line.startswith("│")]
    assert rows[0].startswith("│ layout")
    if "└" in shown.out.splitlines()[4]:  # the table is empty
        assert "note: no layout can run; " in shown.out and "; try: " in shown.out


@pytest.mark.parametrize(
    "option, value, rule",
    [
        ("--batch", "0", "batch=0 must be a whole number of at least 1"),
        ("--headroom", "2", "headroom=2.0 must be below 1"),
        ("--network", "0", "network_gb_per_s=0.0 must be above 0"),
        ("--headroom", "nan", "headroom=nan must be below 1"),
    ],
)
@pytest.mark.parametrize("mode", ["training", "inference"])
def test_options_out_of_range(option, value, rule, mode, capsys):
    words = ["plan", "--model", LLAMA8B, "--system", "n300", "--mode", mode, option, value]
    assert cli.main(words) == 1
    shown = capsys.readouterr()
    assert rule in shown.err and len(shown.err.splitlines()) == 1 and not shown.out


@pytest.mark.parametrize("option", ["--explain", "--write"])
def test_pages_and_runs_are_for_training(option, capsys, monkeypatch):
    monkeypatch.setattr("ttkit.layouts.cli.plan_layouts", None)  # The search would take a while.
    words = ["plan", "--model", LLAMA8B, "--system", "t3000", "--mode", "inference", option, "TP8"]
    assert cli.main(words) == 1
    assert f"ttkit plan {option}: this option is for training" in capsys.readouterr().err


def test_both_ends_of_a_tied_pipeline_have_the_table_and_send_its_gradient():
    tied = replace(GPT, weight_tying="enabled")
    one, two = (
        next(e for e in plan_layouts(each, "n300", 4).fitting if str(e.layout).startswith("PP2"))
        for each in (tied, GPT)
    )
    assert one.memory.weights == two.memory.weights  # It has two tables, not a table and a head.
    (sent,) = (each for each in one.traffic if each.what == "PP gradients")
    table = 5024 * 1024 * 4  # 5,000 rows in whole tiles, float32
    assert (sent.times, sent.bytes_sent) == (1, table)
    assert not [each for each in two.traffic if each.what == "PP gradients"]
    found = plan_layouts(tied, BOX, batch=4)
    for (tp, zero), shards in {(2, 0): 2, (1, 1): 2, (1, 0): 1}.items():
        sizes = 2, tp, zero
        each = next(e for e in found.fitting if (e.layout.pp, e.layout.tp, e.layout.zero) == sizes)
        (sent,) = (each for each in each.traffic if each.what == "PP gradients")
        assert sent.bytes_sent == (5056 if tp == 2 else 5024) * 4096 // shards


def test_the_last_stage_has_fewer_blocks_where_this_is_faster(tmp_path):
    """A head of as many weights as several blocks."""
    small = TransformerConfig(
        num_heads=2, embedding_dim=256, num_blocks=8, vocab_size=20000, dropout_prob=0.0
    )
    found = plan_layouts(small, "n300", batch=16, sequence=512)
    uneven = [each for each in found.fitting if each.layout.blocks]
    assert uneven
    for each in uneven:
        first, last = each.layout.blocks
        assert first + last == 8 and first > last and f"blocks-{first}+{last}" in str(each.layout)
        even = replace(each.layout, blocks=())
        assert all(e.times.total > each.times.total for e in found.fitting if e.layout == even)
        file = tmp_path / "run.yaml"
        file.write_text(found.yaml(each))
        planned_alike(each, file, "n300")
    llama = plan_layouts(LLAMA8B, "galaxy", batch=32, sequence=2048)
    even = {each.layout: each.order for each in llama.fitting if not each.layout.blocks}
    others = [each for each in llama.fitting if each.layout.blocks]
    # Some are faster, and some are the only ones that fit.
    faster = [even.get(replace(each.layout, blocks=()), (0, 0)) < each.order for each in others]
    assert all(faster) and 0 < sum(replace(e.layout, blocks=()) in even for e in others)
    assert not all(replace(each.layout, blocks=()) in even for each in others)


def test_interleaved_pipelines_are_listed_where_they_are_faster(gpt, tmp_path):
    found = [each for each in gpt.fitting if each.layout.chunks > 1]
    assert found and all(2 * each.layout.pp <= GPT.num_blocks for each in found)
    for each in found:
        plain = replace(each.layout, schedule="1f1b", chunks=1)
        for other in (each for each in gpt.fitting if each.layout == plain):
            assert each.tokens_per_s > other.tokens_per_s
            assert each.times.bubble == pytest.approx(other.times.bubble / 2, rel=0.02)
            for e in (other, each):
                of = e.layout
                row = next(t for t in e.traffic if t.what == "PP activations")
                tasks = schedule_of(of.schedule, of.pp, of.micro_batches, of.chunks).tasks
                sends = [sum(bool(t.send) for t in tasks(stage)) for stage in range(of.pp)]
                assert row.times == max(sends)
    (tmp_path / "run.yaml").write_text(gpt.yaml(found[0]))
    planned_alike(found[0], tmp_path / "run.yaml", BOX)
    few = plan_layouts(replace(GPT, num_blocks=2), BOX, batch=8)
    assert not [each for each in few.fitting if each.layout.chunks > 1]


@pytest.mark.parametrize(
    "model, system, asked, cure",
    [
        ("llama8b", "n300", {}, r"at least \d+ hosts"),
        ("nanogpt", "galaxy", {"batch": 3, "sequence": 100}, "batch 32"),
        ("llama70b", "n300", {"mode": "inference"}, "a system with more DRAM"),
        ("llama8b", "n300", {"mode": "inference", "sequence": 2**17}, "a shorter sequence"),
        ("nanogpt", "galaxy", {"hosts": 4, "mode": "inference"}, "batch 128"),
    ],
)
def test_where_nothing_fits_the_reason_stands_under_the_table(model, system, asked, cure):
    found = plan_layouts(str(ROOT / f"configs/models/{model}.yaml"), system, **asked)
    assert not found.fitting and ("0 layouts fit" in repr(found)) == ("mode" not in asked)
    why = "replicas do not divide" if "batch" in cure else "the smallest, .* needs"
    with pytest.raises(TTKitError, match=f"no layout can run; .*{why} .*\n  try: {cure}$") as error:
        found.best  # noqa: B018
    rule, tries = str(error.value).split("no layout can run; ")[1].split("\n  try: ")
    assert repr(found).endswith(f"note: no layout can run; {rule}; try: {tries}")
    assert f"try: {tries}</p>" in found._repr_html_()


def test_the_published_layout_is_listed_with_its_warning():
    llama70b = str(ROOT / "configs/models/llama70b.yaml")
    found = plan_layouts(llama70b, "galaxy", mode="inference")
    assert [(plan.layout.dp, plan.layout.tp) for plan in found.fitting] == [(4, 8)]
    assert "DP4 TP8, may hang" in repr(found)
    assert "note: 4x8 is opened as the transpose of the 8x4" in repr(found)
