"""The bubble of a pipeline over ranks, measured beside modelled: `make bench-bubbles`.

Forwards sleep 50 ms and backwards 100 ms more, so that the stages are equally long and no core is
short; the model knows these two numbers and the schedule. The step that other programs disturbed
least counts. Exit status 1 when a bubble is more than a tenth off.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ttkit.train.config.settings import (
    DeviceConfig,
    MultihostConfig,
    PipelineParallelConfig,
    Settings,
    TrainingConfig,
    TransformerConfig,
)
from ttkit.train.run.pipeline import PipelineTrainer

ROOT = Path(__file__).resolve().parent.parent
CASES = ((2, 4, "1f1b"), (2, 3, "one_at_a_time"))  # stages, micro-batches, schedule
FORWARD_S, BACKWARD_S, STEPS, OFF = 0.05, 0.1, 5, 0.1


def settings(stages: int, micro_batches: int, schedule: str) -> Settings:
    """A GPT so small that its own work is short beside the sleep."""
    model = TransformerConfig(
        num_heads=2, embedding_dim=32, num_blocks=2, max_sequence_length=32, dropout_prob=0.0
    )
    training = TrainingConfig(
        batch_size=micro_batches,
        gradient_accumulation_steps=micro_batches,
        max_steps=100,
        tokenizer_type="char",
        checkpoint_dir="",
        eval_every=0,
    )
    pipeline = PipelineParallelConfig(model.num_blocks, {}, schedule)
    return Settings(
        device_config=DeviceConfig((1, 1)),
        training_config=training,
        multihost_config=MultihostConfig(True, stages, "mpi", pipeline),
        transformer_config=model,
    )


def slower(call: Callable[..., Any], pause_s: float) -> Callable[..., Any]:
    """The same call, after a pause."""

    def paused(*args: Any) -> Any:
        time.sleep(pause_s)
        return call(*args)

    return paused


def work(stages: int, micro_batches: int, schedule: str) -> None:
    """On each rank: take some steps; rank 0 prints the bubble measured and the one modelled."""
    with closing(PipelineTrainer(settings(stages, micro_batches, schedule))) as trainer:
        trainer.step()  # fills caches
        for stage in trainer.stages.values():
            forward = slower(stage.forward, FORWARD_S)
            vars(stage).update(forward=forward, backward=slower(stage.backward, BACKWARD_S))
        tables = []
        for _ in range(STEPS):
            trainer.step()
            tables.append(trainer.timetable())
        best = min(tables, key=lambda table: table.time_s)
        modelled = trainer.schedule.timeline(FORWARD_S, BACKWARD_S).bubble_fraction
        if trainer.rank == 0:
            print("found", json.dumps([best.bubble_fraction, modelled]), flush=True)


def main() -> int:
    """Run each case on ranks, and print the table."""
    if sys.argv[1:2] == ["--on"]:
        work(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
        return 0
    names = ("stages", "micro-batches", "schedule", "bubble, modelled", "bubble, measured")
    table = Table(*names, title="pipelines whose stages sleep")
    good = True
    for stages, micro_batches, schedule in CASES:
        launch = [sys.executable, "-m", "ttkit", "run", "--bare", "-n", str(stages)]
        rank = [sys.executable, "-m", "mpi4py", __file__, "--on"]
        command = [*launch, *rank, str(stages), str(micro_batches), schedule]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
        measured, modelled = json.loads(done.stdout.rpartition("found ")[2].splitlines()[0])
        good &= abs(measured / modelled - 1) <= OFF
        bubbles = [f"{each:.1%}" for each in (modelled, measured)]
        table.add_row(str(stages), str(micro_batches), schedule, *bubbles)
    Console(highlight=False, width=110).print(table)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
