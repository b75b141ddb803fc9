"""What lessons share: comparisons, predictions, exercises, challenges, cells that run again.

Feedback names the device, the index and the number.
"""

import sys

from ttkit.lazy import attach
from ttkit.words import in_notebook

# A name is imported on first use. A line has a module and the names that it holds.
_NAMES = """
closing     tidy
comparing   CheckFailed device_difference difference same values_mean_something
exercises   challenge check hint solution todo
folder      course_map
predicting  predict
"""
__getattr__, __dir__, __all__ = attach(__name__, _NAMES)


def _say_which_cell(shell, kind, error, trace, tb_offset=None) -> None:
    """Show a NameError as usual; add that it may be misspelt, or that a cell was not run."""
    shell.showtraceback((kind, error, trace), tb_offset=tb_offset)
    print(
        f"`{error.name}` is not known: it is misspelt, or its cell has not been run\n"
        "  try: Run > Run All Above Selected Cell"
    )


if in_notebook():
    sys.modules["IPython"].get_ipython().set_custom_exc((NameError,), _say_which_cell)
