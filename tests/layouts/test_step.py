"""The planner's bytes against those of a step that runs on the simulator: memory, collectives."""

import itertools
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from train.runs import quiet
from train.test_together import runs

import ttkit
from ttkit import ttnn
from ttkit.hardware.chips import ELEMENT_BYTES
from ttkit.layouts.costs import LARGE, Memory, memory_of, plan_of, price, stages, traffic
from ttkit.layouts.dry_run import Job
from ttkit.plans import topology
from ttkit.plans.cost import cost
from ttkit.sim.ops import OPERATIONS
from ttkit.sim.tape import tape
from ttkit.sim.tensor.tensor import bytes_in_use
from ttkit.train import PipelineTrainer, Trainer
from ttkit.train.config.layout import Layout, tiled
from ttkit.train.config.settings import (
    DeviceConfig,
    LayoutConfig,
    MultihostConfig,
    PipelineParallelConfig,
    Settings,
    TrainingConfig,
    TransformerConfig,
)
from ttkit.train.plan import training_plan

TEXT = "a little text, " * 3000
# how a profile names them, where plans have another name
PLANS = {"send_async": "shift", "all_to_all_async_generic": "all_to_all"}


def memory(job: Job, layout: Layout) -> Memory:
    """Return the memory of the chip that holds most."""
    return max((memory_of(stage) for stage in stages(job, layout)), key=sum)


def run(on=(), shape=(1, 1), batch=4, layout=None, training=None, **sizes):
    """Settings of a small run; `on` names the strategies of the mesh's axes that are above 1."""
    model = {"num_heads": 4, "num_groups": 2, "embedding_dim": 128, "num_blocks": 3}
    model |= {"max_sequence_length": 64, "dropout_prob": 0.0} | sizes
    how = {"tokenizer_type": "byte", "checkpoint_dir": "", "eval_every": 0, "max_steps": 9}
    return Settings(
        DeviceConfig(shape, **{f"enable_{name}": True for name in on}),
        TrainingConfig(batch_size=batch, **(how | (training or {}))),
        transformer_config=TransformerConfig(**model),
        layout=LayoutConfig(**(layout or {})),
    )


def second_step(trainer):
    """The most bytes that a chip held after an operation of a step, whose operands are alive then,
    and the profile of the step. The first step makes the optimizer's state.
    """
    trainer.step()
    with tape() as calls, ttkit.profile() as profile:
        trainer.step()
    return max(event.in_use for event in calls.events), profile


def sent_by(profile):
    """The bytes on links of a profile and its calls, by collective."""
    sent = Counter()
    for record in profile.records:
        name = record.name.split(".")[-1]
        if record.kind == "communication" and name != "recv_async":  # It is the sender's.
            name = PLANS.get(name, name)
            sent.update({name: record.bytes_on_links, f"calls of {name}": 1})
    return sent


def planned_by(traffic):
    """The same of what a plan sends."""
    sent = Counter()
    for each in traffic:
        name = each.collective
        sent.update({name: each.times * each.plan.total_bytes, f"calls of {name}": each.times})
        assert each.time_s == pytest.approx(each.times * cost(each.plan).time_s)
    return sent


def check(settings):
    """Memory, collectives and flops of `training_plan` are those of a step."""
    ttkit.use_system("galaxy")
    with Trainer(settings, text=TEXT) as trainer:
        most, profile = second_step(trainer)
        size = ELEMENT_BYTES[settings.training_config.precision]
        weights = sum(tiled(p._value.shape) * size for p in trainer.parameters.values())
        optimizer = sum(
            tiled(v.shape) * {"FLOAT32": 4, "BFLOAT16": 2}[v.dtype.name]
            for v in trainer.optimizer.state.values()
        )
        settings = replace(settings, transformer_config=trainer.model_config)
    plan = training_plan(settings, "galaxy")
    assert (plan.memory["weights"], plan.memory["optimizer"]) == (weights, optimizer)
    assert sum(plan.memory.values()) == pytest.approx(most, rel=0.02)
    assert planned_by(plan.traffic) == sent_by(profile)
    products = (each for each in profile.records if OPERATIONS[each.name].kind == "product")
    assert plan.cost.flops == sum(each.flops for each in products)


