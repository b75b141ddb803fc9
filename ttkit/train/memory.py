"""The memory of a training run on each chip: weights, gradients, optimizer state, activations."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import psutil

from ttkit.backend import is_simulated
from ttkit.errors import OutOfMemoryError, fail
from ttkit.hardware import current_machine
from ttkit.hardware.chips import ELEMENT_BYTES
from ttkit.train.config.layout import TILE
from ttkit.train.config.settings import TrainingConfig, TransformerConfig
from ttkit.train.model.parameter import Parameter
from ttkit.words import short

MASTER_BYTES = 4  # A master weight is a float32 copy.


def tiled(shape: Sequence[int]) -> int:
    """Return the elements of a tensor in whole tiles: 32 divides its last two dimensions.

    Example:
        >>> tiled((1, 1, 1, 384)), tiled((1, 1, 384, 96))
        (12288, 36864)
    """
    *front, rows, columns = shape
    return math.prod(front) * -(-rows // TILE) * TILE * -(-columns // TILE) * TILE


def state_bytes(parameters: Iterable[Parameter], training: TrainingConfig) -> dict[str, int]:
    """Return the bytes of weights, gradients and optimizer state on each chip."""
    size, whole, own = ELEMENT_BYTES[training.precision], 0, 0
    stage = 0
    for parameter in parameters:
        stage = parameter.layout.zero
        whole += tiled(parameter.local_shape)
        own += tiled(parameter.shard_shape)
    asked = training.optimizer or {}
    if asked.get("type", "AdamW") == "SGD":
        optimizer = size if asked.get("momentum") else 0
    elif size < MASTER_BYTES and asked.get("master_weights", True):
        optimizer = 3 * MASTER_BYTES  # AdamW keeps two moments and the master weight.
    else:
        optimizer = 2 * size
    return {
        "weights": size * (own if stage == 3 else whole),
        "gradients": size * (own if stage >= 2 else whole),
        "optimizer": optimizer * own,
    }


def check_memory(
    model: TransformerConfig,
    config: TrainingConfig,
    parameters: Sequence[Parameter],
    on_one_process: bool,
) -> None:
    """Compare weights, gradients and optimizer state with a chip's DRAM and, on the simulator,
    with the host's memory.

    Raises:
        OutOfMemoryError: they do not fit.
    """
    asked = f"Trainer of embedding_dim {model.embedding_dim:,}, num_blocks {model.num_blocks:,}"
    host = 0
    for layout in {id(p.layout.device): p.layout for p in parameters}.values():
        mine = [p for p in parameters if p.layout.device is layout.device]
        state = state_bytes(mine, config)
        needed, dram = sum(state.values()), current_machine().chip.dram_bytes
        parts = ", ".join(f"{short(size, 'B')} of {what}" for what, size in state.items())
        if needed > dram:
            rule = f"a chip has {short(dram, 'B')} of DRAM and must hold {short(needed, 'B')}"
            cure = (
                "a smaller model, precision: bfloat16, or enable_tp over more chips; "
                "ttkit train --plan shows the parts"
            )
            fail(asked, f"{rule} ({parts})", cure, OutOfMemoryError)
        # The simulator keeps data-parallel replicas in one array.
        host += needed * (layout.tp if on_one_process else 1)
        free = psutil.virtual_memory().available
        if is_simulated() and host > free:
            rule = f"this host simulates it in {short(host, 'B')} ({parts} on a chip)"
            cure = "a smaller model, or a host with more memory"
            fail(asked, f"{rule} and has {short(free, 'B')} free", cure, OutOfMemoryError)
