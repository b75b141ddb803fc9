"""The search: what fits and what does not, its order, its speed; the table, the page, the YAML."""

import pathlib
import time
from dataclasses import replace

import pytest

import ttkit
from ttkit import TTKitError, cli
from ttkit.hardware.systems import SYSTEMS
from ttkit.layouts.places import Machine, place_of
from ttkit.layouts.search import parameters_of, plan_layouts
from ttkit.layouts.step import Stage
from ttkit.layouts.times import products_s
from ttkit.layouts.traffic import CHIPS, HOSTS
from ttkit.train import Trainer, read_settings
from ttkit.train.config import TransformerConfig
from ttkit.train.layout import Layout

ROOT = pathlib.Path(__file__).parents[2]
GPT = TransformerConfig(
    num_heads=16, embedding_dim=1024, num_blocks=8, vocab_size=5000, max_sequence_length=512, dropout_prob=0.0
)  # fmt: skip
LLAMA8B = str(ROOT / "configs/models/llama8b.yaml")


@pytest.fixture(scope="module")
def gpt():
    return plan_layouts(GPT, "t3000", batch=16)


@pytest.fixture(scope="module")
def llama():
    return plan_layouts(LLAMA8B, "galaxy", batch=32)


def test_all_chips_are_used_and_the_fastest_is_first(gpt):
    assert {each.layout.chips for each in (*gpt.fitting, *gpt.refused)} == {8}
    speeds = [each.tokens_per_s for each in gpt.fitting]
    assert speeds == sorted(speeds, reverse=True) and gpt.best is gpt.fitting[0]
    names = [str(each.layout) for each in gpt.fitting]
    assert len(set(names)) == len(names)
    for technique in ("DP8", "ZeRO-3", "SP", "PP", "CP", "recompute"):
        assert any(technique in name for name in names), technique


def test_what_fits_has_room_and_what_does_not_a_reason(llama):
    room = 12e9 * 0.9
    assert all(each.memory.total <= room for each in llama.fitting)
    assert all(each.refused for each in llama.refused)
    reasons = [each.refused for each in llama.refused if each.memory]
    assert any("of 12 GB (10% stay free): optimizer" in reason for reason in reasons)
    for each in llama.refused:
        if each.memory and each.refused.startswith("needs ") and "more than" not in each.refused:
            assert each.memory.total > room


def test_headroom_is_a_condition():
    config = read_settings(LLAMA8B).transformer_config
    all_of_it = plan_layouts(config, "galaxy", batch=32, headroom=0.0)
    assert any(12e9 >= each.memory.total > 12e9 * 0.9 for each in all_of_it.fitting)


def test_shapes_that_may_hang_are_a_condition(llama):
    shapes = {each.place.shape for each in llama.fitting}
    assert (4, 8) not in shapes and any("may find no route" in e.refused for e in llama.refused)
    more = plan_layouts(LLAMA8B, "galaxy", batch=32, may_hang=True)
    assert (4, 8) in {each.place.shape for each in more.fitting}


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
        (Layout(dp=2, tp=2, cp=2, pp=4), "two of dp, cp and tp"),
    ],
)
def test_places(layout, found):
    place = place_of(SYSTEMS["galaxy"], layout, (1, 1), False)
    assert found in place if isinstance(place, str) else place.shape == found


def test_overlap_hides_communication():
    plain, beside = (plan_layouts(GPT, "t3000", 16, overlap=on) for on in (False, True))
    one, other = (found.find("DP8").times for found in (plain, beside))
    assert one.hidden == 0 < other.hidden and other.total < one.total
    assert other.communication + other.hidden == pytest.approx(one.communication)
    sent = [each.time_s for each in beside.find("DP8").traffic if each.what == "DDP gradients"]
    stage = Stage(blocks=GPT.num_blocks)
    chip = SYSTEMS["t3000"].chip
    _, backward = products_s(beside.job, beside.find("DP8").layout, stage, chip)
    assert other.hidden == pytest.approx(min(sum(sent), backward))


