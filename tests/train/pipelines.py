"""Short training runs of pipelines and of one device, for comparison."""

import contextlib
import functools
import json
from dataclasses import asdict, dataclass, replace

import numpy as np

import ttkit
from ttkit import ttnn
from ttkit.train.config.settings import (
    DeviceConfig,
    LayoutConfig,
    MultihostConfig,
    PipelineParallelConfig,
    Settings,
    TrainingConfig,
    TransformerConfig,
)
from ttkit.train.run import checkpoint
from ttkit.train.run.pipeline import PipelineTrainer
from ttkit.train.run.trainer import Trainer

TEXT = "".join(chr(97 + (i * i + i // 7) % 26) for i in range(4000))
MODEL = TransformerConfig(
    num_heads=2, embedding_dim=32, num_blocks=8, max_sequence_length=32, dropout_prob=0,
    num_groups=2, intermediate_dim=64,
)  # fmt: skip
LLAMA = replace(MODEL, model_type="llama", bias=False)


@dataclass(frozen=True)
class Run:
    """A training run; the same batch size, model and optimizer must give the same numbers in
    every form.
    """

    stages: int = 2
    micro_batches: int = 4
    schedule: str = "1f1b"
    chunks: int = 1
    ddp: int = 1
    tp: int = 1
    model: TransformerConfig = MODEL
    batch: int = 0  # a multiple of micro_batches x ddp unless given
    optimizer: str = "SGD"
    steps: int = 20
    precision: str = "float32"
    clip: float = 0.0
    folder: str = ""
    shares: tuple = ()
    replicas: int = 1
    sockets: str = "mpi"
    zero: int = 0

    @property
    def batch_size(self):
        return self.batch or self.micro_batches * self.ddp * self.replicas

    def settings(self, one_device=False):
        rate = 0.05 if self.optimizer == "SGD" else 1e-3
        training = TrainingConfig(
            batch_size=self.batch_size,
            gradient_accumulation_steps=1 if one_device else self.micro_batches,
            optimizer={"type": self.optimizer, "lr": rate}
            | ({"momentum": 0.9} if self.optimizer == "SGD" else {}),
            learning_rate=rate, max_steps=100, num_epochs=100, tokenizer_type="char",
            checkpoint_dir=self.folder, eval_every=0, precision=self.precision,
            use_clip_grad_norm=bool(self.clip), clip_grad_norm_max_norm=self.clip or 1.0,
        )  # fmt: skip
        if one_device:
            return Settings(training_config=training, transformer_config=self.model)
        shape = (self.ddp, self.tp) if self.ddp > 1 or self.tp > 1 else (1, 1)
        on = {"enable_ddp": self.ddp > 1, "enable_tp": self.tp > 1}
        device = DeviceConfig(shape, enable_pp=self.zero > 0, **on)
        pipeline = PipelineParallelConfig(
            self.model.num_blocks, dict(enumerate(self.shares)), self.schedule, self.chunks
        )
        multihost = MultihostConfig(True, self.stages * self.replicas, self.sockets, pipeline)
        return Settings(
            device_config=device,
            training_config=training,
            multihost_config=multihost,
            transformer_config=self.model,
            layout=LayoutConfig(zero=self.zero),
        )


def write_config(folder, settings, **training):
    """A configuration file of settings that read TEXT and keep their checkpoints in the folder,
    with these fields of the training.
    """
    (folder / "text.txt").write_text(TEXT)
    named = {"checkpoint_dir": str(folder / "checkpoints"), "data_path": str(folder / "text.txt")}
    path = folder / "config.yaml"
    path.write_text(
        json.dumps(
            asdict(
                replace(
                    settings, training_config=replace(settings.training_config, **named, **training)
                )
            )
        )
    )
    return path


def saved(folder):
    """Losses from the log of a folder, and weights from its newest checkpoint."""
    tensors, _ = checkpoint.load(next(iter(checkpoint.checkpoints(folder).values())))
    losses = [json.loads(line)["loss"] for line in (folder / "log.jsonl").read_text().splitlines()]
    return losses, {name: array for name, array in tensors.items() if name.startswith("model/")}


def results(trainer):
    """The weights of a trainer in one process, as a checkpoint has them."""
    return {name: array for name, array in trainer.collected().items() if name.startswith("model/")}


def fitted(trainer, steps):
    """The losses of some steps, and the weights after them."""
    return [record.loss for record in trainer.fit(steps, show=False)], results(trainer)


@functools.cache
def on_one_device(model, batch_size, optimizer, steps, clip=0.0, precision="float32"):
    """Losses and weights of the same training on one device, the batch whole."""
    run = Run(model=model, batch=batch_size, optimizer=optimizer, clip=clip, precision=precision)
    with Trainer(run.settings(one_device=True), text=TEXT) as trainer:
        return fitted(trainer, steps)


def wanted(run):
    return on_one_device(
        run.model, run.batch_size, run.optimizer, run.steps, run.clip, run.precision
    )


@contextlib.contextmanager
def pipelined(settings, text=TEXT):
    """The trainer of a pipeline in one process, whose stages are submeshes of a T3000, or of a
    Galaxy where they are more chips.
    """
    shape, stages = settings.device_config.mesh_shape, settings.multihost_config.num_workers
    few = np.prod(shape) * stages <= 8
    ttkit.use_system("t3000" if few else "galaxy")
    with ttnn.open_mesh_device(ttnn.MeshShape(*((2, 4) if few else (8, 4)))) as mesh:
        meshes = mesh.create_submeshes(ttnn.MeshShape(*shape))[:stages]
        yield PipelineTrainer(settings, meshes=meshes, text=text)


def in_one_process(run):
    """Losses and weights of a run over submeshes."""
    with pipelined(run.settings()) as trainer:
        return fitted(trainer, run.steps)


def far(have, want, rtol=1e-5, atol=1e-7):
    """The names of the arrays that differ by more than rounding, and how far."""
    assert have.keys() == want.keys()
    distances = {
        name: np.linalg.norm((have[name] - want[name]).astype(np.float64)) for name in want
    }
    return {
        name: d
        for name, d in distances.items()
        if not d <= rtol * np.linalg.norm(want[name]) + atol
    }


SAME = ([], {})


def differences_between(have, want, rtol=1e-5):
    """The pairs of losses that differ by more than rounding, and the distances of such weights."""
    pairs = zip(have[0], want[0], strict=True)
    losses = [pair for pair in pairs if not np.isclose(*pair, rtol=rtol, atol=1e-7)]
    return losses, far(have[1], want[1])


def differences(run, found=None):
    """What is not as on one device: losses, weights."""
    have, want = found or in_one_process(run), wanted(run)
    if run.optimizer != "AdamW":
        return differences_between(have, want)
    return differences_between((have[0], {}), (want[0], {}), 1e-4)
