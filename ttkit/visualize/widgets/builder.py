"""Plans and pipeline schedules that a reader makes by hand.

Each click on a cable adds a transfer to a plan. Each move of an action in a schedule shows the new
bubble or deadlock at once."""

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

# The error of a plan has these words if the plan is right so far, but not complete.
UNFINISHED = "after the last step"
ACTS = {"next": "Next step", "undo": "Undo"}
BUTTON = '<span class="ttkit-button" role="button" tabindex="0" data-act="{}">{}</span>'
KEYS = "Drag a box onto another in its row, or Tab to a box and use the left or right arrow key."
FINE = "It works, and no stage holds too much."
HIT = 18  # A click within a band of this many px around an arrow hits it.


class PlanBuilder(Touched):
    """A plan that a reader builds, by clicks on a picture or by calls.

    Args:
        collective: "all_gather" or "all_to_all", which only copy chunks.
        topology: the chips and their cables.
        shard_bytes: the size of the shard of each chip.
        names: the names of the chips, in the order of the mesh, such as "abcd".

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
        """The plan so far, without a last step that has no transfers."""
        return self._with(self._steps if self._steps[-1] else self._steps[:-1])

    def _with(self, steps: list[list[Transfer]]) -> Plan:
        return replace(self._empty, steps=tuple(map(tuple, steps)))

    def add(self, source: int, destination: int, chunk: int | None = None) -> None:
        """Add a transfer to the current step.

        Args:
            source, destination: the ids of two chips with a cable between them.
            chunk: the chunk to send; by default the newest chunk of the source that the
                destination lacks.

        Raises:
            TTKitError: the plan cannot have this transfer; the message is that of `Plan.validate`.
        """
        chosen = self._obvious(source, destination) if chunk is None else chunk
        steps = [*self._steps[:-1], [*self._steps[-1], Transfer(source, destination, chosen)]]
        plan = self._with(steps)
        wrong = problem_of(plan, self.names)[0]
        if wrong and UNFINISHED not in wrong:
            raise TTKitError(wrong)
        self._needless = chosen in self._picture.after[destination]
        needless = ", which has it already" if self._needless else ""
        self._steps = steps
        self._new = {(destination, chosen)}
        ends = list(map(self._picture.name, (source, destination)))
        self.says = f"Step {len(steps)}: {ends[0]} sends chunk {chosen} to {ends[1]}{needless}."
        if not wrong:
            done = f"{plan.collective} in {counted(len(steps), 'step')}"
            self.says += f" Complete: {done}. {self.stars}"

    def next_step(self) -> None:
        """Begin the next step, which can send on the chunks that have arrived."""
        if self._steps[-1]:
            self._steps = [*self._steps, []]
        self._say(f"Step {len(self._steps)}: click an arrow to send a chunk.")

    def undo(self) -> None:
        """Take back the last transfer. If the current step has none, take back that step."""
        *before, last = self._steps
        self._steps = [*before, last[:-1]] if last else before or [[]]
        self._say(f"Undone. This is step {len(self._steps)}.")

    def _say(self, text: str) -> None:
        self.says = text
        self._new = set[tuple[int, int]]()
        self._needless = False

    def _obvious(self, source: int, destination: int) -> int:
        """Return the newest chunk of the source that the destination lacks.

        If there is none, return the source's chunk with the lowest number, or 0 if the source holds
        none.
        """
        states = list(self._with(self._steps).states())
        held = states[-2].get(source, {})
        known = states[-1].get(destination, {})
        # In a ring a chip sends on the chunk that arrived last, so the newest is most likely meant.
        age = {c: sum(c in state[source] for state in states) for c in held}
        fresh = (c for c in held if c not in known)
        return min(fresh, key=lambda c: (age[c], c), default=min(held, default=0))

    # ------------------------------------------------------------ the score
    @property
    def stars(self) -> str:
        """The stars of a complete plan: one to three; "" for a plan that is not complete.

        A plan as good as the best known one has three stars. Each worse figure costs one star, but
        one star always remains.
        """
        if problem_of(self.plan)[0]:
            return ""
        worse = sum(mine > best for mine, best in zip(_figures(self.plan), _figures(self.best)))
        return "★" * max(1, 3 - worse)

    @property
    def score(self) -> list[tuple[str, str, str]]:
        """Rows of (name of a figure, this plan's figure, the best known plan's figure).

        A plan that is not complete has "not complete" in place of its figures.
        """

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
        """Return the picture of the chips after the current step, and of its transfers.

        Args:
            clickable: whether there is an arrow to click for each direction of each cable.
        """
        collective = self._empty.collective
        step = self._picture
        title = f"{collective} on {len(self._empty.topology.chips)} chips · step {len(self._steps)}"
        drawing = StepCells(step, glides=self._new if clickable else None)
        if clickable:
            _buttons(drawing, step)
        return Figure(title, [drawing], text=f"{title}\n{self!r}")

    def page(self, wrong: str = "") -> str:
        """Return the page as HTML: the picture, a message, the buttons and the score.

        Args:
            wrong: the error of the last click; by default the message says what was done.
        """
        fine = not wrong and not self._needless
        buttons = "".join(BUTTON.format(*each) for each in ACTS.items())
        words = on_page(message_box(wrong or self.says, fine) + buttons)
        head = ["<", "<your plan", f"<best known ({self.best.algorithm})"]
        table = Report("", head, self.score)
        beside = f"<div>{words}{table._repr_html_()}</div>"
        picture = self.figure(clickable=True)._repr_html_()
        return f'<div class="ttkit-beside">{picture}{beside}</div>'

    def act(self, what: str) -> str:
        """Carry out a reader's click, and return the page that is shown next."""
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
    """Return the figures by which plans are compared.

    They are the number of steps, the bytes over the busiest pair in one direction, and the bytes of
    extra memory on a chip.
    """
    return len(plan.steps), max(plan.bytes_per_link.values(), default=0), plan.peak_extra_bytes


