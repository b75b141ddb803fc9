"""The training loop: the same on one chip, on a mesh, and on ranks that each have a mesh.

`Trainer.step` is one training step from top to bottom; `Trainer.fit` repeats it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import psutil

from ttkit import ttnn
from ttkit.backend import Array, is_simulated
from ttkit.errors import OutOfMemoryError, fail
from ttkit.files import AnyPath
from ttkit.train.autograd import Tensor, no_grad
from ttkit.train.config.files import read_settings
from ttkit.train.config.layout import tiled
from ttkit.train.config.settings import Settings
from ttkit.train.context import AutoContext, DistributedContext, open_layout
from ttkit.train.model.models import create_model
from ttkit.train.parallel.data_parallel import (
    average_gradients,
    average_over_ranks,
    owners,
    share_weights,
)
from ttkit.train.parallel.distributed import mean_over_replicas
from ttkit.train.parallel.ranks import mean_over_ranks, on_rank_0, start_mpi
from ttkit.train.run import checkpoint, optimizers
from ttkit.train.run.checkpoint import Arrays, History, Record, Saved
from ttkit.train.run.data import make_batches, training_text
from ttkit.train.run.generation import Sampler, generate
from ttkit.train.run.tokenizers import make_tokenizer, tokenizer_from_dict
from ttkit.waiting import interrupts
from ttkit.words import short

VALIDATION_BATCHES = 50  # A validation takes at most this many batches.


class Trainer:
    """A model, its data, its optimizer and their progress.

    Args:
        settings: a training configuration, or the path of one.
        text: the text to learn. By default it is that of the file `training_config.data_path`, or
            without a path the small corpus of ttkit.
        step: resume from the checkpoint of this step in `checkpoint_dir`. When training continues,
            checkpoints of later steps are renamed. By default the trainer resumes from the newest
            checkpoint, if there is one.

    Raises:
        TTKitError: the settings contradict each other; this is checked before any computation.

    Example:
        >>> from ttkit.train.config.settings import Settings, TrainingConfig, TransformerConfig
        >>> small = TransformerConfig(num_heads=2, embedding_dim=32, num_blocks=1)
        >>> how = {"tokenizer_type": "byte", "checkpoint_dir": "", "eval_every": 0}
        >>> config = TrainingConfig(batch_size=4, max_steps=3, **how)
        >>> with Trainer(Settings(training_config=config, transformer_config=small)) as trainer:
        ...     len(trainer.fit(show=False))
        3
    """

    def __init__(
        self, settings: Settings | AnyPath, *, text: str | None = None, step: int | None = None
    ):
        settings = settings if isinstance(settings, Settings) else read_settings(settings)
        was_open = AutoContext.get_instance().is_device_open()
        try:
            self._make(settings, text, step)
        except BaseException:
            if not was_open:
                self.close()  # Otherwise the next trainer would find this mesh open.
            raise

    def _make(self, settings: Settings, text: str | None, step: int | None) -> None:
        config = settings.training_config
        self.run_folder = folder = Path(config.checkpoint_dir) if config.checkpoint_dir else None
        self._open(settings)
        # Only rank 0 reads the checkpoint, since other hosts may not have it.
        saved = on_rank_0(self.comm, lambda: checkpoint.saved(folder, step)) if folder else None
        self.text = training_text(config.data_path) if text is None else text
        model = settings.transformer_config
        if saved:
            saved.check_same(settings)
            self.tokenizer = tokenizer_from_dict(saved.meta["tokenizer"])
        else:
            self.tokenizer = make_tokenizer(
                config.tokenizer_type, self.text, model.vocab_size, config.tokenizer_path
            )
        self.model_config = replace(model, vocab_size=self.tokenizer.vocab_size)
        self.settings = replace(settings, transformer_config=self.model_config)
        self._build()
        self.replica, replicas = 0, 1  # A single replica takes the whole batch: part 0 of 1.
        if self.replicas:
            self.replica = self.replicas.rank
            replicas = self.replicas.size
        # With ZeRO each parameter has an owner, which is one of the ranks that have replicas. Only
        # the owner updates the parameter.
        self.zero_ranks = replicas if settings.layout.zero else 1
        if self.zero_ranks > 1:
            every = self.parameters.values()
            sizes = [tiled(parameter.shard_shape) for parameter in every]
            for parameter, rank in zip(every, owners(sizes, replicas)):
                parameter.owner = rank
        self.optimizer = optimizers.make_optimizer(config, self.parameters)
        self._check_host()
        ids = self.tokenizer.encode(self.text)
        on_a_mesh = math.lcm(*(layout.dp for layout in self.layouts))
        self.batches, self.validation = make_batches(
            ids, self.model_config.max_sequence_length, config, on_a_mesh, self.replica, replicas
        )
        self.max_steps = min(config.max_steps, config.num_epochs * len(self.batches))
        self.history = History()
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
        """Close the mesh."""
        AutoContext.get_instance().close_device()

    def _open(self, settings: Settings) -> None:
        """Open the mesh, and connect to the other ranks. Each rank may have a mesh of its own, all
        ranks may drive one mesh, or there is only this process.
        """
        self.layout = open_layout(settings)
        distributed = settings.distributed.enabled
        self.layouts = [self.layout]
        ranks = DistributedContext()
        self.rank = ranks.rank()
        self.world = ranks.size()
        self.comm = None
        mesh = self.layout.device
        drives_whole = len(mesh.get_device_ids()) == mesh.shape.mesh_size()
        if self.world > 1 and drives_whole and not distributed:
            same = "each would train the same model on the same batches"
            fail(
                "Trainer",
                f"{self.world} ranks with a mesh each, and distributed.enabled is false: {same}",
                "distributed: {enabled: true}, or one mesh over the ranks",
            )
        if self.world > 1 or distributed:
            self.comm = start_mpi().COMM_WORLD

    def _build(self) -> None:
        """Make the model, and connect it to its replicas."""
        self.model = create_model(self.model_config, self.layout)
        self.parameters = self.model.parameters()
        self.replicas = self.comm if self.settings.distributed.enabled else None

    def _check_host(self) -> None:
        """Raise if the free memory of the host cannot hold the state of the training. The simulator
        checks the DRAM of the chips itself, and raises when a tensor does not fit, as ttnn does.
        """
        # The simulator keeps all replicas in one array, with four bytes for each number. If there
        # are several ranks, a rank holds at least the shard of one chip. Each weight has a gradient
        # and up to two numbers in the optimizer; master weights are not counted.
        whole = self.comm is None
        every = self.parameters.values()
        numbers = sum(tiled(p.global_shape if whole else p.local_shape) for p in every)
        needed = 4 * numbers * (2 + len(self.optimizer.kinds[:2]))
        if is_simulated() and needed > (room := psutil.virtual_memory().available):
            config = self.model_config
            fail(
                f"Trainer of embedding_dim {config.embedding_dim:,}, num_blocks "
                f"{config.num_blocks:,}",
                f"this host has {short(room, 'B')} free and must hold {short(needed, 'B')} of "
                "weights, gradients and optimizer state",
                "a smaller model; ttkit train --plan shows the parts",
                OutOfMemoryError,
            )

    # ------------------------------------------------------------ one step
    def step(self) -> Record:
        """Do one step: compute gradients, clip them, update the weights."""
        config = self.settings.training_config
        start = time.perf_counter()
        self.optimizer.zero_grad()
        loss = self.across_ranks(self.gradients())
        if self.replicas:
            average_over_ranks(self.parameters, self.replicas)
        if not math.isfinite(loss):  # The weights have not been updated in this step.
            fail(
                f"step {self.steps + 1}",
                f"the loss is {loss}",
                "a smaller learning rate, use_clip_grad_norm, or an earlier checkpoint",
            )
        if config.use_clip_grad_norm:
            # With ZeRO each rank has only the gradients of its own parameters, so their squares are
            # added up: the sum over the ranks is `zero_ranks` times the mean. Without ZeRO it is 1.
            optimizers.clip_grad_norm(
                self.parameters,
                config.clip_grad_norm_max_norm,
                lambda square: self.zero_ranks * self.across_ranks(square),
            )
        lr = self.lr(self.steps)
        self.optimizer.set_lr(lr)
        self.optimizer.step()
        if self.zero_ranks > 1:
            share_weights(self.parameters, self.replicas)
        self.steps += 1
        for layout in self.layouts:
            ttnn.synchronize_device(layout.device)
        seconds = time.perf_counter() - start
        tokens = config.batch_size * self.model_config.max_sequence_length
        return Record(self.steps, loss, lr, seconds, tokens / seconds)

    def gradients(self) -> float:
        """Compute this rank's mean gradients over its micro-batches and chips; return its loss."""
        total = 0.0
        parts = self.settings.training_config.gradient_accumulation_steps
        self.model.train()
        for dropout in self.model.dropouts():
            # Each forward calls a dropout at most twice. The count follows from the step, so a run
            # that continues drops the same elements.
            dropout.calls = self.steps * 2 * parts
        for part in range(parts):
            loss = self.forward(*self.batches.batch(self.steps, part, parts))
            total += self.number(loss) / parts
            (loss * (1 / parts) if parts > 1 else loss).backward()
        average_gradients(self.parameters, self.settings.layout.bucket_mb)
        return total

    def across_ranks(self, number: float) -> float:
        """Return the mean of a number over the ranks that have replicas."""
        return mean_over_ranks(self.replicas, number)

    def forward(self, x: Array, y: Array) -> Tensor:
        """Return each device's loss [1, 1, 1, 1] of tokens and targets [B, 1, 1, S]."""
        return self.model.loss(self.model(self.layout.tokens(x)), self.layout.tokens(y))

    def number(self, loss: Tensor) -> float:
        """Return a loss as a number: its mean over the replicas on the mesh."""
        return mean_over_replicas(loss, self.layout)

    def lr(self, step: int) -> float:
        """Return the learning rate of a step; the first step is 0."""
        if self.settings.training_config.scheduler_type == "identity":
            return self.optimizer.config.lr
        return optimizers.warmup_linear(step, self.max_steps, self.settings.scheduler_config)

    def validate(self) -> float:
        """Return the mean loss of the validation text."""
        self.model.eval()
        count = min(len(self.validation), VALIDATION_BATCHES)
        with no_grad():
            losses = [self.number(self.forward(*self.validation.batch(i))) for i in range(count)]
        self.model.train()
        return self.across_ranks(sum(losses) / count)

    # ------------------------------------------------------------ the loop
    def fit(
        self,
        steps: int | None = None,
        *,
        show: bool = True,
        prompt: str = "",
        on_step: Callable[[Record], None] | None = None,
    ) -> History:
        """Train. Validate every eval_every steps (never if that is 0), and save a checkpoint every
        model_save_interval steps. Both are also done after the last step.

        Ctrl-C, or the stop button of a notebook, stops the training after the current step and
        saves a checkpoint. The button also ends the cell. A second Ctrl-C stops it at once.

        Args:
            steps: how many more steps to train; by default the training runs up to max_steps.
            show: whether to show steps, time left, speed and loss, and in a notebook the curve of
                the losses.
            prompt: from time to time, a notebook also shows how the model continues this text.
            on_step: a function that is called with each record.

        Returns:
            The records of these steps, which print as at most five lines.
        """
        from ttkit.visualize.widgets.live_training import progress

        config = self.settings.training_config
        folder = self.run_folder
        end = self.max_steps if steps is None else self.steps + steps
        first = len(self.history)
        if folder:  # This removes the steps after the checkpoint of a resumed run from the log.
            on_rank_0(self.comm, lambda: checkpoint.begin_log(folder, self.history, self.steps))
        view = progress(self, end, prompt) if show else None
        saved = None
        try:
            with interrupts() as interrupted:
                while self.steps < end and not mean_over_ranks(self.comm, interrupted()):
                    record = self.step()
                    if config.eval_every and self._is_due(config.eval_every, end):
                        record = record._replace(validation_loss=self.validate())
                    self.history.append(record)
                    if folder and self.rank == 0:
                        checkpoint.log(folder, record)
                    if view:
                        view.update(record)
                    if on_step:
                        on_step(record)
                    if folder and self._is_due(config.model_save_interval, end):
                        saved = self.save()
                if self.steps < end:
                    kept = "checkpoint_dir is empty, so nothing was saved."
                    if folder:
                        saved = self.save()
                        kept = f"Saved {saved}; the same call resumes from there."
                    report = view.stopped if view else self.notify
                    report(f"Stopped after step {self.steps}. {kept}")
        finally:
            if view:
                view.close()
        return History(self.history[first:], saved)

    def _is_due(self, interval: int, end: int) -> bool:
        """Return whether the current step is the last one or a multiple of the interval. With an
        interval of 0 only the last step counts.
        """
        return self.steps == end or (interval > 0 and self.steps % interval == 0)

    def notify(self, text: str) -> None:
        """Print a text on rank 0. If ranks have replicas of the model, print it on every rank."""
        if self.rank == 0 or self.replicas:
            print(text, flush=True)

    # ------------------------------------------------------------ checkpoints
    def save(self) -> Path:
        """Write a checkpoint, and return its path. Every rank must call this; rank 0 writes."""
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
            "step": self.steps,
        }
        return on_rank_0(self.comm, lambda: checkpoint.save(folder, self.steps, tensors, meta))

    def collected(self) -> Arrays:
        """Return a checkpoint's global arrays: model/<parameter>, optimizer/<kind>/<parameter>."""
        found = {f"model/{name}": parameter.gather() for name, parameter in self.parameters.items()}
        state = self.optimizer.state_dict()["tensors"]
        if self.zero_ranks > 1 and self.replicas:
            # Each rank has the optimizer state of its own parameters; rank 0 gets them all.
            parts = self.replicas.gather(state) or []
            state = {key: array for part in parts for key, array in part.items()}
        return found | {f"optimizer/{key}": array for key, array in state.items()}

    def _restore(self, saved: Saved) -> None:
        model = saved.part("model/")
        for name, parameter in self.parameters.items():
            parameter.place(model[name])
        # The checkpoint has the optimizer state of the whole model. A rank takes only the state of
        # the parameters that it updates.
        state = saved.part("optimizer/")
        every = self.parameters.items()
        names = [name for name, each in every if each.owner in (None, self.replica)]
        mine = {key: state[key] for key in state if key.split("/")[1] in names}
        self.optimizer.load_state_dict({"steps": saved.meta["optimizer_steps"], "tensors": mine})
        self.steps = saved.meta["step"]
        self.history = History(saved.history)
        self.notify(f"Resuming from step {self.steps}: {saved.path}")

    # ------------------------------------------------------------ text from the model
    def sample(self, prompt: str, new_tokens: int | None = None, **how: Any) -> str:
        """Return a prompt and its continuation by the model.

        Args:
            prompt: the start of the text. With "" the result is "", since the model continues at
                least one token.
            new_tokens: the length of the continuation. By default it is 100 tokens, or fewer if the
                model has no positions for so many.
            how: temperature (0.8 unless given), top_k and seed, which are arguments of `generate`.
        """
        self.model.eval()
        copies = self.layout.dp  # Each data-parallel replica continues one sequence.
        ids = self.tokenizer.encode(prompt).tolist()
        if new_tokens is None:
            new_tokens = max(min(100, self.model_config.max_sequence_length + 1 - len(ids)), 0)
        how = {"temperature": 0.8, **how}
        texts = generate(Sampler(self.model, copies), [ids] * copies, new_tokens, **how)
        return self.tokenizer.decode(texts[0])
