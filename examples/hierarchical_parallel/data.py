"""What is trained on: a text as tokens, and each worker's part of every batch."""

from dataclasses import replace

from ttkit.train.run.data import Batches, TokenDataset, training_text
from ttkit.train.run.tokenizers import make_tokenizer


def read(settings):
    """The text's tokens, and the settings with as many words in the model's vocabulary as the
    tokenizer has.
    """
    config, model = settings.training_config, settings.transformer_config
    text = training_text(config.data_path)
    tokenizer = make_tokenizer(config.tokenizer_type, text, model.vocab_size)
    return tokenizer.encode(text), replace(
        settings, transformer_config=replace(model, vocab_size=tokenizer.vocab_size)
    )


def batches(settings, tokens, worker):
    """A worker's rows of each batch of the text; its last tenth is held out, as in a Trainer."""
    config = settings.training_config
    training, _ = TokenDataset(tokens, settings.transformer_config.max_sequence_length).split(0.1)
    return Batches(training, config.batch_size, config.seed).part(
        worker, settings.multihost_config.num_workers
    )