BF16, PARTS = {"precision": "bfloat16"}, {"gradient_accumulation_steps": 2}
LLAMA, AGAIN = {"model_type": "llama"}, {"runner_type": "memory_efficient"}
MOE, BIG = {"num_experts": 4}, {"embedding_dim": 256}
SP, EP = {"sequence_parallel": True}, {"expert_parallel": True}
ZERO = [{"zero": stage} for stage in range(4)]
CLIP, MOMENTUM = {"use_clip_grad_norm": True}, {"optimizer": {"type": "SGD", "momentum": 0.9}}
AT = {length: {"max_sequence_length": length} for length in (40, 128, 256, 512)}
RUNS = {
    "one chip, one block": run(num_blocks=1),
    "tied, clipped, dropout": run(training=CLIP, weight_tying="enabled", dropout_prob=0.1),
    "DDP, bfloat16": run(["ddp"], (4, 1), 8, training=BF16 | PARTS),
    "TP, recomputed, not in tiles": run(["tp"], (1, 4), **AT[40], **AGAIN),
    "DDP and TP, momentum": run(["ddp", "tp"], (2, 4), training=MOMENTUM),
    "buckets": run(["ddp"], (4, 1), layout={"bucket_mb": 0.5}),
    "ZeRO-1": run(["ddp", "tp"], (2, 2), 8, ZERO[1], BF16 | PARTS, **LLAMA),
    "ZeRO-3 and SP": run(["ddp", "tp"], (2, 2), 4, ZERO[3] | SP, num_blocks=4, **AGAIN),
    "CP, TP and SP": run(["cp", "tp"], (2, 2), 4, SP, **AT[256], **LLAMA),
    "ZeRO-3 over CP": run(["cp", "tp"], (2, 2), 4, ZERO[3], PARTS, **AT[256], **LLAMA),
    "ZeRO-2 over DP and CP, clipped": run(["ddp", "cp"], (2, 4), 4, ZERO[2], CLIP, **AT[256]),
    "TP8 and SP": run(["tp"], (1, 8), 2, SP, PARTS, num_heads=8, **AT[256]),
    "CP8, recomputed": run(["cp"], (1, 8), 2, **AT[512], **AGAIN),
    "EP8": run(["ddp"], (1, 8), 16, EP, num_experts=8),
    "32 chips: DP8, TP4, ZeRO-3, SP": run(
        ["ddp", "tp"], (8, 4), 16, ZERO[3] | SP, PARTS, **AT[128], **AGAIN
    ),
    "32 chips: CP8, TP4, ZeRO-1": run(
        ["cp", "tp"], (8, 4), 2, ZERO[1], num_heads=8, **AT[512], **BIG
    ),
    "positions that ZeRO-3 cuts": run(["ddp"], (1, 4), 8, ZERO[3], embedding_dim=64, **AT[128]),
    "experts and ZeRO-2": run(["ddp", "tp"], (2, 2), 8, EP | ZERO[2], PARTS, **MOE, **LLAMA),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_step_is_as_planned(name):
    check(RUNS[name])


@pytest.mark.parametrize(
    "schedule, count, parts, on, shape, layout, tied",
    [
        ("1f1b", 4, 6, [], (1, 1), {}, False),
        # The first backward is the highest.
        ("1f1b", 2, 2, ["ddp", "tp"], (2, 2), {"zero": 1}, False),
        ("1f1b", 2, 3, ["ddp"], (1, 2), {"zero": 3}, False),
        ("gpipe", 2, 4, [], (1, 1), {}, False),
        ("one_at_a_time", 2, 4, ["tp"], (1, 2), {"sequence_parallel": True}, False),
        ("1f1b", 2, 4, ["ddp", "tp"], (2, 2), {"zero": 1}, True),
        ("gpipe", 4, 4, ["ddp", "cp"], (2, 2), {"zero": 3}, True),
        ("interleaved", 2, 2, [], (1, 1), {}, True),
        ("1f1b", 2, 5, ["tp"], (1, 2), {}, False),  # Stages of four blocks and one.
        ("interleaved", 2, 4, ["tp"], (1, 2), {}, False),
        ("interleaved", 2, 8, ["ddp", "tp"], (2, 2), {"zero": 2}, True),
    ],
)
def test_stages_of_a_pipeline(schedule, count, parts, on, shape, layout, tied):
    training = {"gradient_accumulation_steps": parts}
    sizes = {"num_blocks": 5, "weight_tying": tied} | AT[128]
    settings = run(["pp", *on], shape, 2 * parts * 2, layout, training, **sizes)
    pipeline = PipelineParallelConfig(num_blocks=5, schedule=schedule)
    if schedule == "interleaved":
        pipeline = replace(pipeline, chunks_per_rank=2)
    if parts == 5:
        pipeline = replace(pipeline, blocks_per_rank={0: 4, 1: 1})
    hosts = MultihostConfig(enabled=True, num_workers=count, pipeline_parallel_config=pipeline)
    settings = replace(settings, multihost_config=hosts)
    ttkit.use_system("galaxy")
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_2D)
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(8, 4))
    meshes = mesh.create_submeshes(ttnn.MeshShape(*shape))[:count]
    with PipelineTrainer(settings, meshes=meshes, text=TEXT) as trainer:
        most, profile = second_step(trainer)
        config = trainer.model_config
    ttnn.close_mesh_device(mesh)
    train, planned = settings.training_config, Layout.of(settings)
    job = Job(config, train.batch_size, config.max_sequence_length, train)
    assert memory(job, planned).total == pytest.approx(most, rel=0.02)
    there, axes = topology("galaxy", shape), dict(planned.axes)
    every = (traffic(stage, there, axes) for stage in stages(job, planned))
    assert planned_by(itertools.chain(*every)) == sent_by(profile)


