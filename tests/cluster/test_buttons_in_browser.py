"""The buttons of live displays, in JupyterLab: they work while a cell runs."""

import time

import nbformat
import pytest
from lab import CSS, started, webdriver

pytestmark = pytest.mark.long
CLUSTER = "import ttkit\ncluster = ttkit.Cluster(2).start()\ncluster"
WORKS = """def work():
    import time
    for step in range(2000):
        print("step", step)
        time.sleep(0.1)

cluster.run(work)"""
TRAINER = """from ttkit.train import Trainer, builtin_corpus
from ttkit.train.config.settings import Settings, TrainingConfig, TransformerConfig
small = TransformerConfig(num_heads=2, embedding_dim=32, num_blocks=1, max_sequence_length=16)
how = {"tokenizer_type": "byte", "eval_every": 0, "num_epochs": 999, "max_steps": 100_000}
config = TrainingConfig(batch_size=8, checkpoint_dir="ck", model_save_interval=0, **how)
settings = Settings(training_config=config, transformer_config=small)
trainer = Trainer(settings, text=builtin_corpus()[:6000])"""
TWICE = """trainer.fit()
print("the next line")"""
ON_RANKS = """%%px
from ttkit.train.config.settings import Distributed
"""


@pytest.fixture
def lab(tmp_path):
    with started(tmp_path) as lab:
        both = TRAINER.replace('"ck"', '""').replace(
            "small)\ntrainer", "small,\n    distributed=Distributed(enabled=True))\ntrainer"
        )
        on_ranks = f"{ON_RANKS}{both}\nhistory = trainer.fit()\nprint(len(history) < 100_000)"
        cells = [CLUSTER, WORKS, TRAINER, TWICE, "trainer.fit(3)", on_ranks]
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


def page(lab, index):
    return lab.node(index).get_attribute("innerHTML")


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


def test_buttons_work_while_a_cell_runs(lab):
    begin(lab, 0)
    end(lab, 0)
    assert "rank 1 ○ idle" in text(lab, 0)
    begin(lab, 1)
    line = "at line 5 of work: time.sleep(0.1)"
    lab.until(lambda: line in text(lab, 0) and "▶ busy" in text(lab, 0), what="no line is shown")
    lab.until(lambda: "[rank 1] step 2" in text(lab, 1), what="prints are not shown")
    asked = time.monotonic()
    press(lab, 0, "Interrupt")
    end(lab, 1)
    assert time.monotonic() - asked < 20  # 3 s on an idle machine
    assert text(lab, 1).splitlines()[-2:] == [
        "KeyboardInterrupt: cluster.run(work) was interrupted",
        "  in line 7 of your cell: cluster.run(work)",
    ]
    press(lab, 0, "Restart")
    lab.until(lambda: "started anew at" in text(lab, 0), 60, "no new engines")
    begin(lab, 2)
    end(lab, 2)
    begin(lab, 3)
    lab.until(lambda: " of 100000 · " in text(lab, 3), what="no figures are shown")
    press(lab, 3, "Stop")
    end(lab, 3)
    found = text(lab, 3)
    assert "Stopped after step" in found and "the same call goes on from there" in found
    assert "Saved ck/step_" in found and "Stop after this step" not in found
    assert found.splitlines()[-1] == "  in line 1 of your cell: trainer.fit()", found
    begin(lab, 4)
    end(lab, 4)
    assert "3 steps, " in text(lab, 4)
    begin(lab, 5)
    lab.until(lambda: "the loss so far" in page(lab, 0), what="no losses on the cards")
    press(lab, 0, "Interrupt")
    end(lab, 5)
    lines = text(lab, 5).splitlines()
    assert lines[0] == "the training stops after this step; interrupt again to stop at once"
    assert lines[-1] == "[rank 1] True"
    assert not lab.complaints()
