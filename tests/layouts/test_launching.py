"""The folder that `ttkit plan --write` makes: planned as searched, to the byte, and it runs."""

import pathlib
import re
import shlex
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from started import needs_mpirun

from ttkit import __main__ as cli
from ttkit.cluster.files.bindings import read_bindings
from ttkit.cluster.files.lint import lint_path
from ttkit.errors import TTKitError
from ttkit.hardware.systems import SYSTEMS, visible_part
from ttkit.layouts.dry_run import Job
from ttkit.layouts.launching import cards_of_stages, settings_of
from ttkit.layouts.places import Place
from ttkit.layouts.search import plan_layouts
from ttkit.train.config.files import read_settings
from ttkit.train.config.layout import Layout
from ttkit.train.config.settings import TrainingConfig, TransformerConfig
from ttkit.train.plan import training_plan

TINY = TransformerConfig(
    num_heads=4, embedding_dim=128, num_blocks=4, max_sequence_length=64, dropout_prob=0.0
)
BIN = pathlib.Path(sys.executable).parent


@pytest.fixture(scope="module")
def searches():
    return {hosts: plan_layouts(TINY, "t3000", batch=16, hosts=hosts) for hosts in (1, 2)}


def runs(searches):
    """Layouts of a host, its pipelines, pipelines of two hosts, and replicas on two."""
    one, two = searches[1].fitting, searches[2].fitting
    alone = [each for each in one if each.layout.pp == 1][::6][:3]
    stages = [each for each in one if each.layout.pp > 1][::9][:3]
    across = [each for each in two if each.place.stages > 1][::5][:2]
    replicas = [each for each in two if each.place.replicas > 1][::7][:2]
    return [(1, each) for each in alone + stages] + [(2, each) for each in across + replicas]


@given(st.sampled_from(sorted(SYSTEMS)), st.integers(1, 4), st.integers(1, 4), st.integers(1, 8))
def test_stages_have_cards_of_their_own_that_make_their_mesh(name, rows, columns, count):
    system = SYSTEMS[name]
    stages = cards_of_stages(system, (rows, columns), count)
    every = [card for cards in stages for card in cards]
    assert len(every) == len(set(every))
    for cards in stages:
        part = visible_part(system, ",".join(map(str, cards)))
        assert sorted(part.shape) == sorted((rows, columns))


@pytest.mark.parametrize(
    "layout, shape",
    [
        (Layout(), (1, 1)),
        (Layout(dp=2, tp=4, zero=2, sequence_parallel=True, recompute=True), (2, 4)),
        (Layout(cp=4, precision="bfloat16", micro_batches=2), (1, 4)),
        (Layout(tp=2, pp=4, micro_batches=8, schedule="gpipe"), (1, 2)),
        (Layout(pp=2, micro_batches=4, schedule="interleaved", chunks=2), (1, 1)),
    ],
)
def test_to_a_configuration_and_back(layout, shape):
    config = replace(TINY, max_sequence_length=512)
    layout.check(config, 16, 512)
    back = Layout.of(settings_of(Job(config, 16, 512, TrainingConfig()), layout, Place(shape, ())))
    assert replace(back, axes=None) == layout


def planned_alike(each, file, system):
    """The settings in a file, whose training plan is what the search found."""
    settings = read_settings(file)
    plan = training_plan(settings, system)
    assert replace(plan.layout, axes=None) == each.layout
    assert (plan.memory, plan.cost.flops) == (each.memory._asdict(), each.flops)
    sent = [[(t.what, t.bytes_sent) for t in one.traffic] for one in (plan, each)]
    assert sent[0] == sent[1]
    assert plan.step_time_s == pytest.approx(each.times.total)
    assert sum(plan.times_s.values()) == pytest.approx(plan.step_time_s)
    return settings


def test_what_is_searched_is_planned_alike_from_its_folder(searches, tmp_path):
    chosen = runs(searches)
    assert len(chosen) == 10
    for number, (hosts, each) in enumerate(chosen):
        folder = tmp_path / str(number)
        commands = searches[hosts].write(folder, each)
        assert ("ttkit run" in commands) == (each.layout.pp * hosts > 1)
        settings = planned_alike(each, folder / "train.yaml", "t3000")
        sizes = settings.training_config.batch_size, settings.transformer_config.embedding_dim
        assert sizes == (16, TINY.embedding_dim)
        if "ttkit run" in commands:
            assert [f for f in lint_path(folder) if f.severity == "error"] == []
        if (folder / "rank_bindings.yaml").exists():
            ranks = read_bindings(folder / "rank_bindings.yaml").rank_bindings
            assert len(ranks) == each.layout.pp * each.place.replicas


