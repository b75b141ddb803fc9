"""Text to train on, and token ids as batches.

The seed and the step alone determine the windows of the text that are in a batch. So there is no
state to save, and a run can resume at any step. The batches are the same on every mesh and with
every number of ranks."""

from __future__ import annotations

import copy
import functools
import hashlib
from pathlib import Path

import numpy as np

from ttkit import files
from ttkit.errors import fail
from ttkit.train.config.layout import check_divisible
from ttkit.train.config.settings import TrainingConfig

Array = np.ndarray


@functools.cache
def builtin_corpus() -> str:
    """Return about 190 KB of small stories in plain ASCII.

    Each animal always likes the same things and lives in the same place, additions are correct, and
    days come in their order. So a small model learns letters first, then words, then the things
    that each animal likes. The stories were generated for ttkit from sentences of our own.

    Example:
        >>> builtin_corpus().splitlines()[:3]
        ['The goat and the fox', '', 'The goat lives by the barn. The goat likes bells.']
    """
    return files.read_text(Path(__file__).with_name("stories.txt"), "text")


def training_text(data_path: str | None) -> str:
    """Return the text of the file `data_path`, or the small corpus of ttkit if there is no path."""
    return files.read_text(data_path, "text") if data_path else builtin_corpus()


class TokenDataset:
    """Windows of a text. Window i holds `sequence_length` ids from position i * stride on. The
    target of each id is the next id of the text.

    Args:
        ids: [length] whole numbers, at least 0.
        sequence_length: the number of ids in a window.
        stride: the distance from the start of a window to the start of the next. With 1 windows
            overlap; with sequence_length each id is in one window only.

    Example:
        >>> dataset = TokenDataset(np.arange(10), sequence_length=4)
        >>> len(dataset), *(part.tolist() for part in dataset.windows([5]))
        (6, [[5, 6, 7, 8]], [[6, 7, 8, 9]])
    """

    def __init__(self, ids, sequence_length: int, stride: int = 1):
        self.ids = np.asarray(ids).astype(np.uint32, copy=False)
        self.sequence_length = sequence_length
        self.stride = stride

    def __len__(self) -> int:
        return max((self.ids.size - self.sequence_length - 1) // self.stride + 1, 0)

    def windows(self, indices) -> tuple[Array, Array]:
        """Return inputs and targets of some windows, both [len(indices), sequence_length],
        uint32.
        """
        starts = np.asarray(indices, np.int64)[:, None] * self.stride
        rows = self.ids[starts + np.arange(self.sequence_length + 1)]
        return rows[:, :-1], rows[:, 1:]

    def split(self, validation_fraction: float = 0.1) -> tuple[TokenDataset, TokenDataset]:
        """Return training and validation windows: the last part of the text is for validation.

        Validation windows do not overlap, so that no id is predicted twice.

        Example:
            >>> training, validation = TokenDataset(np.arange(1000), 9).split(0.1)
            >>> len(training), validation.ids[:3].tolist(), len(validation)
            (891, [900, 901, 902], 11)
        """
        cut = self.ids.size - round(self.ids.size * validation_fraction)
        training = TokenDataset(self.ids[:cut], self.sequence_length, self.stride)
        return training, TokenDataset(self.ids[cut:], self.sequence_length, self.sequence_length)


class Batches:
    """The batches of a dataset by step: `batch` returns that of any step, in any order and on every
    rank.

    The seed and the epoch determine the order of the windows in an epoch. An epoch leaves out the
    last windows if they do not fill a batch.

    Args:
        dataset: the windows.
        batch_size: the number of windows in the global batch.
        seed: any whole number; with None the windows are in order, as validation needs them.

    Raises:
        TTKitError: the dataset has fewer windows than one batch needs.

    Example:
        >>> batches = Batches(TokenDataset(np.arange(100), 8), batch_size=4, seed=42)
        >>> x, y = batches.batch(step=1000)
        >>> x.shape, len(batches)
        ((4, 1, 1, 8), 23)
        >>> bool((batches.part(1, 2).batch(1000)[0] == x[2:]).all())
        True
    """

    def __init__(self, dataset: TokenDataset, batch_size: int, seed: int | None = 42):
        if len(dataset) < batch_size:
            fail(
                f"Batches(batch_size={batch_size})",
                f"{len(dataset)} windows of {dataset.sequence_length} tokens do not fill one batch",
                "a longer text, or a smaller batch_size or max_sequence_length",
            )
        self.dataset = dataset
        self.batch_size = batch_size
        self.seed = seed
        self.rows = range(batch_size)  # `batch` returns these rows of the global batch.

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""
        return len(self.dataset) // self.batch_size

    def part(self, which: int, parts: int) -> Batches:
        """Return batches with one of `parts` equal parts of the rows, such as those of a rank."""
        size = len(self.rows) // parts
        part = copy.copy(self)
        part.rows = self.rows[which * size : (which + 1) * size]
        return part

    def batch(self, step: int, micro_batch: int = 0, micro_batches: int = 1) -> tuple[Array, Array]:
        """Return inputs and targets of a step, both [rows, 1, 1, sequence_length], uint32.

        Args:
            step: the number of the step, counted from 0 through all epochs.
            micro_batch: which of `micro_batches` equal parts of the rows to return, from 0.
        """
        rows = self.part(micro_batch, micro_batches).rows
        epoch, place = divmod(step, len(self))
        positions = np.arange(rows.start, rows.stop) + place * self.batch_size
        if self.seed is not None:
            positions = shuffled(positions, len(self.dataset), f"{self.seed}/{epoch}")
        x, y = self.dataset.windows(positions)
        shape = (len(rows), 1, 1, self.dataset.sequence_length)
        return np.ascontiguousarray(x).reshape(shape), np.ascontiguousarray(y).reshape(shape)


def make_batches(
    ids, length: int, config: TrainingConfig, replicas: int, rank: int, ranks: int
) -> tuple[Batches, Batches]:
    """Return the training and validation batches of a rank, in windows of `length` ids. The last
    tenth of the ids is for validation.

    Args:
        replicas: how many replicas of the model each rank has on its mesh.
        rank: the number of this rank among the `ranks` ranks that share a batch.

    Raises:
        TTKitError: the batch cannot be divided evenly, or the text is too short.
    """
    parts = config.gradient_accumulation_steps
    check_divisible(
        "batch_size",
        config.batch_size,
        f"{parts} gradient_accumulation_steps x {ranks} ranks x {replicas} replicas =",
        parts * ranks * replicas,
    )
    training, held_out = TokenDataset(ids, length).split(0.1)
    size = min(config.validation_batch_size or max(config.batch_size // 2, 1), len(held_out))
    shared = replicas * ranks
    whole = Batches(held_out, max(size // shared, 1) * shared, seed=None)
    batches = Batches(training, config.batch_size, config.seed)
    return batches.part(rank, ranks), whole.part(rank, ranks)


def shuffled(positions, count: int, key: str) -> Array:
    """Return the results of some positions of 0 .. count - 1 in the shuffle that `key` selects,
    without computing those of other positions.

    A Feistel network is a shuffle of 0 .. 4^k - 1. Each round combines a hash of one half of a
    number's bits with the other half by exclusive or. This can be undone, so no two numbers have
    the same result. A result of `count` or more is shuffled again until it is below `count`. Only
    integers are used, so the order is the same with every NumPy on every machine.

    Example:
        >>> shuffled([0, 1, 2, 3, 4], 5, "42/0").tolist()
        [2, 1, 3, 0, 4]
    """
    half = np.uint64(max(1, (int(count - 1).bit_length() + 1) // 2))
    low = np.uint64((1 << int(half)) - 1)
    # There are six rounds. Four suffice for a good shuffle; two more help if `count` is small.
    keys = np.frombuffer(hashlib.blake2b(key.encode(), digest_size=8 * 6).digest(), "<u8")
    found = np.array(positions, np.uint64)
    again = np.arange(found.size)
    while again.size:
        left = found[again] >> half
        right = found[again] & low
        for number in keys:
            left, right = right, left ^ (_hash(right + number) & low)
        found[again] = left << half | right
        again = again[found[again] >= count]
    return found.astype(np.int64)


def _hash(numbers: Array) -> Array:
    """Mix the bits of each number, as the last step of the random generator SplitMix64 does."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
