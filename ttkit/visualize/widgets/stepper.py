"""A widget that walks through the steps of a plan, or of several side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ttkit.plans import Plan
from ttkit.visualize.drawing import size_text
from ttkit.visualize.plan import draw_moment, step_figure
from ttkit.visualize.steps import step_pictures


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
            slider.value = (slider.value + steps) % (last + 1)  # The start follows the last moment.

        made.on_click(press)
        return made

    def show(_: Any = None) -> None:
        number = slider.value
        sent = [
            f"{size_text(sum(plan.bytes_per_step[:number]))} of {size_text(plan.total_bytes)}"
            for plan in plans
        ]
        label.value = f"sent so far: {', '.join(sent)}"
        now = step_figure(strips[0][number]) if len(plans) == 1 else draw_moment(strips, number)
        figure.value = now._repr_html_()

    slider.observe(show, "value")
    show()
    parts = [button("Step back", -1), button("Next step", 1), slider, label]
    controls = widgets.HBox(parts, layout={"flex_flow": "row wrap"})
    return widgets.VBox([controls, figure])
