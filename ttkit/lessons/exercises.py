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
from ttkit.lessons.predicting import brief, one_line
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
        arguments: what it was called with; the reference and the mistakes get the same.
        result: what it gave.
        where: the start of a message about it.
        names: what sentences may name in braces: the arguments, and more.
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
        """Return what else may help with a wrong result."""
        return ""

    def over_budget(self, budget) -> str:
        """Return in words how the run is over the budget; "" where it is not."""
        return ""

    def budget_used(self, budget) -> str:
        """Return what the run used of the budget, in words."""
        return ""


def calls(answer, asks: str, cases: Sequence[tuple]) -> Iterator[Run]:
    """Yield a call for each tuple of arguments, with copies: an answer may write into them."""
    name = asks.partition("(")[0]
    for arguments in cases:
        result = answer(*copy.deepcopy(arguments))
        where = one_line(f"{name}({', '.join(map(in_call, arguments))})")
        yield Run(arguments, result, where, dict(zip(parameters(asks), arguments)))


def in_call(argument) -> str:
    """Return an argument as a message shows it: of an array its shape alone.

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
    """Return the names of what a function takes.

    Example:
        >>> parameters("double(mesh, x)")
        ['mesh', 'x']
    """
    return [name.strip() for name in asks.partition("(")[2].rstrip(")").split(",")]


# ---------------------------------------------------------------- the declaration
@dataclass(frozen=True)
class Exercise:
    """The declaration of an exercise, which `check` and `hint` then know by its name.

    Args:
        name: the lesson and the exercise, as "10.swiglu".
        asks: how the learner's function is called, as "swiglu(mesh, x, gate, up, down)"; without
            brackets the answer is a value, and this is its name: "the number of elements".
        hints: what `hint` gives, one after the other: first a question, last nearly the answer.
        reference: what the answer should give, computed on one device: it takes the same arguments.
            On a mesh a list has an array for each device.
        cases: a list of tuples of arguments, or `OnMeshes`.
        mistakes: {sentence: a function from the same arguments to the result of a usual mistake; it
            returns None where the mistake gives the right result}. A sentence may name arguments in
            braces.
        budget: what a run may use, besides being right.
        reads: a function from the answer's result and the arguments to the value that is compared;
            it may raise `CheckFailed`.
        rules: a function from the answer's result and the arguments to the rule that is broken; ""
            for none. A puzzle with many right answers has rules and no reference.
        rtol: how far a number may be from the reference's, as a fraction of the largest.
        praise: what is said of a right answer; it may name arguments in braces. Or a function, of
            what the answer gave and the arguments of the last case.
    """

    name: str
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

    def __post_init__(self):
        DECLARED[self.name] = self

    def judge(self, answer, mesh) -> str:
        """Return praise for an answer, or raise `CheckFailed` with what is wrong."""
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
        # Without this a traceback would keep the generator of a wrong answer, and its mesh open.
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
        """Judge a value; what it should be stays the learner's to find."""
        found = self.reads(answer) if self.reads else answer
        if self.reference and answer_difference(self.reference(), found, self.rtol):
            usual = self.mistakes.items()
            why = (
                f": {words}" for words, mistake in usual if not answer_difference(mistake(), found)
            )
            raise CheckFailed(f"{self.asks} is not {brief(answer)}{next(why, '')}")
        if broken := self.rules(found):
            raise CheckFailed(broken)
        return self.praise(found) if callable(self.praise) else self.praise

    def _wrong(self, run: Run) -> str:
        """Return where a result is not the reference's, and the mistake that gives it."""
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


DECLARED: dict[str, Any] = {}  # All exercises and challenges are here, by name.
_hints_shown: dict[str, int] = {}  # Each exercise has shown this many hints.


def declaration(name: str, kind: type = Exercise) -> Any:
    """Return the declaration of this kind that has the name, from the module of its lesson."""
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
    hints, given = declaration(name).hints, _hints_shown.get(name, 0)
    if given < len(hints):
        print(in_lines(f"hint {given + 1} of {len(hints)}: {hints[given]}"))
        _hints_shown[name] = given + 1
    else:
        print(f"{name} has no more hints. The solution is in the folded cell below the exercise.")