def planned(run):
    """Whether a run's layout is one of those that are planned."""
    model = run.transformer_config
    sizes = run.training_config.batch_size, model.max_sequence_length
    return not Layout.of(run).why_not(model, *sizes)


RANDOM = runs(8, [1]).filter(planned), st.sampled_from(["float32", "bfloat16"])


def check_random(run, precision):
    check(replace(run, training_config=replace(run.training_config, precision=precision)))


@settings(max_examples=2, **quiet)
@given(*RANDOM)
def test_random_layouts(run, precision):
    check_random(run, precision)


@pytest.mark.long
@settings(max_examples=60, **quiet)
@given(*RANDOM)
def test_sixty_random_layouts(run, precision):
    check_random(run, precision)


def test_a_plan_beside_a_run():
    """The dry run leaves the tapes, the last plan and the memory of open meshes as they were."""
    config = TransformerConfig(num_heads=2, embedding_dim=64, num_blocks=2, dropout_prob=0.0)
    job, layout = Job(config, 4, 96, TrainingConfig()), Layout(tp=2)
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    with ttnn.open_mesh_device(ttnn.MeshShape(2, 4)) as mesh, ttkit.profile() as profile:
        x = ttnn.ones([32, 32], dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh)
        y = ttnn.all_gather(x, 1, cluster_axis=1)
        before = bytes_in_use(), ttkit.last_plan()
        memory(job, layout)
        assert (bytes_in_use(), ttkit.last_plan()) == before
        ttnn.exp(y)
    assert [record.name for record in profile.records] == ["ones", "all_gather", "exp"]


def test_the_price_of_a_large_collective_is_its_plans():
    there = topology("galaxy", (8, 4))
    for name in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "shift"):
        for axis, nbytes in ((0, 3 * LARGE), (1, 5 * LARGE // 2)):
            plan = plan_of(name, there, axis, nbytes)
            sent, time_s = price(name, there, axis, nbytes)
            assert sent == max(plan.bytes_sent.values())
            assert time_s == pytest.approx(cost(plan).time_s)
