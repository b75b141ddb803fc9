"""Lesson 12, train a small GPT."""

from __future__ import annotations

import os
import shutil
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from dataclasses import asdict, fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from ttkit import backend
from ttkit.errors import TTKitError
from ttkit.lessons import CheckFailed, exercise, require, values_mean_something
from ttkit.lessons.answers import Answer, asks, is_a
from ttkit.lessons.folder import course
from ttkit.train.config import DeviceConfig, Settings, TrainingConfig, TransformerConfig
from ttkit.visualize.charts import Stacks

SMALL = TransformerConfig(
    num_heads=2,
    embedding_dim=32,
    num_blocks=1,
    vocab_size=32,
    max_sequence_length=32,
    dropout_prob=0,
)
LESSONS = TransformerConfig(
    num_heads=4,
    embedding_dim=64,
    num_blocks=2,
    vocab_size=51,
    max_sequence_length=64,
    dropout_prob=0,
)
RATE, STEPS = 0.5, 3
MEMORY, TIME = 1 / 2, 1.3  # of what the given settings take


# ---------------------------------------------------------------- files and settings
_folder: TemporaryDirectory[str] | None = None  # it goes when the kernel stops


def new_folder() -> None:
    """Change to a new folder. The lesson's configuration, gpt.yaml, is the only file in it."""
    global _folder
    last, _folder = _folder, TemporaryDirectory()
    shutil.copy(course() / "configs/training/small_gpt.yaml", Path(_folder.name, "gpt.yaml"))
    os.chdir(_folder.name)
    if last:
        last.cleanup()


def copy_alone(file: str | Path, folder: str | Path) -> None:
    """Copy a file into a folder, and remove what else is there."""
    shutil.rmtree(folder, ignore_errors=True)
    Path(folder).mkdir()
    shutil.copy(file, folder)


def changed(settings: Settings, **values: Any) -> Settings:
    """Return the settings with other values for some keys, whichever sections have them.

    Example:
        >>> other = changed(Settings(), mesh_shape=(2, 2), batch_size=8)
        >>> other.device_config.mesh_shape, other.training_config.batch_size
        ((2, 2), 8)
    """
    sections: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        homes = [f.name for f in fields(Settings) if key in asdict(settings)[f.name]]
        home = homes[0] if homes else "training_config"  # which refuses a key that nobody has
        sections.setdefault(home, {})[key] = value
    new = {name: replace(getattr(settings, name), **keys) for name, keys in sections.items()}
    return replace(settings, **new)


def by_ten(settings: Settings) -> np.ndarray:
    """Train 100 steps, and return the mean losses of ten steps each."""
    from ttkit.train import Trainer

    with Trainer(settings) as trainer:
        losses = [record.loss for record in trainer.fit(100, show=False)]
    return np.mean(np.reshape(losses, (10, 10)), axis=1)


# ---------------------------------------------------------------- a picture of the temperature
def next_logits(trainer: Any, text: str) -> dict[str, float]:
    """Return the model's logit of each character that may follow a text."""
    from ttkit.train.generation import Sampler

    trainer.model.eval()
    copies = trainer.layout.ddp_size  # a sequence for each group
    sampler = Sampler(trainer.model, copies)
    for position, token in enumerate(trainer.tokenizer.encode(text).tolist()):
        sampler.feed(position, [token] * copies)
    names = [trainer.tokenizer.decode([i]) for i in range(trainer.tokenizer.vocab_size)]
    return dict(zip(names, sampler.logits()[0].tolist()))


def next_probs(logits: dict[str, float], temperature: float, most: int = 7) -> Stacks:
    """Return a bar for each of the most likely characters, and one for all others, in percent.

    Args:
        logits: of each character.
        temperature: which the logits are divided by; above 0.
        most: so many characters have a bar of their own.

    Example:
        >>> next_probs({"a": 1.0, "b": 0.0, "c": -3.0}, 0.5, most=2)
        probability of the next character at temperature 0.5
          'a': 88 %
          'b': 12 %
          all others: none
    """
    scaled = np.array(list(logits.values()), np.float64) / temperature
    powers = np.exp(scaled - scaled.max())
    percent = 100 * powers / powers.sum()
    order = np.argsort(-scaled, kind="stable")
    names = [repr(name) for name in logits]
    rows = {names[i]: [round(float(percent[i]))] for i in order[:most]}
    rows["all others"] = [round(float(percent[order[most:]].sum()))]
    title = f"probability of the next character at temperature {temperature:g}"
    return Stacks(title, rows, ["%"], unit="%")


# ---------------------------------------------------------------- a run that is interrupted
def interrupt_at(step: int) -> Callable[[Any], None]:
    """Return an `on_step` for `fit` that interrupts the run after a step, as Ctrl-C does."""

    def interrupt(record: Any) -> None:
        if record.step == step:
            signal.raise_signal(signal.SIGINT)

    return interrupt


