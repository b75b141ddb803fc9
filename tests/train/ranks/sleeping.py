"""A stage of a pipeline whose forwards sleep 50 ms and backwards 100 ms more; rank 0 prints the bubbles of the least disturbed step."""

import json
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from pipelines import TEXT, Run

from ttkit.train.pipeline import PipelineTrainer

FORWARD_S, BACKWARD_S, STEPS = 0.05, 0.1, 5


def slow(call, pause_s):
    def slowly(*args):
        time.sleep(pause_s)
        return call(*args)

    return slowly


stages, micro_batches, schedule = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
with PipelineTrainer(Run(stages, micro_batches, schedule).settings(), text=TEXT) as trainer:
    trainer.step()
    for stage in trainer.stages.values():
        stage.forward, stage.backward = slow(stage.forward, FORWARD_S), slow(stage.backward, BACKWARD_S)
    tables = []
    for _ in range(STEPS):
        trainer.step()
        tables.append(trainer.timetable())
    best = min(tables, key=lambda table: table.time_s)  # other programs only make a step longer
    if trainer.rank == 0:
        modelled = trainer.schedule.timeline(FORWARD_S, BACKWARD_S).bubble_fraction
        print("bubbles", json.dumps([best.bubble_fraction, modelled]))
