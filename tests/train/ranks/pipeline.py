"""A stage of a pipeline: trains as the `Run` says that it is given as JSON."""

import json
import pathlib
import sys
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from pipelines import TEXT, Run

from ttkit import ttnn
from ttkit.train.config.settings import TransformerConfig
from ttkit.train.run.pipeline import PipelineTrainer

given = json.loads(sys.argv[1])
run = Run(**{**given, "model": TransformerConfig(**given["model"])})
spy = mock.patch.object(ttnn.experimental, "send_async", wraps=ttnn.experimental.send_async)
with PipelineTrainer(run.settings(), text=TEXT) as trainer, spy as by_sockets:
    trainer.fit(run.steps, show=False)
    table = trainer.timetable()
assert [[slot.action for slot in row] for row in table.slots] == [
    list(row) for row in trainer.schedule.actions
]
mine = trainer.schedule.tasks(trainer.rank % trainer.num_stages)
sends = run.steps * sum(task.send is not None for task in mine)
assert by_sockets.call_count == (sends if run.sockets == "fabric" else 0)
times = {(at, slot.action): slot for at, row in enumerate(table.slots) for slot in row}
tasks = [(at, task) for at in range(table.schedule.stages) for task in table.schedule.tasks(at)]
sent = {task.send: times[at, task.action].start_s for at, task in tasks if task.send}
# What makes a message begins before what takes it ends, on whichever rank; what takes it may begin
# first, and wait.
assert all(sent[task.receive] < times[at, task.action].end_s for at, task in tasks if task.receive)
print(f"rank {trainer.rank} measured {table}")
