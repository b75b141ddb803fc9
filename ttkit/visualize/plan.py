"""Pictures of plans: a step, all steps on one page, and a widget to walk through one or several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ttkit.errors import fail
from ttkit.plans import Plan
from ttkit.visualize.drawing import Figure, ranges, size_text
from ttkit.visualize.step_drawing import StepDrawing
from ttkit.visualize.steps import StepPicture, plan_text, step_pictures, summary_of, title_of

MOST = 12  # steps that are all shown on one page


def _notes(picture: StepPicture, small: bool) -> list[str]:
    """Return the legend of the boxes and arrows."""
    plan, most = picture.plan, max(map(len, picture.slots.values()), default=0)
    box = "Each box is a chunk"
    if plan.adds:
        box += f"; it fills up with the parts of all {plan.group_size} chips"
        box += "" if most <= 8 else " (a slanted line: not finished)"
    if plan.collective == "all_to_all":
        box += ", as parts for this chip and those after it"
    if small and most > 8:
        box += "; chunks stand in the order of their numbers"
    links = f", over {plan.links} links at once" if plan.links > 1 else ""
    few = len(plan.topology.chips) <= 8
    numbers = "" if small else f": {'its bytes, and ' * few}the numbers of its chunks"
    plus = "" if small else ", with a plus,"
    added = f"; orange{plus} where the chip adds it to its own" if plan.adds else ""
    return [
        f"{box}. A rim: new in this step.",
        f"Each arrow is a transfer from chip to chip{links}{numbers}{added}.",
    ]


def step_figure(step: StepPicture) -> Figure:
    """Return a step with words."""
    title = f"{title_of(step.plan)} · {step.caption}"
    notes = _notes(step, small=False)
    return Figure(title, [StepDrawing(step)], notes, step.text, step.problem)


def draw_step(plan: Plan, number: int, names: Sequence[str] = ()) -> Figure:
    """Draw what each chip holds after a step of a plan, and the step's transfers on their links.

    Args:
        number: of the step; 0 is the moment before the first.
        names: of the chips, in the order of the mesh, such as "abcd".

    Raises:
        TTKitError: no such step.

    Example:
        >>> from ttkit.plans import all_gather, topology
        >>> print(draw_step(all_gather(topology("n300"), 4096), 1))
        all_gather on n300 1x2, line · step 1: 8 KiB in 2 transfers
        0 -> 1: 4 KiB, chunk 0
        1 -> 0: 4 KiB, chunk 1
        device 0 holds 0, 1
        device 1 holds 0, 1
    """
    if number not in range(len(plan.steps) + 1):
        fail(
            f"step {number} of {plan!r}",
            f"the steps have the numbers 1 to {len(plan.steps)}; 0 is the moment before the first",
        )
    return step_figure(step_pictures(plan, names)[number])


def chosen(pictures: list[StepPicture]) -> list[int]:
    """Return the steps that a page shows: all, or some of many, and the one that goes wrong.

    Example:
        >>> from ttkit.plans import all_gather, topology
        >>> chosen(step_pictures(all_gather(topology("galaxy_torus", (1, 32)), 1024)))
        [0, 1, 2, 5, 8, 11, 15, 16]
    """
    last = len(pictures) - 1
    if last <= MOST:
        return list(range(last + 1))
    middle = (2 + (last - 3) * i // 4 for i in (1, 2, 3))
    wrong = (picture.number for picture in pictures if picture.wrong)
    return sorted({0, 1, 2, *middle, last - 1, last, *wrong})


def draw_plan(plan: Plan, names: Sequence[str] = ()) -> Figure:
    """Draw all steps of a plan; of many steps some, and a note that lists the others."""
    pictures = step_pictures(plan, names)
    shown, notes = chosen(pictures), _notes(pictures[0], small=True)
    left_out = set(range(len(pictures))) - set(shown)
    if left_out:
        notes.insert(0, f"Left out: steps {ranges(left_out)}.")
    drawings = [StepDrawing(pictures[number], small=True) for number in shown]
    return Figure(summary_of(plan), drawings, notes, plan_text(pictures), pictures[0].problem)


def _short(plan: Plan) -> str:
    """Return the shape and the algorithm of a plan, short."""
    rows, columns = plan.topology.shape
    return f"{rows} x {columns} {plan.algorithm}"


def draw_moment(strips: Sequence[list[StepPicture]], number: int) -> Figure:
    """Draw the same moment of several plans beside one another; a shorter one stays at its end.

    Args:
        strips: the pictures of each plan, as of `step_pictures`.
    """
    drawings, texts = [], []
    for pictures in strips:
        plan, last = pictures[0].plan, len(pictures) - 1
        now = pictures[min(number, last)]
        caption = f"{_short(plan)}: {now.caption}"
        if number > last:
            calm = {
                chip: tuple(replace(one, new=False) for one in h) for chip, h in now.held.items()
            }
            now = replace(now, held=calm, arrows=())
            caption = f"{_short(plan)}: finished after step {last}"
        moves = [(a.destination, c) for a in now.arrows for c in a.chunks]
        drawings.append(StepDrawing(now, True, caption, glides=moves))
        texts.append(caption)
    collectives = " and ".join(dict.fromkeys(title_of(one[0].plan) for one in strips))
    when = f"step {number}" if number else "start"
    title = f"{when} of {len(strips)} plans side by side"
    return Figure(title, drawings, _notes(strips[0][0], small=True), f"{title}: {collectives}")


def stepper(*plans: Plan, names: Sequence[str] = ()) -> Any:
    """Return a widget that shows one moment of one plan or several: a slider and two buttons."""
    import ipywidgets as widgets

    strips = [step_pictures(plan, names) for plan in plans]
    last = max(map(len, strips)) - 1
    slider = widgets.IntSlider(min=0, max=last, description="step")
    label, figure = widgets.Label(), widgets.HTML()

    def button(text: str, steps: int) -> Any:
        made = widgets.Button(description=text, layout={"width": "auto"})

        def press(_: Any) -> None:
            slider.value = (slider.value + steps) % (last + 1)  # after the last, the start

        made.on_click(press)
        return made

    def show(_: Any = None) -> None:
        number = slider.value
        sent = [sum(plan.bytes_per_step[:number]) for plan in plans]
        if len(plans) > 1:
            so_far = (f"{_short(p)} {size_text(n)}" for p, n in zip(plans, sent))
            label.value = f"sent so far: {', '.join(so_far)}"
            figure.value = draw_moment(strips, number)._repr_html_()
            return
        now = plans[0].bytes_per_step[number - 1] if number else 0
        label.value = (
            f"{size_text(now)} in this step, "
            f"{size_text(sent[0])} of {size_text(plans[0].total_bytes)} so far"
        )
        figure.value = step_figure(strips[0][number])._repr_html_()

    slider.observe(show, "value")
    show()
    parts = [button("Step back", -1), button("Next step", 1), slider, label]
    controls = widgets.HBox(parts, layout={"flex_flow": "row wrap"})
    return widgets.VBox([controls, figure])