def _buttons(drawing: StepCells, step: StepPicture) -> None:
    """Put an area to click over each direction of each cable.

    Draw a pale arrow below it if the step has no transfer in that direction.
    """
    used = {(arrow.source, arrow.destination) for arrow in step.arrows}
    for source, destination in sorted(step.plan.topology.pairs):
        course = drawing.way(source, destination)
        if (source, destination) not in used:
            drawing.arrow(*course, "var(--pale)")
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
    """A schedule whose actions a reader moves.

    Args:
        schedule: the schedule at the start.
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
        """Move an action to index `place` of the list of its stage; return the editor."""
        moved = Action.read(action)
        rows = list(map(list, self.schedule.actions))
        rows[stage].remove(moved)
        rows[stage].insert(place, moved)
        self.schedule = replace(self.schedule, actions=tuple(map(tuple, rows)))
        return self

    @property
    def problem(self) -> str:
        """The reason why the schedule does not work, or which stages hold too much; "" if fine."""
        if problem := schedule_picture(self.schedule).problem:
            return problem
        room = self.room
        held = enumerate(self.schedule.peak_activations())
        full = [f"stage {stage} holds {n:.4g}" for stage, n in held if room and n > room]
        return f"{', '.join(full)}; there is room for {room}" if full else ""

    # ------------------------------------------------------------ on a page that reports moves
    def figure(self) -> Figure:
        """Return the picture of the schedule, whose boxes can be dragged on a `touchable` page."""
        found = replace(schedule_picture(self.schedule), room=self.room).figure(touchable=True)
        return Figure(found.title, found.drawings, [KEYS], repr(self), self.problem)

    def act(self, text: str) -> str:
        """Carry out a reader's move, as `touchable` reports it; return the new page.

        Args:
            text: "0 B1>0 F3" after a drag, "0 B1 left" or "0 B1 right" after a key.
        """
        source, _, target = text.partition(">")
        stage, name, *way = source.split()
        row = list(map(str, self.schedule.actions[int(stage)]))
        if target:
            there, on = target.split()
            place = row.index(on) if there == stage else row.index(name)
        else:
            place = row.index(name) + (1 if way == ["right"] else -1)
        if place in range(len(row)):
            self.move(int(stage), name, place)
        return self.page()

    def page(self) -> str:
        """Return the picture as HTML, and a message that says whether the schedule works."""
        words = message_box(self.problem or FINE, fine=not self.problem)
        return replace(self.figure(), alarm="")._repr_html_() + on_page(words)

    def __repr__(self) -> str:
        text = repr(schedule_picture(self.schedule))
        return "\n  ".join([text, *([self.problem] if self.problem not in text else [])])
