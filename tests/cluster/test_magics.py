"""%%px in a fresh kernel: output in rank order, the same every time; and a kernel that goes
takes its engines along.
"""

import pathlib
import re
import threading
import time

import psutil
import pytest
from jupyter_client.manager import start_new_kernel

from tests.cluster.test_cluster import family

ROOT = pathlib.Path(__file__).resolve().parents[2]

PRINTS = """%%px
import random, sys, time
from mpi4py import MPI
from IPython.display import HTML, display
rank = MPI.COMM_WORLD.rank
time.sleep(random.random() / 5)
print(f"rank {rank} is here")
print("and says a second line")
print("a warning", file=sys.stderr)
display(HTML(f"<b>{rank}</b>"))
rank * 10
"""
FAILS = """%%px
import numpy as np

def halves(n):
    return np.ones(n).reshape(2, -1)

halves(4 + rank).shape
"""


class Notebook:
    """A kernel and what its cells put out."""

    def __init__(self):
        self.manager, self.client = start_new_kernel(kernel_name="python3", cwd=str(ROOT))
        self.pid = self.manager.provisioner.process.pid

    def run(self, cell, timeout=300):
        """What a cell puts out: (text of stdout and of stderr, data of displays, error or "").

        `live` then has the texts that were shown while it ran, each in the place of the last."""
        texts, shown, self.live = {"stdout": "", "stderr": ""}, [], []

        def take(message):
            content, kind = message["content"], message["msg_type"]
            if kind == "stream":
                texts[content["name"]] += content["text"]
            elif kind in ("display_data", "execute_result"):
                shown.append(content["data"])
            if kind in ("display_data", "update_display_data"):
                self.live.append(content["data"]["text/plain"])

        try:
            reply = self.client.execute_interactive(cell, timeout=timeout, output_hook=take)
        except TimeoutError:
            pytest.fail(f"{cell}\ndid not end: {texts}, {self.live[-1:]}")
        content = reply["content"]
        self.traceback = content.get("traceback")
        error = f"{content['ename']}: {content['evalue']}" if content["status"] == "error" else ""
        return texts["stdout"], texts["stderr"], shown, error

    def end(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


@pytest.fixture(scope="module")
def notebook():
    notebook = Notebook()
    try:
        assert notebook.run("import ttkit\ncluster = ttkit.Cluster(2).start()") == ("", "", [], "")
        yield notebook
    finally:
        notebook.end()


def test_output_is_in_rank_order_and_the_same_every_time(notebook):
    first = notebook.run(PRINTS)
    stdout, stderr, shown, error = first
    lines = [
        [
            f"[rank {rank}] rank {rank} is here",
            f"[rank {rank}] and says a second line",
            f"[rank {rank}]",
            f"[rank {rank}] {rank}0",
        ]
        for rank in range(2)
    ]
    assert stdout.splitlines() == lines[0][:3] + ["[rank 0] 0"] + lines[1]
    assert stderr.splitlines() == ["[rank 0] a warning", "[rank 1] a warning"]
    assert [data["text/html"] for data in shown] == ["<b>0</b>", "<b>1</b>"]
    assert error == ""
    assert notebook.run(PRINTS) == first


def test_one_line(notebook):
    assert notebook.run("%px rank + 1")[0] == "[rank 0] 1\n[rank 1] 2\n"
    assert "%%px --local: it takes no options" in notebook.run("%%px --local\nprint()")[3]


def test_a_failing_cell_names_rank_and_line(notebook):
    stdout, _, _, error = notebook.run(FAILS)
    assert stdout == "[rank 0] (2, 2)\n"
    assert error == (
        "CellError: %%px: rank 1 of 2 raised ValueError: cannot reshape array of size 5 into "
        "shape (2,newaxis)\n"
        "    at line 4 of halves: return np.ones(n).reshape(2, -1)\n  try: fix that line"
    )


def test_prints_are_shown_as_they_come_and_in_rank_order_at_the_end(notebook):
    cell = """import os
os.environ["TTKIT_PROGRESS"] = "1"
def count(steps):
    import os, time
    for step in range(steps):
        print(f"step {step} of rank {os.environ['OMPI_COMM_WORLD_RANK']}")
        time.sleep(0.5)

cluster.run(count, 7)
os.environ["TTKIT_PROGRESS"] = "0\""""
    stdout = notebook.run(cell)[0]
    live = [text.splitlines() for text in notebook.live if "ranks are done" in text]
    assert live[0][0].startswith("cluster.run(count): 0 of 2 ranks are done, "), notebook.live
    rows = [line for text in live for line in text[1:]]
    for rank in range(2):
        assert any(f"printed: step 4 of rank {rank}" in row for row in rows), rows
    assert any("of count: time.sleep(0.5)" in row for row in rows)
    assert all(row.count("printed: ") <= 3 for row in rows)
    assert notebook.live[-1] == ""
    assert stdout.splitlines() == [
        f"[rank {rank}] step {step} of rank {rank}" for rank in range(2) for step in range(7)
    ]


TRAINS = """%%px
from ttkit.train import Trainer, builtin_corpus
from ttkit.train.config.settings import Distributed, Settings, TrainingConfig, TransformerConfig
small = TransformerConfig(
    num_heads=2, embedding_dim=32, num_blocks=1, max_sequence_length=16, dropout_prob=0
)
config = TrainingConfig(
    batch_size=8, tokenizer_type="byte", checkpoint_dir="", eval_every=0, num_epochs=99
)
settings = Settings(training_config=config, transformer_config=small,
                    distributed=Distributed(enabled=True))
import time
with Trainer(settings, text=builtin_corpus()[:6000]) as trainer:
    steps = len(trainer.fit(100_000, on_step=lambda record: time.sleep(0.3)))
print(steps, 'steps')"""


def test_the_display_of_a_cluster_shows_cards(notebook):
    (cards,) = notebook.run("cluster")[2]
    assert cards["text/plain"] == "<Cluster(2): 2 engines, running>"
    assert "card" in cards["text/html"] and "as it was when this cell ran" in cards["text/html"]
    assert notebook.run("cluster")[2][0] == cards  # the same every time


def test_the_stop_button_interrupts_the_ranks(notebook, tmp_path):
    def press():
        while len(list(tmp_path.iterdir())) < 2:  # until both ranks wait
            time.sleep(0.05)
        notebook.manager.interrupt_kernel()

    imports = "import os, pathlib, time"
    # one line: a rank that is still in touch() is at the same line as the other
    arrive = f"pathlib.Path({str(tmp_path)!r}, str(os.getpid())).touch() or time.sleep(1000)"
    cell = f"def wait():\n    {imports}\n    {arrive}\n\ncluster.run(wait)  # too long"
    threading.Thread(target=press, daemon=True).start()
    stdout, _, _, error = notebook.run(cell)
    assert error == "KeyboardInterrupt: cluster.run(wait) was interrupted"
    assert "ranks 0 and 1 were at line" in stdout and "time.sleep(1000)" in stdout
    line = "  in line 5 of your cell: cluster.run(wait)  # too long"
    assert notebook.traceback == [error, line]
    assert notebook.run("%px print('again')")[0] == "[rank 0] again\n[rank 1] again\n"


def test_training_shows_its_figures_and_the_stop_button_ends_it_after_its_step(notebook, tmp_path):
    told = tmp_path / "it is shown"
    notebook.run(f"""import os, pathlib, threading, time
os.environ["TTKIT_PROGRESS"] = "1"

def tell():
    while not cluster.report(0).doing:
        time.sleep(0.05)
    time.sleep(3.0)  # A shorter wait is not shown.
    pathlib.Path({str(told)!r}).touch()

threading.Thread(target=tell, daemon=True).start()""")

    def press():
        while not told.exists():
            time.sleep(0.05)
        notebook.manager.interrupt_kernel()

    threading.Thread(target=press, daemon=True).start()
    stdout, _, _, error = notebook.run(TRAINS)
    figures = r"rank 0, busy: .*step \d+/\d+: loss \d\.\d{4}, [\d,]+ tokens/s, \d+ s left"
    assert any(re.search(figures, text) for text in notebook.live), notebook.live
    lines = stdout.splitlines()
    assert error == ""
    assert lines[0] == "the training stops after this step; interrupt again to stop at once"
    steps = [int(line.split()[2]) for line in lines if line.endswith(" steps")]
    assert steps[0] == steps[1] and 0 < steps[0] < 100_000, stdout
    notebook.run("os.environ['TTKIT_PROGRESS'] = '0'")


def test_the_cell_that_starts_a_cluster_run_again(notebook):
    before = family(notebook.pid)
    stdout, _, _, error = notebook.run("cluster = ttkit.Cluster(2).start()")
    assert (stdout, error) == (
        "Cluster(2), started before, is stopped: this one takes its place\n",
        "",
    )
    assert not psutil.wait_procs(before, timeout=60)[1]
    assert notebook.run("%px print(2)")[0] == "[rank 0] 2\n[rank 1] 2\n"


def test_a_kernel_that_is_killed_takes_its_engines_along(notebook):
    below = family(notebook.pid)
    assert len(below) >= 5  # supervisor, controller, mpirun, two engines
    notebook.manager.restart_kernel(now=True)
    _, left = psutil.wait_procs(below, timeout=60)
    assert not left
