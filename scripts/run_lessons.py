"""Run the lessons headless, each once, and print a table of times.

Exit status 1 when a lesson fails.

python scripts/run_lessons.py            all of them
python scripts/run_lessons.py 02 05      those whose name begins so
python scripts/run_lessons.py --save     also write the outputs back into the notebooks
"""

import argparse
import os
import pathlib
import sys
import time

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

NOTEBOOKS = pathlib.Path(__file__).resolve().parent.parent / "notebooks"
WIDGET = "application/vnd.jupyter.widget-view+json"
TARGET_S = 60  # a lesson should take less, on two cores


def run(path: pathlib.Path, cell_timeout_s: int, save: bool) -> tuple[float, str]:
    """Run one notebook: its wall time in seconds, and "" or what went wrong."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=cell_timeout_s,
        kernel_name="python3",
        coalesce_streams=True,
        resources={"metadata": {"path": str(path.parent)}},
    )
    start = time.perf_counter()
    try:
        client.execute()
        error = ""
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as exc:
        error = f"{type(exc).__name__}: {exc}"
    elapsed_s = time.perf_counter() - start
    if save and not error:
        # when and how long a cell ran says nothing to a reader, and changes with every run
        for cell in notebook.cells:
            cell.metadata.pop("execution", None)
            # nor does a widget that nobody runs: its text stays, and the static picture below it
            for output in cell.get("outputs", []):
                output.get("data", {}).pop(WIDGET, None)
        notebook.metadata.pop("widgets", None)
        nbformat.write(notebook, path)
    return elapsed_s, error


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("lessons", nargs="*", help="beginnings of names: 02 05")
    parser.add_argument("--save", action="store_true", help="write the outputs into the notebooks")
    parser.add_argument("--cell-timeout", type=int, default=120, metavar="SECONDS")
    args = parser.parse_args()

    paths = [
        path
        for path in sorted(NOTEBOOKS.glob("*.ipynb"))
        if not args.lessons or path.name.startswith(tuple(args.lessons))
    ]
    if not paths:
        print(
            f"no notebook in {NOTEBOOKS} begins with {' or '.join(args.lessons) or 'anything'}",
            file=sys.stderr,
        )
        return 1
    os.environ["TTKIT_PROGRESS"] = "0"  # how long a wait takes is different in every run
    os.environ["TTKIT_LEARNER"] = ""  # nobody learns here
    rows = []
    for path in paths:
        elapsed_s, error = run(path, args.cell_timeout, args.save)
        rows.append((path.stem, elapsed_s, error))
        if error:
            print(f"\n{path.name}\n{error}\n", file=sys.stderr)

    width = max(len(name) for name, _, _ in rows)
    print(f"{'lesson':{width}}  seconds")
    for name, elapsed_s, error in rows:
        note = "  FAILED" if error else f"  over {TARGET_S} s" if elapsed_s > TARGET_S else ""
        print(f"{name:{width}}  {elapsed_s:7.1f}{note}")
    failed = sum(1 for _, _, error in rows if error)
    print(
        f"{'total':{width}}  {sum(elapsed_s for _, elapsed_s, _ in rows):7.1f}  "
        f"{len(rows) - failed} of {len(rows)} lessons passed"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
