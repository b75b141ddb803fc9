"""Real ranks under Open MPI train what one process trains: with a mesh each, and as drivers of
one mesh.
"""

import json
import os
import pathlib
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from started import MESH, ONE, launched
from train.runs import latest
from train.tiny import tiny, trainer, weights

import ttkit
from ttkit.train.config.settings import DeviceConfig, Distributed
from ttkit.train.plan import training_plan

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
HYBRID = {"mesh_shape": (2, 4), "enable_ddp": True, "enable_tp": True}


@pytest.fixture
def run(tmp_path):
    """run(ranks, **options): what each rank found; with hosts=(rows, columns), on one mesh that
    they share.
    """

    def call(ranks, hosts=None, fails=False, **options):
        place = None
        if hosts:
            mesh, bindings = tmp_path / "mesh.textproto", tmp_path / "bindings.yaml"
            mesh.write_text(MESH.format(*options["form"]["mesh_shape"], *hosts) + ONE)
            each = [{"rank": rank, "mesh_id": 0, "mesh_host_rank": rank} for rank in range(ranks)]
            given = {"rank_bindings": each, "mesh_graph_desc_path": str(mesh)}
            bindings.write_text(json.dumps(given))
            place = "--rank-binding", bindings
        program = HERE / "ranks" / "training.py", json.dumps(options)
        done = launched(ranks, *program, place=place)
        assert bool(done.returncode) == fails, done.stdout + done.stderr
        if fails:
            return done.stdout + done.stderr
        lines = (line.partition("found ")[2] for line in done.stdout.splitlines())
        found = [json.loads(line) for line in lines if line]
        assert sorted(each["rank"] for each in found) == list(range(ranks)), done.stdout
        for each in found[1:]:  # they agree to the last bit
            assert all(each[what] == found[0][what] for what in ("losses", "sums", "text"))
        call.output, call.states = done.stdout, [each["state"] for each in found]
        return found[0]

    return call


def alone(form, steps, **options):
    ttkit.use_system("t3000")
    with trainer(DeviceConfig(**form) if isinstance(form, dict) else form, **options) as one:
        one.fit(steps, show=False)
        arrays = weights(one).items()
        sums = {name: [float(array.sum()), float((array**2).sum())] for name, array in arrays}
        return {
            "losses": [(record.loss, record.validation_loss or 0) for record in one.history],
            "sums": sums,
            "text": one.sample("The", 5),
        }


def check(found, wanted, rtol=1e-5):
    np.testing.assert_allclose(found["losses"], wanted["losses"], rtol=rtol)
    for name, sums in wanted["sums"].items():
        np.testing.assert_allclose(found["sums"][name], sums, rtol=1e-3, atol=1e-3, err_msg=name)
    assert found["text"] == wanted["text"]


OPTIONS = {"batch_size": 24, "gradient_accumulation_steps": 2, "eval_every": 2}
OPTIONS |= {"use_clip_grad_norm": True, "validation_batch_size": 12}
WIDE = OPTIONS | {"model": {"embedding_dim": 128, "intermediate_dim": 128}}
# AdamW and clipping do not see how long a gradient is; SGD does.
SGD = {"optimizer": {"type": "SGD", "lr": 0.5}, "batch_size": 24}


@pytest.mark.parametrize(
    "ranks, form, options",
    [
        (3, "one", SGD), (2, "DP2xTP2", OPTIONS), (2, "DP2xTP2", WIDE | {"zero": 1}),
        (2, "DP2xTP2", WIDE | {"zero": 3}), (4, "one", WIDE | {"zero": 2}),
    ],
    ids=["SGD", "AdamW", "ZeRO-1", "ZeRO-3", "ZeRO-2"],
)  # fmt: skip
def test_a_mesh_each(run, ranks, form, options):
    found = run(ranks, form=form, replicas=True, **options)
    wanted = alone("one", 4, **options | {"zero": 0})
    check(found, wanted)
    assert wanted["losses"][0][0] - wanted["losses"][-1][0] > 0.01  # it has learned something


@pytest.mark.parametrize("ranks, form, zero", [(2, "DP2xTP2", 1), (2, "one", 3)])
def test_zero_over_ranks_shares_the_optimizers_state(run, ranks, form, zero, tmp_path):
    """Each rank holds what the plan says at most, a checkpoint has all of it, and goes on anywhere."""
    options = WIDE | {"checkpoint_dir": str(tmp_path / "run"), "seed": 7}
    run(ranks, form=form, replicas=True, zero=zero, steps=2, **options)
    hosts = Distributed(True, str(tmp_path / "hosts"), ranks)
    settings = tiny(form, zero=zero, **WIDE)
    model = replace(settings.transformer_config, vocab_size=256)
    plan = training_plan(replace(settings, distributed=hosts, transformer_config=model), "galaxy")
    whole = sum(run.states)
    assert (
        max(run.states) == plan.memory["optimizer"] and whole / 2 <= max(run.states) < 0.6 * whole
    )
    found = run(ranks, form=form, replicas=True, zero=zero, steps=2, **options)
    check(found, alone("one", 4, **WIDE, seed=7))
    with trainer(**options) as one:
        assert one.steps == 4
        one.fit(2, show=False)
        sums = {name: [float(array.sum()), 0] for name, array in weights(one).items()}
    with trainer(**WIDE, seed=7) as other:
        other.fit(6, show=False)
        for name, array in weights(other).items():
            np.testing.assert_allclose(sums[name][0], array.sum(), rtol=1e-3, atol=1e-3)


def test_the_same_model_trained_twice_is_refused(run):
    output = run(2, fails=True, form="one", batch_size=12)
    assert "each would train the same model on the same batches" in output


def test_ctrl_c_on_one_rank_stops_all_after_the_same_step(run, tmp_path):
    options = {"form": HYBRID, "batch_size": 8, "replicas": False, "own_folder": True}
    options |= {"checkpoint_dir": str(tmp_path / "run")}
    assert len(run(2, (1, 2), steps=50, stop=1, **options)["losses"]) == 2
    saved = latest(tmp_path / "run")
    assert "Stopped after step 2. Saved" in run.output
    assert saved.name in run.output
    assert "nothing was saved" not in run.output
    assert not (tmp_path / "run" / "of-rank-1").exists()  # rank 0 writes for all
    found = run(2, (1, 2), steps=2, **options)
    check(found, alone("one", 4, batch_size=8))


def test_what_rank_0_cannot_do_stops_all(run, tmp_path):
    with trainer(checkpoint_dir=str(tmp_path / "run")) as one:
        one.fit(1, show=False)
    options = {"form": "one", "replicas": True, "checkpoint_dir": str(tmp_path / "run")}
    other = run(2, fails=True, **options, tokenizer_type="char")
    assert "its tokenizer_type is byte" in other


ALONE = """
import os
from ttkit.train.parallel.ranks import start_mpi

mpi = start_mpi()
print("sm_segment" in open("/proc/self/maps").read(), mpi.COMM_WORLD.allreduce(3), "OMPI_MCA_btl" in os.environ)
"""


@pytest.mark.skipif(not pathlib.Path("/proc/self/maps").exists(), reason="reads /proc")
def test_a_process_alone_makes_no_file_in_shared_memory():
    env = {name: value for name, value in os.environ.items() if not name.startswith("OMPI_")}
    words = [sys.executable, "-c", ALONE]
    done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.stdout == "False 3 False\n", done.stderr
