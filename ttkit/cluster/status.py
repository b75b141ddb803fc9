"""The ranks of a cluster as a table."""

from __future__ import annotations

import html
from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Row:
    """One rank."""

    rank: int
    host: str
    pid: int | None
    mesh: str
    state: str  # "busy", "idle", or the cluster's, where it does not run
    last_error: str


@dataclass(frozen=True)
class Status:
    """A cluster at one moment; prints as a table.

    Example:
        >>> print(Status("Cluster(2)", (Row(0, "here", 7, "boards 0,1", "idle", ""), Row(1, "here", None, "mesh 1", "busy", "KeyError: 'x'"))))
        rank  host  pid  mesh        state  last error
        0     here  7    boards 0,1  idle
        1     here  -    mesh 1      busy   KeyError: 'x'
    """

    name: str
    rows: tuple[Row, ...]
    failure: str = ""

    def cells(self) -> list[list[str]]:
        """The table: its head, then a row for each rank."""
        names = [field.name for field in fields(Row)]
        rows = [["-" if value is None else str(value) for value in (getattr(row, name) for name in names)] for row in self.rows]
        return [[name.replace("_", " ") for name in names], *rows]

    def __str__(self) -> str:
        cells = self.cells()
        widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
        lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip() for row in cells]
        return "\n".join([*lines, *([self.failure] if self.failure else [])])

    def _repr_html_(self) -> str:
        head, *rows = [[html.escape(text) for text in row] for row in self.cells()]
        body = "".join("<tr>" + "".join(f"<td style='text-align:left'>{text}</td>" for text in row) + "</tr>" for row in rows)
        caption = f"<pre>{html.escape(self.failure)}</pre>" if self.failure else ""
        return "<table><tr>" + "".join(f"<th style='text-align:left'>{text}</th>" for text in head) + f"</tr>{body}</table>{caption}"

    __repr__ = __str__
