"""Pictures of plans: every arrow is a cable and a transfer, every transfer has its arrow, and
the boxes are what the chips hold.
"""

import itertools
import re
import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machine import grid
from motion import parts

import ttkit
import ttkit.visualize
from ttkit.errors import TTKitError
from ttkit.plans import (
    Plan,
    Transfer,
    all_gather,
    all_reduce,
    all_to_all,
    broadcast,
    cost,
    point_to_point,
    reduce_scatter,
    shift,
    topology,
)
from ttkit.visualize.drawing import STEP_S
from ttkit.visualize.plan import (
    StepCells,
    chosen,
    contributors_in_all,
    draw_plan,
    draw_step,
    problem_of,
    step_pictures,
)
from ttkit.visualize.widgets import play

SVG = "{http://www.w3.org/2000/svg}"
T3000, TORUS = topology("t3000"), topology("galaxy_torus")


@st.composite
def plans(draw):
    rows, columns, wraps = st.integers(1, 5), st.integers(1, 5), st.tuples(*[st.booleans()] * 2)
    mesh = grid(draw(rows), draw(columns), draw(wraps), draw(st.integers(1, 3)))
    axis, size = draw(st.sampled_from([None, 0, 1])), draw(st.integers(1, 5000))
    kinds = [all_gather, all_to_all, reduce_scatter, all_reduce, "tree", broadcast]
    collective = draw(st.sampled_from([*kinds, point_to_point, shift]))
    if collective is shift:  # along one line
        return shift(mesh, size, axis or 0, backwards=draw(st.booleans()))
    if collective == "tree":
        return all_reduce(mesh, size, axis, algorithm="tree")
    if collective is broadcast:
        return broadcast(mesh, size, draw(st.integers(0, len(mesh.groups(axis)[0]) - 1)), axis)
    if collective is point_to_point:
        ends = [draw(st.sampled_from(mesh.chips)) for _ in range(2)]
        return point_to_point(mesh, size, *ends)
    return collective(mesh, size, axis)


def arrows_drawn(*drawings):
    roots = [ET.fromstring(drawing.svg()) for drawing in drawings]
    return sum(len(list(root.iter(SVG + "polygon"))) for root in roots)


@settings(max_examples=25, deadline=None)
@given(plans(), st.data())
def test_what_is_drawn_is_what_the_plan_does(plan, data):
    pictures = step_pictures(plan)
    assert len(pictures) == len(plan.steps) + 1
    assert not pictures[0].arrows
    assert not pictures[0].problem
    for number, (picture, state) in enumerate(zip(pictures, plan.states(), strict=True)):
        assert picture.number == number
        assert picture.after == state
        for chip, chunks in state.items():
            assert set(chunks) <= set(picture.slots[chip])
            for chunk in chunks:
                wanted = (len(chunks[chunk]), plan.group_size) if plan.adds else (1, 1)
                assert (picture.contributors(chip, chunk), contributors_in_all(plan)) == wanted
        for arrow in picture.arrows:
            ends = arrow.source, arrow.destination
            assert ends in plan.topology.pairs and not arrow.why_not
            assert all((t.source, t.destination) == ends for t in arrow.transfers)
        sent = Counter(t for arrow in picture.arrows for t in arrow.transfers)
        assert sent == Counter(plan.steps[number - 1] if number else ())
    one = data.draw(st.sampled_from(pictures))
    for small in (False, True):
        assert arrows_drawn(StepCells(one, small)) == len(one.arrows)
    shown = chosen(pictures)
    drawn = draw_plan(plan).drawings
    assert arrows_drawn(*drawn) == sum(len(pictures[number].arrows) for number in shown)


@settings(max_examples=6, deadline=None)
@given(plans().filter(lambda plan: plan.steps), st.data())
def test_a_spoiled_plan_is_drawn_without_arrows_that_cannot_be(plan, data):
    """One transfer goes elsewhere, brings something else or comes from elsewhere; chips and
    chunks that do not exist among them.
    """
    number = data.draw(st.integers(0, len(plan.steps) - 1))
    steps = [list(step) for step in plan.steps]
    at = data.draw(st.integers(0, len(steps[number]) - 1))
    old = steps[number][at]
    chip = st.sampled_from([*plan.topology.chips, 99])
    chunk = st.integers(0, len(plan.sizes))
    steps[number][at] = Transfer(
        data.draw(chip), data.draw(chip), data.draw(chunk), old.bytes, data.draw(st.booleans())
    )
    bad = replace(plan, steps=tuple(map(tuple, steps)))
    problem, where = problem_of(bad)
    pictures = step_pictures(bad)
    assert len(pictures) == len(steps) + 1
    for picture in pictures:
        for arrow in picture.arrows:
            joined = (arrow.source, arrow.destination) in plan.topology.pairs
            assert (arrow.why_not == "no cable") == (not joined)
        assert arrows_drawn(StepCells(picture)) == sum(
            not arrow.why_not for arrow in picture.arrows
        )
        assert (problem in picture.text) and picture.problem == problem
    if problem:
        assert where in chosen(pictures)
    assert "<svg" in bad._repr_html_()


