"""`%%px` in a notebook: a cell that runs on every rank, with its output in rank order."""

from __future__ import annotations

import sys
from typing import Any

from IPython.core.display_functions import publish_display_data
from IPython.core.getipython import get_ipython
from IPython.core.magic import no_var_expand

from ttkit.cluster.engines import results
from ttkit.errors import TTKitError, fail

Cluster = Any  # The class in engines.cluster, which imports this module.
LOCAL = "--local"


class CellError(TTKitError):
    """What went wrong with a cell on the ranks.

    Jupyter shows the message alone: the notebook's own line names only the cell.
    """

    def _render_traceback_(self) -> list[str]:
        return [f"CellError: {self}"]


_started: list[Cluster] = []  # The clusters of this notebook; the last one was started last.


def activate(cluster: Cluster) -> None:
    """Make `%px` and `%%px` run on the cluster that was started last and is not stopped."""
    shell: Any = get_ipython()
    if shell is None:
        return
    running = [each for each in _started if each is not cluster and each.state != "stopped"]
    for other in running:
        if other.config == cluster.config:
            # The cell that starts this cluster was run again, so the user has lost the old one.
            other.stop()
            print(f"{other.name}, started before, is stopped: this one takes its place")
    _started[:] = [each for each in running if each.state != "stopped"] + [cluster]

    def px(line: str, cell: str | None = None) -> None:
        """Run a line or a cell on every rank; with --local in the notebook too, before them."""
        if cell is not None and line.split() not in ([], [LOCAL]):
            fail(f"%%px {line}", f"the only option is {LOCAL}", f"%%px, or %%px {LOCAL}")
        if cell is not None and line:
            shell.run_cell(cell)
        run_cell(_current(), line if cell is None else cell)

    shell.register_magic_function(no_var_expand(px), "line_cell", "px")


def _current() -> Cluster:
    running = [cluster for cluster in _started if cluster.state != "stopped"]
    return (running or _started)[-1]


def run_cell(cluster: Cluster, cell: str) -> None:
    """Run a cell on all ranks and show their output, rank by rank.

    Raises:
        CellError: a rank raised, or the cluster failed; what was printed until then is shown.
    """
    cluster.check("%%px")
    answers = results.ask(
        cluster,
        "%%px",
        lambda view: view.execute(cell, silent=False, block=False),
        range(cluster.n),
    )
    try:
        results.results(cluster, answers, "%%px")
    except TTKitError as error:
        raise CellError(str(error)) from None
    finally:
        show_outputs(answers, cluster.state == "running")


def show_outputs(answers: results.Answers, complete: bool, together: bool = False) -> None:
    """Show what each rank printed and displayed, in rank order.

    Args:
        complete: wait for output that has not arrived yet.
        together: show text once that all ranks printed alike.
    """
    for rank, answer in answers.items():
        if answer.done() and complete and not answer.wait_for_output(results.OUTPUT_S):
            print(f"[rank {rank}] its output did not arrive in full", file=sys.stderr)
    texts = {(answer.stdout, answer.stderr) for answer in answers.values()}
    displays = any(answer.outputs for answer in answers.values())
    if together and len(answers) > 1 and len(texts) == 1 and not displays:
        _show("all ranks", next(iter(answers.values())))
        return
    for rank, answer in answers.items():
        _show(f"rank {rank}", answer)


def _show(label: str, answer: Any) -> None:
    """Show one output with its rank before each line of text, and above pictures and tables."""
    for text, stream in ((answer.stdout, sys.stdout), (answer.stderr, sys.stderr)):
        for line in (text or "").splitlines():
            print(f"[{label}] {line}", file=stream)
    value = answer.execute_result
    for content in [*(answer.outputs or []), *([value] if value else [])]:
        data = content["data"]
        if set(data) <= {"text/plain"}:
            for line in data.get("text/plain", "").splitlines():
                print(f"[{label}] {line}")
        else:
            print(f"[{label}]")
            sys.stdout.flush()
            publish_display_data(data=data, metadata=content.get("metadata") or {})
