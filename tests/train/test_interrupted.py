"""Ctrl-C of `ttkit run`: training on ranks ends after the step at hand, with a checkpoint."""

import importlib.util
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from started import TTKIT_RUN
from train.pipelines import Run, write_config
from train.runs import latest

from ttkit.train.config.settings import Distributed, MultihostConfig
from ttkit.train.run import checkpoint

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples/hierarchical_parallel/training.py"
SMALL = Run(micro_batches=2, batch=8)


def replicas():
    hosts = Distributed(enabled=True, hosts=str(ROOT / "configs/3nodes/hosts.json"))
    return replace(SMALL.settings(), multihost_config=MultihostConfig(), distributed=hosts)


def hierarchy():
    return replace(SMALL.settings(), multihost_config=MultihostConfig(True, 1, "fabric"))


FORMS = {
    "replicas": (2, replicas, ["-m", "ttkit", "train", "--config"]),
    "tiers": (3, hierarchy, ["-m", "mpi4py", EXAMPLE, "-c"]),
}


@pytest.mark.parametrize("form", [pytest.param("replicas", marks=pytest.mark.long), "tiers"])
def test_ctrl_c_saves_what_all_ranks_have_done(tmp_path, form):
    if importlib.util.find_spec("mpi4py") is None:  # not imported here: only ranks may
        pytest.skip("mpi4py is not installed")
    ranks, make, program = FORMS[form]
    kept = tmp_path / "checkpoints"
    forever = {"max_steps": 10**6, "num_epochs": 10**6, "model_save_interval": 0}
    config = write_config(tmp_path, make(), **forever)
    words = [*TTKIT_RUN, "--bare", "-n", ranks, sys.executable, *program, config]
    with open(tmp_path / "output", "wb") as output:
        process = subprocess.Popen(
            [*map(str, words)], cwd=ROOT, stdout=output, stderr=output, env=os.environ
        )
    log, until = kept / "log.jsonl", time.monotonic() + 240
    while (
        not (log.exists() and log.read_text().count("\n") > 3)
        and time.monotonic() < until
        and process.poll() is None
    ):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    code = process.wait(240)
    text = (tmp_path / "output").read_text()
    assert code == 130 and "Stopped after step" in text and "Traceback" not in text, text
    _, meta = checkpoint.load(latest(kept))
    steps = [json.loads(line)["step"] for line in log.read_text().splitlines()]
    assert steps == list(range(1, meta["step"] + 1)) and meta["step"] > 3
