"""Predictions: a box for the learner's guess before a run, and the fact after it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from numbers import Real
from typing import Any

from ttkit.lessons import progress
from ttkit.visualize.widgets import show_widget
from ttkit.words import in_notebook

Guess = int | float | str
# Thousands in groups of three; a unit may follow. It has no digits: "8 or 9" is not 8.
NUMBER = re.compile(
    r"([-+]?(?:\d{1,3}(?:[,_'’\s]\d{3})+|\d*)(?:\.\d*)?(?:e[-+]?\d+)?)\s*(?:%|[a-z]\D*)?",
    re.IGNORECASE,
)


def as_number(value) -> int | float | None:
    """Return a finite real number as an int where it is whole, else as a float.

    Return None for anything else.

    Example:
        >>> import numpy as np
        >>> [as_number(value) for value in (np.int64(3), np.array(384.0), 0.5, True, "4")]
        [3, 384, 0.5, None, None]
    """
    # NumPy and torch wrap a number in an array without dimensions.
    if getattr(value, "ndim", None) == 0:
        value = value.item()
    real: Any = Real
    if isinstance(value, bool) or not isinstance(value, real) or not math.isfinite(value):
        return None
    return int(value) if value == int(value) else float(value)


def brief(value) -> str:
    """Return a value as it prints, cut to a line.

    Example:
        >>> brief("4"), brief([0] * 99)
        ("'4'", '[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, ...')
    """
    return one_line(repr(value))


def one_line(text: str) -> str:
    """Return a text, cut where it is longer than a line."""
    return text if len(text) <= 80 else f"{text[:60]} ..."


def read_guess(text: str) -> Guess | None:
    """Return what a learner typed, as a number where it is one; None for nothing.

    Thousands may be marked, and a unit may follow.

    Example:
        >>> [read_guess(text) for text in ("4,096", "50 %", "1e3", "8 bytes", "2 x 4", " ")]
        [4096, 50, 1000, 8, '2 x 4', None]
    """
    text = text.replace("−", "-").strip().strip("?").strip()
    found = NUMBER.fullmatch(text)
    try:
        number = as_number(float(re.sub(r"[,_'’\s]", "", found[1]))) if found else None
    except ValueError:
        number = None
    return (text or None) if number is None else number


def plain(answer) -> str:
    """Return an answer in words without what does not matter: case, blanks, brackets, quotes.

    Example:
        >>> {plain(text) for text in ("4x2", "4 x 2", "(4, 2)", "[4,2]")}
        {'4 2'}
        >>> plain("columns_rows()"), plain("Shard")
        ('columns rows', 'shard')
    """
    words = re.findall(r"[^\W\d_]+|\d+(?:\.\d+)?", str(answer).casefold())
    return " ".join(word for word in words if word != "x")


def shown(value) -> str:
    """Return a number with its thousands marked, anything else as it prints."""
    number = as_number(value)
    if number is None:
        return one_line(str(value))
    counted = isinstance(number, int) and abs(number) < 10**15
    return f"{number:,}" if counted else f"{number:,.6g}"


def verdict(guess: Guess, actual) -> str:
    """Return how far a guess is from the fact, in words.

    Example:
        >>> verdict(16, 8), verdict(3, 4), verdict("(2, 4)", "2x4")
        ('2 times too large', 'off by 1', 'right')
    """
    fact = as_number(actual)
    if fact is None:
        return "right" if plain(guess) == plain(actual) else "not it"
    if isinstance(guess, str):
        number = read_guess(guess.replace(",", "."))  # Some learners write a decimal comma.
        return verdict(number, fact) if isinstance(number, (int, float)) else "not it"
    if guess == fact:
        return "right"
    larger, smaller = max(guess, fact), min(guess, fact)
    if smaller > 0 and larger >= 2 * smaller:
        return f"{larger / smaller:.3g} times too {'large' if guess > fact else 'small'}"
    return f"off by {shown(larger - smaller)}"


class Prediction:
    """Questions whose answers a later cell counts; `predict` makes one.

    Args:
        name: the lesson and the prediction, as "04.steps".
        questions: for each name the question, and after it its choices.
    """

    def __init__(self, name: str, questions: dict[str, list[str]]):
        self.name, self.questions = name, questions
        self.guesses: dict[str, Guess | None] = dict.fromkeys(questions)
        self._boxes: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"Prediction {self.name}: {', '.join(self.questions)}"

    def guess(self, **guesses) -> Prediction:
        """Write guesses down, as the boxes do in a notebook."""
        for name, value in guesses.items():
            self.guesses[name] = read_guess(value) if isinstance(value, str) else as_number(value)
        return self

    def verdict(self, name: str, fact) -> str:
        """Return guess and fact of a question, in words."""
        guess = self.guesses[name]
        said = "no guess yet" if guess is None else f"you said {shown(guess)}"
        judged = "" if guess is None else f": {verdict(guess, fact)}"
        return f"{said}, it is {shown(fact)}{judged}"

    def reveal(self, **facts) -> None:
        """Show a button for each fact that reveals it beside the guess; print both elsewhere."""
        for name, fact in facts.items():
            question = self.questions[name][0]
            if not in_notebook():
                print(f"{question} {self.verdict(name, fact)}")
                continue
            show_widget(
                self._row(name, fact), f"{question} No guess yet. Guess, then press Reveal."
            )

    def _row(self, name: str, fact):
        """Return the widget of a question after the run: the box, a button, and the verdict."""
        import ipywidgets as widgets

        button = widgets.Button(description="Reveal", tooltip=f"Reveal: {self.questions[name][0]}")
        said = widgets.Label("no guess yet" if self.guesses[name] is None else "")

        def press(_) -> None:
            said.value = self.verdict(name, fact)
            if (guess := self.guesses[name]) is not None:
                progress.keep("predictions", f"{self.name}.{name}", guess)

        button.on_click(press)
        return widgets.HBox([self._box(name), button, said], layout={"flex_flow": "row wrap"})

    def _box(self, name: str):
        """Return the box for a guess; a second view shows the same one."""
        import ipywidgets as widgets

        if name in self._boxes:
            return self._boxes[name]
        question, *choices = self.questions[name]
        how: dict[str, Any] = {"description": question, "style": {"description_width": "initial"}}
        how["layout"] = {"width": "auto", "max_width": "100%"}
        if choices:
            box = widgets.Dropdown(options=[("choose", ""), *((c, c) for c in choices)], **how)
        else:
            box = widgets.Text(placeholder="your guess", **how)
        box.add_class("ttkit-guess")
        box.observe(lambda change: self.guess(**{name: change["new"]}), "value")
        self._boxes[name] = box
        return box

    def _ask(self) -> None:
        """Show the boxes, each with its question."""
        for name, (question, *choices) in self.questions.items():
            options = f" ({', '.join(choices)})" if choices else ""
            show_widget(
                self._box(name), f"{question}{options} Run this cell to write down a guess."
            )


def predict(name: str, **questions: str | Sequence[str]) -> Prediction:
    """Ask for guesses before the run that shows the facts.

    In a notebook each question has a box; a later cell calls `reveal` with the facts, which stay
    hidden until the learner presses Reveal.

    Args:
        name: the lesson and the prediction, as "04.steps".
        questions: for each name the question, or a list of the question and its choices.

    Example:
        >>> guess = predict("04.steps", steps="How many steps?", links=["Which?", "rows", "ring"])
        >>> guess.guess(steps="3", links="Rows")
        Prediction 04.steps: steps, links
        >>> guess.reveal(steps=4, links="rows")
        How many steps? you said 3, it is 4: off by 1
        Which? you said Rows, it is rows: right
    """
    asked = {
        key: [text] if isinstance(text, str) else list(text) for key, text in questions.items()
    }
    prediction = Prediction(name, asked)
    if in_notebook():
        prediction._ask()
    return prediction