def check(name: str, answer, mesh=None) -> None:
    """Check your answer to an exercise; print what is right about it, or raise with what is wrong.

    An exercise that has not been started shows a card with a button for hints. What your own code
    raises is shown as Python shows it.

    Args:
        name: the exercise, as "02.rows".
        answer: the function or value that you wrote.
        mesh: the open mesh to try it on, for a card; the simulator opens meshes of several shapes.
            For exercises that run on ranks, the cluster.

    Raises:
        CheckFailed: the answer is not right; the message names the device, index or number.
        TTKitError: there is no such exercise.
    """
    declared = declaration(name)
    try:
        if answer is None or answer is Ellipsis:
            raise NotDone
        praise = declared.judge(answer, mesh)
    except NotDone:
        _to_do(name)
        return
    except Exception:
        progress.save("exercises", name, "tried")
        raise
    progress.save("exercises", name, progress.PASSED)
    print(in_lines(f"✓ exercise {name}: {praise}"))


def _to_do(name: str) -> None:
    """Show that an exercise waits for the learner, with a button that gives hints."""
    words = f'exercise {name}: not done yet. For a hint: lessons.hint("{name}")'
    if not in_notebook():
        print(words)
        return
    import ipywidgets as widgets

    button, hints = widgets.Button(description="Hint"), widgets.Output()

    def press(_) -> None:
        with hints:
            hint(name)

    button.on_click(press)
    row = widgets.HBox([widgets.Label(f"exercise {name}: not done yet"), button])
    card = widgets.VBox([row, hints])
    card.add_class("ttkit-to-do")
    show_widget(card, words)


def solution(name: str, answer, mesh=None) -> None:
    """Check the course's own solution as `check` does; your progress stays as it is."""
    print(in_lines(f"solution of {name}: {declaration(name).judge(answer, mesh)}"))


def todo():
    """Stand in for the code of an exercise.

    Raises:
        NotDone: always; `check` then shows that the exercise is to do.
    """
    raise NotDone("replace lessons.todo() with your code")


# ---------------------------------------------------------------- open challenges
KEPT_ENTRIES = 5  # This many entries of a learner are kept.
TWO_STARS_WITHIN = 0.25  # Two stars are for a score worse than the best known by at most this part.


@dataclass(frozen=True)
class Challenge:
    """The declaration of a challenge, which `challenge` then knows by its name.

    Args:
        name: the lesson and the challenge, as "04.steps".
        asks: what is wanted, as the title of the scoreboard.
        score: a function from an answer to its score and what to say of it. It raises
            `CheckFailed` or `TTKitError` where the answer is not complete or not right.
        reference: a function that makes the best known answer, which is scored as any other.
        unit: how a score is written, as "{:,} steps".
        higher: whether the highest score is the best; else the lowest is.
    """

    name: str
    asks: str
    score: Callable[[Any], tuple[float, str]]
    reference: Callable[[], Any]
    unit: str
    higher: bool = False

    def __post_init__(self):
        DECLARED[self.name] = self


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
    entries = list(map(tuple, progress.saved()["challenges"].get(name, [])))
    latest = [] if answer is Ellipsis else [declared.score(answer)]
    if latest:
        entries = sorted({*entries, *latest}, reverse=declared.higher)[:KEPT_ENTRIES]
        progress.save("challenges", name, entries)
    best = declared.score(declared.reference())[0]

    def row(label: str, score: float, words: str) -> tuple[str, ...]:
        worse = 1 - score / best if declared.higher else score / best - 1
        stars = "★" + "★" * sum(worse <= limit for limit in (TWO_STARS_WITHIN, 1e-9, -1e-9))
        return label, declared.unit.format(score), stars, words

    rows = [row("best known", best, ""), *(row("yours", *each) for each in entries)]
    last = row("this one", *latest[0]) if latest else ()
    display(Report(f"{name}: {declared.asks}", ["<", "score", "<", "<"], rows, last))
