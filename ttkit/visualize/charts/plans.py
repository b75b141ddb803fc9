"""Tables and charts of training: the plan of a run, layouts of a model on a machine, the losses."""

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from ttkit.visualize.charts import Curves, mark_limit
from ttkit.visualize.drawing import on_page
from ttkit.visualize.tables import Report
from ttkit.words import Tables, counted, short


def _communication(traffic: Sequence) -> Report:
    """Return the table of the collectives of a step, with a row for each purpose."""
    rows = []
    for what in (*dict.fromkeys(each.what for each in traffic), "all"):
        same = [each for each in traffic if what in (each.what, "all")]
        over = same[0].link if same[0].axis is None else f"axis {same[0].axis}"
        figures = [(t.times, t.times * t.nbytes, t.bytes_sent, t.time_s) for t in same]
        times, *sums = map(sum, zip(*figures))
        rounded = map(short, sums, ("B", "B", "s"))
        rows.append([what, same[0].collective, over, f"{times:,}", *rounded])
    *rows, last = rows
    last[1:3] = "", ""
    sizes = "input of a chip", "sent by a chip"
    columns = ["<what", "<collective", "<over", "times", *sizes, "modelled"]
    return Report("Communication of a step", columns, rows, last)


# ---------------------------------------------------------------- a training run
def loss_curves(trainer) -> Curves:
    """Return the curves of the losses in a trainer's history.

    Args:
        trainer: a `ttkit.train.Trainer`.
    """
    history = trainer.history
    curves = {"training loss": [(record.step, record.loss) for record in history]}
    checks = [(r.step, r.validation_loss) for r in history if r.validation_loss is not None]
    if checks:
        curves["validation loss"] = checks
    project = trainer.settings.training_config.project_name
    return Curves(f"{project}: {counted(len(history), 'step')}", curves)


def record_text(record, end: int) -> str:
    """Return a record as a line of text."""
    checked = record.validation_loss is not None
    validation = f", validation {record.validation_loss:.4f}" if checked else ""
    loss = f"loss {record.loss:.4f}{validation}"
    return f"step {record.step}/{end}: {loss}, {record.tokens_per_s:,.0f} tokens/s"


# ---------------------------------------------------------------- layouts
def _mesh(candidate) -> str:
    place = candidate.place
    words = ["x".join(map(str, place.shape))] + ["may hang"] * bool(place.warning)
    over = {"batch": place.replicas, "stages": place.stages}
    return ", ".join(words + [f"{what} over {n} hosts" for what, n in over.items() if n > 1])


def layout_tables(layouts, most: int) -> list[Report]:
    """Return a table of the layouts that fit, the fastest first. If layouts were refused, return
    also a table of the reasons, with the number of layouts for each.
    """
    rows = []
    for each in layouts.fitting[:most]:
        sign = "~" if layouts.ties(each) else ""
        sent = sum(one.bytes_sent for one in each.traffic)
        times = each.times
        serial = times.total + times.hidden * layouts.machine.overlap
        rows.append(
            [
                str(each.layout),
                f"{sign}{each.tokens_per_s:,.0f}",
                f"{each.mfu:.1%}",
                f"{each.memory.total / 1e9:.2f}",
                _mesh(each),
                short(sent, "B"),
                *(f"{part / times.total:.0%}" for part in (times.communication, times.bubble)),
                short(serial, "s"),
                short(serial - times.hidden, "s"),
            ]
        )
    count = f"{len(layouts.fitting)} layouts fit, {len(layouts.refused)} were refused"
    if len(layouts.fitting) > most:
        count += f"; the fastest {most}"
    columns = ["<layout", "tokens/s", "MFU", "GB per chip", "<mesh", "sent by a chip"]
    columns += ["exposed", "bubble", "step, modelled", "overlapped"]
    found = [Report(f"{layouts.title}: {count}", columns, rows)]
    if layouts.refused:
        why = [[f"{n}", reason] for reason, n in layouts.reasons().most_common(most)]
        found.append(Report("Refused", ["layouts", "<why"], why))
    return found


def explanation(candidate, dram: float) -> Iterator[Report]:
    """Yield the tables of one layout: memory by kind, collectives, times.

    Args:
        candidate: a `ttkit.layouts.search.Candidate`.
        dram: the memory of a chip in bytes.
    """
    if not candidate.memory:
        yield Report(str(candidate.layout), ["<refused"], [[candidate.refused]])
    else:

        def held(what: str, nbytes: float) -> list[str]:
            share = f"{nbytes / dram:.1%}" if nbytes > dram / 2000 else "below 0.1%"
            return [what, f"{nbytes:,}", short(nbytes, "B"), share]

        memory = candidate.memory._asdict().items()
        total = candidate.memory.total
        state = candidate.refused or ("fits" if total <= dram else "does not fit")
        title = f"{candidate.layout}: memory of a chip, {state}"
        columns = ["<what", "bytes", "rounded", "of DRAM"]
        yield Report(title, columns, [held(*each) for each in memory], held("all", total))
    times = candidate.times
    if candidate.traffic:
        yield _communication(candidate.traffic)
    if times:
        parts = times._asdict()
        hidden = parts.pop("hidden", 0.0)
        rows = [
            [what, short(time, "s"), f"{time / times.total:.1%}"] for what, time in parts.items()
        ]
        if hidden:
            rows.append(["hidden, not in the total", short(hidden, "s"), ""])
        title = f"Time of a step, modelled: {candidate.tokens_per_s:,.0f} tokens/s, "
        title += f"MFU {candidate.mfu:.1%}"
        last = ["all", short(times.total, "s"), ""]
        yield Report(title, ["<what", "modelled", "share"], rows, last)


