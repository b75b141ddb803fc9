"""What a notebook shows of engines: a card for each rank, true at any moment, and two buttons."""

import sys
import types
from dataclasses import replace
from types import SimpleNamespace

import pytest

import ttkit
from ttkit.cluster.engines import page
from ttkit.cluster.engines.engine import Report
from ttkit.cluster.engines.page import Card, Live, Status, owned, status_of
from ttkit.cluster.engines.stacks import Frame
from ttkit.hardware import SYSTEMS

T3000 = SYSTEMS["t3000"]
REPORT = Report("here", ((1, 2),), (4, 0), 8192, 50_000_000)
WORKS = Frame("/a.py", 3, "", "work()")


@pytest.fixture(autouse=True)
def shows(monkeypatch):
    monkeypatch.setenv("TTKIT_PROGRESS", "1")


def html(*cards, state="running", failure=""):
    return Status("Cluster(2)", state, cards, failure, T3000, "12:34:56")._repr_html_()


def test_a_card_tells_what_a_rank_owns_and_does():
    report = replace(REPORT, line=WORKS, doing="step 2 of 9", losses=(4.0, 2.0, 3.0))
    text = html(Card(1, "busy", "0", (0, 4), 7, "KeyError: 'x'", ("a<b", "done"), report))
    for part in (
        "<b>rank 1</b> ▶ busy", 'aria-label="rank 1, busy"', "card 0: chips 0, 4", "mesh 1x2",
        "8.19 kB on the fullest of devices 4 and 0", "here, process 7, 50 MB", "step 2 of 9",
        "at line 3: work()", ">a&lt;b\ndone</div>", "KeyError: &#x27;x&#x27;",
        "<title>rank 1: chips 0, 4 of 8</title>", "Cluster(2): 1 rank, running (12:34:56)",
        "<title>the loss so far: from 4.000 to 3.000</title>", "border:2px solid",
    ):  # fmt: skip
        assert part in text, part
    assert "as it was" not in text
    idle = html(Card(1, "idle", "0", (0, 4), 7, report=replace(report, losses=())))
    assert "at line 3" not in idle and "the loss so far" not in idle


def test_the_state_is_told_by_a_word_and_a_shape():
    words = {"idle": "○ idle", "busy": "▶ busy", "stopped": "■ stopped", "failed": "✕ failed"}
    for state, shown in words.items():
        assert shown in html(Card(0, state), state=state)
    failed = html(Card(0, "failed"), state="failed", failure="rank 1 < 2\n  try: y")
    assert "1px dashed" in failed and 'role="alert">rank 1 &lt; 2<br>  try: y' in failed


def test_where_outputs_are_compared_nothing_stands_that_a_run_changes(monkeypatch):
    monkeypatch.setenv("TTKIT_PROGRESS", "0")
    card = Card(0, "idle", "0", (0, 4), 7, "", ("1.3 s",), REPORT)
    one = Status("Cluster(1)", "running", (card,), at="12:00")
    other = replace(one, cards=(replace(card, pid=8, prints=("1.2 s",)),), at="12:01")
    assert repr(one) == repr(other) and one._repr_html_() == other._repr_html_()
    assert repr(one) == "Cluster(1): 1 rank, running\n  rank 0: idle, card 0: chips 0, 4"
    assert "as it was when this cell ran" in one._repr_html_()
    assert "as it was" not in replace(one, state="stopped")._repr_html_()


def test_cards_that_are_not_this_machines_have_no_picture():
    assert owned(T3000, "") == owned(T3000, "0,9") == ()
    text = html(Card(0, "idle", "0,9"))
    assert "<svg" not in text and "cards 0,9" in text


class Fake:
    """A cluster of two ranks, of which some are busy."""

    n, name, state, why_failed, hosts = 2, "Cluster(2)", "running", "", ["", ""]
    bindings, last_error, pids = ttkit.Cluster(2).bindings, ["", ""], {0: 7, 1: 8}

    def __init__(self, *busy):
        self.busy_ranks, self.asked, self.latest = busy, [], {}

    def busy(self):
        return list(self.busy_ranks)

    def report(self, rank):
        return Report(doing=f"training of {rank}", line=WORKS)

    def restart(self):
        self.asked.append("restart")


