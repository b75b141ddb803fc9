"""One word for one thing: the package uses the field's words, in names, messages and comments.

CONTRIBUTING.md has the table of words. A word that is fine in one place only stands in ALLOWED,
with the reason.
"""

import ast
import io
import pathlib
import re
import tokenize

import pytest

PACKAGE = pathlib.Path(__file__).resolve().parent.parent / "ttkit"

# Word of a name (a class, function, argument or variable) -> the word to use.
NAMES = {
    "board": "card", "boards": "cards", "chances": "probs", "greet": "connect",
    "keeper": "supervisor", "lease": "parent death", "recycle": "buffer pool",
    "said": "output, message", "seat": "group rank; device order",
    "seated": "group rank; device order", "seats": "device order", "steep": "grad of the softmax",
    "team": "process group", "told": "notify, report", "who": "rank, pid", "wire": "link; p2p",
    "wires": "links; p2p",
}  # fmt: skip
# Phrase of a docstring, message or comment -> what to write.
TEXT = {
    r"boards?": "card", r"dear": "expensive", r"for ever": "forever, or: deadlock",
    r"greets?": "connect", r"keepers?": "supervisor", r"leases?": "parent death",
    r"mend(s|ed|ing)?": "fix", r"said": "report, output", r"says? so": "report",
    r"seats?": "group rank; device order", r"team": "process group",
    r"tells|told": "report, notify", r"wires?": "link", r"wish(es)?": "request",
}  # fmt: skip
ANY = re.compile("|".join(rf"\b{phrase}\b" for phrase in TEXT), re.IGNORECASE)
# Where a word is right: of a file format, or of what a lesson says to the learner.
ALLOWED = {"board": "descriptors/old_yaml", "boards": "descriptors/old_yaml", "said": "lessons/"}


def names_of(tree):
    """Each name that the code gives, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
            yield node.name, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno


def texts_of(source):
    """Each string and comment, with its line."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.STRING, tokenize.COMMENT):
            yield token.string, token.start[0]


def words(name):
    """The words of a name: `last_plan` and `LastPlan` have two."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)]


def found_in(path, source):
    """One line for each word of the left columns; `path` is inside the package."""
    for name, line in [(path.stem, 1), *names_of(ast.parse(source))]:
        for word in words(name):
            if word in NAMES and not right_there(word, path):
                yield f"{path}:{line}: {name}: {word} is {NAMES[word]}"
    for text, line in texts_of(source):
        for phrase, better in TEXT.items() if ANY.search(text) else ():
            for match in re.finditer(rf"\b{phrase}\b", text, re.IGNORECASE):
                if not right_there(match[0].lower(), path):
                    around = text[max(0, match.start() - 12) : match.end() + 12]
                    yield f"{path}:{line}: ...{around!r}...: {match[0]} is {better}"


def right_there(word, path):
    """Whether a word is allowed in a file."""
    return word in ALLOWED and ALLOWED[word] in str(path)


def test_the_package_uses_the_fields_words():
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        found += found_in(path.relative_to(PACKAGE), path.read_text())
    assert not found, f"{len(found)}:\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("source", "word"),
    [
        ("def greet(): ...", "greet"),
        ("class Team: ...", "Team"),
        ("wire_ends = 3", "wire_ends"),
        ("def f(self, who): ...", "who"),
        ('x = "a Board of two chips"', "Board"),
        ("x = 1  # mended", "mended"),
    ],
)
def test_a_word_of_the_left_column_is_found(source, word):
    (found,) = found_in(pathlib.Path("a.py"), source)
    assert word in found


def test_words_of_other_meaning_are_left_alone():
    assert not list(found_in(pathlib.Path("descriptors/old_yaml.py"), "board = 1  # shards"))
    assert list(found_in(pathlib.Path("sim/board.py"), "")) == [
        "sim/board.py:1: board: board is card"
    ]


def test_lines_fit_with_all_that_stands_behind_them():
    """The linter does not count comments for the type checker."""
    lines = {
        f"{path.relative_to(PACKAGE)}:{number}": len(line)
        for path in PACKAGE.rglob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
    }
    assert not [place for place, length in lines.items() if length > 100]
