"""The rows of the benchmark and what each of them aims at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

PEERS = {
    "ttkit": "ttkit, 8 devices",
    "jax": "JAX, 8 devices",
    "torch": "torch, 8 ranks",
    "numpy": "NumPy, one device",
    "gloo": "torch gloo, 8 processes",
    "mpi": "mpi4py, 8 processes",
}
TEAMS = ("gloo", "mpi")  # their devices are processes, with one BLAS thread each
MIB = 1 << 20


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Args:
        repetitions: how often each worker is asked, in a full run.
        calls: calls in one repetition, each timed by itself; their median is the repetition's time.
        fresh: each repetition is a process of its own.
        imports: the process is workers/imports.py, which has loaded nothing before.
        whole_process: the time is the whole life of that process, as seen from outside.
        ahead_of: peers that ttkit has to be ahead of.
        floor: ttkit has to be within `floor_ratio` of NumPy on one device (rows over 1 ms).
        limit_s: ttkit's own limit.
        overhead_s: limit of what ttkit adds to the same NumPy call.
        unique_mib: the bytes that differ, all alive at once; ttkit may add 1.15x of them.
        added_limit_mib: limit of what ttkit adds to the process.
    """

    name: str
    title: str
    peers: tuple[str, ...] = ("ttkit", "jax", "torch", "numpy")
    repetitions: int = 11
    calls: int = 1
    fresh: bool = False
    whole_process: bool = False
    imports: bool = False
    ahead_of: tuple[str, ...] = ("jax", "torch")
    floor: bool = True
    floor_ratio: float = 1.15
    limit_s: float | None = None
    overhead_s: float | None = None
    unique_mib: float | None = None
    added_limit_mib: float | None = None

    @property
    def aims(self) -> bool:
        """Whether the row aims at anything, or is only measured."""
        return bool(
            self.ahead_of
            or self.floor
            or self.limit_s
            or self.overhead_s
            or self.unique_mib
            or self.added_limit_mib
        )


WEIGHTS = 2 * 4544 * 18176 * 4 / MIB
X, HIDDEN = 256 * 4544 * 4 / MIB, 256 * 18176 * 4 / MIB

# The collectives are measured against libraries that move data between processes, too.
SPMD: dict[str, Any] = {
    "peers": ("ttkit", "jax", "torch", "numpy", *TEAMS),
    "ahead_of": ("jax", "torch", *TEAMS),
}

ROWS = (
    Row(
        "start-up",
        "start-up: import, open 8 devices, first result",
        repetitions=5,
        fresh=True,
        whole_process=True,
        floor=False,
    ),
    Row(
        "import-ttkit",
        "`import ttkit`",
        ("ttkit", "numpy"),
        7,
        fresh=True,
        imports=True,
        ahead_of=(),
        floor=False,
        limit_s=0.1,
    ),
    Row(
        "import-ttnn",
        "`from ttkit import ttnn`, NumPy's import apart",
        ("ttkit", "numpy"),
        7,
        fresh=True,
        imports=True,
        ahead_of=(),
        floor=False,
        limit_s=0.15,
    ),
    Row(
        "open-galaxy",
        "open a Galaxy, 32 devices",
        ("ttkit",),
        7,
        fresh=True,
        ahead_of=(),
        floor=False,
        limit_s=0.01,
    ),
    Row(
        "replicate-1gib",
        "replicate 1 GiB on 32 devices",
        ("ttkit",),
        3,
        fresh=True,
        ahead_of=(),
        floor=False,
        added_limit_mib=1.05 * 1024,
    ),
    Row(
        "distribute-replicate",
        "distribute: MLP weights on every device",
        repetitions=9,
        unique_mib=WEIGHTS + X,
    ),
    Row(
        "distribute-shard",
        "distribute: MLP weights in shards",
        repetitions=11,
        unique_mib=WEIGHTS + X,
    ),
    Row("mlp-dp", "MLP of Falcon-7B, data-parallel", unique_mib=WEIGHTS + 2 * X + 2 * HIDDEN),
    Row("mlp-tp", "MLP of Falcon-7B, tensor-parallel", unique_mib=WEIGHTS + X + 8 * X + X + HIDDEN),
    *(
        Row(
            f"{kind}-{size}",
            f"{kind}, {text}",
            repetitions=15 if size != "64m" else 11,
            calls=50 if size != "64m" else 5,
            unique_mib=unique if size == "64m" else None,
            **SPMD,
        )
        for kind, unique in (("all-gather", 128), ("all-reduce", 72), ("reduce-scatter", 72))
        for size, text in (("4k", "4 KiB"), ("256k", "256 KiB"), ("64m", "64 MiB"))
    ),
    Row("all-gather-columns-64m", "all-gather of columns, 64 MiB", unique_mib=128, **SPMD),
    Row("gpt2-block", "GPT-2-small block forward, 2 x 1024 tokens", ahead_of=("jax",)),
    Row(  # NumPy does the products alone
        "decoder",
        "a Llama of 8 layers, 512 wide, on 8x4: prefill 128 tokens, decode one",
        ("ttkit", "numpy"),
        7,
        ahead_of=(),
        floor_ratio=1.3,
    ),
    *(  # torch has one device: that is reported and not an aim
        Row(
            f"train-{layout}",
            f"training step of a GPT, {text}",
            peers,
            5,
            ahead_of=("jax",),
            floor=False,
        )
        for layout, text, peers in (
            ("dp8", "data-parallel", ("ttkit", "jax", "torch")),
            ("tp8", "tensor-parallel", ("ttkit", "jax", "torch")),
            ("dp2tp4", "hybrid 2 x 4", ("ttkit", "jax", "torch")),
            ("zero2", "data-parallel with ZeRO 2", ("ttkit", "jax")),
            ("sp8", "tensor- and sequence-parallel", ("ttkit", "jax")),
            ("cp8", "2 x 1,024 tokens, ring attention", ("ttkit", "jax")),
            ("ep8", "8 experts, expert-parallel", ("ttkit", "jax")),
        )
    ),
    *(
        Row(
            f"small-{kind}",
            f"{kind}, a 32 x 32 shard on each device",
            repetitions=15,
            calls=300,
            floor=False,
            overhead_s=30e-6,
        )
        for kind in ("add", "matmul", "all-gather")
    ),
    *(
        Row(
            f"plan-{name}",
            f"plan: all-gather on {text}",
            ("ttkit",),
            5,
            fresh=True,
            ahead_of=(),
            floor=False,
            limit_s=limit_s,
        )
        for name, text, limit_s in (
            ("galaxy", "a Galaxy, 32 chips", 0.010),
            ("torus", "a torus of 32 chips", 0.010),
            ("32x32", "32 x 32 chips", 2.0),
            ("1x1024", "a line of 1,024 chips", None),
        )
    ),
)