def test_the_status_of_a_cluster():
    cluster = Fake(1)
    text = "".join(f"line {i}\n" for i in range(9))
    cluster.latest = {1: SimpleNamespace(metadata={"stdout": text})}
    first, second = status_of(cluster).cards
    assert (first.state, first.prints, first.pid) == ("idle", (), 7)
    assert (second.state, second.prints) == ("busy", ("line 6", "line 7", "line 8"))
    assert second.facts()[1:] == ["training of 1", "at line 3: work()"]
    cluster.state, cluster.busy_ranks = "failed", ()
    assert [(card.state, card.report) for card in status_of(cluster).cards] == [
        ("failed", Report())
    ] * 2


def test_buttons(monkeypatch):
    idle, busy = (Live(Fake(*ranks), lambda: "rank 0 was at line 1") for ranks in ((), (0,)))
    assert idle.act("interrupt") == "" and busy.act("interrupt") == "rank 0 was at line 1"
    assert idle.act("restart").startswith("started anew at ")
    assert idle.cluster.asked == ["restart"]
    monkeypatch.setattr(idle.cluster, "restart", lambda: ttkit.errors.fail("start", "no space"))
    assert idle.act("restart") == "start: no space"


class Page:
    """Stands for what IPython displayed."""

    def __init__(self):
        self.states = []

    def update(self, status):
        self.states.append([card.state for card in status.cards])


def test_what_is_shown_is_replaced_where_it_has_changed(monkeypatch):
    live = Live(Fake(), str)
    live.refresh()  # Nothing is shown yet.
    live._handle = shown = Page()
    for busy in ((), (), (1,), (1,)):
        live.cluster.busy_ranks = busy
        live.refresh()
    assert shown.states == [["idle", "idle"], ["idle", "busy"]]
    monkeypatch.setenv("TTKIT_PROGRESS", "0")
    live.cluster.busy_ranks = ()
    live.refresh()
    assert len(shown.states) == 2


def test_a_thread_refreshes_it_until_a_pause(monkeypatch):
    monkeypatch.setattr(page, "REPORT_EVERY_S", 0.01)
    live = Live(Fake(), str)
    live._handle = Page()
    live.follow()
    thread = live._thread
    live.follow()
    assert live._thread is thread and thread.is_alive()
    live.pause()
    assert live._thread is None and not thread.is_alive()


def test_on_a_terminal_it_stays_text(capsys):
    ttkit.Cluster(2)._ipython_display_()
    assert capsys.readouterr().out == "<Cluster(2): 2 engines, stopped>\n"


def test_a_process_reports_how_far_its_training_is(monkeypatch):
    from ttkit.visualize.widgets.live_training import Lines

    assert Report.now().doing == ""
    monkeypatch.setattr(Lines, "now", "step 2 of 9")
    monkeypatch.setattr(Lines, "losses", (2.5, 2.0))
    assert Report.now().doing == "step 2 of 9" and Report.now().losses == (2.5, 2.0)
    half = types.ModuleType("live_training")  # that another thread is importing
    monkeypatch.setitem(sys.modules, "ttkit.visualize.widgets.live_training", half)
    assert Report.now().doing == ""


def test_a_process_reports_what_its_meshes_hold():
    import numpy

    from ttkit import ttnn

    assert Report.now().meshes == ()
    with ttnn.open_mesh_device(ttnn.MeshShape(1, 2)) as mesh:
        how = {"layout": ttnn.TILE_LAYOUT, "mesh_mapper": ttnn.ReplicateTensorToMesh(mesh)}
        x = ttkit.from_numpy(numpy.zeros((32, 32), "f4"), device=mesh, **how)
        report = Report.now()
        assert (report.meshes, report.devices) == (((1, 2),), tuple(mesh.get_device_ids()))
        assert report.dram_bytes == 32 * 32 * 4 and report.host and x.shape
