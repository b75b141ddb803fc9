"""Tokenizers: what is encoded comes back, the same ids on every machine, and through JSON."""

import hashlib
import json

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from train.runs import refused

from ttkit.train.run.data import builtin_corpus
from ttkit.train.run.tokenizers import (
    BPETokenizer,
    ByteTokenizer,
    CharTokenizer,
    tokenizer_from_dict,
)

BPE = BPETokenizer.train(builtin_corpus())
texts = st.text(st.characters(blacklist_categories=["Cs"]))


@settings(max_examples=40)
@given(texts)
def test_bytes_and_pairs_take_any_text(text):
    for tokenizer in (ByteTokenizer(), BPE):
        ids = tokenizer.encode(text)
        assert ids.dtype == np.uint32 and ids.ndim == 1 and (ids < tokenizer.vocab_size).all()
        assert tokenizer.decode(ids) == text


@given(texts.filter(bool))
def test_characters_take_their_own(text):
    tokenizer = CharTokenizer(text)
    ids = tokenizer.encode(text)
    assert ids.dtype == np.uint32
    assert tokenizer.decode(ids) == text
    assert tokenizer.vocab_size == len(set(text))
    assert list(tokenizer.characters) == sorted(set(text))


def test_ids_of_any_shape_are_read_in_order():
    for tokenizer in (ByteTokenizer(), BPE, CharTokenizer("a mesh")):
        ids = tokenizer.encode("a mesh")
        assert (
            tokenizer.decode(ids.reshape(1, 1, 1, -1)) == "a mesh" == tokenizer.decode(ids.tolist())
        )
        assert tokenizer.decode([]) == "" and tokenizer.encode("").shape == (0,)


def test_the_same_vocabulary_on_every_machine():
    """Losses that a lesson prints depend on these ids: a change of them is a break.

    Seen with tokenizers 0.20.3 to 0.23.3.
    """
    ids = BPE.encode(builtin_corpus())
    assert (BPE.vocab_size, ids.size) == (512, SIZE)
    assert hashlib.sha256(ids.astype("<u4").tobytes()).hexdigest() == DIGEST


SIZE = 55427
DIGEST = "802cac8aaffbb6824b9325ba21a70bf2c75f2741a5ae05db02f6242080be5aba"


# so that runs of white space are one token
SPACED = BPETokenizer.train("a\n\n\n    b\n\n  \n\t\tc'\n\n\n\n" * 20)


@given(
    st.lists(
        st.sampled_from([*" \n\t\r\u00a0\x1ca.1é", "\n\n", "\n\n\n", "   ", " b", "c'", "'s"]),
        max_size=100,
    ).map("".join)
)
@example("a\n\n\n b")
def test_lines_change_nothing(text):
    assert SPACED.encode(text).tolist() == SPACED._inner.encode(text).ids


@pytest.mark.parametrize("change", [{"add_prefix_space": True}, {"use_regex": False}])
def test_a_tokenizer_from_elsewhere_gets_the_text_whole(change):
    """A space before each line would be wrong, and so would tokens that end with each line."""
    other = json.loads(BPE._inner.to_str())
    other["pre_tokenizer"] |= change
    limit = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    tokenizer, text = BPETokenizer(json.dumps(other | {"truncation": limit})), "the owl\nthe fox\n"
    ids = tokenizer.encode(text)
    assert (
        tokenizer.decode(ids).lstrip() == text and ids.tolist() == tokenizer._inner.encode(text).ids
    )


def test_a_text_with_few_pairs_has_a_small_vocabulary():
    assert 256 < BPETokenizer.train("mesh mesh mesh", 1000).vocab_size < 270
    assert (
        BPETokenizer.train("").vocab_size == BPETokenizer.train("mesh mesh", 99).vocab_size == 256
    )


@pytest.mark.parametrize(
    "tokenizer", [ByteTokenizer(), CharTokenizer("mesh é"), BPE], ids=["byte", "char", "bpe"]
)
def test_through_json(tokenizer):
    again = tokenizer_from_dict(json.loads(json.dumps(tokenizer.to_dict())))
    assert type(again) is type(tokenizer) and again.vocab_size == tokenizer.vocab_size
    assert again.encode("mesh").tolist() == tokenizer.encode("mesh").tolist()
    assert again.to_dict() == tokenizer.to_dict()


def test_errors(tmp_path):
    rule = "encode 5 characters: 'é' at 1 is not one of the 4 in the vocabulary"
    refused(lambda: CharTokenizer("mesh").encode("méshé"), rule, kind=ValueError)
    none = tmp_path / "none.json"
    refused(lambda: BPETokenizer.load(none), "none.json: tokenizer_path not found")
    none.write_text("{}")
    refused(lambda: BPETokenizer.load(none), "none.json: it is not a tokenizer: ")
