"""The button of a training, in JupyterLab: it works while a cell runs."""

import nbformat
import pytest
from lab import CSS, started, webdriver

pytestmark = pytest.mark.long
TRAINER = """from ttkit.train import Trainer, builtin_corpus
from ttkit.train.config.settings import Settings, TrainingConfig, TransformerConfig
small = TransformerConfig(num_heads=2, embedding_dim=32, num_blocks=1, max_sequence_length=16)
how = {"tokenizer_type": "byte", "eval_every": 0, "num_epochs": 999, "max_steps": 100_000}
config = TrainingConfig(batch_size=8, checkpoint_dir="ck", model_save_interval=0, **how)
settings = Settings(training_config=config, transformer_config=small)
trainer = Trainer(settings, text=builtin_corpus()[:6000])"""
TWICE = """trainer.fit()
print("the next line")"""


@pytest.fixture
def lab(tmp_path):
    with started(tmp_path) as lab:
        cells = [TRAINER, TWICE, "trainer.fit(3)"]
        notebook = nbformat.v4.new_notebook(cells=[*map(nbformat.v4.new_code_cell, cells)])
        kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
        notebook.metadata["kernelspec"] = kernel
        nbformat.write(notebook, tmp_path / "notebooks" / "mine.ipynb")
        lab.open("mine.ipynb")
        yield lab


def begin(lab, index):
    """Run a cell, without waiting for its end."""
    command = "window.jupyterapp.commands.execute('notebook:run-cell')"
    lab.ask(f"panel.content.activeCellIndex = arguments[0]; {command}", index)


def text(lab, index):
    return lab.node(index).find_element(CSS, ".jp-Cell-outputArea").text


def end(lab, index):
    lab.until(lambda: lab.cells()[index]["count"], 60, f"cell {index} does not end")
    lab.settle()


def press(lab, index, label):
    """Use a button with the keyboard."""

    def found():
        buttons = lab.node(index).find_elements(CSS, "button.widget-button")
        return next((each for each in buttons if each.text.startswith(label)), None)

    lab.driver.execute_script("arguments[0].focus()", lab.until(found, what=f"no button {label}"))
    webdriver.ActionChains(lab.driver).send_keys(webdriver.Keys.ENTER).perform()


def test_the_button_works_while_a_cell_runs(lab):
    begin(lab, 0)
    end(lab, 0)
    begin(lab, 1)
    lab.until(lambda: " of 100000 · " in text(lab, 1), what="no figures are shown")
    press(lab, 1, "Stop")
    end(lab, 1)
    found = text(lab, 1)
    assert "Stopped after step" in found and "the same call goes on from there" in found
    assert "Saved ck/step_" in found and "Stop after this step" not in found
    assert found.splitlines()[-1] == "  in line 1 of your cell: trainer.fit()", found
    begin(lab, 2)
    end(lab, 2)
    assert "3 steps, " in text(lab, 2)
    assert not lab.complaints()
