"""The training loop: the same on one chip, on a mesh, and on ranks that each have one."""

from __future__ import annotations

import json
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from ttkit import ttnn
from ttkit.backend import is_simulated
from ttkit.errors import OutOfMemoryError, fail
from ttkit.hardware import current_machine
from ttkit.train import checkpoint, optimizers
from ttkit.train.autograd import Tensor, no_grad
from ttkit.train.config import Settings, TrainingConfig
from ttkit.train.config_files import read_settings
from ttkit.train.context import AutoContext, DistributedConfig
from ttkit.train.corpus import builtin_corpus, read_text, standard_library_text
from ttkit.train.data import Batches, TokenDataset
from ttkit.train.distributed import averaged, one_copy, synchronize_gradients
from ttkit.train.generation import Sampler, generate
from ttkit.train.models import create_model
from ttkit.train.modules import Layout, current_layout
from ttkit.train.plan import state_bytes
from ttkit.train.ranks import Replicas, mean, of_rank_0, start_mpi
from ttkit.train.run_folder import Record, RunFolder, Saved
from ttkit.train.sockets import DistributedContext
from ttkit.train.tokenizers import BPETokenizer, Tokenizer, make_tokenizer, tokenizer_from_dict
from ttkit.words import short

VALIDATION_BATCHES = 50  # at most, each time
# of a model: what a run may go on with otherwise, or shapes show
FREE = {"dropout_prob", "runner_type", "max_sequence_length", "vocab_size"}
SIZES = (
    "embedding_dim",
    "num_blocks",
    "num_groups",
    "intermediate_dim",
    "vocab_size",
    "max_sequence_length",
)
# or a path
TEXTS: dict[str, Callable[[], str]] = {
    "builtin": builtin_corpus,
    "standard_library": standard_library_text,
}


def open_layout(settings: Settings) -> Layout:
    """Open the mesh of a configuration in the AutoContext, unless it is open, and give its axes
    their work.
    """
    context, device = AutoContext.get_instance(), settings.device_config
    if not context.is_device_open():
        context.open_device(device.mesh_shape, device.device_ids)
    opened = tuple(context.get_device().shape)
    if opened != tuple(device.mesh_shape):
        fail(
            "Trainer",
            f"the open device is a {opened} mesh, the configuration's mesh_shape is "
            f"{tuple(device.mesh_shape)}",
            "AutoContext.close_device() first",
        )
    if (device.enable_ddp or device.enable_tp) and not context.is_parallelism_context_initialized():
        context.initialize_parallelism_context(
            DistributedConfig(device.enable_ddp, device.enable_tp)
        )
    if context.is_parallelism_context_initialized():  # of an earlier run, perhaps
        axes = context.get_parallelism_context()
        if (axes.is_ddp_enabled(), axes.is_tp_enabled()) != (device.enable_ddp, device.enable_tp):
            rule = (
                f"the context has {axes}, the configuration enable_ddp: {device.enable_ddp}, "
                f"enable_tp: {device.enable_tp}"
            )
            fail("Trainer", rule, "AutoContext.reset_parallelism_context() first")
    return current_layout(getattr(ttnn, settings.training_config.precision))


