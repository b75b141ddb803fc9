"""What a reader makes by hand: a plan, to which each click on a cable adds a transfer; a pipeline
schedule, whose bubble or deadlock follows each move at once."""

from __future__ import annotations

from dataclasses import replace

from ttkit import plans
from ttkit.errors import TTKitError
from ttkit.plans import Action, Plan, Schedule, Topology, Transfer
from ttkit.visualize.drawing import Figure, message_box, on_page, size_text
from ttkit.visualize.lanes.schedule import schedule_picture
from ttkit.visualize.plan import StepCells, StepPicture, problem_of, step_pictures
from ttkit.visualize.tables import Report
from ttkit.visualize.widgets import Touched
from ttkit.words import counted

UNFINISHED = "after the last step"  # A plan that is only unfinished has these words in its error.
ACTS = {"next": "Next step", "undo": "Undo"}
BUTTON = '<span class="ttkit-button" role="button" tabindex="0" data-act="{}">{}</span>'
KEYS = "Drag a box onto another in its row, or Tab to a box and use the left or right arrow key."
FINE = "It works, and no stage holds too much."
HIT = 18  # A click within a band of this many px around an arrow hits it.


class PlanBuilder(Touched):
    """A plan in the making, by clicks on a picture or by calls.

    Args:
        collective: "all_gather" or "all_to_all", which only copy chunks.
        topology: chips and cables.
        shard_bytes: as of a `Plan`.
        names: of the chips, in the order of the mesh, such as "abcd".

    Example:
        >>> from ttkit.plans import topology
        >>> builder = PlanBuilder("all_gather", topology("n300"), 4096)
        >>> builder.add(0, 1)
        >>> builder.says
        'Step 1: device 0 sends chunk 0 to device 1.'
        >>> builder.add(1, 0)
        >>> builder.plan.steps == builder.best.steps
        True
    """

    hint = "Run this cell to build a plan."

    def __init__(self, collective: str, topology: Topology, shard_bytes: int, names: str = ""):
        # The plan of `ttkit.plans` is shown beside the learner's own.
        self.best: Plan = getattr(plans, collective)(topology, shard_bytes, links=1)
        self._empty = Plan(collective, topology, (), shard_bytes)
        self.names = names
        self._steps: list[list[Transfer]] = [[]]
        self._say("Step 1: click an arrow to send a chunk.")

    def __repr__(self) -> str:
        rows = (f"{what}: {mine}; best known {best}" for what, mine, best in self.score)
        return "\n".join([self.says, *rows])

    # ------------------------------------------------------------ building
    @property
    def plan(self) -> Plan:
        """The plan so far; a last step without transfers is left out."""
        steps = self._steps if self._steps[-1] else self._steps[:-1]
        return self._with(steps)

    def _with(self, steps: list[list[Transfer]]) -> Plan:
        return replace(self._empty, steps=tuple(map(tuple, steps)))

    def add(self, source: int, destination: int, chunk: int | None = None) -> None:
        """Add a transfer to the step.

        Args:
            source, destination: ids of two chips that are cabled.
            chunk: by default the obvious one: the newest of the source that the destination needs.

        Raises:
            TTKitError: the plan cannot have this transfer; the message is the plan's.
        """
        chosen = self._obvious(source, destination) if chunk is None else chunk
        steps = [*self._steps[:-1], [*self._steps[-1], Transfer(source, destination, chosen)]]
        plan = self._with(steps)
        wrong = problem_of(plan, self.names)[0]
        if wrong and UNFINISHED not in wrong:
            raise TTKitError(wrong)
        needless = ", which has it already" if chosen in self._picture.after[destination] else ""
        self._steps, self._new = steps, {(destination, chosen)}
        ends = [self._picture.name(chip) for chip in (source, destination)]
        self.says = f"Step {len(steps)}: {ends[0]} sends chunk {chosen} to {ends[1]}{needless}."
        if not wrong:
            done = f"{plan.collective} in {counted(len(steps), 'step')}"
            self.says += f" Complete: {done}. {self.stars}"

    def next_step(self) -> None:
        """Begin the next step: what has arrived can be sent on."""
        if self._steps[-1]:
            self._steps = [*self._steps, []]
        self._say(f"Step {len(self._steps)}: click an arrow to send a chunk.")

    def undo(self) -> None:
        """Take back the last transfer, or the step that has none."""
        *before, last = self._steps
        self._steps = [*before, last[:-1]] if last else before or [[]]
        self._say(f"Undone. This is step {len(self._steps)}.")

    def _say(self, text: str) -> None:
        self.says, self._new = text, set[tuple[int, int]]()

    def _obvious(self, source: int, destination: int) -> int:
        """Return the chunk that a transfer most likely means; if there is none, one that the plan
        refuses.
        """
        states = list(self._with(self._steps).states())
        held, known = states[-2].get(source, {}), states[-1].get(destination, {})
        # A ring passes on what came last, so the newest chunk is the likeliest.
        age = {c: sum(c in state[source] for state in states) for c in held}
        fresh = (c for c in held if c not in known)
        return min(fresh, key=lambda c: (age[c], c), default=min(held, default=0))

    # ------------------------------------------------------------ what there is
    @property
    def stars(self) -> str:
        """Three stars for a plan as good as the best known, one fewer for each figure that is worse
        (at least one); none for a plan that is not complete.
        """
        if problem_of(self.plan)[0]:
            return ""
        worse = sum(mine > best for mine, best in zip(_figures(self.plan), _figures(self.best)))
        return "★" * max(1, 3 - worse)

    @property
    def score(self) -> list[tuple[str, str, str]]:
        """Rows (what, of this plan, of the best known); only a complete plan has figures."""

        def texts(plan: Plan) -> tuple[str, ...]:
            steps, *sizes = _figures(plan)
            return (str(steps), *map(size_text, sizes))

        mine = texts(self.plan) if self.stars else ("not complete",) * 3
        names = ("steps", "over the busiest pair, one way", "extra memory on a chip")
        return list(zip(names, mine, texts(self.best)))

    @property
    def _picture(self) -> StepPicture:
        last = step_pictures(self._with(self._steps), self.names)[-1]
        return last._replace(problem="", goes_wrong=False)

    # ------------------------------------------------------------ on a page
    def figure(self, clickable: bool = False) -> Figure:
        """Return the picture: the chips after the step, and its transfers.

        Args:
            clickable: with an arrow to click for each way of each cable.
        """
        collective, step = self._empty.collective, self._picture
        title = f"{collective} on {len(self._empty.topology.chips)} chips · step {len(self._steps)}"
        drawing = StepCells(step, glides=self._new if clickable else None)
        if clickable:
            _buttons(drawing, step)
        return Figure(title, [drawing], text=f"{title}\n{self!r}")

    def page(self, wrong: str = "") -> str:
        """Return the picture with its buttons, what is wrong or was done, and the score."""
        buttons = "".join(BUTTON.format(*each) for each in ACTS.items())
        words = on_page(message_box(wrong or self.says, fine=not wrong) + buttons)
        head = ["<", "<your plan", f"<best known ({self.best.algorithm})"]
        table = Report("", head, self.score)
        beside = f"<div>{words}{table._repr_html_()}</div>"
        picture = self.figure(clickable=True)._repr_html_()
        return f'<div class="ttkit-beside">{picture}{beside}</div>'

    def act(self, what: str) -> str:
        """Do what a reader clicked, and return the page that is shown then."""
        verb, *rest = what.split()
        try:
            if verb == "send":
                self.add(*map(int, rest))
            elif verb == "next":
                self.next_step()
            else:
                self.undo()
        except TTKitError as error:
            return self.page(str(error).replace("\n  try:", "; try:"))
        return self.page()


