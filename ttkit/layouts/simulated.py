"""Dry runs on a machine with a card. A dry run needs the simulator, so a process of its own has the
simulator in place of the real ttnn."""

import importlib
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from functools import cache, wraps
from typing import Any, TypeVar

from ttkit import backend

T = TypeVar("T")


@cache
def _simulator() -> subprocess.Popen:
    """Start the process. It ends when this process ends and so closes its standard input."""
    return subprocess.Popen(
        [sys.executable, "-c", "from ttkit.layouts import simulated; simulated.serve()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"TTKIT_BACKEND": "sim"},
        start_new_session=True,  # Ctrl-C is for this process alone.
    )


def serve() -> None:
    """Read calls from standard input and write their results, or errors, to standard output."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # What a call prints must not stand among the answers.
    while True:
        try:
            module, name, arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = getattr(importlib.import_module(module), name)(*arguments)
        except Exception as error:
            answer = error
        pickle.dump(answer, answers)
        answers.flush()


def with_simulator(function: Callable[..., T]) -> Callable[..., T]:
    """Return a function that calls `function`, a function of a module, where `ttkit.ttnn` is the
    simulator. Arguments and results must be values that pickle can copy."""

    @wraps(function)
    def call(*arguments: Any) -> T:
        if backend.is_simulated():
            return function(*arguments)
        process: Any = _simulator()
        try:
            pickle.dump((function.__module__, function.__name__, arguments), process.stdin)
            process.stdin.flush()
            answer = pickle.load(process.stdout)
        except BaseException:  # After Ctrl-C the next call would read the answer to this one.
            process.kill()
            _simulator.cache_clear()
            raise
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]

    return call
