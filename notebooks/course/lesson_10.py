"""Lesson 10, hierarchical training: a picture of its roles, a small model, exercises."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ttkit.lessons.exercises import exercise
from ttkit.visualize.drawing import INK, Drawing, Figure, Point, tone
from ttkit.words import counted

ROLE = {"worker": tone(1), "aggregator": tone(2), "optimizer": tone(3)}
ROLE |= {"aggregator_optimizer": tone(5)}
TEXT = "the quick brown fox jumps over the lazy dog. " * 40


# ---------------------------------------------------------------- what the ranks train
def small_gpt(workers: int = 0) -> Any:
    """Return the configuration of a small GPT on `TEXT`: of so many workers, or of one device.

    Example:
        >>> small_gpt(2).multihost_config.num_workers, small_gpt().multihost_config.enabled
        (2, False)
    """
    from ttkit.train import config

    gpt = config.TransformerConfig(
        num_heads=2,
        embedding_dim=32,
        num_blocks=2,
        vocab_size=len(set(TEXT)),
        max_sequence_length=32,
        dropout_prob=0,
    )
    training = config.TrainingConfig(
        batch_size=6, learning_rate=3e-3, tokenizer_type="char", checkpoint_dir="", eval_every=0
    )
    several = config.MultihostConfig(workers > 0, max(workers, 1), "mpi")
    return config.Settings(config.DeviceConfig((1, 1)), training, several, transformer_config=gpt)


def part_of_batches(settings: Any, rank: int) -> Any:
    """Return a worker's part of each batch of `TEXT`, as a `Trainer` draws them.

    Example:
        >>> inputs, targets = part_of_batches(small_gpt(2), rank=1).batch(0)
        >>> inputs.shape
        (3, 1, 1, 32)
    """
    from ttkit.train import make_tokenizer
    from ttkit.train.run.data import make_batches

    model, workers = settings.transformer_config, settings.multihost_config.num_workers
    tokens = make_tokenizer("char", TEXT, model.vocab_size).encode(TEXT)
    length = model.max_sequence_length
    return make_batches(tokens, length, settings.training_config, 1, rank, workers)[0]


_sent: Counter[str] = Counter()


def count_sent() -> Counter[str]:
    """Return the bytes of all that this rank sends from now on, by what it is."""
    from ttkit.train.pipeline.p2p import MPITransport

    put = MPITransport.put

    def counted(transport: MPITransport, message: Any, array: Any) -> None:
        _sent[message.what] += array.nbytes
        put(transport, message, array)

    if put.__name__ != "counted":  # counted already
        MPITransport.put = counted  # type: ignore[method-assign, assignment]
    _sent.clear()
    return _sent


# ---------------------------------------------------------------- the picture
def roles_picture(workers: int, tiers: int, counts: bool = True) -> Figure:
    """Return the picture of who sends what in a step, in sizes of the model.

    Args:
        workers: how many.
        tiers: 3, or 2 with aggregator and optimizer in one.
        counts: say how much, too.

    Example:
        >>> roles_picture(2, 3)
        2 workers, 3 tiers: 4 ranks; 6 models are sent in a step, round a ring of workers 2
          each worker: sends 1, gets 1; in a ring it sends 1
          aggregator: sends 3, gets 3
          optimizer: sends 1, gets 1
    """
    top = ["aggregator", "optimizer"] if tiers == 3 else ["aggregator_optimizer"]
    height = max(50 * workers, 90)
    drawing = Drawing(712, height + 40, "")
    middle = height / 2 + 20
    for rank in range(workers):
        y = 20 + (rank + 0.5) * height / workers
        _rank(drawing, 0, y, rank, "worker")
        ends = (rank == 0, rank == workers - 1)
        _both(drawing, (170, y), (270, middle + (y - middle) * 0.25), *ends)
    for i, role in enumerate(top):
        _rank(drawing, 270 + 270 * i, middle, workers + i, role)
    if tiers == 3:
        _both(drawing, (440, middle), (540, middle), True, True)
    through, ring = workers + (tiers == 3), 2 * (workers - 1)
    title = f"{counted(workers, 'worker')}, {tiers} tiers: {counted(workers + tiers - 1, 'rank')}"
    rows = [f"{role} is rank {workers + i}" for i, role in enumerate(top)]
    if counts:
        title += f"; {2 * through} models are sent in a step, round a ring of workers {ring}"
        rows = [f"each worker: sends 1, gets 1; in a ring it sends {ring / workers:.3g}"]
        rows += [f"{top[0].replace('_', ' + ')}: sends {through}, gets {through}"]
        rows += ["optimizer: sends 1, gets 1"] * (tiers == 3)
    drawing.title = "; ".join([title, *rows])
    notes = [f"{row[0].upper()}{row[1:]}." for row in rows]
    return Figure(title, [drawing], notes, "\n  ".join([title, *rows]))


def _rank(drawing: Drawing, x: float, y: float, rank: int, role: str) -> None:
    drawing.box(x + 1, y - 20, 168, 40, fill=ROLE[role], edge=INK)
    drawing.words(x + 85, y - 3, f"rank {rank}", size=13, colour=INK, bold=True)
    drawing.words(x + 85, y + 13, role.replace("_", " + "), size=13, colour=INK)


def _both(drawing: Drawing, a: Point, b: Point, above: bool, below: bool) -> None:
    """Draw gradients from `a` to `b`, and weights back."""
    (x1, y1), (x2, y2) = a, b
    drawing.arrow((x1 + 3, y1 - 6), (x2 - 3, y2 - 6), colour="var(--link)")
    drawing.arrow((x2 - 3, y2 + 6), (x1 + 3, y1 + 6), colour="var(--curve)")
    middle = (x1 + x2) / 2
    if above:
        drawing.words(middle, min(y1, y2) - 14, "gradients →", size=13, halo=True)
    if below:
        drawing.words(middle, max(y1, y2) + 24, "← weights", size=13, halo=True)


# ---------------------------------------------------------------- exercises
def _role(rank: int, world: int, num_workers: int) -> str:
    left = {1: ["aggregator_optimizer"], 2: ["aggregator", "optimizer"]}[world - num_workers]
    return "worker" if rank < num_workers else left[rank - num_workers]


exercise(
    "10.roles",
    asks="role(rank, world, num_workers)",
    reference=_role,
    cases=[
        (rank, workers + others, workers)
        for workers in (1, 2, 3, 40)
        for others in (1, 2)
        for rank in range(workers + others)
    ],
    mistakes={
        "with {world} ranks and {num_workers} workers one rank has both jobs": (
            lambda rank, world, num_workers: _role(rank, num_workers + 2, num_workers)
        ),
        "the workers are ranks 0 to {num_workers} - 1": lambda rank, world, num_workers: _role(
            max(rank - 1, 0), world, num_workers
        ),
    },
    praise="every rank has its role, in two tiers and in three",
    hints=[
        "Which ranks come first? How many ranks are left when the workers have theirs?",
        "world - num_workers is 1 in two tiers and 2 in three.",
        "rank < num_workers is a worker. Else: with one rank left it is 'aggregator_optimizer'; "
        "with two, the first is the 'aggregator', the second the 'optimizer'.",
    ],
)
exercise(
    "10.bytes",
    asks="aggregator_bytes(num_workers, gradients, weights)",
    reference=lambda n, gradients, weights: (n * gradients + weights, gradients + n * weights),
    cases=[(2, 4096, 1024), (3, 100, 1 << 20), (7, 12, 5), (1, 8, 4)],
    mistakes={
        "in and out are swapped; what the workers send comes in": lambda n, gradients, weights: (
            gradients + n * weights,
            n * gradients + weights,
        ),
        "the optimizer is a neighbour, too": lambda n, gradients, weights: (
            n * gradients,
            n * weights,
        ),
        "the optimizer sends weights and gets gradients, the workers the reverse": (
            lambda n, gradients, weights: ((n + 1) * gradients, (n + 1) * weights)
        ),
    },
    praise="gradients of all workers and the optimizer's weights come in; the reverse goes out",
    hints=[
        "Draw the arrows that point at the aggregator. Which carry gradients, which weights?",
        "In: gradients of each worker, and what does the optimizer send? Out: the reverse.",
        "in is num_workers * gradients + weights. Out is the other way round.",
    ],
)
