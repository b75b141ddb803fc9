"""What is trained on.

Every stage reads it itself: the first needs the tokens, the last the targets.
"""

from ttkit.train.trainer import TEXTS, read_text


def read(settings):
    """The text that the settings name."""
    source = settings.training_config.data_path or "builtin"
    return TEXTS[source]() if source in TEXTS else read_text(source)
