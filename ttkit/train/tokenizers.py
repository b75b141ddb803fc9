"""Text to numbers and back: bytes, characters, or byte-pair encoding by the `tokenizers`
library.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import tokenizers

from ttkit.errors import fail
from ttkit.files import write_whole

# characters that go into the library at once: it keeps some 250 bytes for each of them
PIECE = 1 << 16


class Tokenizer(Protocol):
    """What every tokenizer here can do.

    `encode` gives uint32 ids [length], `decode` takes ids of any shape and reads them in order,
    `vocab_size` is one more than the largest id, and `to_dict` is plain JSON, from which
    `tokenizer_from_dict` makes the same tokenizer again."""

    @property
    def vocab_size(self) -> int: ...
    def encode(self, text: str) -> np.ndarray: ...
    def decode(self, ids: Any) -> str: ...
    def to_dict(self) -> dict[str, Any]: ...


def _known_ids(ids: Any, vocab_size: int) -> np.ndarray:
    array = np.asarray(ids).reshape(-1)
    if array.size == 0:
        return array.astype(np.int64)
    if array.dtype.kind not in "iu":
        fail(
            f"decode {array.dtype} values",
            "ids are whole numbers",
            "the uint32 ids that encode() gives",
            TypeError,
        )
    low, high = int(array.min()), int(array.max())
    if low < 0 or high >= vocab_size:
        fail(
            f"decode {array.size} ids",
            f"id {low if low < 0 else high} is not one of the {vocab_size} in the vocabulary",
            "another tokenizer's ids?",
            IndexError,
        )
    return array.astype(np.int64)


class ByteTokenizer:
    """The bytes of the text in UTF-8: 256 ids, any text, nothing to learn.

    Decoding puts U+FFFD where bytes are no UTF-8, as an untrained model's are not.

    Example:
        >>> ByteTokenizer().encode("né").tolist(), ByteTokenizer().decode([110, 195, 169])
        ([110, 195, 169], 'né')
    """

    vocab_size = 256

    def encode(self, text: str) -> np.ndarray:
        return np.frombuffer(text.encode("utf-8", "replace"), np.uint8).astype(np.uint32)

    def decode(self, ids: Any) -> str:
        return (
            _known_ids(ids, self.vocab_size).astype(np.uint8).tobytes().decode("utf-8", "replace")
        )

    def to_dict(self) -> dict[str, Any]:
        return {"tokenizer_type": "byte"}


class CharTokenizer:
    """One id a character, for the characters of the text that it was made from.

    Args:
        characters: the vocabulary in the order of the ids; `CharTokenizer.train(text)` takes the
        text's, sorted.

    Raises:
        TTKitError: no characters, or one twice.
        ValueError: encode() of a character that is not in the vocabulary.

    Example:
        >>> tokenizer = CharTokenizer.train("mesh mesh")
        >>> tokenizer.characters, tokenizer.encode("hem").tolist()
        (' ehms', [2, 1, 3])
    """

    def __init__(self, characters: str):
        if not characters or len(set(characters)) < len(characters):
            fail(
                f"CharTokenizer({characters[:40]!r})",
                "a vocabulary has at least one character and none twice",
                "CharTokenizer.train(text)",
            )
        self.characters = characters
        codes = _codes(characters)
        self._codes = codes
        self._order = np.argsort(codes)  # ids by code: where searchsorted looks

    @classmethod
    def train(cls, text: str) -> CharTokenizer:
        return cls("".join(sorted(set(text))))

    @property
    def vocab_size(self) -> int:
        return len(self.characters)

    def encode(self, text: str) -> np.ndarray:
        codes = _codes(text)
        ids = self._order[
            np.searchsorted(self._codes, codes, sorter=self._order).clip(max=self.vocab_size - 1)
        ]
        unknown = np.flatnonzero(self._codes[ids] != codes)
        if unknown.size:
            asked = f"encode {len(text)} characters"
            rule = (
                f"{text[unknown[0]]!r} at {unknown[0]} is not one of the {self.vocab_size} in "
                "the vocabulary"
            )
            fail(
                asked,
                rule,
                "leave it out, or tokenizer_type: byte, which takes any text",
                ValueError,
            )
        return ids.astype(np.uint32)

    def decode(self, ids: Any) -> str:
        return (
            self._codes[_known_ids(ids, self.vocab_size)]
            .tobytes()
            .decode("utf-32-le", "surrogatepass")
        )

    def to_dict(self) -> dict[str, Any]:
        return {"tokenizer_type": "char", "characters": self.characters}


def _codes(text: str) -> np.ndarray:
    """The Unicode number of each character."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")