# ---------------------------------------------------------------- exercises


@contextmanager
def _mesh(device: DeviceConfig) -> Iterator[Any]:
    """Open a mesh in the AutoContext, where `synchronize_gradients` looks; give its layout."""
    from ttkit.train import AutoContext
    from ttkit.train.context import open_layout

    context = AutoContext.get_instance()
    busy = "the check opens a mesh of its own: trainer.close() first"
    require(not context.is_device_open(), busy)
    try:
        yield open_layout(Settings(device, TrainingConfig()))
    finally:
        context.close_device()


@exercise(
    "12.budget",
    "Which two kinds of memory are largest in the plan? What makes each of them smaller?",
    "Accumulating makes the activations smaller. Weights, gradients and the optimizer's state are "
    "then the rest: which kind of parallelism (lesson 07) cuts them?",
    "Four chips as 2 x 2: data parallel over the rows, tensor parallel over the columns.",
    "changed(settings, mesh_shape=(2, 2), enable_tp=True), and accumulate in 4.",
)
@asks("smaller(settings)")
def _budget(smaller: Answer) -> str:
    from ttkit.train.plan import training_plan

    training = TrainingConfig(
        batch_size=16, max_steps=2, tokenizer_type="char", checkpoint_dir="", eval_every=0
    )
    given = Settings(DeviceConfig((1, 4), enable_ddp=True), training, transformer_config=LESSONS)
    found = smaller(deepcopy(given))  # an answer may write into it
    smaller.must_give("Settings", isinstance(found, Settings), found)
    for section, before in asdict(given).items():
        after = asdict(found)[section]
        for key in before if section != "device_config" else ():
            changed = f"{key} was {before[key]} and is {after[key]} now"
            free = key == "gradient_accumulation_steps" or after[key] == before[key]
            require(free, f"{changed}: only the mesh and the accumulation may change")
    try:
        first, plan = training_plan(given), training_plan(found)
        memory, most = sum(plan.memory.values()), MEMORY * sum(first.memory.values())
        step_us, longest = plan.step_time_s * 1e6, TIME * first.step_time_s * 1e6
        how = f"mesh_shape {list(found.device_config.mesh_shape)}, accumulating {plan.passes}"
        require(memory <= most, f"{how}: {memory:,} bytes on each chip; the budget is {most:,.0f}")
        slow = f"{how}: it fits, but a step takes {step_us:.0f} us, modelled"
        require(step_us <= longest, f"{slow}; the budget is {longest:.0f}")
        one, other = _losses(given), _losses(found)
    except (TTKitError, UserWarning) as error:  # warned of: a mesh that may hang on a card
        raise CheckFailed(f"that cannot be run: {error}") from None
    # another order of additions
    same = not values_mean_something() or np.allclose(one, other, 1e-4)
    require(same, f"the losses are {other}, with the given settings {one}")
    times = f"{step_us:.0f} of {longest:.0f} us modelled"
    return f"{how}: {memory:,} of {most:,.0f} bytes, {times}, the losses within 0.01 %"


def _losses(settings: Settings) -> list[float]:
    from ttkit.train import Trainer

    with warnings.catch_warnings():
        warnings.filterwarnings("error", "open_device", UserWarning)
        with _mesh(settings.device_config), Trainer(settings) as trainer:
            return [record.loss for record in trainer.fit(show=False)]


