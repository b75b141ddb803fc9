"""Pipeline training: the numbers of one device, for every schedule, cut and layout."""

import itertools
import json
import pathlib
import re
import time
from dataclasses import asdict, replace

import numpy as np
import pytest
from started import launched
from train.pipelines import (
    LLAMA,
    MODEL,
    SAME,
    TEXT,
    Run,
    differences,
    differences_between,
    fitted,
    in_one_process,
    pipelined,
    saved,
    write_config,
)
from train.runs import refused

from ttkit import TTKitError, ttnn
from ttkit.plans import one_f_one_b
from ttkit.train.config.settings import LayoutConfig, MultihostConfig, split_blocks
from ttkit.train.model.modules import HEAD, TABLE
from ttkit.train.run.pipeline import PipelineTrainer
from ttkit.train.run.trainer import Trainer

HERE = pathlib.Path(__file__).resolve().parent
TIED = replace(MODEL, weight_tying="enabled")
TIED_FOUR = replace(TIED, num_blocks=4)
TIED_LLAMA = replace(LLAMA, weight_tying="enabled")
FOUR = replace(MODEL, num_blocks=4)
INSIDE = [(1, 1), (2, 1), (1, 2), (2, 2)]  # data parallel, tensor parallel


def every_run():
    """Every schedule x stages x micro-batches x what is inside a stage."""
    for stages, parts, (ddp, tp) in itertools.product((2, 3, 4), range(1, 9), INSIDE):
        for name in ("one_at_a_time", "gpipe", "1f1b"):
            yield Run(stages, parts, name, ddp=ddp, tp=tp)
        if parts % max(1, parts // stages) == 0:
            yield Run(stages, parts, "interleaved", chunks=2, ddp=ddp, tp=tp)


def named(run):
    inside = f"p{run.stages}-m{run.micro_batches}-dp{run.ddp}-tp{run.tp}-x{run.replicas}"
    model = f"{run.model.model_type}{run.model.num_blocks}-{run.model.weight_tying}"
    return f"{run.schedule}-{inside}-{model}-{run.optimizer}-{run.sockets}-zero{run.zero}"


SOME = [
    Run(2, 1, "one_at_a_time"),
    Run(3, 4, "gpipe", tp=2),
    Run(4, 6, "1f1b"),
    Run(2, 4, "interleaved", chunks=2, ddp=2),
    Run(2, 4, "1f1b", model=LLAMA, ddp=2, tp=2, clip=0.5),
    Run(2, 2, "1f1b", optimizer="AdamW", clip=0.5),
    Run(2, 4, "1f1b", model=TIED, clip=0.5),
    Run(4, 2, "gpipe", model=TIED, tp=2, clip=0.5),
    Run(2, 2, "interleaved", chunks=2, model=TIED_LLAMA, ddp=2, tp=2),
]
SOME = [replace(run, steps=4, model=replace(run.model, num_blocks=4)) for run in SOME]
EVERY = [pytest.param(run, marks=pytest.mark.long) for run in every_run()]


@pytest.mark.parametrize("run", SOME + EVERY, ids=named)
def test_the_numbers_are_those_of_one_device(run):
    assert differences(run) == SAME


def test_dropout_takes_the_elements_that_it_takes_on_one_device():
    model = replace(MODEL, dropout_prob=0.3, num_blocks=4)
    run = Run(2, 4, "gpipe", model=model, steps=3)
    settings = run.settings()
    with Trainer(replace(settings, multihost_config=MultihostConfig()), text=TEXT) as trainer:
        wanted = fitted(trainer, 3)
    assert differences_between(in_one_process(run), wanted) == SAME
    assert differences_between(in_one_process(replace(run, schedule="1f1b")), wanted) == SAME


def test_both_ends_of_a_tied_pipeline_keep_the_same_table():
    """ZeRO and one stage, which has the whole model, too."""
    run = Run(2, 2, model=TIED, ddp=2, tp=2, steps=3)
    for zero, stages in [(1, 2), (3, 2), (0, 1)]:
        ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_2D)
        settings = replace(run, stages=stages).settings()
        with pipelined(replace(settings, layout=LayoutConfig(zero=zero))) as trainer:
            found = fitted(trainer, run.steps)
            tables = [trainer.parameters[name].gather() for name in (TABLE, HEAD)[:stages]]
        assert differences(run, found) == SAME
        np.testing.assert_array_equal(tables[0], tables[-1])


