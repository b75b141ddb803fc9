"""Lesson 12, train a small GPT: its folder, its pictures, and its exercises."""

from __future__ import annotations

import os
import shutil
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from ttkit import backend
from ttkit.convert import to_numpy
from ttkit.errors import TTKitError
from ttkit.lessons import CheckFailed, values_mean_something
from ttkit.lessons.exercises import Run, exercise
from ttkit.lessons.folder import course
from ttkit.profiler import profile
from ttkit.train import (
    SGD,
    AdamW,
    AdamWConfig,
    AutoContext,
    SGDConfig,
    Tensor,
    Trainer,
    create_model,
    synchronize_gradients,
    training_plan,
)
from ttkit.train.config.settings import DeviceConfig, Settings, TrainingConfig, TransformerConfig
from ttkit.train.context import open_layout
from ttkit.train.run.generation import Sampler
from ttkit.visualize.charts import Stacks

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
    with Trainer(settings) as trainer:
        losses = [record.loss for record in trainer.fit(100, show=False)]
    return np.mean(np.reshape(losses, (10, 10)), axis=1)


# ---------------------------------------------------------------- a picture of the temperature
def next_logits(trainer: Any, text: str) -> dict[str, float]:
    """Return the model's logit of each character that may follow a text."""
    trainer.model.eval()
    copies = trainer.layout.dp  # a sequence for each group
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


# ---------------------------------------------------------------- 12.budget
GIVEN = Settings(
    DeviceConfig((1, 4), enable_ddp=True),
    TrainingConfig(
        batch_size=16, max_steps=2, tokenizer_type="char", checkpoint_dir="", eval_every=0
    ),
    transformer_config=TransformerConfig(
        num_heads=4,
        embedding_dim=64,
        num_blocks=2,
        vocab_size=51,
        max_sequence_length=64,
        dropout_prob=0,
    ),
)
MEMORY, TIME = 1 / 2, 1.3  # of what the given settings take


@contextmanager
def _mesh(device: DeviceConfig) -> Iterator[Any]:
    """Open a mesh in the AutoContext, where `synchronize_gradients` looks; give its layout."""
    context = AutoContext.get_instance()
    if context.is_device_open():
        raise CheckFailed("the check opens a mesh of its own: trainer.close() first")
    try:
        yield open_layout(Settings(device, TrainingConfig()))
    finally:
        context.close_device()


def _losses(settings: Settings) -> list[float]:
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "open_device", UserWarning)  # it may hang on a card
        with _mesh(settings.device_config), Trainer(settings) as trainer:
            return [record.loss for record in trainer.fit(show=False)]


def _takes(settings: Settings) -> tuple[str, int, float]:
    """Return how settings are cut, and what they take: bytes of a chip, microseconds of a step."""
    plan, mesh = training_plan(settings), list(settings.device_config.mesh_shape)
    how = f"mesh_shape {mesh}, accumulating {plan.passes}"
    return how, sum(plan.memory.values()), 1e6 * plan.step_time_s


def _over(found: Settings, given: Settings) -> str:
    """Return which rule changed settings break."""
    for section, before in asdict(given).items():
        after = asdict(found)[section]
        for key in before if section != "device_config" else ():
            if key != "gradient_accumulation_steps" and after[key] != before[key]:
                changed = f"{key} was {before[key]} and is {after[key]} now"
                return f"{changed}: only the mesh and the accumulation may change"
    _, largest, longest = _takes(given)
    try:
        how, nbytes, step_us = _takes(found)
        if nbytes > MEMORY * largest:
            return f"{how}: {nbytes:,} bytes on each chip; the budget is {MEMORY * largest:,.0f}"
        if step_us > TIME * longest:
            slow = f"{how}: it fits, but a step takes {step_us:.0f} us, modelled"
            return f"{slow}; the budget is {TIME * longest:.0f}"
        one, other = _losses(given), _losses(found)
    except (TTKitError, UserWarning) as error:
        return f"that cannot be run: {error}"
    # another order of additions
    same = not values_mean_something() or np.allclose(one, other, 1e-4)
    return "" if same else f"the losses are {other}, with the given settings {one}"


def _figures(found: Settings, given: Settings) -> str:
    (how, nbytes, step_us), (_, largest, longest) = _takes(found), _takes(given)
    times = f"{step_us:.0f} of {TIME * longest:.0f} us modelled"
    most = f"{MEMORY * largest:,.0f} bytes"
    return f"{how}: {nbytes:,} of {most}, {times}, the losses within 0.01 %"


exercise(
    "12.budget",
    asks="smaller(settings)",
    cases=[(GIVEN,)],
    rules=_over,
    praise=_figures,
    hints=[
        "Which two kinds of memory are largest in the plan? What makes each of them smaller?",
        "Accumulating makes the activations smaller. Weights, gradients and the optimizer's state "
        "are then the rest: which kind of parallelism (lesson 07) cuts them?",
        "Four chips as 2 x 2: data parallel over the rows, tensor parallel over the columns.",
        "changed(settings, mesh_shape=(2, 2), enable_tp=True), and accumulate in 4.",
    ],
)


# ---------------------------------------------------------------- 12.loop
SMALL = TransformerConfig(
    num_heads=2,
    embedding_dim=32,
    num_blocks=1,
    vocab_size=32,
    max_sequence_length=32,
    dropout_prob=0,
)
STEPS = 3
TOKENS = np.random.default_rng(12).integers(0, 32, (STEPS, 2, 8, 1, 1, 32)).astype(np.uint32)
ONE, REPLICAS = DeviceConfig((1, 1)), DeviceConfig((1, 4), enable_ddp=True)
OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "SGD": lambda parameters: SGD(parameters, SGDConfig.make(lr=0.5)),
    # its step is not proportional to the gradient
    "AdamW": lambda parameters: AdamW(parameters, AdamWConfig.make(lr=0.05, epsilon=0.01)),
}


