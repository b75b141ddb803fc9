"""Write a Llama of one layer with random weights, and a tokenizer, as Hugging Face keeps them.

    python examples/tiny_checkpoint.py tiny-llama              50 million numbers
    python examples/tiny_checkpoint.py wide-llama --size 8b    250 million: a layer of Llama 3.1 8B

The heads and the layers' names are those of a real Llama, so the programs of tt-metal's
models/tt_transformers take the folder for one: HF_MODEL=tiny-llama. It needs torch and
transformers, and no network. docs/real_programs.md says how to go on.
"""

import argparse
from pathlib import Path

import tokenizers

WORDS = 4096
SIZES = {"tiny": (2048, 4096, 16), "8b": (4096, 14336, 32)}  # Features, inside the MLP, heads.
MARKS = ["<|begin_of_text|>", "<|end_of_text|>"]


def model(size):
    """A Llama with heads of 128 features, 8 of them for keys and values."""
    import torch
    import transformers

    features, inside, heads = SIZES[size]
    config = transformers.LlamaConfig(
        vocab_size=WORDS,
        hidden_size=features,
        intermediate_size=inside,
        num_hidden_layers=1,
        num_attention_heads=heads,
        num_key_value_heads=8,
        max_position_embeddings=8192,
        rms_norm_eps=1e-5,
        rope_theta=500000.0,
        bos_token_id=0,
        eos_token_id=1,
    )
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(config).to(torch.bfloat16)


def tokenizer():
    """A tokenizer that knows the two marks and every byte, so that it can take any text."""
    import transformers

    inner = tokenizers.Tokenizer(tokenizers.models.BPE())
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(special_tokens=MARKS, initial_alphabet=alphabet)
    inner.train_from_iterator([], trainer)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token=MARKS[0], eos_token=MARKS[1]
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", choices=SIZES, default="tiny")
    asked = parser.parse_args()
    folder = asked.folder
    model(asked.size).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    print(f"{folder}: {', '.join(sorted(path.name for path in folder.iterdir()))}")
