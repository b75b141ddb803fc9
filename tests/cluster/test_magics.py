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
STAYS = """%%px
if rank == 0:
    MPI.COMM_WORLD.Recv(bytearray(8), source=1)
else:
    raise KeyError("nothing sent")
"""


class Notebook:
    """A kernel and what its cells put out."""

    def __init__(self):
        self.manager, self.client = start_new_kernel(kernel_name="python3", cwd=str(ROOT))
        self.pid = self.manager.provisioner.process.pid

    def updates(self, cell):
        """What a cell puts in the place of what it shows."""
        texts = []

        def take(message):
            if message["msg_type"] in ("display_data", "update_display_data"):
                texts.append(message["content"]["data"]["text/plain"])

        self.client.execute_interactive(cell, timeout=300, output_hook=take)
        return texts

    def run(self, cell, timeout=300):
        """What a cell puts out: (text of stdout and of stderr, data of displays, error or "")."""
        texts, shown = {"stdout": "", "stderr": ""}, []

        def take(message):
            content = message["content"]
            if message["msg_type"] == "stream":
                texts[content["name"]] += content["text"]
            elif message["msg_type"] in ("display_data", "execute_result"):
                shown.append(content["data"])

        reply = self.client.execute_interactive(cell, timeout=timeout, output_hook=take)["content"]
        self.traceback = reply.get("traceback")
        return (
            texts["stdout"],
            texts["stderr"],
            shown,
            f"{reply['ename']}: {reply['evalue']}" if reply["status"] == "error" else "",
        )

    def family(self):
        return [
            each
            for each in psutil.Process(self.pid).children(recursive=True)
            if each.status() != psutil.STATUS_ZOMBIE
        ]

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
    for _ in range(3):
        assert notebook.run(PRINTS) == first


def test_one_line(notebook):
    assert notebook.run("%px rank + 1")[0] == "[rank 0] 1\n[rank 1] 2\n"
    assert notebook.run("%%px --local\nprint('here')")[0].count("here") == 3
    assert "the only option is --local" in notebook.run("%%px --loca\nprint()")[3]


def test_a_failing_cell_names_rank_and_line(notebook):
    stdout, _, _, error = notebook.run(FAILS)
    assert stdout == "[rank 0] (2, 2)\n"
    assert error == (
        "CellError: %%px: rank 1 of 2 raised ValueError: cannot reshape array of size 5 into "
        "shape (2,newaxis)\n"
        "    at line 4 of halves: return np.ones(n).reshape(2, -1)\n  try: fix that line"
    )
    assert notebook.run(FAILS)[3] == error


def test_a_rank_that_waits_for_nobody(notebook):
    error = notebook.run(STAYS)[3]
    assert "rank 1 of 2 raised KeyError: 'nothing sent'\n    at line 4: raise KeyError" in error
    assert (
        "rank 0 did not finish\n    at line 2: MPI.COMM_WORLD.Recv(bytearray(8), source=1)" in error
    )
    stdout, _, _, error = notebook.run("cluster.interrupt()")
    assert (
        error == ""
        and "rank 0 was at line 2: MPI.COMM_WORLD.Recv(bytearray(8), source=1)" in stdout
    )
    assert notebook.run("%px print('again')")[0] == "[rank 0] again\n[rank 1] again\n"


def test_a_long_wait_says_how_it_is_going(notebook):
    before = "import os; os.environ['TTKIT_PROGRESS'] = '1'"
    (shown,) = notebook.run(before + "\n%px import time; time.sleep(3)")[2]
    assert shown["text/plain"].startswith("%%px: 0 of 2 ranks are done, ")
    assert shown["text/plain"].count("at line 1: import time; time.sleep(3)") == 2
    notebook.run(before.replace("'1'", "'0'"))