@exercise(
    "12.loop",
    "What happens to the gradients of step 1 when step 2 calls backward()?",
    "Each replica has the gradient of its own windows. Which call of lesson 06 takes their mean?",
    "optimizer.zero_grad() comes before backward(); synchronize_gradients(model.parameters()) "
    "between backward() and optimizer.step().",
)
@asks("step(model, optimizer, x, y)")
def _loop(step: Answer) -> str:
    shape = (STEPS, 2, 8, 1, 1, SMALL.max_sequence_length)
    tokens = np.random.default_rng(12).integers(0, SMALL.vocab_size, shape).astype(np.uint32)
    one_device = DeviceConfig((1, 1))
    right, losses, _ = _trained(_right(), tokens, one_device)
    replicas = DeviceConfig((1, 4), enable_ddp=True)
    enough = _trained(_right(mean=True), tokens, replicas)[2]
    kinds = {
        "it is right but for the gradients of earlier steps, which were added: "
        "optimizer.zero_grad() is missing, or comes too late": _right(fresh=False),
        "the gradient is 4 times too large: the sum over four replicas is not their mean": _right(
            times=4
        ),
        "the gradient is 4 times too small: synchronize_gradients divides by four already": _right(
            times=1 / 4
        ),
        "each step goes twice as far: does backward() or optimizer.step() run twice?": _right(
            times=2
        ),
    }
    wrong = {why: _trained(how, tokens, one_device)[0][0] for why, how in kinds.items()}
    try:
        found, returned, sent = _trained(step, tokens, replicas)
    except TTKitError as error:
        raise CheckFailed(f"after your step its loss or weights cannot be read: {error}") from None
    if not values_mean_something():
        return "it runs (no kernel runs on a mock cluster, so that nothing else is seen)"
    for number in range(1, STEPS + 1):
        after = f"after step {number}"
        chips = [chip[number] for chip in found]
        for i, chip in enumerate(chips):
            apart = float(np.abs(chip - chips[0]).max())
            another = f"{after} replica {i} is another model than replica 0, apart by {apart:.2g}"
            require(apart <= 1e-5, f"{another}: their gradients were not averaged")
        same = np.array_equal(chips[0], found[0][0])
        require(not same, f"{after} no weight has changed: does the step end in optimizer.step()?")
        if not _near(chips[0], right[0][number]):
            reasons = [why for why, weights in wrong.items() if _near(chips[0], weights[number])]
            reasons.append("are all four calls there, once, in an order that makes sense?")
            raise CheckFailed(f"{after} the weights are not those of one device: {reasons[0]}")
    for loss, one in zip(returned, losses, strict=True):
        step.must_give("the loss, a tensor", isinstance(loss, float | np.floating), loss)
        says = f"the weights are right, but the loss that it gives is {loss:.3g}, not {one:.3g}"
        require(abs(loss - one) <= 1e-3 * one, says)
    more = f"the weights are right, but {sent:,} bytes were sent, where {enough:,} are enough"
    why = "is synchronize_gradients called twice? The mean of equal gradients changes nothing"
    require(sent <= 1.5 * enough, f"{more}: {why}")
    host = f"the weights are right, but only {sent:,} bytes went over links"
    require(sent >= enough / 2, f"{host}: the chips can take the mean, without the host")
    one, four = (
        _trained(how, tokens, device, adam=True)[0][0][-1]
        for how, device in ((_right(), one_device), (step, replicas))
    )
    after = "with SGD the weights are right, with AdamW they are not: take the mean of gradients"
    require(_near(four, one), f"{after} before optimizer.step(), not of weights after it")
    return f"four replicas, one model, that of one device after each of {STEPS} steps"


def _near(have: np.ndarray, want: np.ndarray) -> bool:
    return bool(np.allclose(have, want, 1e-3, 1e-4))


def _right(times: float = 1, fresh: bool = True, mean: bool = False) -> Any:
    """Return a step; with `times` the gradient, with that of earlier steps, or over replicas."""
    from ttkit.train import synchronize_gradients

    def step(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
        if fresh:
            optimizer.zero_grad()
        loss = model.loss(model(x), y)
        (loss * times).backward()
        if mean:
            synchronize_gradients(model.parameters())
        optimizer.step()
        return loss

    return step


def _trained(
    step: Any, tokens: np.ndarray, device: DeviceConfig, adam: bool = False
) -> tuple[list[list[np.ndarray]], list[Any], int]:
    """Return all weights of each chip as one row, before the first step and after each; what the
    steps give, a tensor as its mean over the chips; and the bytes on links.
    """
    from ttkit import ttnn
    from ttkit.convert import to_numpy
    from ttkit.profiler import profile
    from ttkit.train import SGD, AdamW, AdamWConfig, SGDConfig, Tensor, create_model

    with _mesh(device) as layout:
        model = create_model(SMALL, layout)
        model.init_weights(12)
        parameters = model.parameters()
        optimizer: Any = SGD(parameters, SGDConfig.make(lr=RATE))
        if adam:  # its step is not proportional to the gradient
            optimizer = AdamW(parameters, AdamWConfig.make(lr=RATE / 10, epsilon=0.01))

        def look() -> list[np.ndarray]:
            shards = [ttnn.get_device_tensors(each.get_value()) for each in parameters.values()]
            chips = zip(*shards, strict=True)
            return [np.concatenate([to_numpy(shard).ravel() for shard in chip]) for chip in chips]

        seen, losses, sent = [look()], [], 0
        for x, y in tokens:
            inputs, targets = layout.tokens(x), layout.tokens(y)
            # a card's calls are not profiled
            with profile() if backend.is_simulated() else nullcontext() as prof:
                loss = step(model, optimizer, inputs, targets)
            sent += sum(record.bytes_on_links for record in prof.records) if prof else 0
            loss = loss.get_value() if isinstance(loss, Tensor) else loss
            if is_a(loss, "tensor_topology"):
                shards = ttnn.get_device_tensors(loss)
                loss = np.mean([to_numpy(shard) for shard in shards])
            if isinstance(loss, np.ndarray) and loss.size == 1:
                loss = loss.item()
            losses.append(loss)
            seen.append(look())
    return [list(chip) for chip in zip(*seen, strict=True)], losses, sent
