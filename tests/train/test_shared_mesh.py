"""The trainer and its mesh: shared by ranks, it gives the same model as in one process; refused,
it is closed again.
"""

from dataclasses import replace

import numpy as np
import pytest

from ttkit import Cluster, TTKitError
from ttkit.train import AutoContext, Trainer
from ttkit.train.config import DeviceConfig, Settings, TrainingConfig, TransformerConfig

MODEL = TransformerConfig(
    num_heads=4, embedding_dim=32, num_blocks=1, max_sequence_length=32, dropout_prob=0
)
TRAINING = TrainingConfig(
    batch_size=4,
    max_steps=2,
    tokenizer_type="byte",
    checkpoint_dir="",
    eval_every=0,
    use_clip_grad_norm=True,
)


# Each rank multiplies the rows of its own chips, so that BLAS gets other shapes than in one process
# and may add in another order. No product has an inner dimension above 256 (the vocabulary): a loss
# is off by at most 256 roundings of 2**-24. Weights follow, by less than a step of AdamW.
ROUNDING, STEP = 256 * 2**-24, TRAINING.learning_rate


def trained(settings):
    """The losses, and one weight that is cut and one that is not."""
    with Trainer(settings) as trainer:
        losses = [record.loss for record in trainer.fit(show=False)]
        names = ("blocks.0.up.weight", "norm.weight")
        return losses, [trainer.parameters[name].gather() for name in names]


LAYOUTS = {
    "ddp x tp": ({"enable_ddp": True, "enable_tp": True}, 32),
    "cp, between ranks, x tp": ({"enable_cp": True, "enable_tp": True}, 128),
    "ddp x cp": ({"enable_ddp": True, "enable_cp": True}, 256),
}


@pytest.fixture(scope="module")
def cluster():
    with Cluster("configs/t3000_2ranks") as cluster:
        yield cluster


@pytest.mark.parametrize("layout", LAYOUTS)
def test_two_ranks_and_one_process_agree(cluster, layout):
    enabled, length = LAYOUTS[layout]
    settings = Settings(
        device_config=DeviceConfig((2, 4), **enabled),
        training_config=TRAINING,
        transformer_config=replace(MODEL, max_sequence_length=length),
    )
    alone = trained(settings)
    first, second = cluster.run(trained, settings)
    assert first[0] == second[0]  # both get the sums that all ranks added up: the same bits
    np.testing.assert_allclose(first[0], alone[0], rtol=ROUNDING)
    for mine, theirs, wanted in zip(first[1], second[1], alone[1], strict=True):
        np.testing.assert_array_equal(mine, theirs)
        np.testing.assert_allclose(mine, wanted, atol=STEP / 10)


def test_a_trainer_that_is_refused_leaves_no_mesh_open():
    with pytest.raises(TTKitError, match="num_heads must be divisible"):
        Trainer(
            Settings(
                DeviceConfig((1, 4), enable_tp=True),
                TRAINING,
                transformer_config=replace(MODEL, num_heads=2),
            )
        )
    assert not AutoContext.get_instance().is_device_open()
