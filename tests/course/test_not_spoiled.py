"""The saved notebooks give nothing away: no guess, no reveal, no solution that one sees unasked."""

import ast
import json
import pathlib
import re

import pytest
from answers import all_exercises

from ttkit.lessons.cli import notebooks
from ttkit.lessons.progress import CHECK

LESSONS = {path.stem: path for path in notebooks()}
SOLUTION = re.compile(r'lessons\.solution\(\s*"([^"]+)"')


def cells(name):
    return json.loads(LESSONS[name].read_text(encoding="utf-8"))["cells"]


def code(name):
    return [cell for cell in cells(name) if cell["cell_type"] == "code"]


def source(cell):
    return "".join(cell["source"])


def tags(cell):
    return cell["metadata"].get("tags", [])


def texts(cell):
    """What a reader of the saved page sees of a cell's outputs, pictures apart."""
    for output in cell["outputs"]:
        found = (
            output.get("text") or output.get("data", {}).get("text/plain") or output.get("evalue")
        )
        yield "".join(found or "")


def calls(text, function):
    """The calls of a function in a cell; cells with magics have none."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return []
    found = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    return [node for node in found if ast.unparse(node.func).endswith(function)]


@pytest.mark.parametrize("name", LESSONS)
def test_a_prediction_belongs_to_its_lesson_and_asks_questions(name):
    for cell in code(name):
        for call in calls(source(cell), "lessons.predict"):
            asked = ast.literal_eval(call.args[0])
            assert asked.partition(".")[0] == name.partition("_")[0], asked
            for question in (each for each in call.keywords if each.arg != "then"):
                assert isinstance(question.value, ast.Tuple), f"{asked}.{question.arg}"
                words = getattr(question.value.elts[0], "value", "by a variable?")
                assert isinstance(words, list) or words.endswith("?"), words


@pytest.mark.parametrize("name", LESSONS)
def test_no_widget_was_saved(name):
    notebook = json.loads(LESSONS[name].read_text(encoding="utf-8"))
    assert "widgets" not in notebook["metadata"]
    for cell in code(name):
        for output in cell["outputs"]:
            kinds = output.get("data", {})
            assert not [kind for kind in kinds if "widget" in kind], source(cell)


@pytest.mark.parametrize("name", LESSONS)
def test_solutions_are_folded_and_leave_the_learners_answer_alone(name):
    answers = {
        node.name
        for cell in code(name)
        if CHECK.search(source(cell))
        for node in functions(source(cell))
    }
    for cell in code(name):
        text = source(cell)
        if not SOLUTION.search(text):
            assert "solution" not in tags(cell), text
            continue
        assert "solution" in tags(cell) and not CHECK.search(text), text
        assert cell["metadata"]["jupyter"] == {"source_hidden": True, "outputs_hidden": True}
        written = {node.name for node in functions(text)}
        assert not written & answers, f"the solution overwrites {written & answers}"
        assert text.startswith("# Solution. "), text
    told = [cell for cell in cells(name) if "click its three dots" in source(cell)]
    assert len(told) == 1 and "## Exercises" in source(told[0])


def functions(text):
    try:
        return [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    except SyntaxError:
        return []


def test_every_exercise_has_a_stub_hints_and_a_solution():
    stubs, solved = {}, {}
    for name in LESSONS:
        for cell in code(name):
            for exercise in SOLUTION.findall(source(cell)):
                solved[exercise] = cell
            for exercise in CHECK.findall(source(cell)):
                if exercise not in stubs:  # a later one shows a wrong answer
                    stubs[exercise] = cell
    assert set(stubs) == set(solved) == set(all_exercises())
    for exercise, cell in stubs.items():
        text = source(cell)
        assert "try:" not in text, exercise
        if "lessons.todo()" in text or re.search(r"= \.\.\.(  #|$)", text, re.MULTILINE):
            assert f'lessons.hint("{exercise}")' in "".join(texts(cell)), exercise
        else:  # a program to mend: it is refused
            assert any(out.get("ename") == "CheckFailed" for out in cell["outputs"]), exercise
        hints = all_exercises()[exercise].hints
        assert 2 <= len(hints) <= 4 and len(set(hints)) == len(hints), exercise


def test_the_map_names_every_lesson_and_every_link_leads_somewhere():
    folder = pathlib.Path(LESSONS["00_start_here"]).parent
    welcome = (folder / "welcome.md").read_text(encoding="utf-8")
    linked = re.findall(r"^\| \d\d \| \[[^]]*\]\((\w+\.ipynb)\)", welcome, re.MULTILINE)
    assert linked == [path.name for path in notebooks()]
    for name in LESSONS:
        for cell in cells(name):
            if cell["cell_type"] == "markdown":
                for target in re.findall(r"\]\(([\w./]+\.ipynb)", source(cell)):
                    assert (folder / target).is_file(), f"{name}: {target}"


def test_the_minutes_are_the_same_everywhere():
    folder = pathlib.Path(LESSONS["00_start_here"]).parent
    pages = [folder / "welcome.md", folder.parent / "README.md"]
    form = r"about (\d+) minutes to read, (\d+) with the exercises"
    for path in notebooks():
        ((read, all_of_it),) = re.findall(form, source(cells(path.stem)[0]))
        for page in pages:
            text = page.read_text(encoding="utf-8")
            assert re.findall(rf"{path.name}\) \| (\d+) / (\d+) \|", text) == [(read, all_of_it)], (
                page.name,
                path.name,
            )


def test_each_lesson_leads_to_the_one_before_and_the_next():
    order = notebooks()
    for number, path in enumerate(order):
        prose = [cell for cell in cells(path.stem) if cell["cell_type"] == "markdown"]
        first, last = source(prose[0]), source(prose[-1])
        for beside, text in ((number - 1, first), (number + 1, last)):
            if 0 <= beside < len(order):
                assert f"]({order[beside].name})" in text, f"{path.name} to {order[beside].name}"
