"""A model that trains in a blink, and the meshes that it trains on."""

from dataclasses import replace

from ttkit.train import Trainer, builtin_corpus
from ttkit.train.config.settings import (
    DeviceConfig,
    LayoutConfig,
    SchedulerConfig,
    Settings,
    TrainingConfig,
    TransformerConfig,
)

TEXT = builtin_corpus()[:6000]
MODEL = TransformerConfig(
    num_heads=4, num_groups=4, embedding_dim=32, num_blocks=1, max_sequence_length=16,
    intermediate_dim=64, dropout_prob=0,
)  # fmt: skip
TRAINING = TrainingConfig(
    batch_size=8, max_steps=1000, tokenizer_type="byte", checkpoint_dir="", eval_every=0,
    learning_rate=3e-3, model_save_interval=0,
)  # fmt: skip
DEVICES = {
    "one": DeviceConfig(),
    "DP4": DeviceConfig((1, 4), enable_ddp=True),
    "TP4": DeviceConfig((1, 4), enable_tp=True),
    "DP2xTP2": DeviceConfig((2, 2), enable_ddp=True, enable_tp=True),
}


def tiny(form="one", *, model=None, scheduler=None, zero=0, sp=False, **training):
    """Settings of a run: a name of DEVICES, fields of the model that differ, fields of the
    training that differ.
    """
    devices = DEVICES[form] if isinstance(form, str) else form
    return Settings(
        training_config=replace(TRAINING, **training),
        transformer_config=replace(MODEL, **(model or {})),
        device_config=devices,
        scheduler_config=scheduler or SchedulerConfig(),
        layout=LayoutConfig(zero=zero, sequence_parallel=sp),
    )


def trainer(*args, step=None, text=TEXT, **options):
    """A trainer of a tiny run."""
    return Trainer(tiny(*args, **options), text=text, step=step)


def losses(steps, *args, **options):
    """The losses of the first steps of a run."""
    with trainer(*args, **options) as run:
        return [record.loss for record in run.fit(steps, show=False)]


def weights(run):
    """The global arrays of a trainer's model."""
    return {name: parameter.gather() for name, parameter in run.parameters.items()}
