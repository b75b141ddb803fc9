"""docs/published.md: made from the data and the model, and how far off the model is."""

import pathlib
import statistics
import sys

import pytest

from ttkit.layouts.report import ERROR

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
sys.path.insert(0, str(DOCS))
import make_published as page  # noqa: E402

DATA = page.DATA


@pytest.fixture(scope="module")
def made():
    """The page, which takes long to make."""
    return page.made()


def test_the_page_is_in_step(made):
    assert (DOCS / "published.md").read_text(encoding="utf-8") == made, "run docs/make_published.py"
    assert "| Llama-3.1-8B | n150 | 1 | 1 | 32 | 26.0 |" in made and "fitted; models" in made


def test_decoding_is_close():
    found = page.errors(DATA["decode"])
    assert len(found) == len(DATA["decode"]) - 2
    assert statistics.median(found) <= 0.15 and max(found) <= 0.35
    assert statistics.median(page.errors(DATA["one_sequence"])) <= 0.15


def test_the_time_to_the_first_token_is_close():
    found = page.errors(DATA["decode"], "first")
    assert statistics.median(found) <= 0.15 and max(found) <= 0.35


@pytest.mark.parametrize("row", [r for r in DATA["decode"] if page.is_fitted(r)], ids=str)
def test_what_was_fitted_comes_out(row):
    assert page.predicted(row)["user"] == pytest.approx(row[5], rel=0.002)


def test_one_figure_was_fitted_for_each_architecture():
    fitted = [row for row in DATA["decode"] if page.is_fitted(row)]
    chips = [page.plan_of(row).system.chip.arch for row in fitted]
    assert sorted(chips) == sorted(page.LAYER_S) and len(chips) == 2
    for row, arch in zip(fitted, chips):
        source = page.LAYER_S[arch].source
        assert source == f"fitted on {row[0]}, {row[1]}, {row[5]} tokens/s/user"


def test_tokens_of_all_users_are_published_times_batch():
    for row in DATA["decode"] + DATA["one_sequence"] + DATA["others"]:
        assert row[6] == pytest.approx(row[5] * row[4], rel=0.005), row


def test_published_models_fit_their_chips():
    for row in DATA["decode"]:
        plan = page.plan_of(row)
        assert sum(plan.memory.values()) < plan.system.chip.dram_bytes, row


def test_training_is_within_15_percent():
    for what, published, modelled, _ in page.training():
        assert modelled == pytest.approx(published, rel=0.15), what
    for model, chips, seconds, _ in DATA["synchronisation"]:
        assert page.synchronisation_s(page.trained(model, chips, 5)) == pytest.approx(
            seconds, rel=0.15
        ), chips


def test_whole_steps_and_their_ratios_are_close():
    errors = [abs(found / published - 1) for published, found in page.measured()]
    assert len(errors) == 18 and statistics.median(errors) <= 0.15 and max(errors) <= 0.45
    # Two layouts tie within this error, so it must cover what is published of two layouts.
    assert all(abs(found / wanted - 1) < ERROR for _, wanted, found in page.beside())
    assert len(page.beside()) == 6


def test_collectives_of_a_galaxy_are_close():
    errors = [
        abs(page.rate(name, tensor, chips) / published - 1)
        for name, tensor, chips, published, _ in DATA["collectives"]
    ]
    assert statistics.median(errors) <= 0.1 and max(errors) <= 0.25


def test_every_row_has_a_source_and_a_model():
    for table in ("decode", "one_sequence", "others"):
        for row in DATA[table]:
            assert row[0] in DATA["models"] and row[8] in DATA["sources"]


def test_a_changed_figure_changes_the_page(made, monkeypatch):
    monkeypatch.setitem(DATA, "decode", [[*DATA["decode"][1][:5], 40.0, 1280.0, 23, "models"]])
    assert page.made() != made
