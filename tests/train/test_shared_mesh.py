"""The trainer and its mesh: shared by ranks, it gives the same model as in one process; refused, it is closed again."""

from dataclasses import replace

import pytest

from ttkit import Cluster, TTKitError
from ttkit.train import AutoContext, Trainer
from ttkit.train.config import DeviceConfig, Settings, TrainingConfig, TransformerConfig

MODEL = TransformerConfig(num_heads=4, embedding_dim=32, num_blocks=1, max_sequence_length=32, dropout_prob=0)
TRAINING = TrainingConfig(batch_size=4, max_steps=2, tokenizer_type="byte", checkpoint_dir="", eval_every=0, use_clip_grad_norm=True)


def trained(settings):
    """The losses, and the numbers of one weight that is cut and of one that is not."""
    with Trainer(settings) as trainer:
        losses = [record.loss for record in trainer.fit(show=False)]
        names = ("blocks.0.up.weight", "norm.weight")
        return losses, [float(trainer.parameters[name].gather().sum()) for name in names]


def test_two_ranks_and_one_process_agree():
    settings = Settings(device_config=DeviceConfig((2, 4), enable_ddp=True, enable_tp=True), training_config=TRAINING, transformer_config=MODEL)
    alone = trained(settings)
    with Cluster("configs/t3000_2ranks") as cluster:
        assert cluster.run(trained, settings) == [alone, alone]


def test_a_trainer_that_is_refused_leaves_no_mesh_open():
    with pytest.raises(TTKitError, match="num_heads must be divisible"):
        Trainer(Settings(DeviceConfig((1, 4), enable_tp=True), TRAINING, transformer_config=replace(MODEL, num_heads=2)))
    assert not AutoContext.get_instance().is_device_open()
