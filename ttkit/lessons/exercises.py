"""Exercises and open challenges. Each is one declaration.

One runner checks an answer to any exercise. A challenge scores an answer by a model, and shows the
learner's best scores in a table.

The declarations are beside the notebooks, in `course.lesson_NN`. `check` imports the one it needs.
"""

import contextlib
import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from importlib import import_module
from typing import Any

import numpy as np

from ttkit.errors import fail
from ttkit.lessons import progress
from ttkit.lessons.comparing import CheckFailed, answer_difference, in_lines, values_mean_something
from ttkit.lessons.predicting import brief, shortened
from ttkit.visualize.drawing import message_box, on_page
from ttkit.visualize.tables import Report
from ttkit.visualize.widgets import show_widget
from ttkit.words import in_notebook


class NotDone(NotImplementedError):
    """An exercise has not been started."""


# ---------------------------------------------------------------- one call of an answer
@dataclass
class Run:
    """One call of an answer.

    Args:
        arguments: the arguments of the call; the reference and the mistakes get the same ones.
        result: the result of the call.
        where: the start of a message about the call.
        names: {name: value} for the names in braces in sentences, such as those of the arguments.
    """

    arguments: tuple
    result: Any
    where: str
    names: dict[str, Any] = field(default_factory=dict)

    def result_difference(self, expected, rtol: float) -> str:
        """Return where the result differs from what is expected, in words."""
        found = answer_difference(expected, self.result, rtol)
        return f" {found}" if found else ""

    def clue(self) -> str:
        """Return words that may help to correct a wrong result, or ""."""
        return ""

    def over_budget(self, budget) -> str:
        """Return in words how the run is over the budget; "" where it is not."""
        return ""

    def budget_used(self, budget) -> str:
        """Return what the run used of the budget, in words."""
        return ""


def calls(answer, asks: str, cases: Sequence[tuple]) -> Iterator[Run]:
    """Yield a call of the answer for each tuple of arguments. The answer gets copies, because it
    may write into its arguments."""
    # IPython leaves each frame with this variable out of the traceback of a learner's error.
    __tracebackhide__ = True
    name = asks.partition("(")[0]
    for arguments in cases:
        result = answer(*copy.deepcopy(arguments))
        where = shortened(f"{name}({', '.join(map(in_call, arguments))})")
        yield Run(arguments, result, where, dict(zip(parameters(asks), arguments)))


def in_call(argument) -> str:
    """Return an argument as a message shows it. Only the shape of an array is shown.

    Example:
        >>> in_call([np.ones((2, 3)), 4])
        '[array of [2, 3], 4]'
    """
    if isinstance(argument, np.ndarray):
        return f"array of {list(argument.shape)}"
    if isinstance(argument, list):
        return f"[{', '.join(map(in_call, argument))}]"
    return repr(argument)


def parameters(asks: str) -> list[str]:
    """Return the names of a function's parameters.

    Example:
        >>> parameters("double(mesh, x)")
        ['mesh', 'x']
    """
    return [name.strip() for name in asks.partition("(")[2].rstrip(")").split(",")]


# ---------------------------------------------------------------- the declaration
@dataclass(frozen=True)
class Declared:
    """A declaration that is found by its name."""

    name: str

    def __post_init__(self):
        DECLARED[self.name] = self


