"""Data-parallel training over 1, 2 and 3 ranks, measured beside modelled: `make bench-scaling`.

Each rank has a simulated chip of its own, one thread, and its part of the same global batch;
gradients are averaged over MPI. The model takes two measurements, a step of one rank and an
all-reduce of its gradients, and says what follows: ranks share the work as far as there are cores
for them, and the messages come on top, as if nothing overlapped. On hosts of their own, ranks have
more cores, and slower messages."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from ttkit.train import Trainer
from ttkit.train.config.settings import Distributed, Settings, TrainingConfig, TransformerConfig

ROOT = Path(__file__).resolve().parent.parent
STEPS, SKIPPED = 14, 4  # of a run; the first ones fill caches
BATCH = 12  # divides among 1, 2 and 3 ranks


def settings(ranks: int) -> Settings:
    """A GPT of 2.7 million parameters, without dropout."""
    model = TransformerConfig(
        num_heads=8, embedding_dim=256, num_blocks=3, max_sequence_length=128, dropout_prob=0.0
    )
    training = TrainingConfig(
        batch_size=BATCH,
        max_steps=STEPS,
        eval_every=0,
        tokenizer_type="char",
        checkpoint_dir="",
        model_save_interval=0,
    )
    # One rank needs no hosts; several stand for hosts of their own, which nobody looks up here.
    return replace(
        Settings(training_config=training, transformer_config=model),
        distributed=Distributed(enabled=ranks > 1),
    )


def work(ranks: int) -> None:
    """On each rank: train, and time an all-reduce of as many bytes; rank 0 prints what took how
    long.
    """
    with Trainer(settings(ranks)) as trainer:
        records = trainer.fit(show=False)
        elements = sum(
            int(np.prod(parameter.global_shape)) for parameter in trainer.parameters.values()
        )
    found = {
        "step": statistics.median(record.step_time_s for record in records[SKIPPED:]),
        "loss": records[-1].loss,
        "bytes": 4 * elements,
    }
    if trainer.comm:
        gradients, mean, times = np.ones(elements, np.float32), np.empty(elements, np.float32), []
        for _ in range(8):
            trainer.comm.Barrier()
            began = time.perf_counter()
            trainer.comm.Allreduce(gradients, mean)
            times.append(time.perf_counter() - began)
        found["messages"] = statistics.median(times)
    if trainer.rank == 0:
        print("found", json.dumps(found), flush=True)


def run(ranks: int) -> dict[str, float]:
    """What rank 0 found."""
    program = [sys.executable, __file__, "--on", str(ranks)]
    command = (
        [sys.executable, "-m", "ttkit", "run", "--bare", "-n", str(ranks), *program]
        if ranks > 1
        else program
    )
    alone = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "TTKIT_BACKEND": "sim"}
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **alone},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.rpartition("found ")[2])  # type: ignore[no-any-return]


def main() -> int:
    """Run on 1, 2 and 3 ranks, and print the table."""
    if sys.argv[1:2] == ["--on"]:
        work(int(sys.argv[2]))
        return 0
    cores, found = os.cpu_count() or 1, {ranks: run(ranks) for ranks in (1, 2, 3)}
    alone = found[1]["step"]
    table = Table(
        "ranks",
        "messages",
        "step, modelled",
        "speed-up",
        "step, measured",
        "speed-up",
        "measured / modelled",
        title="data-parallel training",
    )
    for ranks, each in found.items():
        messages = each.get("messages", 0.0)
        modelled, measured = alone / min(ranks, cores) + messages, each["step"]
        cells = [
            f"{messages * 1e3:.0f} ms",
            f"{modelled * 1e3:.0f} ms",
            f"{alone / modelled:.2f}",
            f"{measured * 1e3:.0f} ms",
            f"{alone / measured:.2f}",
        ]
        table.add_row(str(ranks), *cells, f"{measured / modelled:.2f}")
    Console(highlight=False, width=110).print(table)
    print(
        f"{found[1]['bytes'] / 1e6:.1f} MB of gradients, batch {BATCH} x 128 tokens, "
        f"a thread for each rank, {cores} cores, load {os.getloadavg()[0]:.1f}"
    )
    losses = [each["loss"] for each in found.values()]
    # 14 steps, each with sums in another order for another number of ranks
    agree = np.allclose(losses, losses[0], rtol=1e-4)
    print(
        f"last losses: {', '.join(f'{loss:.5g}' for loss in losses)}"
        + ("" if agree else "  (they should agree)")
    )
    return int(not agree)


if __name__ == "__main__":
    sys.exit(main())
