"""What is trained on.

Every stage reads it itself: the first needs the tokens, the last the targets.
"""

from ttkit.train.run.data import training_text


def read(settings):
    """The text that the settings name."""
    return training_text(settings.training_config.data_path)