class Trainer:
    """A model, its data, its optimizer and how far they have come.

    Args:
        settings: a training configuration, or the path of one.
        text: what to learn; `training_config.data_path` unless given: a file, a folder,
        "standard_library", or the kit's own small corpus. resume: go on from the newest checkpoint
        of `checkpoint_dir` where there is one. step: go on from the checkpoint of this step; later
        ones are set aside when training goes on.

    Raises:
        TTKitError: whatever does not fit together, before anything is computed.

    Example:
        >>> from ttkit.train.config import Settings, TrainingConfig, TransformerConfig
        >>> small = TransformerConfig(num_heads=2, embedding_dim=32, num_blocks=1, max_sequence_length=32, dropout_prob=0)
        >>> config = TrainingConfig(batch_size=4, max_steps=3, tokenizer_type="byte", checkpoint_dir="", eval_every=0)
        >>> with Trainer(Settings(training_config=config, transformer_config=small)) as trainer:
        ...     len(trainer.fit(show=False))
        3
    """

    def __init__(
        self,
        settings: Settings | str | os.PathLike[str],
        *,
        text: str | None = None,
        resume: bool = True,
        step: int | None = None,
    ):
        settings = settings if isinstance(settings, Settings) else read_settings(settings)
        was_open = AutoContext.get_instance().is_device_open()
        try:
            self._make(settings, text, resume, step)
        except BaseException:
            if not was_open:
                self.close()  # or the next trainer finds a mesh that nobody asked for
            raise

    def _make(self, settings: Settings, text: str | None, resume: bool, step: int | None) -> None:
        config = settings.training_config
        self.folder = Path(config.checkpoint_dir) if config.checkpoint_dir else None
        self.run_folder = RunFolder(self.folder) if self.folder else None
        self._open(settings)
        # the others may be on hosts that have it not
        saved = of_rank_0(self.comm, lambda: self._saved(config, resume, step))
        source = config.data_path or "builtin"
        self.text = (
            text if text is not None else TEXTS[source]() if source in TEXTS else read_text(source)
        )
        self.tokenizer = (
            tokenizer_from_dict(saved.meta.tokenizer) if saved else self._tokenizer(settings)
        )
        self.model_config = replace(
            settings.transformer_config, vocab_size=self.tokenizer.vocab_size
        )
        self.settings = replace(settings, transformer_config=self.model_config)
        self._build()
        self._check_size(config)
        self.optimizer = optimizers.make_optimizer(config, self.parameters)
        self._data(config)
        self.history: list[Record] = []
        self.steps = 0
        if saved:
            self._restore(saved)
        else:
            for parameter in self.parameters.values():
                parameter.place(parameter.draw(config.seed))

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, *what: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the mesh, and let others train in the folder."""
        if folder := getattr(self, "run_folder", None):  # none where the settings were refused
            folder.release()
        AutoContext.get_instance().close_device()

    # ------------------------------------------------------------ parts
    def _tokenizer(self, settings: Settings) -> Tokenizer:
        config = settings.training_config
        if config.tokenizer_path:
            return BPETokenizer.load(config.tokenizer_path)
        return make_tokenizer(
            config.tokenizer_type, self.text, settings.transformer_config.vocab_size
        )

    def _open(self, settings: Settings) -> None:
        """The mesh, and which ranks there are: replicas with a mesh each, or drivers of one
        mesh, or this process alone.
        """
        self.layout, distributed = open_layout(settings), settings.distributed.enabled
        self.layouts = [self.layout]
        ranks = DistributedContext()
        self.rank, self.world, self.comm = ranks.rank(), ranks.size(), None
        view = self.layout.device.get_view()
        alone = all(view.is_local(c) for c in ttnn.MeshCoordinateRange(self.layout.device.shape))
        if self.world > 1 and alone and not distributed:
            rule = (
                f"{self.world} ranks with a mesh each, and distributed.enabled is false: "
                "each would train the same model on the same batches"
            )
            fail("Trainer", rule, "distributed: {enabled: true}, or one mesh over the ranks")
        if self.world > 1 or distributed:
            self.comm = start_mpi().COMM_WORLD
            self.rank, self.world = self.comm.rank, self.comm.size

    def _build(self) -> None:
        """The model, and who has copies of it."""
        self.model = create_model(self.model_config, self.layout)
        self.parameters = self.model.parameters()
        self.replicas = (
            Replicas(self.parameters, self.comm, self.layout.ddp_axes)
            if self.settings.distributed.enabled
            else None
        )
        # which of how many parts of a batch is ours
        self.part, self.parts = (self.rank, self.world) if self.replicas else (0, 1)

    def _check_size(self, config: TrainingConfig) -> None:
        """Compare weights, gradients and optimizer with a chip's DRAM, and with the host's
        memory where it simulates.
        """
        host = 0
        for layout in self.layouts:
            mine = [p for p in self.parameters.values() if p.layout.device is layout.device]
            sizes = state_bytes(mine, config)
            needed = sum(sizes.values())
            host += needed * (layout.tp_size if self.comm is None else 1)  # a replica is held once
            parts = ", ".join(f"{short(size, 'B')} of {what}" for what, size in sizes.items())
            model = {key: value for key in SIZES if (value := getattr(self.model_config, key))}
            described = ", ".join(f"{key} {value:,}" for key, value in model.items())
            cure = (
                "a smaller model, precision: bfloat16, or enable_tp over more chips; "
                "ttkit train --plan shows the parts"
            )
            if needed > (most := current_machine().chip.dram_bytes):
                rule = (
                    f"a chip has {short(most, 'B')} of DRAM and must hold {short(needed, 'B')} "
                    f"({parts})"
                )
                fail(f"Trainer of {described}", rule, cure, OutOfMemoryError)
            if is_simulated() and host > (most := psutil.virtual_memory().available):
                rule = (
                    f"this host simulates it in {short(host, 'B')} ({parts} on a chip) and has "
                    f"{short(most, 'B')} free"
                )
                fail(
                    f"Trainer of {described}",
                    rule,
                    "a smaller model, or a host with more memory",
                    OutOfMemoryError,
                )

    def _saved(self, config: TrainingConfig, resume: bool, step: int | None) -> Saved | None:
        """The checkpoint to go on from, if there is one."""
        if self.run_folder is None:
            if step is not None:
                fail(
                    f"Trainer(step={step})",
                    "checkpoint_dir is empty",
                    "training_config.checkpoint_dir: the folder of that checkpoint",
                )
            return None
        saved = self.run_folder.saved(resume, step)
        then = saved.meta.settings.training_config.get("tokenizer_type") if saved else None
        if saved and then != config.tokenizer_type:
            rule = f"its tokenizer_type is {then}, the configuration says {config.tokenizer_type}"
            fail(f"load {saved.path}", rule, f"tokenizer_type: {then}, or another checkpoint_dir")
        return saved

    def _data(self, config: Any) -> None:
        groups = math.lcm(*(layout.ddp_size for layout in self.layouts))
        parts = {
            "gradient_accumulation_steps": config.gradient_accumulation_steps,
            "ranks": self.parts,
            "groups": groups,
        }
        product = int(np.prod(list(parts.values())))
        if config.batch_size % product:
            equation = " x ".join(f"{n} {name}" for name, n in parts.items())
            rule = (
                f"batch_size {config.batch_size} does not divide among {equation} = {product}: "
                f"{config.batch_size} % {product} = {config.batch_size % product}"
            )
            fail("Trainer", rule, f"batch_size a multiple of {product}")
        dataset = TokenDataset(
            self.tokenizer.encode(self.text), self.model_config.max_sequence_length
        )
        training, held_out = dataset.split(0.1)
        self.batches = Batches(training, config.batch_size, config.seed)
        size = min(config.validation_batch_size or max(config.batch_size // 2, 1), len(held_out))
        shared = groups * self.parts
        self.validation = Batches(held_out, max(size // shared, 1) * shared, seed=None)
        self.batches, self.validation = (
            b.part(self.part, self.parts) for b in (self.batches, self.validation)
        )
        self.max_steps = min(config.max_steps, config.num_epochs * len(self.batches))

    # ------------------------------------------------------------ one step
    def lr(self, step: int) -> float:
        """The learning rate of a step, from 0."""
        config, schedule = self.settings.training_config, self.settings.scheduler_config
        return (
            optimizers.warmup_linear(step, self.max_steps, **asdict(schedule))
            if config.scheduler_type == "warmup_linear"
            else self.optimizer.config.lr
        )

    def forward(self, x: np.ndarray, y: np.ndarray) -> Tensor:
        """The loss [1, 1, 1, 1] of tokens and targets [B, 1, 1, S], on each device that of its
        part of the batch.
        """
        return self.model.loss(self.model(self.layout.tokens(x)), self.layout.tokens(y))

    def number(self, loss: Tensor) -> float:
        """A loss as a number: its mean over the groups of the mesh."""
        return mean_over_groups(loss, self.layout)

    def gradients(self) -> float:
        """The mean loss of a step; each parameter has its gradient then, of all micro-batches,
        averaged over replicas.
        """
        total, parts = 0.0, self.settings.training_config.gradient_accumulation_steps
        self.model.train()
        for dropout in self.model.dropouts():
            # two places a block at most: the same elements after a resume
            dropout.calls = self.steps * 2 * parts
        for part in range(parts):
            loss = self.forward(*self.batches.batch(self.steps, part, parts))
            total += self.number(loss) / parts
            if self.replicas and part == parts - 1:
                self.replicas.start()
            (loss * (1 / parts) if parts > 1 else loss).backward()
        if self.replicas:
            self.replicas.finish()
            (total,) = mean(self.comm, total)
        elif self.layout.ddp_axis is not None:
            synchronize_gradients(self.parameters, self.layout.ddp_axes)
        return total

    def clip(self, max_norm: float) -> None:
        """Scale all gradients down together where their norm is above `max_norm`."""
        optimizers.clip_grad_norm(self.parameters, max_norm)

    def step(self) -> Record:
        """One step: gradients of all micro-batches, averaged over replicas, clipped, and
        applied.
        """
        config, start = self.settings.training_config, time.perf_counter()
        self.optimizer.zero_grad()
        total = self.gradients()
        if not np.isfinite(total):  # the weights are as they were
            again = self.run_folder.earlier() if self.run_folder else ""
            cure = "a smaller learning rate, use_clip_grad_norm, or an earlier checkpoint"
            fail(
                f"step {self.steps + 1}",
                f"the loss is {total}",
                f"{cure}; {again}" if again else cure,
            )
        if config.use_clip_grad_norm:
            self.clip(config.clip_grad_norm_max_norm)
        lr = self.lr(self.steps)
        self.optimizer.set_lr(lr)
        self.optimizer.step()
        self.steps += 1
        for layout in self.layouts:
            ttnn.synchronize_device(layout.device)
        seconds = time.perf_counter() - start
        return Record(
            self.steps,
            total,
            lr,
            seconds,
            config.batch_size * self.model_config.max_sequence_length / seconds,
        )

    def validate(self) -> float:
        """The mean loss of the text that is held out."""
        self.model.eval()
        with no_grad():
            count = min(len(self.validation), VALIDATION_BATCHES)
            found = (
                sum(self.number(self.forward(*self.validation.batch(i))) for i in range(count))
                / count
            )
        self.model.train()
        return mean(self.comm, found)[0] if self.replicas else found

    # ------------------------------------------------------------ the loop
    def fit(
        self,
        steps: int | None = None,
        *,
        show: bool = True,
        on_step: Callable[[Record], None] | None = None,
    ) -> list[Record]:
        """Train on: validation every eval_every steps, a checkpoint every model_save_interval
        and at the end.

        Ctrl-C (or the kernel's interrupt) ends it after the step at hand, with a checkpoint; a
        second one ends it at once.

        Args:
            steps: how many more; up to max_steps unless given.
            show: a progress bar with the losses, and in a notebook their plot.
            on_step: called with each record.

        Returns:
            The records of these steps.
        """
        config = self.settings.training_config
        end = self.max_steps if steps is None else self.steps + steps
        first = len(self.history)
        # steps after the checkpoint that a run went on from did not happen
        if folder := self.run_folder:
            of_rank_0(self.comm, lambda: folder.begin(self.history))
        view = _view(self, end) if show else None
        try:
            with _stop_after_step() as stop:
                while self.steps < end and not self._anyone(stop):
                    record = self.step()
                    if config.eval_every and (
                        self.steps % config.eval_every == 0 or self.steps == end
                    ):
                        record = replace(record, validation_loss=self.validate())
                    self.history.append(record)
                    if folder and self.rank == 0:
                        folder.append(record)
                    for call in (view.update if view else None, on_step):
                        if call:
                            call(record)
                    if self.folder and (
                        self.steps == end
                        or (
                            config.model_save_interval
                            and self.steps % config.model_save_interval == 0
                        )
                    ):
                        self.save()
                if self.steps < end:
                    where = self.save() if self.folder else None
                    kept = (
                        f"Saved {where}; the same call goes on from there."
                        if where
                        else "checkpoint_dir is empty, so nothing was saved."
                    )
                    self.say(f"Stopped after step {self.steps}. {kept}")
        finally:
            if view:
                view.close()
        return self.history[first:]

    def _anyone(self, stop: list[bool]) -> bool:
        """Whether this rank, or any that trains with it, was asked to stop: all must leave after
        the same step.
        """
        return mean(self.comm, float(stop[0]))[0] > 0 if self.comm else stop[0]

    def say(self, text: str) -> None:
        """Print, once for all ranks that drive one mesh."""
        if self.rank == 0 or self.replicas:
            print(text, flush=True)

    # ------------------------------------------------------------ checkpoints
    def save(self) -> Path:
        """Write a checkpoint, and return its path; every rank must call, and rank 0 writes."""
        folder = self.run_folder
        if folder is None:
            fail(
                "Trainer.save",
                "checkpoint_dir is empty",
                "training_config.checkpoint_dir: a folder",
            )
        tensors = self.collected()
        meta = {
            "settings": asdict(self.settings),
            "tokenizer": self.tokenizer.to_dict(),
            "optimizer_steps": self.optimizer.steps,
        }
        return of_rank_0(
            self.comm, lambda: folder.save(self.steps, tensors, meta | {"step": self.steps})
        )

    def collected(self) -> dict[str, np.ndarray]:
        """What a checkpoint keeps, whole on rank 0: "model/<parameter>" and
        "optimizer/<kind>/<parameter>", global arrays.
        """
        tensors = {
            f"model/{name}": parameter.gather() for name, parameter in self.parameters.items()
        }
        return tensors | {
            f"optimizer/{key}": array
            for key, array in self.optimizer.state_dict()["tensors"].items()
        }

    def _restore(self, saved: Saved) -> None:
        path, tensors = saved.path, saved.tensors
        then, now = (
            saved.meta.settings.transformer_config,
            json.loads(json.dumps(asdict(self.model_config))),
        )
        # shapes do not say all: how many heads share a width
        for key in sorted((then.keys() & now.keys()) - FREE):
            if then[key] != now[key]:
                fail(
                    f"load {path}",
                    f"its model has {key} {then[key]}, the configuration says {now[key]}",
                    "that value, or another checkpoint_dir",
                )
        model = {key[6:]: array for key, array in tensors.items() if key.startswith("model/")}
        checkpoint.check_matches(
            {name: parameter.global_shape for name, parameter in self.parameters.items()}, model
        )
        for name, parameter in self.parameters.items():
            parameter.place(model[name])
        remembered = {
            key[10:]: array for key, array in tensors.items() if key.startswith("optimizer/")
        }
        self.optimizer.load_state_dict({"steps": saved.meta.optimizer_steps, "tensors": remembered})
        self.steps, self.history = saved.meta.step, saved.history
        self.say(f"Going on from step {self.steps}: {path}")

    # ------------------------------------------------------------ use
    def sample(
        self,
        prompt: str,
        new_tokens: int | None = None,
        *,
        temperature: float = 0.8,
        top_k: int | None = None,
        seed: int = 0,
    ) -> str:
        """A prompt and what the model says after it: as many tokens as there are positions for,
        at most 100, unless given.
        """
        self.model.eval()
        # each group needs a sequence; they are alike, and the first is taken
        copies = self.layout.ddp_size
        ids = self.tokenizer.encode(prompt).tolist()
        if new_tokens is None:
            new_tokens = max(min(100, self.model_config.max_sequence_length + 1 - len(ids)), 0)
        text = generate(
            Sampler(self.model, copies),
            [ids] * copies,
            new_tokens,
            temperature=temperature,
            top_k=top_k,
            seed=seed,
        )[0]
        return self.tokenizer.decode(text)


def mean_over_groups(loss: Tensor, layout: Layout) -> float:
    """A loss [1, 1, 1, 1] as a number: its mean over the groups of a mesh."""
    return float(one_copy(averaged(loss.get_value(), layout.ddp_axes)).ravel()[0])


@contextmanager
def _stop_after_step() -> Iterator[list[bool]]:
    """A flag that the first SIGINT raises; the second interrupts as usual."""
    stop = [False]
    if threading.current_thread() is not threading.main_thread():
        yield stop  # signals come to the main thread only
        return

    def ask(number: int, frame: Any) -> None:
        if stop[0]:
            raise KeyboardInterrupt
        stop[0] = True

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


def _view(trainer: Trainer, end: int) -> Any:
    # an object that is asked to show itself asks the pictures
    from ttkit.visualize.training import progress

    return progress(trainer, end)
