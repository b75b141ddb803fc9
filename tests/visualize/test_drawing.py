"""What moves in a drawing: once, or in a loop; at rest it is where it is drawn."""

import pytest
from motion import parts

from ttkit.visualize.drawing import LETTER, PALE, STEP_S, Drawing, Figure, Frames, letters, tone


def page(at=0.0, loops=False, **how):
    drawing = Drawing(100, 20, "a box")
    drawing.loops = loops
    with drawing.moving(at, **how):
        drawing.box((60, 0, 20, 20))
    return drawing


def test_a_part_comes_from_afar_and_stays():
    (part,) = parts(page(way=(-40, 8)).svg())
    assert [part.off(s) for s in (0, 0.4, 0.8, 1.5)] == [(-40, 8), (-20, 4), (0, 0), (0, 0)]
    assert part.shown(0) and part.shown(1.5) and part.rests and not part.loops


def test_a_part_that_does_not_stay_is_not_there_at_rest():
    (part,) = parts(page(stay=0.9, way=(-40, 0)).svg())
    assert part.shown(0.8) and not part.shown(1.0) and not part.rests
    (pale,) = parts(page(stay=0.9, ghost=True).svg())
    assert pale.ghost and pale.rests


@pytest.mark.parametrize("count", [1, 3])
def test_frames_play_one_after_the_other_and_the_last_one_rests(count):
    frames = [page(stay=0.5, way=(-30, 0)) for _ in range(count)]
    film = Frames(frames)
    found = parts(film.svg())
    shots, boxes = found[::2], found[1::2]
    assert film.svg().endswith("}}</style></svg>")  # All parts start when all have been read.
    for number in range(count):
        second = STEP_S * (number + 0.3)
        assert [shot.shown(second) for shot in shots] == [n == number for n in range(count)]
        assert boxes[number].shown(STEP_S * number + 0.4)
        assert not boxes[number].shown(STEP_S * number + 0.6)
        assert boxes[number].off(STEP_S * number)[0] == pytest.approx(-30, abs=0.01)
    assert [shot.rests for shot in shots] == [n == count - 1 for n in range(count)]
    assert not any(box.rests for box in boxes)


def test_only_what_moves_for_ever_can_be_paused():
    for drawing in (page(way=(9, 0)), page(way=(9, 0), loops=True)):
        html = Figure("a box", [drawing])._repr_html_()
        assert ('<input type="checkbox" class="ttkit-pause"' in html) == drawing.loops
        assert ".ttkit-pause:checked~.ttkit-panel *{animation-play-state:paused}" in html
        assert "infinite" in html or not drawing.loops
    assert "<style" not in Drawing(9, 9, "nothing moves").svg()


def test_the_mouse_on_a_fill_of_the_palette_fades_the_others():
    drawing = Drawing(40, 20, "two chips")
    for x, fill in ((0, tone(0)), (20, tone(1)), (30, "#ffffff")):
        drawing.box((x, 0, 9, 9), fill=fill)
        drawing.words(x, 9, "a", **letters(fill))
    svg = drawing.svg()
    assert svg.count(' data-trace="') == 2 * 2  # a box and its word
    assert svg.count(f'fill="{LETTER}"') == 3
    for fill in (tone(0), tone(1)):
        own = f'[data-trace="{fill}"]'
        rule = f"svg:has({own}:hover) [data-trace]:not({own}){{{PALE}}}"
        assert rule in svg