def test_a_plan_that_cannot_be_shows_where():
    steps = [[Transfer(4, 0, 0)], [Transfer(4, 7, 0), Transfer(4, 5, 2)]]
    bad = Plan("all_gather", T3000, steps, 4096)
    figure, page = draw_step(bad, 2), draw_plan(bad)
    svg = figure.drawings[0].svg()
    assert "no cable" in svg and "not held" in svg and "<polygon" not in svg
    edge = figure.drawings[0].way(4, 5)[0][1]  # of chip 4
    assert re.search(f'y1="{edge:g}"[^>]*dasharray', svg)
    problem = "chip 4 sends chunk 0 to chip 7, but no cable joins them"
    assert "step 2 of 2" in figure.alarm and problem in figure.alarm and problem in repr(figure)
    assert [drawing.title for drawing in page.drawings][-1] == "step 2 goes wrong"
    assert "no cable" in page.drawings[-1].svg() and problem in repr(page) and problem in page.alarm


def test_a_ring_goes_around_on_curves():
    """The last chip of a row sends to its first on the arc of their cable."""
    picture = step_pictures(all_gather(TORUS, 64, axis=1))[1]
    ways = {(a.source, a.destination) for a in picture.arrows}
    assert {(row[-1], row[0]) for row in TORUS.groups(1)} < ways
    arc = r'<path d="M[^"]*C[^"]*" fill="none" stroke="var\(--link\)"'
    assert len(re.findall(arc, StepCells(picture).svg())) == 16  # both ways


def test_sums_fill_up_and_keep_their_colour():
    pictures = step_pictures(reduce_scatter(T3000, 8 * 512, axis=1))
    shares = [{now.contributors(0, chunk) for chunk in now.after[0]} for now in pictures]
    assert shares[0] == {1}
    assert max(shares[1]) == 2
    assert max(shares[-1]) == 4 == contributors_in_all(pictures[0].plan)
    for picture, high in ((pictures[1], {"12.6"}), (pictures[-1], {"12.6", "25.2"})):
        filled = re.findall(r'<path d="([^"]+)" fill="#', StepCells(picture).svg())
        assert {v for path in filled for v in re.findall(r"v([\d.]+)h", path)} == high


def test_what_is_new_glides_from_where_it_was_sent():
    """A copy glides as a part of its own; what is added glides over the sum, and disappears."""
    gather, scatter = all_gather(T3000, 64, axis=1), reduce_scatter(T3000, 64, axis=1)
    for plan in (gather, scatter):
        for picture in step_pictures(plan):
            drawing = StepCells(picture)

            def spot(chip, chunk, drawing=drawing, picture=picture):
                at = picture.plan.topology.place[chip]
                return drawing.spot(at, picture.slots[chip].index(chunk))

            moved = parts(drawing.svg())
            way = [
                [a - b for a, b in zip(spot(t.source, c), spot(t.destination, c))]
                for arrow in picture.arrows
                for t in arrow.transfers
                for c in t.chunks
            ]
            assert sorted(part.way for part in moved) == [
                pytest.approx(move[:2], abs=0.01) for move in sorted(way)
            ]
            assert {part.rests for part in moved} <= {plan is gather}
            assert not parts(StepCells(picture, small=True).svg())


def test_arrows_say_what_they_are():
    names = "abcd"
    row = topology("t3000", (1, 4))
    svg = StepCells(step_pictures(all_gather(row, 4096, axis=1), names)[1]).svg()
    assert "a to b: 4 KiB, chunk 0<" in svg
    svg = StepCells(step_pictures(reduce_scatter(row, 4096, axis=1), names)[2]).svg()
    assert "c to b, which adds it: 1 KiB, chunk 0<" in svg
    assert "holds 0-31 (1 of 32 parts)" in repr(draw_step(all_reduce(TORUS, 4096), 0))


def test_chips_go_by_their_names():
    plan = all_gather(topology("t3000", (1, 4)), 4096, axis=1)
    figure = draw_step(plan, 1, "abcd")
    assert ">a<" in figure.drawings[0].svg() and "device 4" not in figure.drawings[0].svg()
    assert "a -> b: 4 KiB, chunk 0" in repr(figure) and "a holds 0, 1" in repr(figure)
    assert ">a<" in draw_plan(plan, "abcd").drawings[0].svg()