@dataclass(frozen=True)
class Exercise(Declared):
    """The declaration of an exercise. `check` and `hint` find it by its name.

    Args:
        name: the lesson and the exercise, as "10.swiglu".
        asks: the call of the learner's function, as "swiglu(mesh, x, gate, up, down)". If it has no
            brackets, the answer is a value, and this is its name: "the number of elements".
        hints: the hints that `hint` prints, one after the other. The first is a question, the last
            is nearly the answer.
        reference: a function of the same arguments that computes the expected result on one device.
            On a mesh it may return a list with an array for each device.
        cases: a list of tuples of arguments, or `OnMeshes`.
        mistakes: {sentence: function}. The function returns the result of a usual mistake for the
            same arguments, or None where the mistake gives the right result. The sentence may name
            arguments in braces.
        budget: the most that a run may use, such as a `Budget` on meshes; None for no limit.
        reads: a function from the answer's result and the arguments to the value that is compared;
            it may raise `CheckFailed`.
        rules: a function from the answer's result and the arguments to the rule that they break, or
            "". A puzzle with many right answers has rules and no reference.
        rtol: the relative tolerance, see `answer_difference`.
        praise: a sentence about a right answer, which may name arguments in braces; or a function
            from the answer's result and the arguments of the last case to such a sentence.
    """

    _: KW_ONLY
    asks: str
    hints: Sequence[str]
    reference: Callable | None = None
    cases: Any = ()
    mistakes: Mapping[str, Callable] = field(default_factory=dict)
    budget: Any = None
    reads: Callable | None = None
    rules: Callable[..., str] = lambda *_: ""
    rtol: float = 1e-5
    praise: str | Callable[..., str] = "it is right"

    def judge(self, answer, mesh) -> str:
        """Return praise for an answer, or raise `CheckFailed` with what is wrong."""
        __tracebackhide__ = True
        if "(" not in self.asks:
            return self._value(answer)
        if not callable(answer):
            raise CheckFailed(
                f"expected the function {self.asks}, without brackets after its name; "
                f"got a {type(answer).__name__}"
            )
        if hasattr(self.cases, "runs"):
            runs = self.cases.runs(answer, self.asks, mesh)
        else:
            runs = calls(answer, self.asks, self.cases)
        # The traceback of a wrong answer keeps the generator alive. Closing the generator here
        # closes its mesh.
        with contextlib.closing(runs):
            for run in runs:
                given = run.result
                if self.reads and given is not None:
                    try:
                        run.result = self.reads(given, *run.arguments)
                    except CheckFailed as why:
                        raise CheckFailed(f"{run.where}: {why}") from None
                wrong = self._wrong(run)
                if not wrong and (broken := self.rules(given, *run.arguments)):
                    wrong = f": {broken}"
                if wrong := wrong or run.over_budget(self.budget):
                    raise CheckFailed(f"{run.where}{wrong}")
        if callable(self.praise):
            return self.praise(given, *run.arguments)
        figures = run.budget_used(self.budget)
        return self.praise.format(**run.names) + (f"; {figures}" if figures else "")

    def _value(self, answer) -> str:
        """Return praise for a value, or raise `CheckFailed`. The message does not say the right
        value, so that the learner can still find it."""
        found = self.reads(answer) if self.reads else answer
        if self.reference and answer_difference(self.reference(), found, self.rtol):
            why = (
                f": {words}"
                for words, mistake in self.mistakes.items()
                if not answer_difference(mistake(), found, self.rtol)
            )
            raise CheckFailed(f"{self.asks} is not {brief(answer)}{next(why, '')}")
        if broken := self.rules(found):
            raise CheckFailed(broken)
        return self.praise(found) if callable(self.praise) else self.praise

    def _wrong(self, run: Run) -> str:
        """Return where a result differs from the reference's, and the usual mistake that explains
        the difference; "" where the two agree."""
        if self.reference is None:
            return ""
        found = run.result_difference(self.reference(*run.arguments), self.rtol)
        if not found:
            return ""
        for sentence, mistake in self.mistakes.items() if values_mean_something() else ():
            usual = mistake(*run.arguments)
            if usual is not None and not run.result_difference(usual, self.rtol):
                return f"{found}: {sentence.format(**run.names)}"
        clue = run.clue()
        return found + (f"\n  {clue}" if clue else "")


# The keys are the names of the exercises and challenges of all lessons imported so far.
DECLARED: dict[str, Any] = {}
_hints_shown: dict[str, int] = {}  # The values are the numbers of hints shown of each exercise.


def declaration(name: str, kind: type = Exercise) -> Any:
    """Import the module of the lesson, and return the declaration of this kind with this name."""
    asked = f"{kind.__name__.lower()} {name!r}"
    lesson = f"course.lesson_{name.partition('.')[0]}"
    try:
        import_module(lesson)
    except ModuleNotFoundError as error:
        if error.name == "course":
            fail(
                asked,
                "the folder course, with the exercises, is not beside this notebook",
                "the notebooks' own folder: ttkit lab",
            )
        if error.name != lesson:
            raise
    names = sorted(each for each, one in DECLARED.items() if isinstance(one, kind))
    if name not in names:
        fail(asked, "there is none with this name", f"one of {', '.join(names)}")
    return DECLARED[name]


# ---------------------------------------------------------------- what a learner calls
def hint(name: str) -> None:
    """Print the next hint for an exercise; each call gives one more.

    Raises:
        TTKitError: there is no such exercise.
    """
    hints = declaration(name).hints
    given = _hints_shown.get(name, 0)
    if given < len(hints):
        print(in_lines(f"hint {given + 1} of {len(hints)}: {hints[given]}"))
        _hints_shown[name] = given + 1
    else:
        print(f"{name} has no more hints. The solution is in the folded cell below the exercise.")


def check(name: str, answer, mesh=None) -> None:
    """Check your answer to an exercise; show what is right about it, or raise with what is wrong.

    An exercise that is not done shows a card with a button for hints. An error in your own
    code is shown with Python's traceback.

    Args:
        name: the exercise, as "02.rows".
        answer: the function or value that you wrote.
        mesh: on a card, the open mesh to try the answer on; on the simulator, `check` opens meshes
            of several shapes itself. For exercises that run on ranks, this is the cluster.

    Raises:
        CheckFailed: the answer is not right; the message names the device, index or number.
        TTKitError: there is no such exercise.
    """
    __tracebackhide__ = True
    declared = declaration(name)
    try:
        if answer is None or answer is Ellipsis:
            raise NotDone
        praise = declared.judge(answer, mesh)
    except NotDone:
        _show_state(name, "not done yet")
        return
    except Exception as error:
        progress.save("exercises", name, "tried")
        kind = "" if isinstance(error, CheckFailed) else f"{type(error).__name__}: "
        _show_state(name, "not right yet", f"{kind}{error}")
        raise
    progress.save("exercises", name, progress.PASSED)
    _show_state(name, praise, done=True)


