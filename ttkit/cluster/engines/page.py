"""The figure of a cluster's ranks in a notebook: at one moment, or updated during a long wait."""

import contextlib
import time
from collections.abc import Callable, Iterator
from textwrap import wrap
from typing import Any

from ttkit.cluster.engines.engine import Report
from ttkit.hardware import current_machine
from ttkit.words import counted, in_notebook, short, shows_progress

Cluster = Any  # The class is in engines.cluster, which imports this module.
SHOW_AFTER_S = 2.0  # A shorter wait is not shown.
REFRESH_S = 0.5
LAST_LINES = 3  # While a rank works, at most this many lines of its output are shown.
NOTE = "as it was when this cell ran; run it again to see the ranks now"
SHAPES = {"idle": "○", "busy": "▶", "stopped": "■", "interrupted": "■", "failed": "✕"}
LETTERS = 28  # A line of a box has at most this many letters.


def status_of(cluster: Cluster, title: str = ""):
    """Return a figure of a cluster, running or not, at this moment; send nothing to the ranks.

    Args:
        title: the title of the figure; by default the cluster's name and state.
    """
    from ttkit.visualize.drawing import Figure
    from ttkit.visualize.mesh import draw_share

    state = cluster.state
    system = current_machine()
    busy = cluster.busy()
    drawings, lines = [], []
    for binding in cluster.bindings.rank_bindings:
        rank = binding.rank
        own = "busy" if rank in busy else "idle" if state == "running" else state
        report = cluster.report(rank) if state == "running" else Report()
        facts = list(filter(None, _facts(cluster, rank, own, report)))
        words = [line for fact in facts for line in wrap(fact, LETTERS)]
        shown = [f"{SHAPES.get(own, '')} {own}", *words]
        drawing = draw_share(cluster.bindings, binding, system, lines=shown)
        drawings.append(drawing)
        named = drawing.title.replace(":", f", {own}:", 1)
        lines.append("; ".join([f"  {named}", *facts]))
    notes = [NOTE] if state == "running" and not title else []
    title = title or f"{cluster.name}: {counted(len(lines), 'rank')}, {state}"
    why = cluster.why_failed
    return Figure(title, drawings, notes, "\n".join([title, *lines, why]).rstrip(), why)


def _facts(cluster: Cluster, rank: int, state: str, report: Report) -> Iterator[str]:
    """Yield the known facts about a rank, without those that TTKIT_PROGRESS=0 hides."""
    if shows_progress():
        for shape in report.meshes:
            yield f"mesh {'x'.join(map(str, shape))}"
        if report.process_bytes:
            memory = short(report.process_bytes, "B")
            yield f"{report.host}, process {cluster.pids.get(rank)}, {memory}"
    if state == "busy":
        yield report.doing
        yield f"at {report.line}" if report.line else ""
    yield cluster.last_error[rank]
    answer = cluster.last_answers.get(rank)
    if shows_progress() and state == "busy" and answer:
        # While a rank works, its output is in the metadata of its pending answer.
        for line in str(answer.metadata["stdout"] or "").splitlines()[-LAST_LINES:]:
            yield f"printed: {line}"


@contextlib.contextmanager
def progress(cluster: Cluster, what: str) -> Iterator[Callable[[str], None]]:
    """Show the boxes of the ranks in a notebook during a wait longer than SHOW_AFTER_S.

    The wait must call the yielded function with its state in words. TTKIT_PROGRESS=0 hides the
    boxes.
    """
    begin = time.monotonic()
    due = begin + SHOW_AFTER_S
    handle: Any = None

    def show(state: str) -> None:
        nonlocal due, handle
        now = time.monotonic()
        if now < due or not (shows_progress() and in_notebook()):
            return
        due = now + REFRESH_S
        status = status_of(cluster, f"{what}: {state}, {now - begin:.0f} s")
        if handle is None:
            from IPython.display import display

            handle = display(status, display_id=True)
        else:
            handle.update(status)

    try:
        yield show
    finally:
        if handle is not None:
            handle.update({"text/plain": ""}, raw=True)