def test_hosts_have_a_slower_link():
    one, two = (plan_layouts(GPT, "t3000", 16 * hosts, hosts=hosts) for hosts in (1, 2))
    across = two.find("DP16")
    assert {each.link for each in across.traffic} == {CHIPS, HOSTS}
    slow = next(each for each in across.traffic if each.link == HOSTS)
    # each host sends and receives the whole gradient once (a ring of two), at 12.5 GB/s
    assert slow.bytes_sent == 4 * parameters_of(GPT)
    assert slow.time_s == pytest.approx(slow.bytes_sent / 12.5e9)
    assert across.tokens_per_s < 2 * one.find("DP8").tokens_per_s
    fast = plan_layouts(GPT, "t3000", 32, hosts=2, network_gb_per_s=100.0)
    assert fast.find("DP16").tokens_per_s > across.tokens_per_s


def test_the_yaml_runs_that_layout(gpt, tmp_path):
    for each in gpt.fitting[:8]:
        file = tmp_path / "run.yaml"
        file.write_text(gpt.yaml(each))
        settings = read_settings(file)
        assert Layout.of(settings) == each.layout
        assert settings.training_config.batch_size == 16
        assert settings.transformer_config.embedding_dim == 1024


def test_the_yaml_is_trained(tmp_path):
    tiny = TransformerConfig(
        num_heads=4, embedding_dim=128, num_blocks=2, max_sequence_length=64, dropout_prob=0.0
    )
    found = plan_layouts(tiny, "n300", batch=4)
    file = tmp_path / "run.yaml"
    file.write_text(found.yaml(found.find("TP2 SP")))
    settings = read_settings(file)
    how = {"tokenizer_type": "byte", "checkpoint_dir": ""}
    settings = replace(settings, training_config=replace(settings.training_config, **how))
    ttkit.use_system("n300")
    with Trainer(settings, text="words " * 999) as trainer:
        assert trainer.step().loss > 0


def test_tables_and_a_page(gpt):
    text = repr(gpt)
    assert "layouts fit" in text and "tokens/s" in text and "Refused" in text
    assert "<table" in gpt._repr_html_()
    page = gpt.explain(gpt.find("DP8 ZeRO-1"))
    assert all(word in repr(page) for word in ("optimizer", "DDP gradients", "mesh_shape", "MFU"))
    assert "<pre" in page._repr_html_()
    refused = next(each for each in gpt.refused)
    assert "mesh_shape" not in repr(gpt.explain(refused))
    with pytest.raises(TTKitError, match="the layout 'DP77'"):
        gpt.find("DP77")


def test_nothing_fits():
    found = plan_layouts(LLAMA8B, "n300", batch=2)
    assert not found.fitting
    with pytest.raises(TTKitError, match=r"no layout can run; the smallest, .* needs"):
        found.best.layout  # noqa: B018
    assert "0 layouts fit" in repr(found)


def test_inference():
    found = plan_layouts(LLAMA8B, "galaxy", batch=32, mode="inference")
    assert found.best.tokens_per_s == max(plan.tokens_per_s for plan in found.fitting)
    assert "tokens/s/user" in repr(found) and "tp 16 does not divide" in repr(found)
    with pytest.raises(TTKitError, match="the modes are training and inference"):
        plan_layouts(LLAMA8B, "galaxy", mode="both")


def test_the_command(capsys):
    words = ["plan", "--model", str(ROOT / "configs/models/nanogpt.yaml"), "--system", "n300"]
    assert cli.main([*words, "--batch", "4"]) == 0
    assert "layouts fit" in capsys.readouterr().out
    assert cli.main([*words, "--batch", "4", "--explain", "DP2 ZeRO-1"]) == 0
    assert "memory of a chip" in capsys.readouterr().out.replace("\n", " ").replace("  ", " ")
    assert cli.main([*words, "--explain", "DP3"]) == 1
    assert "the layout 'DP3'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "hosts, most_s", [(1, 2.0), pytest.param(32, 10.0, marks=pytest.mark.long)]
)
def test_it_is_fast(hosts, most_s):
    """In time of this process, so that a busy machine changes little."""
    config = read_settings(LLAMA8B).transformer_config
    start = time.process_time()
    found = plan_layouts(config, "galaxy", batch=32 * hosts, sequence=2048 + 1024, hosts=hosts)
    assert time.process_time() - start < most_s and found.fitting
    assert found.machine == Machine(SYSTEMS["galaxy"], hosts)
