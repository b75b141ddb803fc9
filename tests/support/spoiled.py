"""Good files damaged byte by byte, for hypothesis, as a bad disk, a wrong encoding or a slip of
the hand does; and the watch over who reads them.
"""

import sys
import time
from contextlib import contextmanager

from hypothesis import strategies as st

RUNS = (
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.spawn",
    "os.fork",
    "subprocess.Popen",
    "socket.connect",
    "pty.spawn",
    "ctypes.dlopen",
)
watching = False


@sys.addaudithook
def _hear(event, args):
    if watching and event in RUNS:
        raise AssertionError(f"a file made {event} happen: {args}")


@contextmanager
def nothing_is_run(seconds):
    """In the block no process is started and no connection made, and it takes no more than so
    much processor time.
    """
    global watching
    since, watching = time.process_time(), True
    try:
        yield
    finally:
        watching = False
    assert time.process_time() - since < seconds


@st.composite
def spoiled_bytes(draw, contents):
    """One of these files with bits turned over, bytes overwritten, a stretch cut out, doubled or
    moved, or the end missing.
    """
    data = bytearray(draw(st.sampled_from(contents)))
    for _ in range(draw(st.integers(1, 8))):
        at = draw(st.integers(0, len(data)))
        stretch = data[at : at + draw(st.integers(1, 64))]
        way = draw(st.integers(0, 5))
        if way == 0 and at < len(data):
            data[at] ^= 1 << draw(st.integers(0, 7))
        elif way == 1:
            data[at : at + 4] = draw(st.binary(max_size=4))
        elif way == 2:
            del data[at : at + len(stretch)]
        elif way == 3:
            data[at:at] = stretch * draw(st.integers(1, 40))
        elif way == 4:
            to = draw(st.integers(0, len(data)))
            data[to:to] = stretch
        else:
            del data[at:]
    return bytes(data)
