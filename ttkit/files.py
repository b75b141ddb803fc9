"""Find files, read them with the line and column of everything in them, report what is wrong in a
file, and write files whole or not at all.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from ttkit.errors import fail, nearest

KeyPath = tuple[str | int, ...]
AnyPath = str | os.PathLike[str]


class Finding(NamedTuple):
    """One error or warning about a file.

    Args:
        severity: "error" for a mistake, also for some that the real tools do not notice; "warning"
            for what may be intended.
        path: the file.
        line: the number of the line, from 1; 0 means the whole file.
        message: the rule that is broken, in the real tools' words if they have some.
        cure: what to do.
        column: the number of the column, from 1; 0 means that it is not known.

    Example:
        >>> unknown = "unknown field 'chanels'"
        >>> print(Finding("warning", "mgd.textproto", 3, unknown, "write channels"))
        mgd.textproto:3: warning: unknown field 'chanels'
          try: write channels
    """

    severity: str
    path: str
    line: int
    message: str
    cure: str = ""
    column: int = 0

    @property
    def place(self) -> str:
        """File, line and column, in the form that editors turn into a link."""
        return ":".join([self.path, *(str(n) for n in (self.line, self.column) if n)])

    def __str__(self) -> str:
        return f"{self.place}: {self.severity}: {self.message}" + (
            f"\n  try: {self.cure}" if self.cure else ""
        )


@dataclass
class Document:
    """A file as plain Python values, with the line and column of each key and item.

    `position("rank_bindings", 1, "rank")` is the position of that key, or if it is not there, of
    the nearest value that would contain it. `repeated_keys` has the paths of keys that a mapping
    has more than once.
    """

    path: Path
    value: Any = None
    # Lines and columns count from 1. The column is 0 if it is not known.
    positions: dict[KeyPath, tuple[int, int]] = field(default_factory=dict)
    repeated_keys: list[KeyPath] = field(default_factory=list)

    def position(self, *where: str | int) -> tuple[int, int]:
        """Return the line and column of a key, or of the nearest value that would contain it."""
        while where and where not in self.positions:
            where = where[:-1]
        return self.positions.get(where, (1, 1))

    def finding(self, where: KeyPath, rule: str, cure: str, severity: str = "error") -> Finding:
        line, column = self.position(*where)
        return Finding(severity, str(self.path), line, rule, cure, column)


def read_text(path: AnyPath, what: str) -> str:
    """Read the text of a UTF-8 file.

    Raises:
        TTKitError: the path is missing or is not a file, or the file is not UTF-8 text that
            this user may read.
    """
    asked = f"read {what} {path}"
    if not os.path.isfile(path):
        fail(
            asked,
            f"{what} not found: {path}",
            "check the path; relative paths start at the current folder",
        )
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        fail(asked, f"{error}", "save it as UTF-8 text that you may read")


def read_yaml(path: AnyPath, what: str) -> Document:
    """Read a YAML file with the safe loader: nothing in it is run.

    Raises:
        TTKitError: `read_text` cannot read the file, or the text is not YAML.
    """
    return parse_yaml(read_text(path, what), path, what)


def parse_yaml(text: str, path: AnyPath, what: str) -> Document:
    """Parse the text of the file `path`.

    Raises:
        TTKitError: the text is not YAML.
    """
    import yaml  # This import comes late, so that `from ttkit import ttnn` is fast.

    document = Document(Path(path))
    asked = f"read {what} {path}"
    try:
        loader = yaml.SafeLoader(text)
        if node := loader.get_single_node():
            # construct_document merges `<<` keys and hides repeated keys, so they are noted first.
            _note(document, node, ())
            document.value = loader.construct_document(node)
        return document
    except (yaml.YAMLError, ValueError) as error:
        if mark := getattr(error, "problem_mark", None):
            asked += f":{mark.line + 1}"
        fail(
            asked,
            f"malformed YAML: {getattr(error, 'problem', None) or error}",
            "look at that line and the one above it: indentation, colons, quotes",
        )


def _note(document: Document, node, where: KeyPath) -> None:
    """Note the positions of a YAML node and of everything in it, and the repeated keys."""

    def place(node) -> tuple[int, int]:
        return node.start_mark.line + 1, node.start_mark.column + 1

    document.positions.setdefault(where, place(node))
    if node.id == "mapping":
        for key, child in node.value:
            inside = (*where, str(key.value))
            if inside in document.positions and key.value != "<<":
                document.repeated_keys.append(inside)
            document.positions[inside] = place(key)
            _note(document, child, inside)
    elif node.id == "sequence":
        for index, child in enumerate(node.value):
            _note(document, child, (*where, index))


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return "did you mean 'x'?" for an unknown name; if no known name is near, list them all.

    Example:
        >>> did_you_mean("mesh_idd", ["rank", "mesh_id"]), did_you_mean("x", ["rank", "mesh_id"])
        ("did you mean 'mesh_id'?", 'one of rank, mesh_id')
    """
    return nearest(name, known, "did you mean '{}'?") or f"one of {', '.join(known)}"


def find_file(path: AnyPath, what: str, base_folder: Path | None = None, asked: str = "") -> Path:
    """Return the absolute path of a file that a configuration names.

    A relative path is first searched for where tt-run searches: in $TT_METAL_HOME and the current
    folder. Then, unlike tt-run, this searches in `base_folder` and the folders above it.
    `base_folder` is the folder of the configuration, which therefore works from any folder.

    Raises:
        TTKitError: the file is not found; the message has tt-run's words.
    """
    asked = asked or f"look for the {what[0].lower()}{what[1:]}"
    wanted = Path(path).expanduser()
    home = os.environ.get("TT_METAL_HOME")
    folders = [*([Path(home).expanduser()] if home else []), Path.cwd().resolve()]
    searched = [*map(str, folders)]
    if base_folder:
        base = base_folder.resolve()
        folders += [base, *base.parents]
        searched.append(f"{base} and above")
    for folder in folders:
        if (folder / wanted).is_file():
            return (folder / wanted).resolve()
    tip = "Use an absolute path or ensure the file exists relative to the launch directory."
    fail(
        asked,
        f"{what} not found: {path}\nSearched in: {searched}\nTip: {tip}",
        f"cd to the folder that '{path}' starts from",
    )


def errors_in(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings that are errors."""
    return [finding for finding in findings if finding.severity == "error"]


def fail_with(asked: str, head: str, errors: Iterable[Finding]) -> NoReturn:
    """Raise one error with a first line, `head`, and the findings below it."""
    lines = [f"\n{error.place}: {error.message}\n  try: {error.cure}" for error in errors]
    fail(asked, "".join([head, *lines]))


def write_whole(path: AnyPath, text: str | bytes, asked: object) -> Path:
    """Write a file and return its path; readers see the old file or the new one, never a part.

    If the folder of the file does not exist, it is created.

    Args:
        asked: what the caller does, for the message.

    Raises:
        TTKitError: the file cannot be written; an old file is unchanged.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_whole(Path(folder, "a.txt"), "all of it", "an example").read_text()
        'all of it'
    """
    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # A rename is atomic only within a file system, so the new file is made in the same folder.
        beside = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            beside.write_bytes(text.encode("utf-8") if isinstance(text, str) else text)
            os.replace(beside, target)
        finally:
            beside.unlink(missing_ok=True)
    except (OSError, ValueError) as error:  # A path without a file name raises a ValueError.
        fail(
            asked,
            f"the file cannot be written: {getattr(error, 'strerror', None) or error}",
            "a file name in a folder that you can write to",
        )
    return target
