"""The trainer and its mesh: shared by ranks, it gives the same model as in one process; refused,
it is closed again.
"""

import os
import signal
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from ttkit import Cluster, TTKitError
from ttkit.train import Trainer
from ttkit.train.config.settings import (
    DeviceConfig,
    LayoutConfig,
    Settings,
    TrainingConfig,
    TransformerConfig,
)

MODEL = TransformerConfig(
    num_heads=4, embedding_dim=32, num_blocks=1, max_sequence_length=32, dropout_prob=0
)
TRAINING = TrainingConfig(
    batch_size=4, max_steps=2, tokenizer_type="byte", checkpoint_dir="", eval_every=0,
    use_clip_grad_norm=True,
)  # fmt: skip


# Each rank multiplies the rows of its own chips, so that BLAS gets other shapes than in one process
# and may add in another order. No product has an inner dimension above 256 (the vocabulary): a loss
# is off by at most 256 roundings of 2**-24. Weights follow, by less than a step of AdamW.
ROUNDING, STEP = 256 * 2**-24, TRAINING.learning_rate


def trained(settings):
    """The losses, and one weight that is cut and one that is not."""
    with Trainer(settings) as trainer:
        losses = [record.loss for record in trainer.fit(show=False)]
        up = "experts.up" if settings.transformer_config.num_experts else "up.weight"
        names = (f"blocks.0.{up}", "norm.weight")
        return losses, [trainer.parameters[name].gather() for name in names]


DATA_AND_TENSOR = DeviceConfig((2, 4), enable_ddp=True, enable_tp=True)
WIDE = replace(MODEL, embedding_dim=128, max_sequence_length=128)  # in whole tiles
EXPERTS = {"expert_parallel": True}, replace(MODEL, num_experts=4)
LINE = DeviceConfig((1, 4), enable_ddp=True)
RING = DeviceConfig((2, 4), enable_cp=True, enable_tp=True)
GROUPS_OF_RINGS = DeviceConfig((2, 4), enable_ddp=True, enable_cp=True)
LONG_ONES = {"max_sequence_length": 256}
LONG = replace(MODEL, **LONG_ONES)
LAYOUTS = {
    "t3000_2ranks": {
        "buckets": (DATA_AND_TENSOR, {"bucket_mb": 25}, MODEL),
        "ZeRO 3": (DATA_AND_TENSOR, {"zero": 3, "sequence_parallel": True}, WIDE),
        "a ring between ranks": (RING, {}, WIDE),
        "a ring on each rank": (GROUPS_OF_RINGS, {"zero": 3}, replace(WIDE, **LONG_ONES)),
        "experts": (DATA_AND_TENSOR, *EXPERTS),
    },
    "quietbox_4ranks": {
        "ZeRO 2": (LINE, {"zero": 2}, WIDE),
        "a ring of ranks": (DeviceConfig((1, 4), enable_cp=True), {}, LONG),
    },
}


@pytest.fixture(scope="module")
def two():
    """Two ranks for all tests: to start them takes longer than to train."""
    with Cluster("configs/t3000_2ranks") as cluster:
        yield cluster


def check_layouts(cluster, layouts):
    for name, (device, layout, model) in layouts.items():
        settings = Settings(
            device,
            replace(TRAINING, batch_size=8),
            transformer_config=model,
            layout=LayoutConfig(**layout),
        )
        alone = trained(settings)
        first, *others = cluster.run(trained, settings)
        # all get the sums that all ranks added up: the same bits
        assert all(first[0] == other[0] for other in others), name
        np.testing.assert_allclose(first[0], alone[0], rtol=ROUNDING, err_msg=name)
        for other in others:
            for mine, theirs in zip(first[1], other[1], strict=True):
                np.testing.assert_array_equal(mine, theirs, err_msg=name)
        for mine, wanted in zip(first[1], alone[1], strict=True):
            np.testing.assert_allclose(mine, wanted, atol=STEP / 10, err_msg=name)


def test_two_ranks_and_one_process_agree(two):
    check_layouts(two, LAYOUTS["t3000_2ranks"])


@pytest.mark.long
def test_four_ranks_and_one_process_agree():
    with Cluster("configs/quietbox_4ranks") as four:
        check_layouts(four, LAYOUTS["quietbox_4ranks"])


def history(settings):
    """The losses of a run from its first step, which may have been in another process."""
    with Trainer(settings) as trainer:
        trainer.fit(show=False)
        return [record.loss for record in trainer.history]


def kill(pid, folder):
    """Kill a process when there is a second checkpoint."""
    while len(list(folder.glob("step_*.safetensors"))) < 2:
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)


def test_a_rank_that_is_killed_is_named_and_the_run_goes_on(two, tmp_path):
    """With ZeRO 3 and experts, of which each rank has others."""
    layout, model = {"zero": 3} | EXPERTS[0], EXPERTS[1]
    how = replace(TRAINING, batch_size=8, max_steps=4, model_save_interval=1)
    whole = Settings(DATA_AND_TENSOR, how, transformer_config=model, layout=LayoutConfig(**layout))
    saved = replace(whole, training_config=replace(how, checkpoint_dir=str(tmp_path)))
    wanted = two.run(history, whole)[0]

    threading.Thread(target=kill, args=(two.pid(1), tmp_path), daemon=True).start()
    with pytest.raises(TTKitError, match="rank 1 of 2 was killed by signal 9"):
        two.run(history, saved)
    assert 2 <= max(int(path.stem[5:]) for path in tmp_path.glob("step_*")) <= 4
    two.restart()
    assert two.run(history, saved) == [wanted, wanted]
