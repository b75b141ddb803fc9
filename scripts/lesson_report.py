"""Report what the code of each lesson is about: a table to look at, no rule.

Of the lines that a learner reads (folded solutions and the scripts to keep apart), how many are
apparatus (guesses, checks, controls, framed prints, setting up), and how many touch ttnn, NumPy,
a plan or training.

python scripts/lesson_report.py
"""

import ast
import json
import pathlib
import re

NOTEBOOKS = pathlib.Path(__file__).resolve().parent.parent / "notebooks"
FOLDED = {"solution", "script"}
APPARATUS = re.compile(
    r"lessons\.(predict|check|tidy|todo|hint|same)\(|\bplay\(|\bprint\(f|ttkit\.(about|strict|use_system)\("
)
SUBJECT = re.compile(
    r"\b(ttnn|np|plans?|ops|train\w*|Trainer|model|loss|mesh|comm|MPI|torch|cost|layout\w*|place|"
    r"opened|shard\w*|grad\w*|weights?|matmul|all_\w+|reduce_\w+)\b"
)


def statements(source: str) -> list[str]:
    """Return the simple statements and the heads of blocks, each as the lines that it takes."""
    try:
        tree = ast.parse(source)
    except SyntaxError:  # A cell with magics: every line for itself.
        return [line for line in source.splitlines() if line.strip()]
    lines, found = source.splitlines(), []
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            end = body[0].lineno - 1 if body else node.end_lineno
            found.append("\n".join(lines[node.lineno - 1 : max(end, node.lineno)]))
    return found


def main() -> None:
    print(f"{'lesson':28}{'cells':>6}{'words':>7}{'lines':>7}{'apparatus':>11}{'subject':>9}")
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        prose = [c for c in cells if c["cell_type"] == "markdown"]
        words = sum(len("".join(c["source"]).split()) for c in prose)
        total = apparatus = subject = 0
        for cell in cells:
            if cell["cell_type"] != "code" or FOLDED & set(cell["metadata"].get("tags", [])):
                continue
            for statement in statements("".join(cell["source"])):
                size = statement.count("\n") + 1
                total += size
                if APPARATUS.search(statement):
                    apparatus += size
                elif SUBJECT.search(statement):
                    subject += size
        shares = f"{apparatus / total:11.0%}{subject / total:9.0%}"
        print(f"{path.stem:28}{len(cells):6}{words:7,}{total:7}{shares}")


if __name__ == "__main__":
    main()
