"""notebooks/glossary.md: one sentence for each term, and a lesson that has it."""

import json
import pathlib
import re

import pytest

from ttkit.lessons.cli import notebooks

LESSONS = {path.name: path for path in notebooks()}
PAGE = pathlib.Path(next(iter(LESSONS.values()))).parent / "glossary.md"
ENTRY = re.compile(r"- \*\*(.+?)\*\*: (.+\.) \[(\d\d)\]\((\S+\.ipynb)\)")
LINES = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("- ")]
ENTRIES = [ENTRY.fullmatch(line) for line in LINES]


def plain(text):
    """A text in lower case in which hyphens, line breaks and marks do not matter."""
    return re.sub(r"[\s*`-]+", " ", text).casefold()


def text_of(path):
    """What a lesson says: its prose, its code, and what it prints."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    outputs = (out for cell in cells for out in cell.get("outputs", []))
    printed = (out.get("text") or out.get("data", {}).get("text/plain") or "" for out in outputs)
    return plain(" ".join("".join(part) for part in [*(c["source"] for c in cells), *printed]))


def test_every_line_is_a_term_a_sentence_and_a_lesson():
    assert [line for line, entry in zip(LINES, ENTRIES) if not entry] == []
    assert len(ENTRIES) > 80
    for entry in ENTRIES:
        # A sentence ends once: a full stop, then a capital letter, would be a second one.
        assert not re.search(r"\. [A-Z]", entry[2]), entry[1]
        assert entry[4].startswith(entry[3]), entry[1]


def test_terms_are_in_alphabetical_order_and_none_stands_twice():
    terms = [entry[1].casefold() for entry in ENTRIES]
    assert terms == sorted(set(terms))


@pytest.mark.parametrize("name", LESSONS)
def test_the_lesson_of_a_term_has_it(name):
    text = text_of(LESSONS[name])
    here = [entry[1] for entry in ENTRIES if entry[4] == name]
    assert [term for term in here if plain(term) not in text] == []


def test_every_lesson_named_exists_and_the_map_links_the_page():
    assert {entry[4] for entry in ENTRIES} <= set(LESSONS)
    assert "](glossary.md)" in (PAGE.parent / "welcome.md").read_text(encoding="utf-8")
