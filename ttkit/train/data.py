"""Token ids to batches: which window of the text is in which batch follows from the seed and the
step alone.

There is no state to save, so a run that resumes starts at its step, and no dependence on the
layout, so that every mesh and every number of ranks sees the same batches."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from ttkit.errors import fail

# four are enough for a good shuffle with good round functions; two more for short domains
ROUNDS = 6


class TokenDataset:
    """Windows of a text: window i holds `sequence_length` ids from position i * stride, its
    targets are the ids one further on.

    Args:
        ids: [length] whole numbers, at least 0.
        sequence_length: ids in a window.
        stride: how far apart windows start: 1 gives every window there is, sequence_length gives
        each id once.

    Raises:
        TTKitError: fewer than sequence_length + 1 ids.

    Example:
        >>> dataset = TokenDataset(np.arange(10), sequence_length=4)
        >>> len(dataset), *(part.tolist() for part in dataset.windows([5]))
        (6, [[5, 6, 7, 8]], [[6, 7, 8, 9]])
    """

    def __init__(self, ids: Any, sequence_length: int, stride: int = 1):
        array = np.asarray(ids)
        asked = (
            f"TokenDataset(ids {list(array.shape)}, sequence_length={sequence_length}, "
            f"stride={stride})"
        )
        if (
            array.ndim != 1
            or array.dtype.kind not in "iu"
            or (array.size and not 0 <= array.min() <= array.max() < 2**32)
        ):
            fail(
                asked,
                "ids are one row of whole numbers from 0 to 2^32 - 1; "
                f"these are {array.dtype} {list(array.shape)}",
                "what a tokenizer's encode() gives",
                TypeError,
            )
        if sequence_length < 1 or stride < 1:
            fail(
                asked,
                "sequence_length and stride are at least 1",
                "stride=1 for every window",
                ValueError,
            )
        if array.size <= sequence_length:
            rule = (
                f"{array.size} ids are too few: a window with its targets takes "
                f"{sequence_length + 1}"
            )
            fail(
                asked,
                rule,
                "a longer text, or sequence_length (max_sequence_length of a model) of at most "
                f"{max(array.size - 1, 1)}",
            )
        self.ids = array.astype(np.uint32, copy=False)
        self.sequence_length = sequence_length
        self.stride = stride

    def __len__(self) -> int:
        return (self.ids.size - self.sequence_length - 1) // self.stride + 1

    def windows(self, indices: Any) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and targets [len(indices), sequence_length], uint32, of the windows with these
        numbers.
        """
        starts = np.asarray(indices, np.int64)[:, None] * self.stride
        rows = self.ids[starts + np.arange(self.sequence_length + 1)]
        return rows[:, :-1], rows[:, 1:]

    def split(self, validation_fraction: float = 0.1) -> tuple[TokenDataset, TokenDataset]:
        """Training and validation: the last part of the text is for validation, and no window
        has ids of both.

        Validation windows lie side by side, so that each id is predicted once.

        Raises:
            TTKitError: a part is shorter than one window.

        Example:
            >>> training, validation = TokenDataset(np.arange(1000), 9).split(0.1)
            >>> len(training), validation.ids[:3].tolist(), len(validation)
            (891, [900, 901, 902], 11)
        """
        if not 0 < validation_fraction < 1:
            fail(
                f"split({validation_fraction})",
                "the fraction for validation lies between 0 and 1",
                "split(0.1)",
                ValueError,
            )
        cut = self.ids.size - round(self.ids.size * validation_fraction)
        for part, size in (("training", cut), ("validation", self.ids.size - cut)):
            if size <= self.sequence_length:
                rule = (
                    f"{part} gets {size} of {self.ids.size} ids, and a window with its targets "
                    f"takes {self.sequence_length + 1}"
                )
                fail(
                    f"split({validation_fraction})",
                    rule,
                    "a longer text, another fraction or a smaller sequence_length "
                    "(max_sequence_length of a model)",
                )
        training = TokenDataset(self.ids[:cut], self.sequence_length, self.stride)
        return training, TokenDataset(self.ids[cut:], self.sequence_length, self.sequence_length)