def test_experts_over_hosts_are_shared_on_each(tmp_path):
    config = replace(TINY, num_experts=4, experts_per_token=2)
    found = plan_layouts(config, "n300", 16, hosts=2)
    chosen = [each for each in found.fitting if each.layout.ep > 1]
    assert {each.layout.ep for each in chosen} == {2} and any(e.layout.dp == 4 for e in chosen)
    for number, each in enumerate(chosen):
        found.write(tmp_path / str(number), each)
        planned_alike(each, tmp_path / str(number) / "train.yaml", "n300")


def test_what_cannot_run_and_what_is_there_is_not_written(searches, tmp_path, capsys):
    found = searches[1]
    found.write(tmp_path / "a", found.best)
    with pytest.raises(TTKitError, match=r"it has train.yaml"):
        found.write(tmp_path / "a", found.best)
    with pytest.raises(TTKitError, match="write"):
        found.write(tmp_path / "b", found.refused[0])
    command = ["plan", "--model", "configs/models/nanogpt.yaml", "--system", "n300"]
    command += ["--batch", "4", "--sequence", "64"]
    assert cli.main([*command, "--write", str(tmp_path / "c")]) == 0
    train = f"ttkit train --config {tmp_path / 'c' / 'train.yaml'}"
    run = f"ttkit run --config {tmp_path / 'c'} {train}"  # a pipeline
    assert f"{train} --plan --system n300\nTTKIT_SYSTEM=n300 {run}" in capsys.readouterr().out
    own = plan_layouts(TINY, replace(SYSTEMS["n300"], name="two of mine"), batch=16)
    assert own.write(tmp_path / "d").startswith(train.replace("/c/", "/d/") + " --plan\nttkit")
    assert Layout.of(read_settings(tmp_path / "c" / "train.yaml")).chips == 2
    assert cli.main([*command, "--mode", "inference", "--write", str(tmp_path / "d")]) == 1


def trained(found, each, folder):
    """Run two steps of a folder as its user does, on this host, and return what it prints."""
    lines = found.write(folder, each).splitlines()
    hosts = folder / "hosts.txt"
    if hosts.exists():
        slots = sum(map(int, re.findall(r"^[^#].*slots=(\d+)", hosts.read_text(), re.M)))
        hosts.write_text(f"localhost slots={slots}\n")
    file = folder / "train.yaml"
    changed = "training_config:\n  max_steps: 2\n  eval_every: 0\n  checkpoint_dir: ''\n"
    file.write_text(file.read_text().replace("training_config:\n", changed))
    words = [str(BIN / word) if word == "ttkit" else word for word in shlex.split(lines[1])]
    done = subprocess.run(["env", *words], capture_output=True, text=True, timeout=300, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@needs_mpirun
def test_a_run_from_its_folder(searches, tmp_path, capsys):
    found = searches[1]
    each = next(each for each in found.fitting if each.layout.pp == 2 and each.layout.tp == 2)
    plain = replace(each.layout, schedule="1f1b", chunks=1, micro_batches=4)
    pipelines = [plain, replace(plain, schedule="interleaved", chunks=2)]
    pipelines = [each._replace(layout=layout) for layout in pipelines]
    for number, run in enumerate([found.find("DP2 TP4 ZeRO-3"), *pipelines]):
        assert "step 2/2: loss" in trained(found, run, tmp_path / f"run {number}")
    config = ["--config", str(tmp_path / "run 1/train.yaml")]
    assert cli.main(["train", "--plan", *config, "--system", "t3000"]) == 0
    assert "bubble" in capsys.readouterr().out
    # and without --plan it is a pipeline, whose stages are ranks
    assert cli.main(["train", *config]) == 1
    assert "must equal multihost_config.num_workers" in capsys.readouterr().err


@needs_mpirun
@pytest.mark.long
@pytest.mark.parametrize("number", range(10))
def test_each_runs(searches, number, tmp_path):
    hosts, each = runs(searches)[number]
    assert "step 2/2: loss" in trained(searches[hosts], each, tmp_path / "run")
