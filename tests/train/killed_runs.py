"""A program for test_survives: training runs that are killed with kill -9 at random times and go
on until they are through.

python killed_runs.py FOLDER SEED RUNS

Each run must end with the losses of one that nobody killed, to the last bit, and with a log that
has each step once. After each kill the newest checkpoint must hold a beginning of those losses. It
forks before anything is computed: a fork copies no threads."""

import contextlib
import json
import os
import random
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from train.tiny import trainer

from ttkit.train.run.checkpoint import RunFolder

STEPS, KILLS = 12, 4
OPTIONS = {
    "form": "DP2xTP2",
    "model_save_interval": 2,
    "eval_every": 4,
    "model": {"dropout_prob": 0.1},
}


def train(folder):
    """Train to the end, or on to it, in a process of its own: its id."""
    pid = os.fork()
    if pid:
        return pid
    try:
        with (
            contextlib.redirect_stdout(None),
            trainer(checkpoint_dir=str(folder), **OPTIONS) as run,
        ):
            run.fit(STEPS - run.steps, show=False)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def history(folder):
    """(step, loss, validation loss) of what the newest checkpoint goes on from; nothing where
    there is none.
    """
    saved = RunFolder(folder).saved(None)
    assert saved is None or saved.meta["step"] == len(saved.history)
    return (
        [(record.step, record.loss, record.validation_loss) for record in saved.history]
        if saved
        else []
    )


def ended(pid):
    """Whether a process ended well; not, where it was killed."""
    code = os.waitpid(pid, 0)[1]
    assert os.WIFSIGNALED(code) or os.WEXITSTATUS(code) == 0, "a run failed"
    return not os.WIFSIGNALED(code)


def main(folder, seed, runs):
    dice, start = random.Random(seed), time.monotonic()
    assert ended(train(folder / "whole"))
    usual = time.monotonic() - start
    whole = history(folder / "whole")
    assert [step for step, _, _ in whole] == list(range(1, STEPS + 1))
    kills, at = 0, []
    for number in range(runs):
        here = folder / str(number)
        for again in range(KILLS + 1):
            pid = train(here)
            if again < KILLS:
                time.sleep(dice.uniform(0, usual))
                os.kill(pid, signal.SIGKILL)
            through, found = ended(pid), history(here)
            assert found == whole[: len(found)], (
                f"run {number}: {found} is not the beginning of {whole}"
            )
            if through:
                break
            kills += 1
            at.append(len(found))
        assert found == whole, f"run {number} ended with {found}"
        log = [json.loads(line) for line in (here / "log.jsonl").read_text().splitlines()]
        assert [(line["step"], line["loss"], line.get("validation_loss")) for line in log] == whole
    counts = {step: at.count(step) for step in sorted(set(at))}
    print(
        f"{runs} runs, killed {kills} times; steps in the newest checkpoint then, and how often: "
        f"{counts}"
    )


if __name__ == "__main__":
    warnings.simplefilter("error")
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
