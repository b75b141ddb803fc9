"""Plans built by clicks: a click is a call, the plan is a real one, and what it cannot have it
says in its own words.
"""

import itertools
import re
import xml.etree.ElementTree as ET

import pytest
from motion import parts

from ttkit.errors import TTKitError
from ttkit.plans import Plan, Transfer, topology
from ttkit.visualize.plan import problem_of
from ttkit.visualize.widgets.builder import HIT, PlanBuilder

SQUARE, ROW = topology("t3000", (2, 2)), topology("t3000", (1, 4))


def square():
    return PlanBuilder("all_gather", SQUARE, 4096, names="abcd")


def complete(builder):
    return not problem_of(builder.plan)[0]


def build(builder, *steps):
    """Each step as 'ab ba': from a to b, then from b to a."""
    chip = dict(zip("abcdefgh", builder.best.topology.chips))
    for i, step in enumerate(steps):
        if i:
            builder.next_step()
        for source, destination in step.split():
            builder.add(chip[source], chip[destination])
    return builder


ALL = "ab ba cd dc ac ca bd db"


def test_clicks_build_the_best_known_plan():
    builder = build(square(), ALL, "ab ba cd dc")
    assert complete(builder) and isinstance(builder.plan.validate(), Plan)
    assert "Complete: all_gather in 2 steps. ★★★" in builder.says
    assert builder.score == [
        ("steps", "2", "2"),
        ("over the busiest pair, one way", "8 KiB", "8 KiB"),
        ("extra memory on a chip", "12 KiB", "12 KiB"),
    ]


def test_a_worse_plan_is_complete_too_and_the_table_says_so():
    builder = build(square(), "ab ba", "ac ca", "cd dc", "bd db", "ab ba", "cd dc")
    while not complete(builder):
        builder.next_step()
        build(builder, "ac bd")
        builder.next_step()
        build(builder, "ca db")
    assert int(builder.score[0][1]) > int(builder.score[0][2]) and builder.stars in ("★", "★★")


def test_the_obvious_chunk_is_the_one_that_is_meant():
    builder = PlanBuilder("all_gather", ROW, 4096)
    build(builder, "ab ba bc cb cd dc", "bc cd ba cb", "cd ba")
    assert complete(builder) and all(mine == best for _, mine, best in builder.score)


def test_what_is_wrong_is_told_in_the_plans_words_and_nothing_is_added():
    builder = build(square(), "ab")
    a, b, _, d = SQUARE.chips
    for call, words in (
        (lambda: builder.add(a, d), "but no cable joins them"),
        (lambda: builder.add(b, a, chunk=3), "sends chunk 3 to chip a, but does not hold it yet"),
        (lambda: builder.add(b, d, chunk=0), "but does not hold it yet"),  # it came in this step
        (lambda: builder.add(a, 99), "there is no chip 99"),
        (
            lambda: builder.add(a, b, chunk=7),
            "chip a sends chunk 7 to chip b, but does not hold it",
        ),
    ):
        with pytest.raises(TTKitError, match=words):
            call()
    assert builder.plan.steps == Plan("all_gather", SQUARE, [[Transfer(a, b, 0)]], 4096).steps
    page = builder.act(f"send {a} {d}")
    assert 'class="ttkit-alarm"' in page and "no cable joins them" in page
    assert 'class="ttkit-alarm"' not in builder.page()


def test_too_many_transfers_for_the_links_of_a_pair():
    builder = build(square(), ALL, "ab ab")
    a, b, *_ = SQUARE.chips
    with pytest.raises(TTKitError, match="2 links carry 2 at a time"):
        builder.add(a, b, chunk=0)


def test_undo_goes_back_over_steps():
    builder = build(square(), "ab", "ac")
    builder.undo()
    builder.undo()
    assert len(builder.plan.steps) == 1
    builder.undo()
    builder.undo()
    assert builder.plan.steps == () and not complete(builder)
    assert builder.score[0][1] == "not complete" and builder.stars == ""


def test_every_way_of_every_cable_is_a_button_with_a_name():
    root = ET.fromstring(square().figure(clickable=True).drawings[0].svg())
    buttons = [part for part in root.iter() if part.get("data-act")]
    assert {tuple(map(int, b.get("data-act").split()[1:])) for b in buttons} == SQUARE.pairs
    for button in buttons:
        assert button.get("tabindex") == "0" and button.get("role") == "button"
        assert re.fullmatch(r"send from [a-d] to [a-d]", button.get("aria-label"))
    for a, b in itertools.combinations(buttons, 2):  # two ways of a cable share no place
        apart = [abs(float(a.get(k)) - float(b.get(k))) for k in ("x1", "y1", "x2", "y2")]
        assert max(apart) >= float(a.get("stroke-width")) == HIT


def test_only_what_was_added_last_glides():
    builder = build(square(), "ab ba")
    svg = builder.figure(clickable=True).drawings[0].svg()
    assert len(parts(svg)) == 1
    builder.next_step()
    assert not parts(builder.figure(clickable=True).drawings[0].svg())


def test_the_page_does_what_its_buttons_say():
    builder = square()
    a, b, *_ = SQUARE.chips
    assert "a sends chunk 0 to b" in builder.act(f"send {a} {b}")
    assert "Step 2" in builder.act("next")
    assert "Undone" in builder.act("undo")


def test_on_a_terminal_there_are_words(capsys):
    square().show()
    assert "steps: not complete; best known 2" in capsys.readouterr().out


def test_in_a_notebook_there_is_a_widget(shown):
    square().show()
    widget, still = shown
    assert "application/vnd.jupyter.widget-view+json" in widget
    assert "<svg" in still["text/html"] and "best known 2" in still["text/plain"]
    assert 'data-act="' not in still["text/html"]  # nobody answers there


def test_a_needless_send_is_named():
    builder = build(square(), "ab ab")
    assert builder.says == "Step 1: a sends chunk 0 to b, which has it already."
    assert 'class="ttkit-alarm"' in builder.page()
