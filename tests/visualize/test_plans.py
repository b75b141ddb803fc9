"""The charts of training: the losses of a run, and layouts as points that one clicks."""

import math
import re
from html import unescape
from types import SimpleNamespace

import pytest
from visualize.test_chart import svg_of

from ttkit import plan_layouts
from ttkit.train import read_settings
from ttkit.train.config.settings import Settings, TrainingConfig, TransformerConfig
from ttkit.train.run.checkpoint import Record
from ttkit.visualize.charts.plans import LayoutMap, loss_curves


def run(steps=0, world=1, rank=0, replicas=None):
    """What the views read of a trainer."""
    settings = Settings(training_config=TrainingConfig(project_name="stories"))
    return SimpleNamespace(
        history=[record(i + 1) for i in range(steps)], steps=steps, world=world, rank=rank,
        replicas=replicas, settings=settings,
    )  # fmt: skip


def record(step, validation=None):
    return Record(step, 6 / step, 1e-3, 0.5, 12345.6, validation)


def test_curves_of_a_history():
    trainer, told = run(4), "6 at step 1, 3 at step 2, 2 at step 3, 1.5 at step 4"
    assert repr(loss_curves(trainer)) == f"stories: 4 steps\n  training loss: {told}"
    trainer.history[2] = record(3, 2.5)
    assert repr(loss_curves(trainer)).endswith("validation loss: 2.5 at step 3")
    assert repr(loss_curves(run())) == "stories: 0 steps\n  training loss: nothing yet"


# ---------------------------------------------------------------- layouts as points
GPT = TransformerConfig(num_heads=8, embedding_dim=256, num_blocks=2, dropout_prob=0.0)


@pytest.fixture(scope="module")
def layouts():
    return plan_layouts(GPT, "t3000", batch=8)


def test_the_points_are_the_rows_of_the_plan(layouts):
    rows = layouts.figures()["fitting"]
    points = {(sum(row["memory"].values()) / 1e9, row["tokens_per_s"]) for row in rows}
    front, *waits, limit = LayoutMap(layouts).plot().lines
    drawn = [tuple(at) for line in waits for at in line.get_xydata()]
    assert len(drawn) == len(rows) and set(drawn) == points > set(map(tuple, front.get_xydata()))
    assert {line.get_linestyle() for line in waits} == {"None"} != front.get_linestyle()
    assert max(gb for gb, _ in points) <= limit.get_xdata()[0] == layouts.machine.room / 1e9


def test_the_colour_is_that_of_the_longest_wait(layouts):
    curves = LayoutMap(layouts).curves
    for each in layouts.fitting:
        _, communication, _, bubble, optimizer = each.times
        waits = {"communication": communication, "bubble": bubble, "optimizer": optimizer}
        assert each.point in curves[f"longest wait: {max(waits, key=waits.get)}"]
    assert curves["longest wait: communication"] and curves["longest wait: bubble"]


def test_each_point_has_a_spot_over_it(layouts):
    from matplotlib.figure import Figure

    chart, figure = LayoutMap(layouts), Figure((6.4, 3.0), layout="constrained")
    ax = figure.subplots()
    chart.draw(ax)
    figure.draw_without_rendering()
    at = re.findall(r'title="(.*?)" style="left:([\d.]+)%;bottom:([\d.]+)%"', chart.spots(ax))
    box = ax.get_position()
    (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
    for (name, x, y), each in zip(at, layouts.fitting, strict=True):
        across, up = (
            (each.point[0] - left) / (right - left),
            (each.point[1] - bottom) / (top - bottom),
        )
        assert name.startswith(f"{each.layout}: {each.tokens_per_s:,.0f} tokens/s, ")
        assert float(x) == pytest.approx(100 * (box.x0 + across * box.width), abs=0.01)
        assert float(y) == pytest.approx(100 * (box.y0 + up * box.height), abs=0.01)


def test_a_click_explains_a_layout_and_gives_its_yaml(layouts, tmp_path):
    shown, file = LayoutMap(layouts), tmp_path / "run.yaml"
    for i in (0, 3, len(layouts.fitting) - 1):
        page, chosen = shown.act(str(i)), layouts.fitting[i]
        assert re.findall(r'data-act="(\d+)" aria-pressed', page) == [str(i)]
        assert f"{chosen.layout}: memory of a chip, fits" in page
        file.write_text(unescape(re.search("<pre>(.*?)</pre>", page, re.S)[1]))
        settings = read_settings(file)
        assert settings.transformer_config.embedding_dim == 256
        assert math.prod(settings.device_config.mesh_shape) == 8 // chosen.layout.pp
    before = LayoutMap(layouts)._repr_html_()
    assert shown.act(str(i)) == before  # A second click leaves the layout.
    assert "Refused" in before and "Click a point" in before


def test_a_page_keeps_its_height_where_nothing_fits(layouts):
    none = LayoutMap(plan_layouts(GPT, "t3000", batch=8, headroom=0.9999))
    images = [svg_of(shown._repr_html_()) for shown in (none, LayoutMap(layouts))]
    assert len({re.search('viewBox="[^"]*"', image)[0] for image in images}) == 1
    page = none._repr_html_()
    assert 'data-act="' not in page and "no layout can run; the smallest, DP8 ZeRO-3" in page
    assert "nothing yet" in repr(none)