def _figures(plan: Plan) -> tuple[int, int, int]:
    """Return steps, bytes over the busiest pair one way, and bytes of extra memory on a chip."""
    most = max(plan.bytes_per_link.values(), default=0)
    return len(plan.steps), most, plan.peak_extra_bytes


def _buttons(drawing: StepCells, step: StepPicture) -> None:
    """Lay something to click over each way of each cable, with an arrow where none is drawn."""
    used = {(arrow.source, arrow.destination) for arrow in step.arrows}
    for source, destination in sorted(step.plan.topology.pairs):
        course = drawing.way(source, destination)
        if (source, destination) not in used:
            drawing.arrow(*course, colour="var(--edge)", width=1.5)
        name = f"send from {step.name(source)} to {step.name(destination)}"
        drawing.line(
            *course,
            stroke="transparent",
            stroke_width=HIT,
            style="cursor:pointer",
            role="button",
            tabindex=0,
            aria_label=name,
            hover=name,
            data_act=f"send {source} {destination}",
        )


# ---------------------------------------------------------------- a schedule
class ScheduleEditor(Touched):
    """A schedule whose actions one moves; it displays as its picture.

    Args:
        schedule: to begin with.
        room: how many micro-batches' activations fit on a stage; 0 for any number.

    Example:
        >>> editor = ScheduleEditor(Schedule("mine", 2, 2, ["F0 F1 B0 B1", "F0 B0 F1 B1"]))
        >>> editor.move(0, "B0", 1).schedule.actions[0]
        (F0, B0, F1, B1)
    """

    hint = "Run this cell to drag the schedule's actions."

    def __init__(self, schedule: Schedule, room: int = 0):
        self.schedule, self.room = schedule, room

    def move(self, stage: int, action: Action | str, place: int) -> ScheduleEditor:
        """Put an action of a stage in another place of its list, from 0; return the editor."""
        moved = Action.read(action)
        rows = [list(row) for row in self.schedule.actions]
        rows[stage].remove(moved)
        rows[stage].insert(place, moved)
        self.schedule = replace(self.schedule, actions=tuple(map(tuple, rows)))
        return self

    @property
    def problem(self) -> str:
        """Why it does not work, or which stage holds too much; "" where all is well."""
        if problem := schedule_picture(self.schedule).problem:
            return problem
        room, held = self.room, enumerate(self.schedule.peak_activations())
        full = [f"stage {stage} holds {n:.4g}" for stage, n in held if room and n > room]
        return f"{', '.join(full)}; there is room for {room}" if full else ""

    # ------------------------------------------------------------ shown and touched
    def figure(self) -> Figure:
        """Return its picture; each box can be dragged where the page is `touchable`."""
        found = schedule_picture(self.schedule).figure(touchable=True)
        return Figure(found.title, found.drawings, [KEYS], repr(self), self.problem)

    def act(self, text: str) -> str:
        """Do what a reader did, as `touchable` reports it; return the page.

        Args:
            text: "0 B1>0 F3" of a drag, "0 B1 left" or "0 B1 right" of a key.
        """
        source, _, target = text.partition(">")
        stage, name, *way = source.split()
        row = [str(action) for action in self.schedule.actions[int(stage)]]
        if target:
            there, on = target.split()
            place = row.index(on) if there == stage else row.index(name)
        else:
            place = row.index(name) + (1 if way == ["right"] else -1)
        if place in range(len(row)):
            self.move(int(stage), name, place)
        return self.page()

    def page(self) -> str:
        """Return its picture as HTML, and whether it works, in words."""
        words = message_box(self.problem or FINE, fine=not self.problem)
        return replace(self.figure(), alarm="")._repr_html_() + on_page(words)

    def __repr__(self) -> str:
        text = repr(schedule_picture(self.schedule))
        return "\n  ".join([text, *([self.problem] if self.problem not in text else [])])
