"""A program for test_checkpoint: saves checkpoints in processes that it kills, and looks each
time at what is left.

python killed.py random FOLDER SEED TIMES   kill -9 at random times
python killed.py calls FOLDER               kill -9 at each system call of a save, before it, and half-way through a write
"""

import os
import random
import signal
import sys
import time
import warnings

import numpy as np

from ttkit.train.run import checkpoint

KEEP = 3


def tensors(step):
    return {
        "weight": np.full((1, 1, 64, 256), step, np.float32),
        "steps": np.arange(step, dtype=np.int64),
    }


def look(folder, at_least):
    """The step of the newest checkpoint, which must be whole and not older than what save() has
    reported as saved.
    """
    paths = checkpoint.checkpoints(folder)
    if not paths and not at_least:
        return 0
    # a damaged one on the way would warn, and warnings are errors here
    found, meta = checkpoint.load(checkpoint.latest(folder))
    step = meta["step"]
    assert step >= at_least, f"step {at_least} was saved, the newest is {step}"
    assert found.keys() == tensors(step).keys() and all(
        (found[name] == array).all() for name, array in tensors(step).items()
    )
    assert all(checkpoint.load(path)[1]["step"] == int(path.stem[5:]) for path in paths)
    assert len(paths) >= min(step, KEEP), f"{len(paths)} checkpoints are left at step {step}"
    return step


def kill_at_random(folder, seed, times):
    saved = 0
    dice = random.Random(seed)
    for _ in range(times):
        out, into = os.pipe()
        pid = os.fork()
        if pid == 0:
            step = look(folder, saved)
            while True:
                step += 1
                checkpoint.save(folder, step, tensors(step), {"step": step}, KEEP)
                os.write(into, step.to_bytes(8, "little"))
        os.close(into)
        time.sleep(dice.uniform(0, 0.03))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        reported = b""
        while part := os.read(out, 1 << 16):
            reported += part
        os.close(out)
        saved = look(folder, int.from_bytes(reported[-8:], "little") if reported else saved)
    print(f"killed {times} times, {saved} steps")


def kill_at_each_call(folder):
    for step in range(1, KEEP + 1):
        checkpoint.save(folder, step, tensors(step), {"step": step}, KEEP)
    call, seen = 0, []
    while True:
        pid = os.fork()
        if pid == 0:
            die_at(call)
            checkpoint.save(folder, step + 1, tensors(step + 1), {"step": step + 1}, KEEP)
            os._exit(0)
        code = os.waitpid(pid, 0)[1]
        if os.WIFEXITED(code):
            assert os.WEXITSTATUS(code) == 0
            assert sorted(os.listdir(folder)) == [
                f"step_{number:08d}.safetensors" for number in range(step - 1, step + 2)
            ]
            break
        seen.append(look(folder, step))
        assert len([name for name in os.listdir(folder) if name.endswith(".part")]) <= 1
        step = seen[-1]
        call += 1
    assert look(folder, step + 1) == step + 1
    print(f"killed at {call} calls, {len(set(seen)) - 1} of them after the new name")


def die_at(wanted):
    """From now on count the calls that touch the disk; end this process before number `wanted`,
    or half-way through when it writes.
    """
    count = -1

    def here():
        nonlocal count
        count += 1
        return count == wanted

    def watched(real, half=None):
        def call(*args):
            if here():
                os.kill(os.getpid(), signal.SIGKILL)
            if half and here():
                half(*args)
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args)

        return call

    write = os.write
    os.write = watched(write, lambda file, data: write(file, data[: len(data) // 2]))
    os.fsync, os.close = watched(os.fsync), watched(os.close)
    sys.addaudithook(
        lambda event, args: (
            event in ("open", "os.rename", "os.remove")
            and here()
            and os.kill(os.getpid(), signal.SIGKILL)
        )
    )


if __name__ == "__main__":
    warnings.simplefilter("error")
    if sys.argv[1] == "random":
        kill_at_random(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        kill_at_each_call(sys.argv[2])
