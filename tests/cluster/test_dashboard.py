"""The display of a cluster: a card for each rank, true at any moment, and two buttons."""

import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

import ttkit
from ttkit.cluster.engines import dashboard, results
from ttkit.cluster.engines.dashboard import Card, Dashboard, Watcher, owned
from ttkit.cluster.engines.engine import Report
from ttkit.cluster.engines.stacks import Frame
from ttkit.cluster.engines.status import Row
from ttkit.hardware import SYSTEMS

T3000 = SYSTEMS["t3000"]


def row(rank=0, state="idle", error="", cards="0", pid=7):
    report = Report("here", ((1, 2),), (4, 0), 0, 50_000_000)
    return Row.of(rank, pid, cards, None, state, error, report)


@pytest.fixture(autouse=True)
def shows(monkeypatch):
    monkeypatch.setenv("TTKIT_PROGRESS", "1")


def page(*cards, state="running", failure=""):
    return Dashboard("Cluster(2)", state, cards, failure, T3000, "12:34:56")._repr_html_()


def test_a_card_tells_what_a_rank_owns_and_does():
    card = Card(row(1, "busy"), (0, 4), "line 3: work()", "step 2 of 9", ("a<b", "done"))
    html = page(card)
    for part in (
        "<b>rank 1</b> ▶ busy", 'aria-label="rank 1, busy"', "card 0: chips 0, 4", "mesh 1x2",
        "here, process 7, 50 MB", "step 2 of 9", "at line 3: work()", ">a&lt;b\ndone</div>",
        "<title>rank 1: chips 0, 4 of 8</title>", "Cluster(2): 1 rank, running (12:34:56)",
    ):  # fmt: skip
        assert part in html, part
    assert html.count("stroke-dasharray") == 6  # chips of others
    assert "border:2px solid" in html and "as it was" not in html


def test_a_card_draws_the_losses_of_a_training():
    html = page(Card(row(1, "busy"), losses=(4.0, 2.0, 3.0)))
    assert "<title>the loss so far: from 4.000 to 3.000</title>" in html
    assert 'points="3.0,3.0 83.0,33.0 163.0,18.0"' in html
    assert "the loss so far: from 2.000 to 2.000" in page(Card(row(), losses=(2.0,)))
    assert "the loss so far" not in page(Card(row()))


def test_the_state_is_told_by_a_word_and_a_shape():
    found = [
        page(Card(row(state=state)), state=state) for state in ("idle", "busy", "stopped", "failed")
    ]
    for html, words in zip(found, ("○ idle", "▶ busy", "■ stopped", "✕ failed")):
        assert words in html
    assert "1px dashed" in found[-1] and "1px solid" in found[0]


def test_a_line_is_that_of_a_rank_that_works():
    assert "line 3" not in page(Card(row(), (0, 4), "line 3: work()"))


def test_errors_and_a_failure_are_shown():
    html = page(Card(row(error="KeyError: 'x'")), state="failed", failure="rank 1 < 2\n  try: y")
    assert "KeyError" in html and 'role="alert">rank 1 &lt; 2<br>  try: y' in html


def test_where_outputs_are_compared_nothing_stands_that_a_run_changes(monkeypatch):
    monkeypatch.setenv("TTKIT_PROGRESS", "0")
    one = Dashboard("Cluster(1)", "running", (Card(row(), (0, 4), prints=("1.3 s",)),), at="12:00")
    other = replace(one, cards=(Card(row(pid=8), (0, 4), prints=("1.2 s",)),), at="12:01")
    assert repr(one) == repr(other) and one._repr_html_() == other._repr_html_()
    assert repr(one) == "Cluster(1): 1 rank, running\n  rank 0: idle, card 0: chips 0, 4"
    assert "as it was when this cell ran" in one._repr_html_()
    assert "as it was" not in replace(one, state="stopped")._repr_html_()


def test_cards_that_are_not_this_machines_have_no_picture():
    assert owned(T3000, "") == owned(T3000, "0,9") == ()
    html = page(Card(row(cards="0,9")))
    assert "<svg" not in html and "cards 0,9" in html


class Fake:
    """A cluster of two ranks, of which some are busy."""

    n, name, state, failure, hosts, latest = 2, "Cluster(2)", "running", None, ["", ""], {}

    def __init__(self, *busy):
        self.busy_ranks, self.asked = busy, []

    def busy(self):
        return list(self.busy_ranks)

    def report(self, rank):
        return Report(doing=f"training of {rank}")

    def status(self):
        rows = (row(0, self.of(0)), row(1, self.of(1)))
        return SimpleNamespace(rows=rows, failure="")

    def of(self, rank):
        return "busy" if rank in self.busy_ranks else "idle"

    def restart(self):
        self.asked.append("restart")


def test_lines_are_looked_at_now_and_then_while_a_rank_is_busy(monkeypatch):
    looked, clock = [], [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])

    def stacks(cluster, ranks):
        looked.append(ranks)
        return {rank: [Frame("", 3, "", "work()")] for rank in ranks}

    monkeypatch.setattr(dashboard, "stacks", stacks)
    watcher = Watcher(Fake(1))
    assert [card.line for card in watcher.now().cards] == ["", ""] and not looked
    clock[0] = dashboard.LOOK_S + 0.1
    first, second = watcher.now().cards
    assert (first.line, second.line, first.doing, second.doing) == (
        "", "line 3: work()", "", "training of 1",
    )  # fmt: skip
    watcher.now()
    assert looked == [[1]]  # not at every refresh
    watcher.cluster.busy_ranks = ()
    assert watcher.now().cards[1].line == ""


def test_engines_that_go_meanwhile_are_no_error(monkeypatch):
    def gone(cluster, ranks):
        raise FileNotFoundError

    monkeypatch.setattr(dashboard, "stacks", gone)
    watcher = Watcher(Fake(0))
    watcher._look = 0
    assert watcher.now().cards[0].row.state == "busy"


def test_the_last_prints_of_what_was_asked_last():
    cluster = Fake()
    text = "".join(f"line {i}\n" for i in range(9))
    cluster.latest = {1: SimpleNamespace(metadata={"stdout": text})}
    first, second = Watcher(cluster).now().cards
    assert first.prints == () and second.prints == ("line 6", "line 7", "line 8")


def test_buttons(monkeypatch):
    monkeypatch.setattr(results, "interrupt", lambda cluster: "rank 0 was at line 1")
    idle, busy = Fake(), Fake(0)
    assert Watcher(idle).act("interrupt") == "" and Watcher(busy).act("interrupt").startswith(
        "rank 0"
    )
    assert Watcher(idle).act("restart").startswith("started anew at ") and idle.asked == ["restart"]
    monkeypatch.setattr(idle, "restart", lambda: ttkit.errors.fail("start", "no space"))
    assert Watcher(idle).act("restart") == "start: no space"


def test_on_a_terminal_it_stays_text(capsys):
    ttkit.Cluster(2)._ipython_display_()
    assert capsys.readouterr().out == "<Cluster(2): 2 engines, stopped>\n"
