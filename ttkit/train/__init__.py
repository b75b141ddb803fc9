"""Training: text, tokenizers and batches; checkpoints.

Example:
    >>> from ttkit import train
    >>> text = train.builtin_corpus()
    >>> tokenizer = train.CharTokenizer.train(text)
    >>> training, validation = train.TokenDataset(tokenizer.encode(text), sequence_length=64).split(0.1)
    >>> x, y = train.Batches(training, batch_size=8, seed=42).batch(step=0)
    >>> x.shape
    (8, 1, 1, 64)
"""

from ttkit.train.checkpoint import DamagedCheckpoint, check_matches
from ttkit.train.corpus import builtin_corpus, read_text, standard_library_text
from ttkit.train.data import Batches, TokenDataset
from ttkit.train.tokenizers import BPETokenizer, ByteTokenizer, CharTokenizer, Tokenizer, make_tokenizer, tokenizer_from_dict

__all__ = [
    "BPETokenizer",
    "Batches",
    "ByteTokenizer",
    "CharTokenizer",
    "DamagedCheckpoint",
    "TokenDataset",
    "Tokenizer",
    "builtin_corpus",
    "check_matches",
    "make_tokenizer",
    "read_text",
    "standard_library_text",
    "tokenizer_from_dict",
]
