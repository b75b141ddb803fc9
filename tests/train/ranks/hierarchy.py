"""An example, in which one rank gets a signal some time after the first step:

CONFIG RANK SIGNAL SECONDS EXAMPLE.
"""

import os
import pathlib
import runpy
import sys
import threading
import time

config, rank, number, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
example = (
    pathlib.Path(__file__).resolve().parents[3]
    / "examples"
    / (sys.argv[5] if len(sys.argv) > 5 else "hierarchical_parallel")
)
log = pathlib.Path(config).with_name("checkpoints") / "log.jsonl"


def signal_to_myself():
    while not log.exists() or not log.stat().st_size:
        time.sleep(0.001)
    time.sleep(seconds)
    pathlib.Path(config).with_name("when").write_text(str(time.time()))
    os.kill(os.getpid(), number)


if int(os.environ["OMPI_COMM_WORLD_RANK"]) == rank:
    threading.Thread(target=signal_to_myself, daemon=True).start()
sys.path.insert(0, str(example))
sys.argv = ["training.py", "-c", config]
runpy.run_path(str(example / "training.py"), run_name="__main__")
