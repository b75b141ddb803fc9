"""Ranks that share one mesh train the same model as one process that has all of it."""

from ttkit import Cluster
from ttkit.cluster.settings import DeviceConfig, Settings, TrainingConfig, TransformerConfig

MODEL = TransformerConfig(num_heads=4, embedding_dim=32, num_blocks=1, max_sequence_length=32, dropout_prob=0)
TRAINING = TrainingConfig(batch_size=4, max_steps=2, tokenizer_type="byte", checkpoint_dir="", eval_every=0, use_clip_grad_norm=True)


def trained(settings):
    """The losses, and the numbers of one weight that is cut and of one that is not."""
    from ttkit.train import Trainer

    with Trainer(settings) as trainer:
        losses = [record.loss for record in trainer.fit(show=False)]
        names = ("blocks.0.up.weight", "norm.weight")
        return losses, [float(trainer.parameters[name].gather().sum()) for name in names]


def test_two_ranks_and_one_process_agree():
    settings = Settings(device_config=DeviceConfig((2, 4), enable_ddp=True, enable_tp=True), training_config=TRAINING, transformer_config=MODEL)
    alone = trained(settings)
    with Cluster("configs/t3000_2ranks") as cluster:
        assert cluster.run(trained, settings) == [alone, alone]
