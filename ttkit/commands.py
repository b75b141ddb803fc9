"""The parser of a command: its words, and its options by rows."""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Sequence
from typing import Any

TYPES = {"N": int, "GB/s": float, "PART": float}  # Values of other names are text.


class CommandParser(ArgumentParser):
    """The parser that a command gets.

    Attributes:
        words: what stands after the command's name.
    """

    words: list[str]

    def asked(self, options: Iterable[Sequence] = ()) -> Namespace:
        """Return what the words ask for.

        Args:
            options: further ones; of each its name, the name of its value ("" for a switch) or the
                list of its values, its help, and its default if it has one.
        """
        for option, value, text, *default in options:
            how: dict[str, Any] = {"action": "store_true"}
            if value:
                how = {"choices": value}
                if isinstance(value, str):
                    how = {"metavar": value, "type": TYPES.get(value, str)}
                how["default"] = default[0] if default else None
            self.add_argument(option, help=text, **how)
        return self.parse_args(self.words)