def test_meshes_of_different_shapes():
    """The validation is that of one device, too, and each stage's actions have their times."""
    run = Run(3, 2, batch=8, steps=3)
    with ttnn.open_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
        places = {(1, 2): (0, 0), (2, 1): (0, 2), (1, 1): (0, 3)}
        meshes = [
            mesh.create_submesh(ttnn.MeshShape(*shape), ttnn.MeshCoordinate(*place))
            for shape, place in places.items()
        ]
        settings = run.settings()
        device = replace(settings.device_config, enable_ddp=True)
        trainer = PipelineTrainer(replace(settings, device_config=device), meshes=meshes, text=TEXT)
        found = fitted(trainer, run.steps)
        table, held_out = trainer.timetable(), trainer.validate()
        with pytest.raises(TTKitError, match="a Trainer with the same checkpoint_dir"):
            trainer.sample("a")
    assert differences(run, found) == SAME
    assert [[slot.action for slot in row] for row in table.slots] == [
        list(row) for row in one_f_one_b(3, 2).actions
    ]
    for row in table.slots:
        assert all(slot.start_s <= slot.end_s for slot in row)
        assert all(a.end_s <= b.start_s for a, b in itertools.pairwise(row))
    assert table.slots[0][0].start_s == 0
    with Trainer(run.settings(one_device=True), text=TEXT) as trainer:
        trainer.fit(run.steps, show=False)
        assert trainer.validate() == pytest.approx(held_out, rel=1e-5)


@pytest.mark.parametrize("model", [LLAMA, TIED])
def test_a_checkpoint_goes_on_with_other_stages_on_one_device_and_back(tmp_path, model):
    run = Run(2, 4, model=model, folder=str(tmp_path), optimizer="AdamW", steps=1)
    in_one_process(run)
    in_one_process(replace(run, stages=3, schedule="gpipe"))
    with Trainer(replace(run.settings(), multihost_config=MultihostConfig()), text=TEXT) as trainer:
        trainer.fit(1, show=False)
    losses, weights = in_one_process(replace(run, stages=4))
    logged = [
        json.loads(line)["loss"] for line in (tmp_path / "log.jsonl").read_text().splitlines()
    ]
    assert logged[-1:] == losses
    assert differences(replace(run, steps=4, folder=""), (logged, weights)) == SAME
    with pytest.raises(TTKitError, match="its num_blocks is 8, the configuration says 7"):
        in_one_process(replace(run, model=replace(model, num_blocks=7)))


def test_a_step_that_is_given_up_is_not_gone_on_from(monkeypatch):
    with pipelined(Run().settings()) as trainer:

        def interrupt(*_):
            raise KeyboardInterrupt

        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(trainer.stages[0], "backward", interrupt)
            trainer.step()
        with pytest.raises(TTKitError, match="stopped before its end"):
            trainer.step()


@pytest.mark.parametrize(
    "run, multihost, words",
    [
        (Run(), MultihostConfig(), "num_workers (1)"),
        (Run(3), None, "World size (2) must equal multihost_config.num_workers (3)"),
        (Run(schedule="zb_h1"), None, "splits backwards"),
        (Run(chunks=2), None, "schedule: interleaved"),
        (Run(shares=(4, 3)), None, "the parts have [4, 3]"),
        (Run(schedule="interleaved", chunks=5), None, "at least one block"),
        (Run(batch=6), None, "batch_size 6 is not divisible"),
    ],
)
def test_what_does_not_fit_is_reported_before_anything_is_computed(run, multihost, words):
    settings = run.settings()
    settings = replace(settings, multihost_config=multihost or settings.multihost_config)
    with ttnn.open_mesh_device(ttnn.MeshShape(1, 2)) as mesh:
        meshes = mesh.create_submeshes(ttnn.MeshShape(1, 1))
        refused(lambda: PipelineTrainer(settings, meshes=meshes, text=TEXT), words)