def test_sums_of_many_chips_fill_their_boxes_more_with_each_part():
    pictures = step_pictures(reduce_scatter(TORUS, 32 * 512))
    for number in (0, len(pictures) - 1):
        svg = StepCells(pictures[number], small=True).svg()
        after = pictures[number].after
        shares = {len(parts) for chunks in after.values() for parts in chunks.values()}
        boxes = re.findall(r'<path d="([^"]+)" fill="#', svg)
        drawn = {wide for path in boxes for wide in re.findall(r"h([\d.]+)v", path)}
        wide = 13 - 2 * 12 / 7  # the box of a chunk, without its gap
        assert drawn == {f"{max(4, wide * share / 32):.4g}" for share in shares}


def test_many_steps_are_a_choice_that_says_what_is_left_out():
    plan = all_gather(topology("galaxy_torus", (1, 32)), 1024)
    figure, steps = draw_plan(plan), chosen(step_pictures(plan))
    assert steps == sorted(set(steps)) and {0, 1, 2, len(plan.steps)} < set(steps)
    assert "Left out: steps 4-7, 9-14" in figure.notes[0] and len(figure.drawings) == len(steps)
    assert "Left out" not in draw_plan(all_gather(T3000, 1024))._repr_html_()


def test_a_plan_without_steps_has_pictures():
    plan = all_gather(topology("n150"), 1024)
    for picture in (draw_plan(plan), draw_step(plan, 0)):
        assert "<svg" in picture._repr_html_()


def test_there_is_no_such_step():
    with pytest.raises(TTKitError, match=r"step 9 of .*the steps have the numbers 1 to 3"):
        draw_step(all_gather(T3000, 1024, axis=1), 9)


# ------------------------------------------------------------ in a notebook and on a terminal
def test_on_a_terminal_there_are_words(capsys):
    plan = all_reduce(T3000, 4096, axis=1)
    ttkit.visualize_plan(plan)
    ttkit.step_through(plan)
    first, second = capsys.readouterr().out.split("all_reduce along axis 1 on t3000 2x4")[1:]
    assert first.strip() == second.strip() and first.count("\n") == 9
    ttkit.visualize_plan(plan, step=1)
    assert "4 +> 0: 1 KiB, chunk 3\n" in capsys.readouterr().out


def test_in_a_notebook_the_widget_is_followed_by_the_moving_picture(shown):
    plan = all_gather(T3000, 4096, axis=1)
    ttkit.step_through(plan)
    widget, fallback = shown
    assert "application/vnd.jupyter.widget-view+json" in widget
    assert widget["text/plain"] == "Run this cell to step through the plan."
    assert draw_plan(plan, moving=True)._repr_html_() in fallback["text/html"]
    assert fallback["text/plain"] == repr(draw_plan(plan))


def test_each_chunk_glides_along_the_link_that_the_plan_names():
    plan = all_reduce(T3000, 4096, axis=1)
    found = parts(draw_plan(plan, moving=True).drawings[0].svg())
    frames = [part for part in found if not any(part.way)]
    assert [frame.rests for frame in frames] == [False] * len(plan.steps) + [True]
    for number, step in enumerate(plan.steps, 1):
        moved = [part for part in found if any(part.way) and part.at == round(STEP_S * number, 6)]
        drawn = parts(StepCells(step_pictures(plan)[number]).svg())
        assert sorted(part.way for part in moved) == sorted(part.way for part in drawn)
        assert {bool(part.stay) for part in moved} == {step[0].reduce}  # what is added disappears
        assert all(
            frame.shown(STEP_S * number + 0.1) == (frame is frames[number]) for frame in frames
        )


def test_plans_race_on_one_clock(shown, monkeypatch):
    monkeypatch.setattr(play, "live", lambda widget, _, still: shown.extend([widget, still]))
    plans = all_gather(T3000, 1 << 20), all_gather(topology("t3000", (1, 8)), 1 << 20, axis=1)
    plans = (all_reduce(T3000, 1 << 20, algorithm="tree"), *plans)
    ttkit.step_through(*plans)
    assert [bool(one.notes) for one in shown[1]] == [False, True, False, True]  # one for both
    controls, figure = shown[0].children
    player, slider = controls.children
    ends = [[0, *itertools.accumulate(s * 1e6 for s in cost(p).step_times_s)] for p in plans]
    assert player.max == len(slider.options) - 1 == len({round(t, 1) for e in ends for t in e}) - 1
    assert slider.options[-1][1] == round(max(end[-1] for end in ends), 1)
    for _, us in slider.options[::3]:
        slider.value, at = us, 0
        for plan, end in zip(plans, ends):
            number = sum(time <= us + 0.05 for time in end) - 1
            drawn = StepCells(step_pictures(plan)[number], framed=False).svg().partition(">")[2]
            assert figure.page.index(drawn) >= at
            at = figure.page.index(drawn) + len(drawn)
            assert f" in {end[number]:.1f} of {end[-1]:.1f} µs (modelled)." in figure.page[at:]
        clock = figure.page.partition("</svg>")[0]
        assert f"after {us:.1f} µs" in clock
        done = sum(time <= us + 0.05 for end in ends for time in end[1:])
        assert clock.count('fill="#5b8fdc"') == done