class BPETokenizer:
    """Byte-pair encoding: 256 bytes, then the pairs that occur most often, joined again and again.

    Any text can be encoded and comes back as it was. Training is the `tokenizers` library's, and
    gives the same vocabulary each time.

    Args:
        text: a tokenizer in that library's JSON, such as `tokenizer.json` beside a published model.

    Raises:
        TTKitError: not such a JSON text.

    Example:
        >>> tokenizer = BPETokenizer.train("the mesh, the meshes, the mesh", vocab_size=300)
        >>> [tokenizer.decode([i]) for i in tokenizer.encode("the meshes")]
        ['the', ' mesh', 'es']
    """

    def __init__(self, text: str):
        try:
            self._inner = tokenizers.Tokenizer.from_str(text)
        except Exception as error:  # the library raises no narrower one
            fail(
                "make a BPETokenizer",
                f"not a tokenizer of the tokenizers library: {error}",
                "a tokenizer.json, or BPETokenizer.train(text)",
            )
        described = json.loads(text)
        first = described.get("pre_tokenizer") or {}
        # Where words are cut before a newline anyway, encoding piece by piece gives what encoding
        # the whole gives, in less memory.
        self._in_pieces = (
            described.get("normalizer") is None
            and first.get("type") == "ByteLevel"
            and not first.get("add_prefix_space")
        )

    @classmethod
    def train(cls, text: str, vocab_size: int = 512) -> BPETokenizer:
        """A tokenizer for this text with vocab_size ids, or fewer where no pair is left that
        occurs twice.

        Raises:
            TTKitError: vocab_size below the 256 that bytes need.
        """
        if vocab_size < 256:
            fail(
                f"BPETokenizer.train(text, vocab_size={vocab_size})",
                "the bytes alone are 256",
                "256 or more, or tokenizer_type: char",
            )
        level = tokenizers.pre_tokenizers.ByteLevel
        inner = tokenizers.Tokenizer(tokenizers.models.BPE())
        inner.pre_tokenizer = level(add_prefix_space=False)
        inner.decoder = tokenizers.decoders.ByteLevel()
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=vocab_size,
            min_frequency=2,
            initial_alphabet=sorted(level.alphabet()),
            show_progress=False,
        )
        with _one_thread():
            inner.train_from_iterator(_pieces(_clean(text)), trainer)
        return cls(inner.to_str())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> BPETokenizer:
        """From a file in the library's JSON."""
        try:
            return cls(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            fail(
                f"BPETokenizer.load({str(path)!r})",
                f"it cannot be read: {getattr(error, 'strerror', None) or error}",
                "check tokenizer_path",
            )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Into a file in the library's JSON; the file is there whole or not at all."""
        write_whole(path, self._inner.to_str(), f"save a tokenizer as {str(path)!r}")

    @property
    def vocab_size(self) -> int:
        return self._inner.get_vocab_size()

    def encode(self, text: str) -> np.ndarray:
        text = _clean(text)
        pieces = _pieces(text) if self._in_pieces else iter([text])
        ids = [
            np.asarray(self._inner.encode(piece, add_special_tokens=False).ids, np.uint32)
            for piece in pieces
        ]
        return np.concatenate([np.zeros(0, np.uint32), *ids])

    def decode(self, ids: Any) -> str:
        return self._inner.decode(
            _known_ids(ids, self.vocab_size).tolist(), skip_special_tokens=False
        )

    def to_dict(self) -> dict[str, Any]:
        return {"tokenizer_type": "bpe", "tokenizer": json.loads(self._inner.to_str())}


def _clean(text: str) -> str:
    """Without halves of surrogate pairs, which are no text and which the library refuses."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _pieces(text: str) -> Iterator[str]:
    """The text in pieces of about PIECE characters that end where a line's last word does, where
    no token goes across.
    """
    start = 0
    while start < len(text):
        cut = re.compile(r"(?<=\S)\n").search(text, min(start + PIECE, len(text)))
        end = cut.start() if cut else len(text)
        yield text[start:end]
        start = end


@contextmanager
def _one_thread() -> Iterator[None]:
    """Train in this thread: up to 0.21 the library prints a warning in each process that is
    forked after it has used several.
    """
    name = "TOKENIZERS_PARALLELISM"
    before = os.environ.get(name)
    os.environ[name] = "false"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def make_tokenizer(tokenizer_type: str, text: str, vocab_size: int = 512) -> Tokenizer:
    """The tokenizer that a configuration's tokenizer_type names, for this text; vocab_size is
    what "bpe" aims at.

    Raises:
        TTKitError: a tokenizer_type that is none of byte, char and bpe, in ttml's words.

    Example:
        >>> make_tokenizer("char", "abracadabra").vocab_size
        5
    """
    if tokenizer_type == "byte":
        return ByteTokenizer()
    if tokenizer_type == "char":
        return CharTokenizer.train(text)
    if tokenizer_type == "bpe":
        return BPETokenizer.train(text, vocab_size)
    fail("make a tokenizer", f"Unknown tokenizer_type: {tokenizer_type}", "one of byte, char, bpe")


def tokenizer_from_dict(data: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer that `to_dict` wrote, as a checkpoint keeps it.

    Raises:
        TTKitError: not such a dictionary.

    Example:
        >>> tokenizer_from_dict({"tokenizer_type": "char", "characters": "ab"}).encode("ba").tolist()
        [1, 0]
    """
    kind = data.get("tokenizer_type")
    if kind == "byte":
        return ByteTokenizer()
    if kind == "char" and isinstance(data.get("characters"), str):
        return CharTokenizer(data["characters"])
    if kind == "bpe" and isinstance(data.get("tokenizer"), Mapping):
        return BPETokenizer(json.dumps(data["tokenizer"]))
    rule = (
        f"{kind} without what belongs to it"
        if kind in ("char", "bpe")
        else f"Unknown tokenizer_type: {kind}"
    )
    fail("make a tokenizer from a dictionary", rule, "the dictionary that to_dict() gives")
