"""Text to train on, with nothing downloaded: stories that the kit makes, the standard library's
source, your own files.
"""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
from pathlib import Path

from ttkit.errors import fail

# Who lives in the stories: a kind, what it always likes, where it always lives. That they never
# change is there to be learned.
ANIMALS = (
    ("fox", "apples", "hill"),
    ("owl", "books", "oak"),
    ("bear", "berries", "cave"),
    ("hare", "carrots", "field"),
    ("mouse", "nuts", "mill"),
    ("crow", "rings", "tower"),
    ("frog", "shells", "pond"),
    ("goat", "bells", "barn"),
)
PLACES = ("river", "bridge", "old wall", "garden", "gate", "well", "market", "forest")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
WEATHER = ("sunny", "windy", "rainy", "foggy", "cold", "warm")
STORIES, SCENES = 500, 5


class _Dice:
    """Numbers that look random and are the same everywhere: a linear congruential generator with
    Knuth's MMIX constants.

    NumPy's and Python's own generators may draw other numbers in another version, and the corpus
    with them."""

    def __init__(self, seed: int):
        self.state = seed

    def roll(self, sides: int) -> int:
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % sides  # the high bits: the low ones repeat soon

    def pick(self, things: tuple[str, ...]) -> str:
        return things[self.roll(len(things))]


def _story(dice: _Dice) -> str:
    first = dice.roll(len(ANIMALS))
    second = (first + 1 + dice.roll(len(ANIMALS) - 1)) % len(ANIMALS)  # somebody else
    (hero, things, home), (friend, gifts, there) = ANIMALS[first], ANIMALS[second]
    today = dice.roll(7)
    lines = [
        f"The {hero} and the {friend}",
        "",
        f"The {hero} lives by the {home}. The {hero} likes {things}.",
        f"On {DAYS[today]} it is {dice.pick(WEATHER)}. The {hero} walks from the {home} to the "
        f"{dice.pick(PLACES)}.",
    ]
    kind = dice.roll(SCENES)
    for _ in range(1 + dice.roll(3)):
        lines += _scene(dice, kind, hero, things, friend, gifts, there)
        kind = (kind + 1 + dice.roll(2)) % SCENES  # never one twice in a story
    ends = (
        f"On {DAYS[(today + 1) % 7]} the {friend} comes to the {home}, and the two are friends.",
        f'"Thank you," says the {hero}, and goes home to the {home}.',
        f"The sun goes down. The {hero} sleeps by the {home}, and the {friend} sleeps by the "
        f"{there}.",
    )
    return "\n".join([*lines, dice.pick(ends), "", ""])


def _scene(
    dice: _Dice, kind: int, hero: str, things: str, friend: str, gifts: str, there: str
) -> list[str]:
    have, more = 3 + dice.roll(8), 2 + dice.roll(8)
    fewer = 1 + dice.roll(have - 2)  # so that two or more are left: "1 are left" is no English
    place = dice.pick(PLACES)
    where = dice.pick(("under", "behind", "beside"))
    scenes = (
        [
            f"The {hero} has {have} {things}. The {friend} brings {more} more. "
            f"Now the {hero} has {have + more} {things}: {have} + {more} = {have + more}."
        ],
        [
            f"The {hero} has {have} {things} and gives {fewer} to the {friend}. "
            f"Then {have - fewer} are left: {have} - {fewer} = {have - fewer}."
        ],
        [
            f'"Where are my {gifts}?" asks the {friend}. "They are {where} the {place}," says the '
            f"{hero}.",
            f"The {friend} looks {where} the {place} and finds {more} {gifts}.",
        ],
        [
            f'"Where do you live?" asks the {hero}. "I live by the {there}," says the {friend}, '
            f'"and I like {gifts}."'
        ],
        [
            f"The {hero} counts: "
            + ", ".join(str(number) for number in range(fewer, fewer + 4))
            + f'. "Well done," says the {friend}.'
        ],
    )
    return scenes[kind]


@functools.cache
def builtin_corpus() -> str:
    """About 190 KB of small stories that the kit makes: plain ASCII, the same characters on
    every machine and Python.

    Each animal always likes the same things and lives in the same place, sums are right and days
    follow each other: a small model learns letters first, then words, then who likes what.

    Example:
        >>> builtin_corpus().splitlines()[:3]
        ['The goat and the fox', '', 'The goat lives by the barn. The goat likes bells.']
    """
    dice = _Dice(2026)
    return "".join(_story(dice) for _ in range(STORIES))


def standard_library_text() -> str:
    """The source of Python's standard library, about 10 MB: text for longer runs that is on
    every machine.

    Modules come in the order of their names, tests are left out. It is the same each time for one
    Python, another one for the next.

    Raises:
        TTKitError: this Python comes without its source.

    Example:
        >>> "class OrderedDict" in standard_library_text()
        True
    """
    root = Path(sysconfig.get_paths()["stdlib"])
    texts = []
    for name in sorted(sys.stdlib_module_names):
        single = root / f"{name}.py"
        for path in [single] if single.is_file() else sorted((root / name).rglob("*.py")):
            if not {"test", "tests", "idle_test"} & set(path.relative_to(root).parts):
                texts.append(path.read_text(encoding="utf-8"))
    if not texts:
        fail(
            "standard_library_text()",
            f"this Python has no source files in {root}",
            "builtin_corpus(), or read_text() of a folder of your own",
        )
    return "".join(texts)


def read_text(path: str | os.PathLike[str]) -> str:
    """The text of a UTF-8 file, or of all files in a folder and the folders below it, in the
    order of their names.

    A byte-order mark goes, line ends become newlines, files and folders whose name starts with a
    dot are left out, and each file ends with a newline, so that the last word of one does not run
    into the next.

    Raises:
        TTKitError: not there, cannot be opened, not text, or no character in it; the message names
        the file.
    """
    asked = f"read_text({str(path)!r})"
    start = Path(path)
    try:
        if start.is_file():
            text = _text_of(start, asked)
        elif start.is_dir():
            text = "".join(
                each if not each or each.endswith("\n") else each + "\n"
                for each in (_text_of(file, asked) for file in _files_below(start))
            )
        elif start.exists():
            fail(
                asked, f"{path} is neither a file nor a folder", "a text file, or a folder of them"
            )
        else:
            fail(
                asked,
                f"there is no file or folder {path}",
                "check the path; relative paths start at the folder you are in",
            )
    except (OSError, ValueError) as error:  # ValueError: a name that cannot be a path
        fail(
            asked,
            f"{getattr(error, 'filename', None) or path} cannot be opened: "
            f"{getattr(error, 'strerror', None) or error}",
            "check the path and its permissions",
        )
    if not text.strip():
        fail(
            asked,
            f"there is no text in {path}",
            "a file, or a folder of files, with something in it",
        )
    return text


def _files_below(folder: Path) -> list[Path]:
    def stop(error: OSError) -> None:
        raise error  # os.walk passes over a folder that it cannot open

    found = []
    for place, folders, names in os.walk(folder, onerror=stop):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(place, name) for name in names if not name.startswith(".")]
    return sorted(
        (path for path in found if path.is_file()), key=lambda path: path.relative_to(folder).parts
    )


def _text_of(path: Path, asked: str) -> str:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        fail(
            asked,
            f"{path} is not text: byte {error.start} is not UTF-8",
            "save it as UTF-8, or move what is not text elsewhere",
        )
    if "\0" in text:
        fail(
            asked,
            f"{path} is not text: character {text.index(chr(0))} is a zero",
            "move what is not text elsewhere",
        )
    return text