class Batches:
    """The batches of a dataset by step: `batch(step)`, for any step at any time, on every rank.

    Each epoch has an order of its own, that follows from (seed, epoch); windows that do not fill a
    last batch are left out of it.

    Args:
        dataset: the windows.
        batch_size: windows in the global batch.
        seed: any whole number; None gives the windows in order, which is what validation wants.

    Raises:
        TTKitError: fewer windows than one batch takes.

    Example:
        >>> batches = Batches(TokenDataset(np.arange(100), sequence_length=8), batch_size=4, seed=42)
        >>> x, y = batches.batch(step=1000)
        >>> x.shape, len(batches)
        ((4, 1, 1, 8), 23)
        >>> bool((batches.part(1, 2).batch(1000)[0] == x[2:]).all())
        True
    """

    def __init__(self, dataset: TokenDataset, batch_size: int, seed: int | None = 42):
        asked = f"Batches(dataset of {len(dataset)} windows, batch_size={batch_size})"
        if batch_size < 1:
            fail(asked, "a batch has at least 1 window", "batch_size=1", ValueError)
        if len(dataset) < batch_size:
            fail(
                asked,
                f"{len(dataset)} windows do not fill one batch of {batch_size}",
                f"a longer text, or batch_size of at most {len(dataset)}",
            )
        self.dataset = dataset
        self.batch_size = batch_size
        self.seed = seed
        self.rows = range(batch_size)  # of the global batch

    def __len__(self) -> int:
        """Batches in an epoch."""
        return len(self.dataset) // self.batch_size

    def part(self, rank: int, world: int) -> Batches:
        """What one of `world` ranks sees: its share of the rows of each batch, in the order of
        the ranks. A part has parts again.

        Raises:
            TTKitError: the rows cannot be shared out evenly.
        """
        if not 0 <= rank < world:
            fail(
                f"part({rank}, {world})",
                f"ranks go from 0 to {world - 1}",
                "rank first, then the number of ranks",
                ValueError,
            )
        part = Batches(self.dataset, self.batch_size, self.seed)
        part.rows = _share(self.rows, rank, world, f"part({rank}, {world})", "ranks")
        return part

    def batch(
        self, step: int, micro_batch: int = 0, micro_batches: int = 1
    ) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and targets [rows, 1, 1, sequence_length], uint32, of a step; step 0 is the first.

        Args:
            step: steps go on through the epochs.
            micro_batch: which of `micro_batches` equal parts of the rows, in order, for gradient
            accumulation.

        Raises:
            TTKitError: the rows cannot be cut into as many micro-batches.
        """
        asked = f"batch({step}, {micro_batch}, {micro_batches})"
        if step < 0 or not 0 <= micro_batch < micro_batches:
            fail(
                asked,
                f"steps start at 0, and micro-batches go from 0 to {micro_batches - 1}",
                "batch(0)",
                ValueError,
            )
        rows = _share(self.rows, micro_batch, micro_batches, asked, "micro-batches")
        epoch, place = divmod(step, len(self))
        positions = np.arange(rows.start, rows.stop) + place * self.batch_size
        if self.seed is not None:
            positions = shuffled(positions, len(self.dataset), f"{self.seed}/{epoch}")
        x, y = self.dataset.windows(positions)
        shape = (len(rows), 1, 1, self.dataset.sequence_length)
        return np.ascontiguousarray(x).reshape(shape), np.ascontiguousarray(y).reshape(shape)


def _share(rows: range, which: int, parts: int, asked: str, called: str) -> range:
    if len(rows) % parts:
        rule = (
            f"{len(rows)} rows of the batch cannot be shared out evenly to {parts} {called}: "
            f"{len(rows)} % {parts} = {len(rows) % parts}"
        )
        fail(asked, rule, f"a batch_size that is a multiple of {parts}")
    size = len(rows) // parts
    return rows[which * size : (which + 1) * size]


def shuffled(positions: Any, count: int, key: str) -> np.ndarray:
    """Where the given positions of 0 .. count - 1 go in the shuffle that `key` names, without
    working out the others.

    A Feistel network is a shuffle of 0 .. 4^k - 1: each round adds a hash of one half of a number's
    bits to the other half, which can be undone, so that no two numbers meet. A result of `count` or
    more goes in again until it is below. It uses whole numbers only: the order is the same with
    every NumPy on every machine.

    Example:
        >>> shuffled([0, 1, 2, 3, 4], 5, "42/0").tolist()
        [2, 1, 3, 0, 4]
    """
    half = np.uint64(max(1, (int(count - 1).bit_length() + 1) // 2))
    low = np.uint64((1 << int(half)) - 1)
    keys = np.frombuffer(hashlib.blake2b(key.encode(), digest_size=8 * ROUNDS).digest(), "<u8")
    found = np.array(positions, np.uint64)
    again = np.arange(found.size)
    while again.size:
        left, right = found[again] >> half, found[again] & low
        for number in keys:
            left, right = right, left ^ (_hash(right + number) & low)
        found[again] = left << half | right
        again = again[found[again] >= count]
    return found.astype(np.int64)


def _hash(numbers: np.ndarray) -> np.ndarray:
    """Each number's bits well mixed: the last step of the generator SplitMix64."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
