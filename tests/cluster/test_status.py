"""The table of a cluster's ranks: what it says, and that what is shown in a notebook is kept up
to date and never in the way.
"""

import sys
import threading
import time
import types
from dataclasses import replace

import pytest

from ttkit.cluster.engines.cluster import NOISE
from ttkit.cluster.engines.engine import Report, report_file
from ttkit.cluster.engines.status import Live, Reports, Row, Status
from ttkit.cluster.launch.output import why_ended
from ttkit.cluster.processes import Ended


def rows(state="idle", last_error=""):
    return (
        Row.of(
            0, 7, "0", None, state, last_error, Report("here", ((1, 2),), (4, 0), 0, 50_000_000)
        ),
        Row.of(1, None, "", 3, "idle", "", Report()),
    )


class Page:
    """Stands for what IPython displayed."""

    def __init__(self):
        self.texts = []

    def update(self, data, raw):
        self.texts.append(data["text/plain"])
        self.html = data["text/html"]


@pytest.fixture
def live(monkeypatch):
    monkeypatch.setenv("TTKIT_PROGRESS", "1")
    live = Live(lambda: Status("Cluster(2)", rows("busy")))
    live._handle = Page()
    yield live
    live.pause()


def test_what_is_not_known_is_a_dash():
    head, first, second = Status("Cluster(2)", rows()).cells()
    assert dict(zip(head, first)) == {
        "rank": "0", "host": "here", "pid": "7", "cards": "0", "mesh": "1x2", "devices": "4, 0", "DRAM": "0", "memory": "50 MB", "state": "idle",
        "last error": "",
    }  # fmt: skip
    assert second == ["1", "-", "-", "-", "id 3", "-", "-", "-", "idle", ""]


def test_many_devices_are_cut():
    row = Row.of(0, 1, "", 0, "idle", "", Report("here", ((8, 4),), tuple(range(32))))
    assert (row.mesh, row.devices) == ("id 0 8x4", "0, 1, 2, 3, 4, 5, 6, 7, ...")


def test_html_is_escaped():
    html = Status("Cluster(2)", rows(last_error="KeyError: '<b>'"), "rank 1 < 2")._repr_html_()
    assert "KeyError: &#x27;&lt;b&gt;" in html and "<pre>rank 1 &lt; 2</pre>" in html


def test_outside_of_a_notebook_it_is_printed(capsys):
    Status("Cluster(2)", rows(), show=pytest.fail)._ipython_display_()
    assert capsys.readouterr().out.startswith("rank  host")


def test_a_shown_status_is_refreshed_once_for_a_change(live, monkeypatch):
    monkeypatch.setattr("ttkit.cluster.engines.status.BEAT_S", float("inf"))
    live.follow()
    live._ask, asked = (
        lambda: asked.set() or Status("Cluster(2)", rows("failed")),
        threading.Event(),
    )
    assert asked.wait(30)
    asked.clear()
    assert asked.wait(30)
    live.pause()
    assert [text.splitlines()[1].split()[-1] for text in live._handle.texts] == ["busy", "failed"]
    assert not any(thread.name == "ttkit status" for thread in threading.enumerate())


def test_the_page_says_when_a_table_is_not_renewed(live, monkeypatch):
    monkeypatch.setattr("ttkit.cluster.engines.status.BEAT_S", 0.0)
    live.follow()
    until = time.monotonic() + 30
    while len(live._handle.texts) < 3 and time.monotonic() < until:
        time.sleep(0.05)
    live.pause()
    assert len(set(live._handle.texts)) == 1 < len(live._handle.texts)
    html = live._handle.html
    assert "opacity:0;animation:ttkit-stale 0s 12s forwards'>not live since " in html
    assert "the kernel of this notebook was stopped or restarted" in html


def test_a_table_of_a_cluster_that_has_ended_stays_as_it_is(live):
    live._ask = lambda: Status("Cluster(2)", tuple(replace(row, state="stopped") for row in rows()))
    live.refresh()
    assert "stopped" in live._handle.html and "not live" not in live._handle.html


def test_a_newer_table_ends_the_one_before(live, monkeypatch):
    page = live._handle
    live.refresh()
    monkeypatch.setattr("IPython.display.display", lambda *args, **keywords: Page())
    live.show(Status("Cluster(2)", rows()))
    assert "animation:ttkit-stale 0s 0s" in page.html and "a newer one is below" in page.html


def test_nothing_is_refreshed_where_nothing_is_shown_or_outputs_are_compared(live, monkeypatch):
    Live(pytest.fail).refresh()
    monkeypatch.setenv("TTKIT_PROGRESS", "0")
    live.follow()
    assert live._thread is None


def test_a_page_that_is_gone_is_no_error(live):
    live._handle.update = lambda *args, **keywords: 1 / 0
    live.refresh()


def test_a_report_is_read_whole_or_not_at_all(tmp_path):
    assert Reports(tmp_path, False).of(0) == Report()
    report_file(tmp_path, 0).write_text('{"host": "he')
    assert Reports(tmp_path, False).of(0) == Report()


def test_the_report_of_another_host_comes_through_mpiruns_log(tmp_path):
    lines = [
        '[1,1]<stdout>: TTKIT-REPORT {"host": "a"}',
        "[1,1]<stdout>: its own words",
        '[1,1]<stdout>: TTKIT-REPORT {"host": "b"}',
        "[1,0]<stderr>: oh",
    ]
    log, reports = tmp_path / "mpirun.log", Reports(tmp_path, True)
    log.write_text("\n".join(lines[:2]) + "\n[1,1]<stdout>: TTKIT-REPORT")
    assert reports.of(1) == Report("a") and reports.of(0) == Report()
    log.write_text("\n".join(lines) + "\n[1,1]<stdout>: TTKIT-REPORT")
    assert reports.of(1) == Report("b") and reports.of(0) == Report()
    why = why_ended(Ended("mpirun", 1, "\n".join(lines)), 2, noise=NOISE)
    assert why.splitlines()[2:] == ["    rank 0: oh", "    rank 1: its own words"]


def test_a_process_reports_what_it_has_open():
    import numpy as np

    import ttkit
    from ttkit import ttnn

    with ttnn.open_mesh_device(ttnn.MeshShape(1, 2)) as mesh:
        x = ttkit.from_numpy(
            np.zeros((64, 32), np.float32),
            device=mesh,
            layout=ttnn.TILE_LAYOUT,
            mesh_mapper=ttnn.ShardTensorToMesh(mesh, dim=0),
        )
        report = Report.now()
        assert (report.meshes, report.devices, report.dram_bytes) == (
            ((1, 2),),
            (4, 0),
            32 * 32 * 4,
        )
        assert report.process_bytes > 10_000_000 and report.host and x.shape
    assert Report.now().meshes == ()


def test_a_process_reports_how_far_its_training_is(monkeypatch):
    from ttkit.visualize.live_training import Lines

    assert Report.now().doing == ""
    monkeypatch.setattr(Lines, "now", "step 2 of 9")
    monkeypatch.setattr(Lines, "losses", (2.5, 2.0))
    assert Report.now().doing == "step 2 of 9" and Report.now().losses == (2.5, 2.0)
    half = types.ModuleType("live_training")  # that another thread is importing
    monkeypatch.setitem(sys.modules, "ttkit.visualize.live_training", half)
    assert Report.now().doing == ""
