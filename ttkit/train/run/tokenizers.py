"""Tokenizers, from text to ids and back: bytes, characters, or byte-pair encoding by the
`tokenizers` library."""

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
    """A tokenizer whose ids are the bytes of the text in UTF-8. It has 256 ids, encodes any text
    and needs no training.

    `decode` puts U+FFFD in place of bytes that are not valid UTF-8, such as an untrained model's.

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
    """A tokenizer with one id for each character of a text, in the order of their code points.

    Raises:
        ValueError: `encode` was given a character that is not in the vocabulary.

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
                "remove the character, or use tokenizer_type: byte, which encodes any text",
                ValueError,
            )
        return np.array([self._ids[character] for character in text], np.uint32)

    def decode(self, ids) -> str:
        return "".join(self.characters[i] for i in np.ravel(ids))

    def to_dict(self) -> dict[str, Any]:
        return {"tokenizer_type": "char", "characters": self.characters}


class BPETokenizer:
    """Byte-pair encoding. The vocabulary starts with the 256 bytes; training repeatedly joins the
    pair of ids that occurs most often, and adds an id for it.

    A trained tokenizer can encode and decode any text. The `tokenizers` library trains it, and
    makes the same vocabulary from the same text each time.

    Args:
        text: a tokenizer in the JSON format of that library, such as the file `tokenizer.json` of a
            published model.

    Example:
        >>> tokenizer = BPETokenizer.train("the mesh, the meshes, the mesh", vocab_size=300)
        >>> [tokenizer.decode([i]) for i in tokenizer.encode("the meshes")]
        ['the', ' mesh', 'es']
    """

    def __init__(self, text: str):
        self._inner = tokenizers.Tokenizer.from_str(text)
        self._inner.no_truncation()  # A published file may limit the number of ids of a text.
        described = json.loads(text)
        first = described.get("pre_tokenizer") or {}
        # If a tokenizer always separates a word from the newline after it, it gives the same ids
        # for a whole text and line by line. The library needs about 250 bytes of memory for each
        # character, so encoding line by line saves memory when a text is long.
        self._by_lines = (
            described.get("normalizer") is None
            and first.get("type") == "ByteLevel"
            and first.get("use_regex", True)
            and not first.get("add_prefix_space")
        )

    @classmethod
    def train(cls, text: str, vocab_size: int = 512) -> BPETokenizer:
        """Train a tokenizer of vocab_size ids. It has at least the 256 ids of the bytes, and fewer
        than vocab_size if no pair is left that occurs twice.
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
        """Read a file in the JSON format of the `tokenizers` library.

        Raises:
            TTKitError: the file cannot be read, or is not a tokenizer.
        """
        text = read_text(path, "tokenizer_path")
        try:
            return cls(text)
        except Exception as error:  # The library raises `Exception` itself, and no subclass.
            rule = f"it is not a tokenizer: {error}"
            fail(f"read tokenizer_path {path}", rule, "the tokenizer.json of a published model")

    @property
    def vocab_size(self) -> int:
        return self._inner.get_vocab_size()

    def encode(self, text: str) -> np.ndarray:
        lines = _lines(text) if self._by_lines else [text]
        encoded = (self._inner.encode(line, add_special_tokens=False).ids for line in lines)
        return np.fromiter(itertools.chain.from_iterable(encoded), np.uint32)

    def decode(self, ids) -> str:
        return self._inner.decode(np.ravel(ids).tolist(), skip_special_tokens=False)

    def to_dict(self) -> dict[str, Any]:
        return {"tokenizer_type": "bpe", "tokenizer": json.loads(self._inner.to_str())}


def _lines(text: str) -> list[str]:
    """Cut the text before each newline that follows a word; no token contains such a place."""
    return re.split(r"(?<=\S)(?=\n)", text)


# All tokenizers have the same four members: `encode` returns ids [length] of type uint32, `decode`
# takes ids in an array of any shape, `vocab_size` is the number of ids, and `to_dict` returns a
# dictionary that JSON can hold, for `tokenizer_from_dict`.
Tokenizer = ByteTokenizer | CharTokenizer | BPETokenizer


def make_tokenizer(
    tokenizer_type: str, text: str, vocab_size: int = 512, path: str | None = None
) -> Tokenizer:
    """Read the tokenizer from the file `path` if it is given, else make one of tokenizer_type for
    this text. Only "bpe" uses vocab_size.

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
    """Make a tokenizer from the result of its `to_dict()`, which a checkpoint stores.

    Example:
        >>> tokenizer = tokenizer_from_dict({"tokenizer_type": "char", "characters": "ab"})
        >>> tokenizer.encode("ba").tolist()
        [1, 0]
    """
    if "tokenizer" in data:
        return BPETokenizer(json.dumps(data["tokenizer"]))
    return make_tokenizer(data["tokenizer_type"], data.get("characters", ""))