@dataclass
class _Trained:
    """What a training loop made: the weights of each chip by step, the losses, bytes on links."""

    weights: list[list[np.ndarray]]
    losses: list[Any]
    sent: int


def _trained(step: Any, optimizer: str, device: DeviceConfig = ONE) -> _Trained:
    with _mesh(device) as layout:
        model = create_model(SMALL, layout)
        model.init_weights(12)
        parameters, found = model.parameters(), _Trained([], [], 0)
        changes = OPTIMIZERS[optimizer](parameters)
        for x, y in TOKENS:
            inputs, targets = layout.tokens(x), layout.tokens(y)
            # a card's calls are not profiled
            with profile() if backend.is_simulated() else nullcontext() as seen:
                loss = step(model, changes, inputs, targets)
            found.sent += sum(record.bytes_on_links for record in seen.records) if seen else 0
            found.losses.append(_number(loss))
            shards = [_shards(each.get_value()) for each in parameters.values()]
            chips = zip(*shards, strict=True)
            found.weights.append([np.concatenate([s.ravel() for s in chip]) for chip in chips])
    return found


def _shards(tensor: Any) -> list[np.ndarray]:
    return [to_numpy(shard) for shard in backend.load().get_device_tensors(tensor)]


def _number(loss: Any) -> Any:
    """Return a loss as a number: of a tensor, its mean over the chips."""
    loss = loss.get_value() if isinstance(loss, Tensor) else loss
    return np.mean(_shards(loss)) if hasattr(loss, "tensor_topology") else loss


@dataclass
class _Training(Run):
    """Three steps on four replicas."""

    def unlike(self, expected: _Trained, rtol: float) -> str:
        """Return after which step the weights are another model's."""
        pairs = zip(expected.weights, self.result.weights, strict=True)
        for number, ((want, *_), chips) in enumerate(pairs if values_mean_something() else (), 1):
            for i, chip in enumerate(chips):
                if (apart := float(np.abs(chip - chips[0]).max())) > 1e-5:
                    said = f"replica {i} is another model than replica 0, apart by {apart:.2g}"
                    return f" after step {number} {said}: their gradients were not averaged"
            if not np.allclose(chips[0], want, 1e-3, 1e-4):
                return f" after step {number} the weights are not those of one device"
        return ""

    def clue(self) -> str:
        """Return what is the matter where SGD makes the right weights, and AdamW does not."""
        why = "take the mean of gradients before optimizer.step(), not of weights after it"
        return why if self.arguments == ("AdamW",) else ""


class _Optimizers:
    """A run with SGD, whose mistakes have names, and one with AdamW."""

    def runs(self, answer: Any, asks: str, mesh: Any) -> Iterator[_Training]:
        """Yield each run."""
        for name in OPTIMIZERS:
            yield _Training((name,), _trained(answer, name, REPLICAS), f"with {name}")


def _step(times: float = 1, *, clears: bool = True, moves: bool = True, mean: bool = False) -> Any:
    """Return a step, with `times` the gradient, or with a call left out."""

    def step(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
        if clears:
            optimizer.zero_grad()
        loss = model.loss(model(x), y)
        (loss * times).backward()
        if mean:
            synchronize_gradients(model.parameters())
        if moves:
            optimizer.step()
        return loss

    return step


def _mistake(**how: Any) -> Callable[[str], _Trained]:
    return lambda optimizer: _trained(_step(**how), optimizer)


def _dear(found: _Trained, optimizer: str) -> str:
    """Return what is wrong with the losses that steps gave, or with what they sent."""
    if not values_mean_something():
        return ""
    one, enough = _trained(_step(), optimizer), _trained(_step(mean=True), optimizer, REPLICAS).sent
    for loss, right in zip(found.losses, one.losses, strict=True):
        if loss is None:
            return "your step gave nothing back: does it end in `return`?"
        if not np.allclose(loss, right, 1e-3):
            return (
                f"the weights are right, but the loss that it gives is {loss:.3g}, not {right:.3g}"
            )
    if found.sent > 1.5 * enough:
        more = f"the weights are right, but {found.sent:,} bytes were sent, where {enough:,} are"
        why = "is synchronize_gradients called twice? The mean of equal gradients changes nothing"
        return f"{more} enough: {why}"
    if found.sent < enough / 2:
        host = f"the weights are right, but only {found.sent:,} bytes went over links"
        return f"{host}: the chips can take the mean, without the host"
    return ""


exercise(
    "12.loop",
    asks="step(model, optimizer, x, y)",
    reference=_mistake(),
    cases=_Optimizers(),
    mistakes={
        "no weight has changed: is optimizer.step() missing, or zero_grad() between backward() and "
        "it?": _mistake(moves=False),
        "it is right but for the gradients of earlier steps, which were added: "
        "optimizer.zero_grad() is missing, or comes too late": _mistake(clears=False),
        "the gradient is 4 times too large: the sum over four replicas is not their mean": (
            _mistake(times=4)
        ),
        "the gradient is 4 times too small: synchronize_gradients divides by four already": (
            _mistake(times=1 / 4)
        ),
        "each step goes twice as far: does backward() or optimizer.step() run twice?": (
            _mistake(times=2)
        ),
    },
    rules=_dear,
    praise="four replicas, one model, that of one device after each of 3 steps",
    hints=[
        "What happens to the gradients of step 1 when step 2 calls backward()?",
        "Each replica has the gradient of its own windows. Which call of lesson 06 takes their "
        "mean?",
        "optimizer.zero_grad() comes before backward(); "
        "synchronize_gradients(model.parameters()) between backward() and optimizer.step().",
    ],
)
