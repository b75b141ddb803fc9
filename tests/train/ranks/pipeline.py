"""A stage of a pipeline: trains as the `Run` says that it is given as JSON."""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from pipelines import TEXT, Run

from ttkit.train.config import TransformerConfig
from ttkit.train.pipeline import PipelineTrainer

given = json.loads(sys.argv[1])
run = Run(**{**given, "model": TransformerConfig(**given["model"])})
with PipelineTrainer(run.settings(), text=TEXT) as trainer:
    trainer.fit(run.steps, show=False)
    table = trainer.timetable()
assert [[slot.action for slot in row] for row in table.slots] == [list(row) for row in trainer.schedule.actions]
print(f"rank {trainer.rank} measured {table}")