class Page(Tables):
    """Several tables of a layout, and below them a text, the configuration that runs the layout."""

    def __init__(self, reports: Iterable[Report], text: str):
        self.tables = list(reports)
        self.text = text

    def reports(self) -> list:
        """Return the tables."""
        return self.tables

    def __repr__(self) -> str:
        return f"{super().__repr__()}\n\n{self.text}"

    def _repr_html_(self) -> str:
        return super()._repr_html_() + on_page(f"<pre>{escape(self.text)}</pre>")


# In a widget the box below the chart has a fixed height, so that a click does not change the height
# of the page. It scrolls in both directions, so the tables in it need no scroll bars of their own.
LOOK = """<style>
.ttkit-map { display: inline-block; position: relative; }
.ttkit-map + div pre { font-family: monospace; }
.ttkit-map + div .ttkit-picture { min-width: min-content; }
.ttkit-map + div .ttkit-picture, .ttkit-map + div .ttkit-picture > div {
    overflow: visible !important; }
.ttkit-map + div :is(td, th) { padding-right: 6px; }
.jupyter-widgets .ttkit-map + div { height: 360px; max-width: 1000px; overflow: auto; }
.ttkit-map span { border-radius: 50%; box-sizing: border-box; cursor: pointer; height: 18px;
    margin: -9px; position: absolute; width: 18px; }
.ttkit-map span:first-of-type { border: 2px dashed var(--ink); }
.ttkit-map span:hover, .ttkit-map span[aria-pressed] { border: 2px solid var(--ink); }
</style>"""
SPOT = (
    '<span role="button" tabindex="0" data-act="{0}" title="{1.layout}: {1.point[1]:,.0f} '
    'tokens/s, {1.point[0]:.2f} GB per chip" style="left:{2:.2%};bottom:{3:.2%}"></span>'
)
# Compute is not in the list: it is not a wait, even if it takes the longest.
WAITS = ("communication", "bubble", "optimizer")


class LayoutMap(Curves):
    """A chart with a point for each layout that fits: its speed over the memory of a chip. A click
    on a point shows the tables of its layout.

    The line is the Pareto front. The colour of a point shows for what a chip waits longest in a
    step.

    Args:
        layouts: the result of `plan_layouts` for training.
    """

    def __init__(self, layouts):
        self.layouts, self.chosen = layouts, ""
        curves = {"Pareto front": [each.point for each in layouts.front]}
        curves |= {f"longest wait: {what}": [] for what in WAITS}
        for each in layouts.fitting:
            longest = max(WAITS, key=each.times._asdict().__getitem__)
            curves[f"longest wait: {longest}"].append(each.point)
        title = f"{layouts.title}: modelled tokens/s"
        super().__init__(title, curves, 5, over="GB per chip", dots=[*curves][1:])

    def draw(self, ax) -> None:
        """Draw the points, the front and the memory that a layout may use."""
        super().draw(ax)
        mark_limit(ax, self.layouts.machine.room / 1e9, "GB")

    def spots(self, ax) -> str:
        """Return a spot to click over each point."""
        place = ax.transData + ax.figure.transFigure.inverted()
        return "".join(
            SPOT.format(i, each, *place.transform(each.point))
            for i, each in enumerate(self.layouts.fitting)
        )

    def _repr_html_(self) -> str:
        title, image = self.title_and_image
        page = self.layouts
        says = "Click a point to see its layout."
        if self.chosen:
            mark = f'data-act="{self.chosen}"'
            chosen = page.fitting[int(self.chosen)]
            image = image.replace(mark, f"{mark} aria-pressed")
            page = page.explain(chosen)
            says = "Click the same point again to see all layouts."
        # The title of the chart names the model and the machine; the title of a table need not.
        tables = page._repr_html_().replace(f"{escape(self.layouts.title)}: ", "")
        ring = "The dashed ring is the fastest layout."
        says = f"{ring} {says}" if self.layouts.fitting else "No layout fits."
        head = f'{LOOK}{title}<div class="ttkit-note" role="status">{says}</div>'
        return on_page(f'{head}<div class="ttkit-map">{image}</div><div>{tables}</div>')

    def act(self, number: str) -> str:
        """Choose the layout with this number in the table, from 0, or no layout if it was chosen
        before. Return the page.
        """
        self.chosen = "" if number == self.chosen else number
        return self._repr_html_()
