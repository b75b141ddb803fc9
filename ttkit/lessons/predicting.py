"""Predictions: a card with questions, the learner's guesses, and the answer after them."""

import math
import re
from collections.abc import Callable
from html import escape
from numbers import Integral, Real
from typing import Any

from ttkit.lessons import progress
from ttkit.visualize.widgets import show_widget
from ttkit.words import in_notebook

Guess = int | float | str
# A number may have its digits in groups of three, and a unit may follow. The unit has no digits, so
# that "8 or 9" is not read as 8.
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
    """Return a value's `repr`, cut if long.

    Example:
        >>> brief("4"), brief([0] * 99)
        ("'4'", '[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, ...')
    """
    return shortened(repr(value))


def shortened(text: str) -> str:
    """Return a text, cut to 60 characters if it has more than 80. Line breaks stay, so the result
    may have several lines."""
    return text if len(text) <= 80 else f"{text[:60]} ..."


def read_guess(text: str) -> Guess | None:
    """Return a learner's text, or the number that it stands for; None if it is empty.

    A number may have separators between thousands, and a unit after it.

    Example:
        >>> [read_guess(text) for text in ("4,096", "50 %", "1e3", "8 bytes", "2 x 4", " ")]
        [4096, 50, 1000, 8, '2 x 4', None]
    """
    text = text.replace("−", "-").strip("? \n")
    found = NUMBER.fullmatch(text)
    try:
        number = as_number(float(re.sub(r"[,_'’\s]", "", found[1]))) if found else None
    except ValueError:
        number = None
    return (text or None) if number is None else number


def plain(answer) -> str:
    """Return the words and numbers of an answer in lower case, without punctuation or the word x.

    Example:
        >>> {plain(text) for text in ("4x2", "4 x 2", "(4, 2)", "[4,2]")}
        {'4 2'}
        >>> plain("columns_rows()"), plain("Shard")
        ('columns rows', 'shard')
    """
    words = re.findall(r"[^\W\d_]+|\d+(?:\.\d+)?", str(answer).casefold())
    return " ".join(word for word in words if word != "x")


def shown(value) -> str:
    """Return a number with commas, or any other value as short text."""
    number = as_number(value)
    if number is None:
        return shortened(str(value))
    return f"{number:,}" if isinstance(number, int) and abs(number) < 10**15 else f"{number:,.6g}"


def verdict(guess: Guess, actual) -> str:
    """Return how far a guess is from the fact, in words. A fact that is a float was computed or
    modelled, so a guess within 5 % of it is close enough. A fact that is an int was counted, so
    only the same number is right.

    Example:
        >>> verdict(16, 8), verdict(3, 4), verdict("(2, 4)", "2x4"), verdict(6, 5.8)
        ('2 times too large', 'off by 1', 'right', 'close enough')
    """
    fact = as_number(actual)
    if fact is None:
        return "right" if plain(guess) == plain(actual) else "not right"
    if isinstance(guess, str):
        number = read_guess(guess.replace(",", "."))  # Some learners write a decimal comma.
        return verdict(number, actual) if isinstance(number, (int, float)) else "not right"
    if guess == fact:
        return "right"
    if not isinstance(actual, Integral) and math.isclose(guess, fact, rel_tol=0.05):
        return "close enough"
    larger = max(guess, fact)
    smaller = min(guess, fact)
    if smaller > 0 and larger >= 2 * smaller:
        return f"{larger / smaller:.3g} times too {'large' if guess > fact else 'small'}"
    return f"off by {shown(larger - smaller)}"


Question = tuple[Any, ...]  # A question has its words, the fact, and the choices if there are any.


class Card:
    """The questions of a prediction in a notebook, and after Reveal or Skip the facts and their
    explanation.

    The explanation is made together with the card, because later cells may change the objects that
    it shows. It comes to the page when Reveal or Skip is pressed: a hidden picture would take the
    hatches from an equal picture on the page.
    """

    def __init__(self, name: str, questions: dict[str, Question], then: Callable[[], Any]):
        import ipywidgets as widgets
        from IPython.utils.capture import capture_output

        self.name = name
        self.questions = questions
        self.boxes = {key: self._box(*question) for key, question in questions.items()}
        self.said = widgets.HTML()
        self.answer = widgets.Output()
        with capture_output() as self.explanation:
            _display(then())
        buttons = [widgets.Button(description=word) for word in ("Reveal", "Skip")]
        for button, press in zip(buttons, (self._reveal, self._show)):
            button.on_click(press)
        self.buttons = widgets.HBox(buttons)
        self.widget = widgets.VBox([*self.boxes.values(), self.buttons, self.said, self.answer])
        self.widget.add_class("ttkit-card")

    def _box(self, words: str, fact, *choices):
        """Return the box for a guess."""
        import ipywidgets as widgets

        if choices:
            options = [("choose", ""), *zip(choices, choices)]
            box = widgets.Dropdown(options=options, description=words)
        else:
            box = widgets.Text(placeholder="your guess", description=words)
        return box.add_class("ttkit-guess")

    def _reveal(self, button) -> None:
        """Keep the guesses and show the answer, if there is a guess for each question."""
        guesses = {key: read_guess(box.value) for key, box in self.boxes.items()}
        if None in guesses.values():
            self.said.value = "Guess first, even roughly, or press Skip."
            return
        for key, guess in guesses.items():
            progress.save("predictions", f"{self.name}.{key}", guess)
        self._show(button)

    def _show(self, _) -> None:
        """Show the facts beside the guesses, and the explanation below."""
        lines = []
        for key, (words, fact, *_) in self.questions.items():
            guess = read_guess(self.boxes[key].value)
            how = "" if guess is None else verdict(guess, fact)
            said = f"You said {shown(guess)}: {how}. " if how else ""
            words, said, fact = map(escape, (words, said, shown(fact)))
            lines.append(f'<p data-verdict="{how}">{words}<br>{said}Answer: <b>{fact}</b></p>')
            self.boxes[key].layout.display = "none"
        self.said.value = "".join(lines)
        self.buttons.layout.display = "none"
        with self.answer:
            self.explanation.show()


def predict(name: str, then: Callable[[], Any] = lambda: None, **questions: Question) -> None:
    """Ask for guesses, then show the facts and their explanation.

    In a notebook the questions are a card: facts and explanation appear when the learner presses
    Reveal or Skip. They appear at once outside a notebook, and where `TTKIT_LEARNER` is empty,
    as in saved lessons and tests.

    Args:
        name: the lesson and the prediction, as "04.steps".
        then: a function that prints or returns the explanation, such as a picture or a table.
        questions: for each name the question, the fact, and the choices if there are any.

    Example:
        >>> predict("04.steps", steps=("How many?", 4), links=("Which?", "ring", "rows", "ring"))
        How many? Answer: 4.
        Which? (rows, ring) Answer: ring.
    """
    if in_notebook() and progress.file():
        show_widget(Card(name, questions, then).widget, "")
        return
    for words, fact, *choices in questions.values():
        options = f" ({', '.join(choices)})" if choices else ""
        print(f"{words}{options} Answer: {shown(fact)}.")
    _display(then())


def _display(result) -> None:
    """Show what a function returned, as a cell shows its last value."""
    if result is not None:
        from IPython.display import display

        display(result)
