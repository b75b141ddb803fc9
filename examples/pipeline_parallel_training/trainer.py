"""What each rank does: it is a stage."""

import data

from ttkit.train import PipelineTrainer


def stage(settings):
    """Train this rank's blocks; the last record and what the stages did in the last step."""
    with PipelineTrainer(settings, text=data.read(settings)) as trainer:
        (here,) = trainer.stages.values()
        blocks = [block for chunk in here.chunks for block in chunk.blocks]
        print(
            f"Rank {trainer.rank}/{trainer.world}: Running as stage {here.index} of "
            f"{trainer.num_stages}, blocks {blocks}",
            flush=True,
        )
        if trainer.rank == 0:
            print(trainer.schedule, trainer.schedule.timeline(), flush=True)
        trainer.fit()
        if trainer.times:
            table = trainer.timetable()
            if trainer.rank == 0:
                print(f"measured, the last step: {table}", flush=True)
