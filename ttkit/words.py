"""Numbers and tables as text, groups of things, options of commands, and checks of the display."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

Key = TypeVar("Key")
Thing = TypeVar("Thing")

PREFIXES = {
    1e15: "P",
    1e12: "T",
    1e9: "G",
    1e6: "M",
    1e3: "k",
    1: "",
    1e-3: "m",
    1e-6: "µ",
    1e-9: "n",
}


def short(value: float, unit: str = "") -> str:
    """Return a quantity with three digits and a prefix; zero is "0", without a unit.

    Example:
        >>> short(1_234_567, "B"), short(0.00042, "s"), short(999_999)
        ('1.23 MB', '420 µs', '1 M')
    """
    if not value > 0:  # Zero and NaN have neither a prefix nor a unit.
        return f"{value:g}"
    size = next((size for size in PREFIXES if value >= 0.9995 * size), 1e-9)
    return f"{value / size:.3g} {PREFIXES[size]}{unit}".rstrip()


def counted(number: float, what: str) -> str:
    """Return a number of things as text; a number that is not an int has at most four digits.

    Example:
        >>> counted(1, "stage"), counted(2, "stage"), counted(3.5, "micro-batch")
        ('1 stage', '2 stages', '3.5 micro-batches')
    """
    shown = number if isinstance(number, int) else f"{number:.4g}"
    return f"{shown} {what}" + ("" if number == 1 else "es" if what.endswith("ch") else "s")


def numbered(what: str, numbers: Sequence[object]) -> str:
    """Return the name of some numbered things, to be used in a sentence.

    Example:
        >>> numbered("rank", [2]), numbered("rank", [0, 1, 3])
        ('rank 2', 'ranks 0, 1 and 3')
    """
    *first, last = map(str, numbers)
    return f"{what}s {', '.join(first)} and {last}" if first else f"{what} {last}"


def grouped(things: Iterable[Thing], key: Callable[[Thing], Key]) -> dict[Key, list[Thing]]:
    """Return {key: list of the things with this key}, in the order of the things.

    Example:
        >>> grouped(["ring", "line", "tree", "row"], len)
        {4: ['ring', 'line', 'tree'], 3: ['row']}
    """
    found: dict[Key, list[Thing]] = {}
    for thing in things:
        found.setdefault(key(thing), []).append(thing)
    return found


# The name of an option's value, such as N, selects the type of the value. A value whose name is not
# here is text.
TYPES = {"N": int, "GB/s": float, "PART": float}


def add_options(parser, options: Iterable[Sequence]) -> None:
    """Add options to the `ArgumentParser` of a command.

    Args:
        options: for each option its name; the name of its value, a list of its possible values, or
            "" for a switch; its help; and its default, if it has one.
    """
    for option, value, text, *default in options:
        how: dict[str, Any] = {"action": "store_true"}
        if value:
            how = {"choices": value}
            if isinstance(value, str):
                how = {"metavar": value, "type": TYPES.get(value, str)}
            how["default"] = default[0] if default else None
        parser.add_argument(option, help=text, **how)


def in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return getattr(shell, "kernel", None) is not None


def shows_progress() -> bool:
    """Return whether to show output that differs from run to run.

    The environment variable TTKIT_PROGRESS=0 turns such output off.
    """
    return os.environ.get("TTKIT_PROGRESS") != "0"


class Tables:
    """A base class for objects that print as several tables, and show them in a notebook."""

    def reports(self) -> list:
        """Return the tables."""
        raise NotImplementedError

    def notes(self) -> Iterator[str]:
        """Yield the sentences under the tables."""
        yield from ()

    def __repr__(self) -> str:
        return "\n\n".join(
            [*map(repr, self.reports()), *(f"note: {note}" for note in self.notes())]
        )

    def _repr_html_(self) -> str:
        from html import escape

        tables = "".join(report._repr_html_() for report in self.reports())
        look = "font-size:12px;line-height:15px;margin:4px 0;max-width:800px"
        notes = (f'<p style="{look}">note: {escape(note)}</p>' for note in self.notes())
        return tables + "".join(notes)
