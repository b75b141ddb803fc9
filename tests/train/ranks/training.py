"""Run by every rank: trains as its arguments say, and prints what came out as one line of JSON.

python -m mpi4py training.py OPTIONS   a JSON dictionary for train.tiny.tiny, and: "replicas": true for ranks with a mesh each,
                                       "steps", "stop": the rank that gets SIGINT after step 2,
                                       "heads": {rank: num_heads}, "late": steps after that
"""

import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from train.tiny import TEXT, tiny, weights

from ttkit.train import Trainer
from ttkit.train.config.layout import tiled
from ttkit.train.config.settings import DeviceConfig, Distributed

RANK = int(os.environ["OMPI_COMM_WORLD_RANK"])
asked = json.loads(sys.argv[1])
steps, stop, heads = asked.pop("steps", 4), asked.pop("stop", None), asked.pop("heads", {})
form, replicas = asked.pop("form"), asked.pop("replicas", False)
form = DeviceConfig(**form) if isinstance(form, dict) else form
if str(RANK) in heads:
    asked["model"] = {"num_heads": heads[str(RANK)], "embedding_dim": 8 * heads[str(RANK)]}
if "own_folder" in asked and asked.pop("own_folder") and RANK:
    # as on another host, which has not rank 0's files
    asked["checkpoint_dir"] += f"/of-rank-{RANK}"


def on_step(record):
    if RANK == stop and record.step == 2:
        os.kill(os.getpid(), signal.SIGINT)


with Trainer(
    replace(tiny(form, **asked), distributed=Distributed(enabled=replicas)), text=TEXT
) as run:
    run.fit(steps, show=False, on_step=on_step)
    losses = [(record.loss, record.validation_loss or 0) for record in run.history]
    sums = {
        name: [float(array.sum()), float((array**2).sum())] for name, array in weights(run).items()
    }
    state = sum(tiled(value.shape) * 4 for value in run.optimizer.state.values())
    found = {"rank": RANK, "losses": losses, "sums": sums, "state": state}
    print("found " + json.dumps(found | {"text": run.sample("The", 5)}), flush=True)
