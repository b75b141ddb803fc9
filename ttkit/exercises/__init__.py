"""The checks of the lessons' exercises: a module for each lesson, and `answers`, which they are
written with.

Each check tries an answer with different values on every device and, on the simulator, on several
meshes that are not square, so that a swapped axis or a missing sum cannot pass. There it also reads
the call tape: where the work was done, and how many bytes each chip was given."""

from importlib import import_module
from pkgutil import iter_modules

for module in iter_modules(__path__):
    if module.name.startswith("lesson_"):  # each enters its exercises when it is loaded
        import_module(f"{__name__}.{module.name}")
