"""Tensors and gradients between ranks that train together."""

import importlib.util
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from ttkit import TTKitError
from ttkit.train.autograd import Tensor
from ttkit.train.context import AutoContext
from ttkit.train.sockets import DistributedContext, SocketManager, SocketType

HERE = pathlib.Path(__file__).resolve().parent


def test_values_and_gradients_between_some_of_the_ranks():
    if importlib.util.find_spec("mpi4py") is None:  # not imported here: only ranks may
        pytest.skip("mpi4py is not installed")
    command = [
        sys.executable,
        "-m",
        "ttkit",
        "run",
        "-n",
        "3",
        sys.executable,
        "-m",
        "mpi4py",
        str(HERE / "ranks" / "sockets.py"),
    ]
    done = subprocess.run(command, cwd=HERE.parents[1], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(f"rank {rank} done" in done.stdout for rank in range(3))


def test_a_gradient_must_be_there():
    context = AutoContext()
    context.open_device()
    manager = SocketManager(context.get_device(), SocketType.MPI)
    tensor = Tensor.from_numpy(np.zeros((1, 1, 32, 32), np.float32), device=context.get_device())
    with pytest.raises(TTKitError, match="it has none yet"):
        manager.send(tensor, DistributedContext(), 0, use_grad=True)
    with pytest.raises(TTKitError, match="another rank"):
        manager.send(tensor, DistributedContext(), 0)
    context.close_device()
