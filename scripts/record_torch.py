"""Run the lessons that have cells marked %%torch, with torch, save them, and record what those
cells print for machines without it.

python scripts/record_torch.py
"""

import json
import os
import sys

import nbformat
import torch
from run_lessons import NOTEBOOKS, run

sys.path.insert(0, str(NOTEBOOKS))

from course.lesson_07 import RECORD, key


def main() -> int:
    cells = {}
    os.environ["TTKIT_PROGRESS"] = "0"  # how long a wait takes is different in every run
    os.environ["TTKIT_LEARNER"] = ""  # nobody learns here
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        if not any(
            cell.source.startswith("%%torch") for cell in nbformat.read(path, as_version=4).cells
        ):
            continue
        elapsed_s, error = run(path, cell_timeout_s=120, save=True)
        if error:
            print(f"{path.name}\n{error}", file=sys.stderr)
            return 1
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.source.startswith("%%torch"):
                cells[key(cell.source.partition("\n")[2])] = "".join(
                    output.text for output in cell.outputs if output.get("name") == "stdout"
                )
        print(f"{path.name}: {elapsed_s:.1f} s")
    RECORD.write_text(
        json.dumps(
            {"torch": torch.__version__.partition("+")[0], "cells": cells},
            indent=1,
            ensure_ascii=False,
        )
        + "\n",
        encoding="utf-8",
    )
    print(f"{len(cells)} cells recorded in {RECORD.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
