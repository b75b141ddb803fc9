"""All steps of a plan on one page: a strip of small pictures, and a stepper to walk through
them.
"""

from __future__ import annotations

from typing import Any

from ttkit.plans import Plan
from ttkit.plans.plan import REDUCES
from ttkit.visualize.drawing import Drawing, width_of, wrap
from ttkit.visualize.mesh import FOOT, alarm_height, draw_alarm
from ttkit.visualize.moments import (
    StepPicture,
    problem_of,
    ranges,
    size_text,
    step_pictures,
    title_of,
)
from ttkit.visualize.plan import draw_picture, notes, style_of
from ttkit.words import counted

PAGE, BETWEEN, TOP = 980, 14, 28  # width of a page, room between pictures and above them
MOST = 12  # steps that are all shown


def chosen(plan: Plan) -> list[int]:
    """The moments that a strip shows: all, or the first, some from the middle, the last, and the
    one where a plan goes wrong.

    Example:
        >>> from ttkit.plans import all_gather, topology
        >>> chosen(all_gather(topology("galaxy_torus", (1, 32)), 1024))
        [0, 1, 2, 5, 8, 11, 15, 16]
    """
    last = len(plan.steps)
    if last <= MOST:
        return list(range(last + 1))
    middle = {2 + (last - 3) * i // 4 for i in (1, 2, 3)}
    return sorted({0, 1, 2, last - 1, last, problem_of(plan)[1]} | middle)


def strip(plan: Plan) -> Drawing:
    """All steps of a plan as small pictures, row by row; of many steps a choice that says what
    is left out.
    """
    pictures = step_pictures(plan)
    shown = chosen(plan)
    panels = [draw_picture(pictures[number], small=True) for number in shown]
    wide, high = max(panel.width for panel in panels), panels[0].height
    columns = max(1, min(len(panels), int((PAGE + BETWEEN) // (wide + BETWEEN))))
    rows = -(-len(panels) // columns)
    title = f"{title_of(plan)} · {_summary(plan)}"
    foot = notes(plan, style_of(pictures[0], small=True))
    left_out = sorted(set(range(len(pictures))) - set(shown))
    if left_out:
        foot.insert(0, f"Left out: steps {ranges(left_out)}.")
    notes_w = max(width_of(sentence, 11) for sentence in foot) + 8
    width = max(
        columns * (wide + BETWEEN) - BETWEEN, width_of(title, 13, bold=True) + 8, min(notes_w, 680)
    )
    under = [line for sentence in foot for line in wrap(sentence, width - 6, 11, 4)]
    alarms = wrap(pictures[0].problem, width - 20, 11, 6) if pictures[0].problem else []
    bottom = TOP + rows * (high + BETWEEN) - BETWEEN
    drawing = Drawing(
        width, bottom + alarm_height(alarms) + FOOT * len(under) + 6, title, strip_text(pictures)
    )
    drawing.words(3, 16, title, size=13, anchor="start", bold=True)
    for i, panel in enumerate(panels):
        row, column = divmod(i, columns)
        drawing.inset(panel, column * (wide + BETWEEN), TOP + row * (high + BETWEEN))
    draw_alarm(drawing, bottom, alarms)
    drawing.lines(
        3,
        bottom + alarm_height(alarms) + 11,
        under,
        size=11,
        step=FOOT,
        colour="var(--soft)",
        anchor="start",
    )
    return drawing


def _summary(plan: Plan) -> str:
    steps = len(plan.steps)
    return f"{counted(steps, 'step')}, {size_text(plan.total_bytes)} in all"


def strip_text(pictures: list[StepPicture]) -> str:
    """A line for each step: messages, bytes, and how much the chips hold after it."""
    plan = pictures[0].plan
    sums = plan.collective in REDUCES
    lines = [
        f"{title_of(plan)} · {_summary(plan)}",
        f"{'step':>6} {'messages':>9} {'bytes':>10}  chunks held" + ", finished sums" * sums,
    ]
    for picture in pictures:
        held = [one for chip in picture.held.values() for one in chip]
        done = f", {sum(one.parts == one.of for one in held)}" if sums else ""
        messages = sum(len(arrow.transfers) for arrow in picture.arrows)
        size = size_text(sum(arrow.bytes for arrow in picture.arrows))
        lines.append(f"{picture.number or 'start':>6} {messages:>9} {size:>10}  {len(held)}{done}")
    return "\n".join([*lines, *([pictures[0].problem] if pictures[0].problem else [])])


def stepper(plan: Plan) -> Any:
    """A widget that shows one moment of a plan: play, back, on, a slider, and what the step
    sends.
    """
    import ipywidgets as widgets

    pictures = step_pictures(plan)
    last = len(pictures) - 1
    play = widgets.Play(min=0, max=last, interval=1200)
    slider = widgets.IntSlider(min=0, max=last, description="step", continuous_update=True)
    back, on = (
        widgets.Button(icon=icon, tooltip=tip, layout={"width": "40px"})
        for icon, tip in (("step-backward", "a step back"), ("step-forward", "a step on"))
    )
    label, figure = widgets.Label(), widgets.HTML()

    def show(_: Any = None) -> None:
        picture = pictures[slider.value]
        sent = plan.bytes_per_step[: slider.value]
        label.value = (
            f"{size_text(sent[-1] if sent else 0)} in this step, "
            f"{size_text(sum(sent))} of {size_text(plan.total_bytes)} so far"
        )
        figure.value = draw_picture(picture).html()
        back.disabled, on.disabled = slider.value == 0, slider.value == last

    def move(by: int) -> None:
        slider.value = min(max(slider.value + by, 0), last)

    back.on_click(lambda _: move(-1))
    on.on_click(lambda _: move(1))
    widgets.jslink((play, "value"), (slider, "value"))
    slider.observe(show, "value")
    show()
    return widgets.VBox(
        [widgets.HBox([play, back, on, slider, label], layout={"flex_flow": "row wrap"}), figure]
    )
