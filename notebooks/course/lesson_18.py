"""Lesson 18, long sequences: training steps of a small GPT, and the exercises."""

import numpy as np

import ttkit
from course.arrays import numbers, replicas, split
from course.common import opened, small_gpt
from ttkit import lessons
from ttkit.lessons.exercises import Exercise
from ttkit.lessons.on_meshes import Budget, OnMeshes
from ttkit.profiling import last_name
from ttkit.train import Layout, create_model
from ttkit.train.parallel.data_parallel import average_gradients
from ttkit.train.parallel.distributed import mean_over_replicas
from ttkit.words import grouped


# ---------------------------------------------------------------- steps of a small GPT
def laid_out(chips: int, axis: str = "", **more) -> Layout:
    """Return a layout on a new row of chips.

    Args:
        axis: the parallelism along the row, "tp" or "cp"; "" for a single chip.
    """
    return Layout(axes=((axis, 1),) if axis else (), **more).on(opened(chips))


def gpt(length: int, layout: Layout, attention: str = "stored"):
    """Return a GPT of two blocks with 8 heads.

    Args:
        length: the number of tokens in a sequence.
        attention: "stored" if the model keeps the attention scores, "flash" if it does not.
    """
    sizes = {"num_heads": 8, "embedding_dim": 256, "vocab_size": 96, "num_blocks": 2}
    settings = small_gpt(**sizes, max_sequence_length=length, attention=attention)
    model = create_model(settings.transformer_config, layout)
    model.init_weights(42)
    return model


def step(layout: Layout):
    """Run a forward and a backward pass on 512 tokens.

    Return the loss and all gradients in one array, and a profile of the two passes.
    """
    model, draw = gpt(512, layout), np.random.default_rng(1)
    tokens, targets = map(layout.tokens, draw.integers(0, 96, (2, 1, 1, 1, 512)))
    with ttkit.profile() as passes:
        loss = model.loss(model(tokens), targets)
        loss.backward()
    parameters = model.parameters()
    average_gradients(parameters)  # This averages over chips that have different tokens.
    gradients = (each.gather_grad().ravel() for each in parameters.values())
    return np.hstack([mean_over_replicas(loss, layout), *gradients]), passes


def compare(name: str, wanted: np.ndarray, layout: Layout) -> None:
    """Compare a step with that of one chip, and print the collectives of its two passes."""
    found, passes = step(layout)
    lessons.same(wanted, found, f"{name}: loss and all gradients equal one chip's", 1e-3, 1e-5)
    sends = [record for record in passes.records if record.bytes_on_links]
    for call, records in grouped(sends, lambda record: last_name(record.name)).items():
        total = sum(record.bytes_on_links for record in records)
        print(f"  {len(records):3} x {call:14} {total / 1e6:6.1f} MB on links")


# ---------------------------------------------------------------- 18.longest
def _longest(room: float, width: int, blocks: int, n: int, shared: bool) -> int:
    """Return how many tokens fit in `room` bytes, by the table of the lesson.

    A vector takes two bytes for each number of the width.
    """
    return int(room / (width * blocks * (10 / (n if shared else 1) + 24 / n)))


Exercise(
    "18.longest",
    asks="longest(room, width, blocks, n, sequence_parallel)",
    reference=_longest,
    cases=[(8e9, 4096, 32, 8, False), (8e9, 4096, 32, 8, True), (20e9, 8192, 80, 16, True)],
    mistakes={
        "only sequence parallelism divides what tensor parallelism leaves whole": (
            lambda room, width, blocks, n, shared: _longest(room, width, blocks, n, not shared)
        )
    },
    praise="in three cases your sequence is the longest that fits",
    hints=[
        "How many vectors does one token take in one block? Which of them does n divide?",
        "Of 17 vectors of 2 * width bytes, n divides 12, or all 17 with sequence parallelism.",
        "int(room / (2 * width * blocks * (5 + 12 / n))), or 17 / n with sequence parallelism.",
    ],
)


# ---------------------------------------------------------------- 18.weight
def _normed_and_sums(_: int, columns: int) -> list:
    """Return normed tokens, and for each chip its partial sums of their gradient."""
    tokens = 64 * columns, 96
    return [(numbers(*tokens), None), (numbers(columns, *tokens), None)]


def _summed(normed: np.ndarray, sums: np.ndarray) -> np.ndarray:
    return np.einsum("td,ntd->d", normed, sums)[None]


def _enough(mesh, normed: np.ndarray, sums: np.ndarray) -> int:
    """Return the bytes that all links carry in the cheapest solution.

    It is a reduce-scatter of the sums, and an all-reduce of a row of tiles.
    """
    return (len(sums) - 1) * (normed.nbytes + 2 * 32 * 96 * 4)


Exercise(
    "18.weight",
    asks="weight_gradient(mesh, normed, sums)",
    reference=lambda mesh, *given: replicas(mesh, _summed(*given)),
    cases=OnMeshes([(1, 4), (1, 3)], _normed_and_sums, fabric=True),
    mistakes={
        "each chip has the gradient of its own tokens only": lambda mesh, normed, sums: list(
            map(_summed, split(mesh, normed, 0), split(mesh, sums, 1))
        )
    },
    budget=Budget(link_bytes=_enough),
    rtol=1e-4,
    praise="it is the gradient of one device, and no chip received the tokens of others",
    hints=[
        "Which chip has the normed values of a token? What must be summed before they are used?",
        "reduce_scatter adds the chips' sums, and leaves each chip those of its own tokens.",
        "Multiply by the chip's normed values, sum over its tokens (ttnn.sum with dim=2 and "
        "keepdim=True), and all_reduce the row.",
    ],
)
