"""Text to ids and back: bytes, characters, or byte-pair encoding by the `tokenizers` library."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import tokenizers

from ttkit.errors import fail
from ttkit.files import AnyPath, read_text


class ByteTokenizer:
    """The bytes of the text in UTF-8: 256 ids, any text, no training.

    Decoding puts U+FFFD for bytes that are not UTF-8, as an untrained model's are not.

    Example:
        >>> ByteTokenizer().encode("né").tolist(), ByteTokenizer().decode([110, 195, 169])
        ([110, 195, 169], 'né')
    """

    vocab_size = 256

    def encode(self, text: str) -> np.ndarray:
        return np.frombuffer(text.encode(), np.uint8).astype(np.uint32)

    def decode(self, ids) -> str:
        return np.asarray(ids, np.uint8).tobytes().decode("utf-8", "replace")

    def to_dict(self) -> dict[str, Any]:
        return {"tokenizer_type": "byte"}


class CharTokenizer:
    """One id a character, for the characters of a text in the order of Unicode.

    Raises:
        ValueError: encode() of a character that is not in the vocabulary.

    Example:
        >>> tokenizer = CharTokenizer("mesh mesh")
        >>> tokenizer.characters, tokenizer.encode("hem").tolist()
        (' ehms', [2, 1, 3])
    """

    def __init__(self, text: str):
        self.characters = "".join(sorted(set(text)))
        self._ids = {character: i for i, character in enumerate(self.characters)}

    @property
    def vocab_size(self) -> int:
        return len(self.characters)

    def encode(self, text: str) -> np.ndarray:
        if unknown := set(text) - self._ids.keys():
            place = min(map(text.index, unknown))
            fail(
                f"encode {len(text)} characters",
                f"{text[place]!r} at {place} is not one of the {self.vocab_size} in the vocabulary",
                "leave it out, or tokenizer_type: byte, which takes any text",
                ValueError,
            )
        return np.array([self._ids[character] for character in text], np.uint32)

    def decode(self, ids) -> str:
        return "".join(self.characters[i] for i in np.ravel(ids))

    def to_dict(self) -> dict[str, Any]:
        return {"tokenizer_type": "char", "characters": self.characters}


class BPETokenizer:
    """Byte-pair encoding: 256 bytes, then the pairs that occur most often, joined repeatedly.

    Any text can be encoded and decoded. The `tokenizers` library trains it, and makes the same
    vocabulary each time.

    Args:
        text: a tokenizer in that library's JSON, such as `tokenizer.json` of a published model.

    Example:
        >>> tokenizer = BPETokenizer.train("the mesh, the meshes, the mesh", vocab_size=300)
        >>> [tokenizer.decode([i]) for i in tokenizer.encode("the meshes")]
        ['the', ' mesh', 'es']
    """

    def __init__(self, text: str):
        self._inner = tokenizers.Tokenizer.from_str(text)
        described = json.loads(text)
        first = described.get("pre_tokenizer") or {}
        # A tokenizer that cuts words before a newline gives the same ids line by line. The library
        # needs about 250 bytes of memory a character, so that is the way for a long text.
        self._by_lines = (
            described.get("normalizer") is None
            and first.get("type") == "ByteLevel"
            and not first.get("add_prefix_space")
        )

    @classmethod
    def train(cls, text: str, vocab_size: int = 512) -> BPETokenizer:
        """Train a tokenizer of vocab_size ids: at least the 256 of the bytes, and fewer than asked
        for if no pair is left that occurs twice.
        """
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
        inner.train_from_iterator(_lines(text), trainer)
        return cls(inner.to_str())

    @classmethod
    def load(cls, path: AnyPath) -> BPETokenizer:
        """Read a file in the library's JSON.

        Raises:
            TTKitError: it cannot be read.
        """
        return cls(read_text(path, "tokenizer_path"))

    @property
    def vocab_size(self) -> int:
        return self._inner.get_vocab_size()

    def encode(self, text: str) -> np.ndarray:
        lines = _lines(text) if self._by_lines else [text]
        encoded = (self._inner.encode(line, add_special_tokens=False).ids for line in lines)
        return np.fromiter(itertools.chain.from_iterable(encoded), np.uint32)

    def decode(self, ids) -> str:
        known = np.ravel(ids).tolist()
        return self._inner.decode(known, skip_special_tokens=False)

    def to_dict(self) -> dict[str, Any]:
        return {"tokenizer_type": "bpe", "tokenizer": json.loads(self._inner.to_str())}


def _lines(text: str) -> list[str]:
    """Cut the text before each newline after a word, which no token crosses."""
    return re.split(r"(?<=\S)(?=\n)", text)


# `encode` returns uint32 ids [length], `decode` takes ids of any shape in order, `vocab_size` is
# one more than the largest id, and `to_dict` is plain JSON for `tokenizer_from_dict`
Tokenizer = ByteTokenizer | CharTokenizer | BPETokenizer


def make_tokenizer(
    tokenizer_type: str, text: str, vocab_size: int = 512, path: str | None = None
) -> Tokenizer:
    """Read the tokenizer of a file, or make one of a tokenizer_type for this text; vocab_size is
    for "bpe".

    Example:
        >>> make_tokenizer("char", "abracadabra").vocab_size
        5
    """
    if path:
        return BPETokenizer.load(path)
    if tokenizer_type == "byte":
        return ByteTokenizer()
    if tokenizer_type == "char":
        return CharTokenizer(text)
    return BPETokenizer.train(text, vocab_size)


def tokenizer_from_dict(data: Mapping[str, Any]) -> Tokenizer:
    """Make a tokenizer from its `to_dict()`, as a checkpoint keeps it.

    Example:
        >>> tokenizer = tokenizer_from_dict({"tokenizer_type": "char", "characters": "ab"})
        >>> tokenizer.encode("ba").tolist()
        [1, 0]
    """
    if "tokenizer" in data:
        return BPETokenizer(json.dumps(data["tokenizer"]))
    return make_tokenizer(data["tokenizer_type"], data.get("characters", ""))