def test_prints_are_shown_as_they_come_and_in_rank_order_at_the_end(notebook):
    before = "import os; os.environ['TTKIT_PROGRESS'] = '1'\n"
    count = """def count(steps):
    import os, time
    for step in range(steps):
        print(f"step {step} of rank {os.environ['OMPI_COMM_WORLD_RANK']}")
        time.sleep(0.5)

"""
    cells = {
        "cluster.run(count)": f"{before}{count}cluster.run(count, 8)",
        "%%px": "%%px\n" + count + "count(8)",
    }
    for asked, cell in cells.items():
        shown = notebook.updates(cell)
        live = [text.splitlines() for text in shown if "ranks are done" in text]
        assert live[0][0].startswith(f"{asked}: 0 of 2 ranks are done, "), shown
        rows = [line for text in live for line in text[1:]]
        for rank in range(2):
            assert any(f"printed: step 3 of rank {rank}" in row for row in rows), rows
        assert all(row.count("printed: ") <= 3 for row in rows)
        assert shown[-1] == ""
        stdout = notebook.run(cell)[0]
        assert stdout.splitlines() == [
            f"[rank {rank}] step {step} of rank {rank}" for rank in range(2) for step in range(8)
        ]
    notebook.run("os.environ['TTKIT_PROGRESS'] = '0'")


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
    trainer.fit(8, on_step=lambda record: time.sleep(0.5));"""


def test_training_on_ranks_shows_its_figures(notebook):
    before = "import os; os.environ['TTKIT_PROGRESS'] = '1'"
    notebook.run(before)
    shown = notebook.updates(TRAINS)
    figures = r"rank 0: busy, .*step \d of 8 · \d+ s left · [\d,]+ tokens/s · loss \d\.\d{3}"
    assert any(re.search(figures, text) for text in shown), shown
    notebook.run("os.environ['TTKIT_PROGRESS'] = '0'")


def test_the_display_of_a_cluster_shows_cards(notebook):
    (cards,) = notebook.run("cluster")[2]
    assert cards["text/plain"] == "<Cluster(2): 2 engines, running>"
    assert "card" in cards["text/html"] and "as it was when this cell ran" in cards["text/html"]
    assert notebook.run("cluster")[2][0] == cards  # the same every time


@pytest.mark.parametrize("asked", ["%%px", "cluster.run(wait)"])
def test_the_stop_button_interrupts_the_ranks(notebook, tmp_path, asked):
    def press():
        while len(list(tmp_path.iterdir())) < 2:  # until both ranks wait
            time.sleep(0.05)
        notebook.manager.interrupt_kernel()

    arrive = f"import os, pathlib, time; pathlib.Path({str(tmp_path)!r}, str(os.getpid())).touch()"
    cells = {
        "%%px": f"%px {arrive}; time.sleep(1000)",
        "cluster.run(wait)": f"def wait():\n    {arrive}\n    time.sleep(1000)\n\ncluster.run(wait)  # too long",
    }
    threading.Thread(target=press, daemon=True).start()
    stdout, _, _, error = notebook.run(cells[asked])
    assert error == f"KeyboardInterrupt: {asked} was interrupted"
    assert "ranks 0 and 1 were at line" in stdout and "time.sleep(1000)" in stdout
    line = "  in line 5 of your cell: cluster.run(wait)  # too long"
    assert notebook.traceback == [error, *([line] if asked != "%%px" else [])]
    assert notebook.run("%px print('again')")[0] == "[rank 0] again\n[rank 1] again\n"


def test_the_stop_button_ends_a_training_after_its_step(notebook, tmp_path):
    told = tmp_path / "it trains"
    tell = f"""import pathlib, threading, time

def tell():
    while not cluster.report(0).doing:
        time.sleep(0.05)
    pathlib.Path({str(told)!r}).touch()

threading.Thread(target=tell, daemon=True).start()"""

    def press():
        while not told.exists():
            time.sleep(0.05)
        notebook.manager.interrupt_kernel()

    notebook.run(tell)
    threading.Thread(target=press, daemon=True).start()
    train = TRAINS.partition("    trainer.fit")[0]
    fit = "    steps = len(trainer.fit(100_000))\nprint(steps, 'steps')"
    stdout, _, _, error = notebook.run(train + fit)
    lines = stdout.splitlines()
    assert error == "" and lines[0] == (
        "the training stops after this step; interrupt again to stop at once"
    )
    steps = [int(line.split()[2]) for line in lines if line.endswith(" steps")]
    assert steps[0] == steps[1] and 0 < steps[0] < 100_000, stdout


def test_the_cell_that_starts_a_cluster_run_again(notebook):
    before = notebook.family()
    stdout, _, _, error = notebook.run("cluster = ttkit.Cluster(2).start()")
    assert (stdout, error) == (
        "Cluster(2), started before, is stopped: this one takes its place\n",
        "",
    )
    assert not psutil.wait_procs(before, timeout=60)[1]
    stdout = notebook.run(
        "with ttkit.Cluster(1) as one:\n    get_ipython().run_line_magic('px', "
        "'print(1)')\n%px print(2)"
    )[0]
    assert stdout == "[rank 0] 1\n[rank 0] 2\n[rank 1] 2\n"


def test_a_kernel_that_is_killed_takes_its_engines_along(notebook):
    below = notebook.family()
    assert len(below) >= 5  # supervisor, controller, mpirun, two engines
    notebook.manager.restart_kernel(now=True)
    _, left = psutil.wait_procs(below, timeout=60)
    assert not left