def on_ranks(run, folder):
    """Losses and weights of a run on ranks, from its checkpoint and log."""
    run = replace(run, folder=str(folder))
    program = HERE / "ranks" / "pipeline.py", json.dumps(asdict(run))
    done = launched(run.stages * run.replicas, *program)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(re.findall(r"rank \d+ measured", done.stdout)) == run.stages * run.replicas
    return saved(folder)


@pytest.mark.long
@pytest.mark.parametrize("rank", [0, 1])
def test_a_stage_that_is_killed_is_named_and_the_run_goes_on(tmp_path, rank):
    kept, example = tmp_path / "checkpoints", "pipeline_parallel_training"
    run = Run(2, 4, model=replace(MODEL, num_blocks=2), steps=16, folder=str(kept))
    config = write_config(tmp_path, run.settings(), max_steps=run.steps, model_save_interval=4)
    done = launched(2, HERE / "ranks" / "hierarchy.py", config, rank, 9, 0.1 * rank, example)
    took = time.time() - float((tmp_path / "when").read_text())
    assert took < 120, f"{took:.1f} s: {done.stdout}{done.stderr}"
    assert f"rank {rank} of 2 on" in done.stderr and f"as stage {rank} of 2" in done.stderr
    done = launched(2, HERE.parents[1] / "examples" / example / "training.py", "-c", config)
    assert done.returncode == 0, done.stdout + done.stderr
    assert differences(run, saved(kept)) == SAME


ON_RANKS = [
    Run(2, 4, clip=0.5, steps=3, tp=2, replicas=2, batch=8, model=FOUR),
    Run(2, 4, "interleaved", chunks=2, sockets="fabric", tp=2, steps=3, model=FOUR),
    Run(2, 2, "gpipe", ddp=2, replicas=2, shares=(2, 2), steps=3, model=TIED_FOUR),
    Run(2, 2, replicas=2, shares=(2, 2), steps=3, model=TIED_FOUR, zero=1, clip=0.5),
]
MORE = [
    Run(3, 5, "gpipe"),
    Run(4, 8, "1f1b", model=LLAMA),
    Run(4, 4, "interleaved", chunks=2),
    Run(2, 3, "one_at_a_time", replicas=2, optimizer="AdamW"),
    Run(3, 3, "1f1b", sockets="fabric", shares=(2, 3, 3)),
    Run(2, 4, sockets="fabric", ddp=2, tp=2, replicas=2, shares=(4, 4), model=LLAMA, clip=0.5),
    Run(4, 4, model=TIED_LLAMA, tp=2, clip=0.5),
    Run(1, 4, "interleaved", chunks=2, model=TIED),
]
MORE = [pytest.param(run, marks=pytest.mark.long) for run in MORE]


@pytest.mark.parametrize("run", ON_RANKS + MORE, ids=named)
def test_ranks_give_the_numbers_of_one_device(tmp_path, run):
    assert differences(run, on_ranks(run, tmp_path)) == SAME


def test_blocks_are_divided_evenly():
    blocks = split_blocks(replace(MODEL, num_blocks=32), 5)
    assert [len(stage) for stage in blocks] == [7, 7, 6, 6, 6]
    assert list(itertools.chain(*blocks)) == list(range(32))
    for stages, chunks in itertools.product((2, 3, 4), (1, 2)):
        assert list(itertools.chain(*split_blocks(MODEL, stages, chunks=chunks))) == list(range(8))
    parts = split_blocks(MODEL, 2, [5, 3], chunks=2)
    assert parts[0::2] == [range(3), range(5, 7)] and parts[1::2] == [range(3, 5), range(7, 8)]
    with pytest.raises(TTKitError, match="at least one block in each part"):
        split_blocks(MODEL, 2, [7, 1], chunks=2)
