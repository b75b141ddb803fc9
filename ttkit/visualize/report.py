"""A report: a table with a title, on a terminal, in a notebook, or through rich."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from ttkit.visualize.tables import as_text


@dataclass(frozen=True)
class Report:
    """A table of text:

    `columns` are headings (a `<` in front puts the column to the left), `last` a row apart.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    last: Sequence[str] = ()

    def __rich__(self) -> Any:
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(title=Text(self.title, "bold"), box=box.SQUARE, show_footer=bool(self.last))
        for i, (heading, foot) in enumerate(
            zip(self.columns, self.last or [""] * len(self.columns), strict=True)
        ):
            cells = [row[i] for row in self.rows]
            if heading.startswith("<"):  # words stay whole, numbers with their unit
                table.add_column(
                    heading[1:], Text(foot), min_width=max(map(len, " ".join(cells).split(" ")))
                )
            else:
                table.add_column(
                    heading, Text(foot), min_width=max(map(len, cells), default=0), justify="right"
                )
        for row in self.rows:
            table.add_row(*map(Text, row))
        return table

    def __repr__(self) -> str:
        return as_text([self.__rich__()])

    def _repr_html_(self) -> str:
        sides = [
            "left" if heading.startswith("<") else "right;white-space:nowrap"
            for heading in self.columns
        ]

        def line(cells: Sequence[str], tag: str) -> str:
            found = (
                f'<{tag} style="text-align:{side}">{escape(cell)}</{tag}>'
                for cell, side in zip(cells, sides, strict=True)
            )
            return f"<tr>{''.join(found)}</tr>"

        head = line([heading.lstrip("<") for heading in self.columns], "th")
        foot = f"<tfoot>{line(self.last, 'th')}</tfoot>" if self.last else ""
        body = "".join(line(row, "td") for row in self.rows)
        caption = f'<caption style="text-align:left;font-weight:600;white-space:nowrap">{escape(self.title)}</caption>'
        return f'<div style="overflow-x:auto"><table>{caption}<thead>{head}</thead><tbody>{body}</tbody>{foot}</table></div>'
