"""The course in a browser: lessons run from the menu of JupyterLab, their widgets move their
pictures, their exercises take answers.
"""

import pytest
from lab import CSS, faults, started, ui, webdriver

pytestmark = pytest.mark.long

# What a learner takes hold of in a widget; a play button is one, with the buttons beside it.
SLIDER, PLAY, LIST = ".noUi-handle", ".widget-play", "select"
HANDLES = (SLIDER, PLAY, LIST, ".widget-button", ".widget-toggle-button", "input[type=checkbox]")
WIDGET = "application/vnd.jupyter.widget-view+json"
# lesson: an exercise, the lines of its cell to write over, an answer, what the check says to it
ANSWERS = {
    "00_start_here": (
        "00.share",
        range(1),
        "answer = 48 * 64 // 8",
        "exercise 00.share: 384 elements on each device",
    ),
    "04_collectives": (
        "04.crossover",
        range(1),
        "answer = 8000",
        "exercise 04.crossover: at 8,000 bytes a chip",
    ),
    "05_engines_and_ranks": None,  # its exercises need the engines, which the last cell stops
    "09_pipeline_parallel": (
        "09.bubble",
        range(1, 2),
        "return (stages - 1) / (chunks * micro_batches + stages - 1)",
        "exercise 09.bubble: ",
    ),
}


@pytest.fixture
def lab(tmp_path):
    with started(tmp_path) as lab:
        yield lab


@pytest.mark.parametrize("lesson", ANSWERS)
def test_a_lesson_in_the_browser(lab, lesson):
    lab.open(f"{lesson}.ipynb")
    cells = lab.restart_and_run_all()
    assert not [(cell["source"], found) for cell in cells if (found := faults(cell))]
    with_widgets = [
        cell["index"] for cell in cells if any(WIDGET in out["kinds"] for out in cell["outputs"])
    ]
    assert len(with_widgets) >= sum("step_through(" in cell["source"] for cell in cells)
    lab.listen()
    for index in with_widgets:
        move_all(lab, index)
    if ANSWERS[lesson]:
        exercise, lines, text, says = ANSWERS[lesson]
        index = next(
            cell["index"] for cell in cells if f'lessons.check("{exercise}"' in cell["source"]
        )
        assert "to do:" in cells[index]["outputs"][-1]["text"]
        assert says in lab.answer(index, lines, text)
    assert not lab.heard()
    assert not [(cell["source"], found) for cell in lab.cells() if (found := faults(cell))]
    assert not lab.complaints()


def move_all(lab, index):
    """Move each handle of a cell's widgets; each must change the picture.

    One that cannot be used at first, must after another was moved.
    """
    area = lab.node(index).find_element(CSS, ".jp-Cell-outputArea")
    lab.until(
        lambda: picture(lab, area) and area.find_elements(CSS, ", ".join(HANDLES)),
        what=f"cell {index} shows no widget",
    )
    handles = [(kind, found) for kind in HANDLES for found in area.find_elements(CSS, kind)]
    known = sum(
        1 if kind != PLAY else len(found.find_elements(CSS, "button")) for kind, found in handles
    )
    assert known == len(area.find_elements(CSS, ".noUi-handle, select, button, input, textarea")), (
        "a kind of widget that this test cannot move"
    )
    while handles:
        kind, found = ready = next((pair for pair in handles if pair[1].is_enabled()), handles[0])
        assert found.is_enabled(), (
            f"{kind} of cell {index} cannot be used: {found.get_attribute('outerHTML')}"
        )
        before = picture(lab, area)
        move(kind, found)
        lab.until(
            lambda before=before: picture(lab, area) != before,
            what=f"{kind} of cell {index} was moved, and the picture stays as it was",
        )
        if kind == PLAY:
            move(kind, found)  # stop playing
        lab.settle()
        handles.remove(ready)


def picture(lab, area):
    """All pictures of an output, as the browser has them; read at once, because a widget may put
    another in their place at any time.
    """
    return lab.ask(
        "return [...arguments[0].querySelectorAll('svg, img')].map(found => found.outerHTML)", area
    )


def move(kind, found):
    """Move one handle to where it has not been."""
    if kind == SLIDER:
        now, most = (float(found.get_attribute(f"aria-value{which}")) for which in ("now", "max"))
        found.send_keys(webdriver.Keys.RIGHT if now < most else webdriver.Keys.LEFT)
    elif kind == LIST:
        chosen = ui.Select(found)
        now = chosen.options.index(chosen.first_selected_option)
        chosen.select_by_index(now - 1 if now else 1)
    elif kind == PLAY:
        found.find_element(CSS, "button").click()
    else:
        found.click()
