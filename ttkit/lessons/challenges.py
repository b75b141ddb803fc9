"""Open challenges: each is one declaration, scored by a model, with a table of one's best.

The declarations are beside the notebooks, in `course.lesson_NN`, as those of exercises are.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ttkit.lessons import progress
from ttkit.lessons.exercises import DECLARED, known
from ttkit.visualize.tables import Report

KEPT = 5  # This many entries of a learner are kept.
NEAR = 0.25  # Two stars are for a score at most this much worse than the best known.


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
    Three stars are for a score as good as the best known, two for one near it, else one; four are
    for a better one.

    Args:
        name: the challenge, as "04.steps".
        answer: what the challenge asks for.

    Raises:
        CheckFailed or TTKitError: the answer gets no score, and the message says why; or there is
            no such challenge.
    """
    from IPython.display import display

    declared = known(name, Challenge)
    entries = list(map(tuple, progress.saved()["challenges"].get(name, [])))
    latest = [] if answer is Ellipsis else [declared.score(answer)]
    if latest:
        entries = sorted({*entries, *latest}, reverse=declared.higher)[:KEPT]
        progress.save("challenges", name, entries)
    best = declared.score(declared.reference())[0]

    def row(label: str, score: float, words: str) -> tuple[str, ...]:
        worse = 1 - score / best if declared.higher else score / best - 1
        stars = "★" + "★" * sum(worse <= limit for limit in (NEAR, 1e-9, -1e-9))
        return label, declared.unit.format(score), stars, words

    rows = [row("best known", best, ""), *(row("yours", *each) for each in entries)]
    last = row("this one", *latest[0]) if latest else ()
    display(Report(f"{name}: {declared.asks}", ["<", "score", "<", "<"], rows, last))
