"""Import names of a package, and the functions that draw objects, when they are first used."""

import sys
from collections.abc import Callable, Iterable
from pkgutil import resolve_name
from typing import Any

from ttkit.errors import nearest

Attached = tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]


def attach(package: str, table: str, parent: str = "") -> Attached:
    """Return the `__getattr__`, `__dir__` and `__all__` of a package.

    Args:
        package: the `__name__` of the package.
        table: each line has a module, and the names to import from it. A module alone on its line
            is itself a name of the package: the last part of the module's name.
        parent: the package that holds the modules; by default `package`.

    Example::

        __getattr__, __dir__, __all__ = attach(__name__, "models  GPT Llama\\ndata")
    """
    # The key is a name of the package. The value is "module:name", which `resolve_name` imports.
    where: dict[str, str] = {}
    for line in table.strip().splitlines():
        module, *held = line.split()
        full = f"{parent or package}.{module}:"
        where |= {name: full + name for name in held} or {module.rpartition(".")[2]: full}

    def load(name: str):
        if name not in where:
            known = [] if name.startswith("_") else [*where, *vars(sys.modules[package])]
            closest = nearest(name, known, "; the closest is {}")
            raise AttributeError(f"module {package!r} has no attribute {name!r}{closest}")
        value = resolve_name(where[name])
        setattr(sys.modules[package], name, value)
        return value

    return load, lambda: sorted(where), list(where)


def drawn_by(function: str) -> Callable[[Any], str]:
    """Return a `_repr_html_`, by which Jupyter displays an object as a picture.

    Args:
        function: a function of `ttkit.visualize`, as "plan:draw_plan"; it takes the object and
            returns a figure, or yields several.
    """

    def _repr_html_(self) -> str:
        drawn = resolve_name(f"ttkit.visualize.{function}")(self)
        figures = drawn if isinstance(drawn, Iterable) else [drawn]
        return "".join(figure._repr_html_() for figure in figures)

    return _repr_html_
