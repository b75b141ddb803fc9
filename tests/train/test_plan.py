"""A training plan: published parameter counts, the flagship's tables, what does not fit.

That it is what a step does: tests/layouts/test_step.py."""

import dataclasses
import pathlib

import numpy as np
import pytest
from train.runs import small

from ttkit import TTKitError
from ttkit import __main__ as cli
from ttkit.train import read_settings
from ttkit.train.config.layout import Layout
from ttkit.train.config.settings import DeviceConfig, Settings, TrainingConfig
from ttkit.train.model.models import create_model
from ttkit.train.plan import training_plan

ROOT = pathlib.Path(__file__).parents[2]
FLAGSHIP = ROOT / "configs/training/training_llama8b_tp_ddp_galaxy.yaml"


def model(name):
    return read_settings(ROOT / f"configs/models/{name}.yaml").transformer_config


# The counts of the model cards, with as many digits as they give, and of the checkpoints.
PUBLISHED = {
    "gpt2-small": (124.4e6, 124_439_808),
    "tinyllama": (1.1e9, 1_100_048_384),
    "llama8b": (8.03e9, 8_030_261_248),
    "llama70b": (70.6e9, 70_553_706_496),
    "mixtral8x7b": (46.7e9, 46_702_792_704),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_parameter_counts(name):
    parameters = create_model(model(name), Layout()).parameters().values()
    count, (about, exact) = sum(int(np.prod(p.global_shape)) for p in parameters), PUBLISHED[name]
    assert count == exact and abs(count / about - 1) < 0.005


def run_of(device=None, training=None, **sizes):
    base = {"num_groups": 2, "embedding_dim": 128, "vocab_size": 100, "max_sequence_length": 64}
    training = TrainingConfig(**{"batch_size": 4} | (training or {}))
    model = small(**(base | sizes))
    return Settings(device or DeviceConfig(), training, transformer_config=model)


MESHES = {
    "TP": DeviceConfig((1, 2), enable_tp=True),
    "DDP and TP": DeviceConfig((4, 2), enable_ddp=True, enable_tp=True),
}


def test_the_flagship():
    plan = training_plan(read_settings(FLAGSHIP), "galaxy")
    assert (plan.parameters, str(plan.layout)) == (8_030_261_248, "DP4 TP8 recompute")
    assert {traffic.plan.axis for traffic in plan.traffic if traffic.what.startswith("TP")} == {1}
    text = repr(plan)
    assert "on a 4x8 mesh of galaxy" in text
    assert "4x8 is opened as the transpose of the 8x4" in text
    assert "8,030,261,248" in text
    assert all(
        word in plan._repr_html_()
        for word in ("DDP gradients", "TP forward", "TP backward", "of DRAM", "note: 4x8")
    )


def test_it_says_what_fits_and_what_to_try():
    """The kit's default is float32; ttml trains in bfloat16 without float32 weights beside, and
    so the guide's run fits on its Galaxy.
    """
    settings = read_settings(FLAGSHIP)
    bfloat16 = dataclasses.replace(
        settings.training_config,
        precision="bfloat16",
        optimizer={"type": "AdamW", "master_weights": False},
    )
    plan, as_ttml = (
        training_plan(settings, "galaxy"),
        training_plan(dataclasses.replace(settings, training_config=bfloat16), "galaxy"),
    )
    assert not plan.fits and as_ttml.fits
    *_, last = plan.notes()
    assert "it does not fit; with precision: bfloat16 and optimizer: {type: AdamW, master_" in last
    assert "memory of a chip, does not fit" in repr(plan)
    assert not any("fit" in note for note in as_ttml.notes())


def test_memory_efficient_keeps_less_and_computes_more():
    usual, lean = (
        training_plan(run_of(MESHES["TP"], runner_type=kind))
        for kind in ("default", "memory_efficient")
    )
    assert (
        lean.memory["activations"] < usual.memory["activations"]
        and lean.cost.flops > usual.cost.flops
    )
    reduces = [sum(t.times for t in plan.traffic if "ward" in t.what) for plan in (lean, usual)]
    # two more in each of two blocks, whose forward runs again in the backward
    assert reduces[0] == reduces[1] + 2 * 2


def test_accumulated_batches():
    in_parts = lambda n: run_of(  # noqa: E731
        MESHES["DDP and TP"], {"batch_size": 8, "gradient_accumulation_steps": n}
    )
    one, two = (training_plan(in_parts(n), "galaxy") for n in (1, 2))
    # the same batch, cut as the Trainer cuts it
    assert two.cost.flops == one.cost.flops
    assert two.memory["activations"] < one.memory["activations"]
    assert two.memory["weights"] == one.memory["weights"]
    assert {t.what: t.times for t in two.traffic if t.what == "DDP gradients"} == {
        t.what: t.times for t in one.traffic if t.what == "DDP gradients"
    }
    assert two.traffic[0].times == 2 * one.traffic[0].times
    assert two.traffic[0].bytes_sent == one.traffic[0].bytes_sent
    with pytest.raises(TTKitError, match="dp 4 x micro_batches 3 do not divide batch 8"):
        training_plan(in_parts(3), "galaxy")


@pytest.mark.parametrize(
    "optimizer, precision, times",  # of the weights' bytes
    [
        (None, "float32", 2), (None, "bfloat16", 6), ({"type": "AdamW", "master_weights": False}, "bfloat16", 2), ({"type": "SGD"}, "float32", 0),
        ({"type": "SGD", "momentum": 0.9}, "bfloat16", 1),
    ],
)  # fmt: skip
def test_optimizers(optimizer, precision, times):
    plan = training_plan(run_of(training={"optimizer": optimizer, "precision": precision}))
    assert plan.memory["optimizer"] == times * plan.memory["weights"]


REFUSED = {
    "tp 8 does not divide num_heads 4": DeviceConfig((1, 8), enable_tp=True),
    r"MeshShape\(\[8\]\) must have 2 dimensions": DeviceConfig((8,), enable_ddp=True),
}


@pytest.mark.parametrize("message", REFUSED)
def test_refused(message):
    with pytest.raises(TTKitError, match=message):
        str(training_plan(run_of(REFUSED[message]), "t3000"))


def test_the_command(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert cli.main(["train", "--plan", "--config", str(FLAGSHIP), "--system", "galaxy"]) == 0
    assert capsys.readouterr().out == repr(training_plan(read_settings(FLAGSHIP), "galaxy")) + "\n"
    assert cli.main(["train", "--plan", "--config", str(FLAGSHIP), "--system", "t3000"]) == 1
    assert "requires 32 devices, but only 8 devices are available" in capsys.readouterr().err
    assert cli.main(["train", "--plan", "--config", "nowhere.yaml"]) == 1
    assert "Configuration file not found: nowhere.yaml" in capsys.readouterr().err


def test_without_plan_it_trains(tmp_path, capsys):
    file = tmp_path / "tiny.yaml"
    file.write_text(
        "training_config: {batch_size: 4, max_steps: 2, tokenizer_type: byte, checkpoint_dir: "
        "'', eval_every: 0}\n"
        "transformer_config: {num_heads: 2, embedding_dim: 64, num_blocks: 1, "
        "max_sequence_length: 32, dropout: 0.0}\n"
        "device_config: {mesh_shape: [2, 2], enable_ddp: true, enable_tp: true}\n"
    )
    assert cli.main(["train", "--config", str(file)]) == 0
    assert "step 2/2" in "".join(capsys.readouterr())
