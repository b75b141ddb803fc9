"""Make docs/coverage.md from docs/coverage.yaml:

`python docs/make_coverage.py`. With --check, exit status 1 when it is out of step.
"""

import pathlib
import sys

import yaml

DOCS = pathlib.Path(__file__).resolve().parent


def load() -> list[dict]:
    return yaml.safe_load((DOCS / "coverage.yaml").read_text(encoding="utf-8"))


def is_open(value: str) -> bool:
    """Whether a lesson or test is still to come: "not yet", or "not yet: what is planned"."""
    return value.split(":")[0] == "not yet"


def lesson_link(lesson: str) -> str:
    if is_open(lesson) or lesson == "none":
        return lesson.split(":")[0]
    name, _, anchor = lesson.partition("#")
    return f"[{name.removesuffix('.ipynb')}](../notebooks/{lesson})" + (
        f" {anchor.replace('-', ' ')}" if anchor else ""
    )


def test_link(test: str) -> str:
    if is_open(test) or test == "none":
        return test.split(":")[0]
    if test == "lesson":
        return "the lesson's own run"
    path, _, name = test.partition("::")
    return f"[{name or path.rsplit('/', 1)[-1]}](../{path})"


def render(documents: list[dict]) -> str:
    rows = [row for document in documents for row in document["rows"]]
    unsettled = sum(is_open(row["lesson"]) or is_open(row["test"]) for row in rows)
    partly = sum("none" in (row["lesson"], row["test"]) for row in rows)
    lines = [
        "# Coverage of the reference documents",
        "",
        "Made by `python docs/make_coverage.py` from [coverage.yaml](coverage.yaml); "
        "change that file, not this one.",
        "",
        f"{len(rows)} rows: {len(rows) - unsettled - partly} with lesson and test, "
        f"{partly} with none (the note says why), {unsettled} not yet.",
    ]
    for document in documents:
        lines += [
            "",
            f"## {document['document']} {document['title']}",
            "",
            "| section | block | piece | lesson | test |",
            "|---|---|---|---|---|",
        ]
        section = ""
        for row in document["rows"]:
            section = row.get("section", section)
            block = f"{row['block']} ({row['language']}): {row['title']}" if "block" in row else ""
            note = f" ({row['note']})" if "note" in row else ""
            lines.append(
                f"| {section} | {block} | {row['piece']} | {lesson_link(row['lesson'])}{note} | "
                f"{test_link(row['test'])} |"
            )
    return "\n".join(lines) + "\n"


def main() -> int:
    target = DOCS / "coverage.md"
    text = render(load())
    if "--check" not in sys.argv[1:]:
        target.write_text(text, encoding="utf-8")
    elif not target.exists() or target.read_text(encoding="utf-8") != text:
        print("docs/coverage.md is out of step: run python docs/make_coverage.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
