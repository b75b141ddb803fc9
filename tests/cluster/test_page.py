"""What a notebook shows of engines: a card for each rank."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

import ttkit
from ttkit.cluster.engines import page
from ttkit.cluster.engines.engine import Report
from ttkit.cluster.engines.page import Card, Status, owned, progress, status_of
from ttkit.cluster.engines.stacks import Frame
from ttkit.hardware import SYSTEMS

T3000 = SYSTEMS["t3000"]
REPORT = Report("here", ((1, 2),), 50_000_000)
WORKS = Frame("/a.py", 3, "", "work()")


@pytest.fixture(autouse=True)
def shows(monkeypatch):
    monkeypatch.setenv("TTKIT_PROGRESS", "1")


def html(*cards, failure="", note=""):
    return Status("Cluster(2): 2 ranks", cards, failure, T3000, note)._repr_html_()


def test_the_state_is_told_by_a_word_and_a_shape():
    words = {"idle": "○ idle", "busy": "▶ busy", "stopped": "■ stopped", "failed": "✕ failed"}
    for state, shown in words.items():
        assert shown in html(Card(0, state))
    failed = html(Card(0, "failed"), failure="rank 1 < 2\n  try: y")
    assert "1px dashed" in failed and 'role="alert">rank 1 &lt; 2<br>  try: y' in failed


def test_cards_that_are_not_this_machines_have_no_picture():
    assert owned(T3000, "") == owned(T3000, "0,9") == ()
    assert "<svg" not in html(Card(0, "idle", "cards 0,9"))


class Fake:
    """A cluster of two ranks, of which some are busy."""

    n, name, state, why_failed, hosts = 2, "Cluster(2)", "running", "", ["", ""]
    bindings, last_error, pids = ttkit.Cluster(2).bindings, ["", ""], {0: 7, 1: 8}

    def __init__(self, *busy):
        self.busy_ranks, self.latest = busy, {}

    def busy(self):
        return list(self.busy_ranks)

    def report(self, rank):
        return replace(REPORT, doing=f"step 2 of {rank}", line=WORKS)


def test_the_status_of_a_cluster(monkeypatch):
    cluster = Fake(1)
    text = "".join(f"line {i} < 9\n" for i in range(9))
    cluster.latest = {1: SimpleNamespace(metadata={"stdout": text})}
    cluster.last_error = ["", "KeyError: 'x'"]
    first, second = status_of(cluster).cards
    known = "mesh 1x2", "here, process 7, 50 MB"
    assert (first.state, first.owns) == ("idle", "cards 0,1: chips 0, 4, 1, 5")
    assert first.facts == known
    doing = "step 2 of 1", "at line 3: work()", "KeyError: 'x'"
    last = tuple(f"printed: line {i} < 9" for i in (6, 7, 8))
    assert (second.state, second.facts[2:]) == ("busy", doing + last)
    shown = status_of(cluster)._repr_html_()
    for part in (
        "<b>rank 1</b> ▶ busy", 'aria-label="rank 1, busy"', "KeyError: &#x27;x&#x27;",
        "printed: line 8 &lt; 9", "<title>rank 0: cards 0,1: chips 0, 4, 1, 5</title>",
        "border:2px solid", "as it was when this cell ran",
    ):  # fmt: skip
        assert part in shown, part
    # where outputs are compared, nothing stands that a run changes
    monkeypatch.setenv("TTKIT_PROGRESS", "0")
    first, second = status_of(cluster).cards
    assert (first.facts, second.facts) == ((), doing)
    cluster.state, cluster.busy_ranks = "failed", ()
    assert [(card.state, card.facts) for card in status_of(cluster).cards] == [
        ("failed", ()),
        ("failed", ("KeyError: 'x'",)),
    ]


def test_a_long_wait_shows_the_cards_until_it_ends(monkeypatch):
    shown = []
    handle = SimpleNamespace(update=lambda value, **_: shown.append(value))
    monkeypatch.setattr(page, "in_notebook", lambda: True)
    monkeypatch.setattr("IPython.display.display", lambda value, **_: shown.append(value) or handle)
    for seconds, states in ((9.0, []), (0.0, [["idle", "busy"]] * 2)):
        monkeypatch.setattr(page, "SHOW_AFTER_S", seconds)
        monkeypatch.setattr(page, "REFRESH_S", 0.0)
        with progress(Fake(1), "cluster.run(f)") as show:
            show("0 of 2 ranks are done")
            show("1 of 2 ranks are done")
        assert [[card.state for card in each.cards] for each in shown[:2]] == states
    assert repr(shown[1]).startswith("cluster.run(f): 1 of 2 ranks are done, 0 s")
    assert shown[2] == {"text/plain": ""}


def test_a_process_reports_how_far_its_training_is(monkeypatch):
    from ttkit.visualize.widgets.live_training import Lines

    assert Report.now().doing == ""
    monkeypatch.setattr(Lines, "now", "step 2 of 9")
    assert Report.now().doing == "step 2 of 9"


def test_a_process_reports_its_meshes():
    from ttkit import ttnn

    assert Report.now().meshes == ()
    with ttnn.open_mesh_device(ttnn.MeshShape(1, 2)):
        assert Report.now().meshes == ((1, 2),) and Report.now().host