def _show_state(name: str, state: str, wrong: str = "", done: bool = False) -> None:
    """Show the state of an exercise; if it is not done, with a button that gives hints.

    Args:
        wrong: what is wrong with the answer. The card has it, and the page hides an error below the
            card that has only the same words. A traceback, which has colours, stays.
    """
    label = f"exercise {name}: {state}"
    words = in_lines(f"✓ {label}") if done else f'{label}. For a hint: lessons.hint("{name}")'
    if not in_notebook():
        print(words)
        return
    import ipywidgets as widgets

    button = widgets.Button(description="Hint")
    hints = widgets.Output()

    def press(_) -> None:
        with hints:
            hint(name)

    button.on_click(press)
    mark = "✓" if done else "✗" if wrong else "○"
    row = widgets.HBox([widgets.Label(f"{mark} {label}"), *([] if done else [button])])
    reason = [widgets.HTML(on_page(message_box(wrong)))] if wrong else []
    card = widgets.VBox([row, *reason, hints])
    card.add_class("ttkit-done" if done else "ttkit-to-do")
    show_widget(card, words)


def solution(name: str, answer, mesh=None) -> None:
    """Check the course's own solution as `check` does; your progress stays as it is."""
    print(in_lines(f"solution of {name}: {declaration(name).judge(answer, mesh)}"))


def todo():
    """Stand in for the code of an exercise.

    Raises:
        NotDone: always; `check` then shows that the exercise is not done yet.
    """
    raise NotDone("replace lessons.todo() with your code")


# ---------------------------------------------------------------- open challenges
KEPT_ENTRIES = 5  # This many of the learner's best entries are kept for each challenge.
START = "put your answer in place of the three dots, and run the cell"
# A score gets two stars if it is worse than the best known score by at most this fraction.
TWO_STARS_WITHIN = 0.25
GOAL = f"stars: ★★ within {TWO_STARS_WITHIN:.0%}, ★★★ as good, ★★★★ better"


@dataclass(frozen=True)
class Challenge(Declared):
    """The declaration of a challenge. `challenge` finds it by its name.

    Args:
        name: the lesson and the challenge, as "04.steps".
        asks: the task in a few words, for the title of the scoreboard.
        score: a function from an answer to its score and a few words about it. It raises
            `CheckFailed` or `TTKitError` where the answer is not complete or not right.
        reference: a function that makes the best known answer, which is scored like any other.
        unit: the format of a score, as "{:,} steps".
        higher: whether the highest score is the best one, not the lowest.
    """

    asks: str
    score: Callable[[Any], tuple[float, str]]
    reference: Callable[[], Any]
    unit: str
    higher: bool = False


def challenge(name: str, answer) -> None:
    """Score your answer to a challenge; show the best known score and your best entries.

    Your best entries are kept with your progress. Without an answer (`...`) they are only shown.
    A score gets one star; it gets two where it is near the best known one, three where it is as
    good, and four where it is better.

    Args:
        name: the challenge, as "04.steps".
        answer: what the challenge asks for.

    Raises:
        CheckFailed or TTKitError: the answer gets no score, and the message says why; or there is
            no such challenge.
    """
    from IPython.display import display

    declared = declaration(name, Challenge)
    latest = [] if answer is Ellipsis else [declared.score(answer)]
    kept = map(tuple, progress.saved()["challenges"].get(name, []))
    entries = sorted({*kept, *latest}, reverse=declared.higher)
    if latest:
        progress.save("challenges", name, entries[:KEPT_ENTRIES])
    best = declared.score(declared.reference())[0]

    def row(label: str, score: float, words: str) -> tuple[str, ...]:
        more = score / best - 1
        worse = -more if declared.higher else more
        stars = "★" + "★" * sum(worse <= limit for limit in (TWO_STARS_WITHIN, 1e-9, -1e-9))
        gap = f"{100 * more:+.3g}% against the best known; " if more else ""
        return label, declared.unit.format(score), stars.ljust(4, "☆"), gap + words

    rows = [row("best known", best, "")]
    rows += [row("this one" if each in latest else "yours", *each) for each in entries]
    if not entries:
        rows.append(("yours", "none yet", "☆☆☆☆", START))
    title = f"open challenge {name}: {declared.asks}\n{GOAL}"
    display(Report(title, ["<", "score", "<stars", "<"], rows))
