"""What a notebook shows of engines: a card for each rank."""

from types import SimpleNamespace

import pytest

import ttkit
from ttkit.cluster.engines import page
from ttkit.cluster.engines.engine import Report
from ttkit.cluster.engines.page import progress, status_of
from ttkit.cluster.engines.stacks import Frame
from ttkit.cluster.files.bindings import plain_ranks
from ttkit.visualize.drawing import tone

REPORT = Report("here", ((1, 2),), 50_000_000)
WORKS = Frame("/a.py", 3, "", "work()")


@pytest.fixture(autouse=True)
def shows(monkeypatch):
    monkeypatch.setenv("TTKIT_PROGRESS", "1")


class Fake:
    """A cluster of two ranks, of which some are busy."""

    n, name, state, why_failed, hosts = 2, "Cluster(2)", "running", "", ["", ""]
    bindings, last_error, pids = ttkit.Cluster(2).bindings, ["", ""], {0: 7, 1: 8}

    def __init__(self, *busy):
        self.busy_ranks, self.last_answers = busy, {}

    def busy(self):
        return list(self.busy_ranks)

    def report(self, rank):
        return REPORT._replace(doing=f"step 2 of {rank}", line=WORKS)


def test_the_status_of_a_cluster(monkeypatch):
    cluster = Fake(1)
    text = "".join(f"line {i} < 9\n" for i in range(9))
    cluster.last_answers = {1: SimpleNamespace(metadata={"stdout": text})}
    cluster.last_error = ["", "KeyError: 'x'"]
    doing = "step 2 of 1; at line 3: work(); KeyError: 'x'"
    assert repr(status_of(cluster)).splitlines() == [
        "Cluster(2): 2 ranks, running",
        "  rank 0, idle: cards 0, 1 (4 chips: 0, 1, 4, 5); mesh 1x2; here, process 7, 50 MB",
        "  rank 1, busy: cards 2, 3 (4 chips: 2, 3, 6, 7); mesh 1x2; here, process 8, 50 MB; "
        f"{doing}; printed: line 6 < 9; printed: line 7 < 9; printed: line 8 < 9",
    ]
    shown = status_of(cluster)._repr_html_()
    for part in (
        "rank 1: cards 2, 3 (4 chips", "▶ busy", "○ idle", "KeyError: &#x27;x&#x27;",
        "printed: line 8 &lt; 9", "as it was when this cell ran",
    ):  # fmt: skip
        assert part in shown, part
    assert shown.count(f'fill="{tone(0)}"') == shown.count(f'fill="{tone(1)}"') == 1
    # where outputs are compared, nothing stands that a run changes
    monkeypatch.setenv("TTKIT_PROGRESS", "0")
    first, second = repr(status_of(cluster)).splitlines()[1:]
    assert first.endswith("4, 5)") and second.endswith(f"7); {doing}")
    cluster.state, cluster.busy_ranks, cluster.why_failed = "failed", (), "rank 1 < 2\n  try: y"
    text = repr(status_of(cluster))
    assert "rank 0, failed: cards" in text and text.endswith("'x'\nrank 1 < 2\n  try: y")
    shown = status_of(cluster)._repr_html_()
    assert "✕ failed" in shown and 'alarm" role="status">rank 1 &lt; 2\n  try: y' in shown
    assert "as it was" not in shown


def test_cards_that_are_not_this_machines_are_not_filled():
    cluster = Fake()
    cluster.bindings = plain_ranks(2, ["0", "9"])
    assert repr(status_of(cluster)).splitlines()[2].startswith("  rank 1, idle: card 9; mesh")
    assert f'fill="{tone(1)}"' not in status_of(cluster)._repr_html_()


def test_a_long_wait_shows_the_cards_until_it_ends(monkeypatch):
    shown = []
    handle = SimpleNamespace(update=lambda value, **_: shown.append(value))
    monkeypatch.setattr(page, "in_notebook", lambda: True)
    monkeypatch.setattr("IPython.display.display", lambda value, **_: shown.append(value) or handle)
    for seconds, times in ((9.0, 0), (0.0, 2)):
        monkeypatch.setattr(page, "SHOW_AFTER_S", seconds)
        monkeypatch.setattr(page, "REFRESH_S", 0.0)
        with progress(Fake(1), "cluster.run(f)") as show:
            show("0 of 2 ranks are done")
            show("1 of 2 ranks are done")
        assert ["rank 1, busy" in repr(each) for each in shown[:2]] == [True] * times
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
