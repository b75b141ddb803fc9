"""Hierarchical training: one device's numbers; a rank that dies is named, and the run goes on."""

import pathlib
import random
import signal
import time
from dataclasses import replace

import pytest
from started import launched
from train.pipelines import LLAMA, MODEL, SAME, Run, differences, saved, write_config

from ttkit import TTKitError
from ttkit.train.config.files import read_settings
from ttkit.train.config.layout import Layout
from ttkit.train.config.settings import LayoutConfig, MultihostConfig
from ttkit.train.model.modules import Parameter, constant
from ttkit.train.run.hierarchy import Exchange, announce_role, role_name

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples/hierarchical_parallel/training.py"
SMALL = replace(MODEL, num_blocks=2)
TIED, LONG = replace(SMALL, weight_tying="enabled"), replace(SMALL, max_sequence_length=64)
WITHIN_S = 120
GUIDE = """
training_config:
  steps: 1000
  batch_size: 32
  gradient_accumulation_steps: 1
  num_epochs: 1
multihost_config:
  enabled: true
  num_workers: 2
  socket_type: fabric
device_config:
  enable_ddp: true
  enable_tp: false
  mesh_shape: [1, 8]
"""


def write(folder, run, workers, **changes):
    """A configuration file of a run; a hierarchical one has no stages."""
    hosts, layout = MultihostConfig(True, workers, run.sockets), LayoutConfig(0, run.tp > 1)
    settings = replace(run.settings(), multihost_config=hosts, layout=layout)
    return write_config(folder, settings, max_steps=run.steps, **changes)


CASES = [
    (3, 2, Run(micro_batches=2, batch=16, ddp=2, tp=2, model=LONG, steps=3, sockets="fabric")),
    (2, 1, Run(micro_batches=1, batch=8, model=TIED, optimizer="AdamW", clip=0.5, steps=3)),
]
CASES += [
    pytest.param(
        tiers,
        workers,
        Run(micro_batches=2, batch=48, ddp=2, model=model, sockets=sockets),
        marks=pytest.mark.long,
    )
    for tiers in (2, 3)
    for workers in (1, 2, 3, 4)
    for model, sockets in ((SMALL, "fabric"), (replace(LLAMA, num_blocks=2), "mpi"))
]


@pytest.mark.parametrize("tiers, workers, run", CASES)
def test_the_numbers_are_those_of_one_device(tmp_path, tiers, workers, run):
    ranks = workers + tiers - 1
    done = launched(ranks, EXAMPLE, "-c", write(tmp_path, run, workers))
    assert done.returncode == 0, done.stdout + done.stderr
    last = "aggregator_optimizer" if tiers == 2 else "aggregator"
    for rank, role in ((0, "worker"), (workers, last)):
        assert f"Rank {rank}/{ranks}: Running as {role} ({tiers}-tier mode)" in done.stdout
    assert differences(run, saved(tmp_path / "checkpoints")) == SAME


DOOMED = Run(micro_batches=2, batch=8, model=SMALL, steps=16)


def stop_a_rank(folder, tiers, rank, number, seconds, environment=None):
    """Run until a rank gets a signal; what was printed. Everyone must be gone in time."""
    path = write(folder, DOOMED, 2, model_save_interval=4)
    doomed = ROOT / "tests/train/ranks/hierarchy.py", path, rank, int(number), seconds
    done = launched(tiers + 1, *doomed, **(environment or {}))
    took = time.time() - float((folder / "when").read_text())
    assert done.returncode != 0 and took < WITHIN_S, (
        f"{took:.1f} s, {done.returncode}: {done.stdout}{done.stderr}"
    )
    return done.stdout + done.stderr


def check_killed(folder, tiers, rank, seconds):
    roles = [role_name(each, tiers + 1, 2) for each in range(tiers + 1)]
    output = stop_a_rank(folder, tiers, rank, signal.SIGKILL, seconds)
    epitaph = output.partition("ttkit run: ")[2]
    named = f"rank {rank} of {len(roles)}", "signal 9", roles[rank]
    assert all(part in epitaph for part in named), output
    done = launched(tiers + 1, EXAMPLE, "-c", folder / "config.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert differences(DOOMED, saved(folder / "checkpoints")) == SAME


def test_a_rank_that_is_killed_is_named_and_the_run_goes_on(tmp_path):
    check_killed(tmp_path, tiers=2, rank=2, seconds=0.03)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(50))
def test_ranks_that_are_killed_at_any_moment(tmp_path, seed):
    chance = random.Random(seed)
    tiers = chance.choice((2, 3))
    check_killed(tmp_path, tiers, chance.randrange(tiers + 1), chance.uniform(0, 0.5))


@pytest.mark.long
def test_a_rank_that_falls_silent_is_named_with_its_role(tmp_path):
    output = stop_a_rank(tmp_path, 3, 1, signal.SIGSTOP, 0.05, {"TTKIT_RANK_TIMEOUT": "8"})
    assert "of rank 1, worker: nothing came in 8 s" in output, output


@pytest.mark.parametrize(("world", "workers"), [(2, 2), (5, 2)])
def test_ranks_that_are_no_tiers_are_refused(world, workers):
    with pytest.raises(TTKitError, match="2-tier"):
        announce_role(0, world, workers)


@pytest.mark.parametrize("layout", [Layout(dp=2, zero=2), Layout(dp=2, ep=2)])
def test_shards_of_gradients_are_refused(layout):
    parameter = Parameter((1, 2, 64, 32), constant(1.0), layout)
    with pytest.raises(TTKitError, match="a worker sends a replica's gradient; with DP2"):
        Exchange({"w": parameter}, 1, "mpi")


def test_roles_by_rank(capsys):
    roles = [announce_role(rank, 3, 2) for rank in range(3)]
    assert roles == ["worker", "worker", "aggregator_optimizer"]
    last = capsys.readouterr().out.splitlines()[2]
    assert last == "Rank 2/3: Running as aggregator_optimizer (2-tier mode)"


def test_the_guides_configuration(tmp_path):
    """002, block 3."""
    path = tmp_path / "guide.yaml"
    path.write_text(GUIDE)
    settings = read_settings(path)
    assert settings.multihost_config == MultihostConfig(True, 2, "fabric")
    layout = Layout.of(settings)
    assert (layout.axes, layout.dp) == ((("dp", 1),), 8)
    assert settings.training_config.max_steps == 1000
