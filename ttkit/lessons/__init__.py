"""Functions for lessons: comparisons, predictions, exercises, challenges, and `tidy`, which closes
what earlier cells have opened.

The feedback on a wrong result names the device, the index and the number.
"""

import sys

from ttkit.lazy import attach
from ttkit.words import in_notebook

# Each line has a module, and the names to import from it. A name is imported on first use.
_NAMES = """
closing     tidy
comparing   CheckFailed device_difference difference same values_mean_something
exercises   challenge check hint solution todo
folder      course_map
predicting  predict
"""
__getattr__, __dir__, __all__ = attach(__name__, _NAMES)


def _say_which_cell(shell, kind, error, trace, tb_offset=None) -> None:
    """Show a NameError as usual; add that the name may be misspelt, or its cell not yet run."""
    shell.showtraceback((kind, error, trace), tb_offset=tb_offset)
    print(
        f"`{error.name}` is not known: it is misspelt, or its cell has not been run\n"
        "  try: Run > Run All Above Selected Cell"
    )


if in_notebook():
    sys.modules["IPython"].get_ipython().set_custom_exc((NameError,), _say_which_cell)
