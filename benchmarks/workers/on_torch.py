"""torch with 8 ranks in one process (LocalTensorMode, DTensor); the GPT-2 block on one device,
as peers/torch_gpt.py has it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

import numpy as np

ROWS: dict[str, Callable[[Any], None]] = {}


def ranks(count: int = 8) -> tuple[Any, Any, Any]:
    """torch, its tensor-placement module and a mesh of 8 local ranks; the mode stays on."""
    import warnings

    warnings.filterwarnings("ignore")
    import torch
    import torch.distributed as dist
    from torch.distributed._local_tensor import LocalTensorMode
    from torch.distributed.device_mesh import init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    torch.set_grad_enabled(False)
    dist.init_process_group("fake", rank=0, world_size=count, store=FakeStore())
    LocalTensorMode(count).__enter__()
    import torch.distributed.tensor as placing

    return torch, placing, init_device_mesh("cpu", (count,))


def first_rank(dtensor: Any) -> Any:
    """What rank 0 holds, as a NumPy array."""
    local = dtensor.to_local()
    return getattr(local, "_local_tensors", {0: local})[0].numpy()


def whole(dtensor: Any) -> Any:
    """A tensor that is split or replicated, put together."""
    return first_rank(
        dtensor.full_tensor()
        if not hasattr(dtensor, "redistribute")
        else dtensor.redistribute(dtensor.device_mesh, [replicated()])
    )


def replicated() -> Any:
    from torch.distributed.tensor import Replicate

    return Replicate()


def start_up(bench: Any) -> None:
    torch, placing, mesh = ranks()
    x = placing.distribute_tensor(torch.ones(256, 32), mesh, [placing.Shard(0)])
    w = placing.distribute_tensor(torch.ones(32, 32), mesh, [placing.Replicate()])
    bench.report(value=float(whole(x @ w).sum()))


ROWS["start-up"] = start_up


def distribute(sharded: bool) -> Callable[[Any], None]:
    def row(bench: Any) -> None:
        import data

        torch, placing, mesh = ranks()
        w1, w2, x = (torch.from_numpy(a) for a in data.mlp())
        S, R = placing.Shard, placing.Replicate()
        bench.mark()
        put = lambda a, p: placing.distribute_tensor(a, mesh, [p])  # noqa: E731
        if sharded:
            bench.serve(
                lambda: (put(x, R), put(w1, S(1)), put(w2, S(0))), lambda t: whole(t[1])[:8]
            )
        # clone(): a replicated tensor would be the caller's own memory.
        bench.serve(
            lambda: (put(x, S(0)), put(w1.clone(), R), put(w2.clone(), R)),
            lambda t: whole(t[1])[:8],
        )

    return row


ROWS["distribute-replicate"], ROWS["distribute-shard"] = distribute(False), distribute(True)


def mlp(tensor_parallel: bool) -> Callable[[Any], None]:
    def row(bench: Any) -> None:
        import data

        torch, placing, mesh = ranks()
        S, R = placing.Shard, placing.Replicate()
        gelu = torch.nn.functional.gelu
        bench.mark()
        w1, w2, x = (torch.from_numpy(a) for a in data.mlp())
        if tensor_parallel:
            x, w1, w2 = (
                placing.distribute_tensor(a, mesh, [p]) for a, p in ((x, R), (w1, S(1)), (w2, S(0)))
            )
            bench.serve(
                lambda: (gelu(x @ w1, approximate="tanh") @ w2).redistribute(mesh, [R]), whole
            )
        x, w1, w2 = (
            placing.distribute_tensor(a, mesh, [p]) for a, p in ((x, S(0)), (w1, R), (w2, R))
        )
        bench.serve(lambda: gelu(x @ w1, approximate="tanh") @ w2, whole)

    return row


ROWS["mlp-dp"], ROWS["mlp-tp"] = mlp(False), mlp(True)


def collective(kind: str, size: str) -> Callable[[Any], None]:
    def row(bench: Any) -> None:
        import data

        torch, placing, mesh = ranks()
        bench.mark()
        x = torch.from_numpy(data.collective(size))
        if kind == "all-gather-columns":
            split = placing.distribute_tensor(x.reshape(1024, -1), mesh, [placing.Shard(0)])
            x = placing.DTensor.from_local(
                split.to_local(), mesh, [placing.Shard(1)], run_check=False
            )
        else:
            x = placing.distribute_tensor(x, mesh, [placing.Shard(0)])
            if kind != "all-gather":
                x = placing.DTensor.from_local(
                    x.to_local(), mesh, [placing.Partial()], run_check=False
                )
        target = [placing.Shard(1) if kind == "reduce-scatter" else placing.Replicate()]

        def step() -> Any:
            moved = x.redistribute(mesh, target)
            local = moved.to_local()  # waits for the collective
            return (
                moved
                if not hasattr(local, "wait")
                else placing.DTensor.from_local(local.wait(), mesh, target, run_check=False)
            )

        bench.serve(step, whole)

    return row


ROWS |= {
    f"{kind}-{size}": collective(kind, size)
    for kind in ("all-gather", "all-reduce", "reduce-scatter")
    for size in ("4k", "256k", "64m")
}
ROWS["all-gather-columns-64m"] = collective("all-gather-columns", "64m")


def gpt2_block(bench: Any) -> None:
    import data
    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    torch.set_grad_enabled(False)
    F = torch.nn.functional
    bench.mark()
    source, params = data.gpt2_block()
    x, p = (
        torch.from_numpy(source),
        {name: torch.from_numpy(value) for name, value in params.items()},
    )
    size = data.WIDTH // data.HEADS

    def step() -> Any:
        a = F.layer_norm(x, (data.WIDTH,), p["gain1"], p["shift1"], data.EPSILON)
        q, k, v = (
            (a @ p["w" + n] + p["b" + n]).view(*a.shape[:2], data.HEADS, size).transpose(1, 2)
            for n in "qkv"
        )
        o = (
            F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=1 / math.sqrt(size))
            .transpose(1, 2)
            .reshape(x.shape)
        )
        h = x + (o @ p["wo"] + p["bo"])
        a = F.layer_norm(h, (data.WIDTH,), p["gain2"], p["shift2"], data.EPSILON)
        return h + (F.gelu(a @ p["w1"] + p["b1"], approximate="tanh") @ p["w2"] + p["b2"])

    bench.serve(step, lambda y: y.numpy())


ROWS["gpt2-block"] = gpt2_block


def train(bench: Any) -> None:
    """peers/torch_gpt.py up to its loop, with the weights that the others have: one device."""
    import ast
    from pathlib import Path

    import data

    bench.mark()
    path = Path(__file__).resolve().parent.parent / "peers" / "torch_gpt.py"
    tree = ast.parse(path.read_text())
    tree.body = tree.body[
        : next(i for i, node in enumerate(tree.body) if ast.unparse(node).startswith("for "))
    ]
    names: dict[str, Any] = {"__name__": "torch_gpt", "__file__": str(path)}
    exec(compile(tree, str(path), "exec"), names)
    torch, model, optimizer = names["torch"], names["model"], names["optimizer"]
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    weights, x, y = data.trained(data.TRAINED["dp8"])
    theirs = {
        "emb.weight": weights["vocabulary.table"],
        "pos": weights["position"],
        "head.weight": weights["vocabulary.head"].T,
    }
    for i in range(data.GPT["blocks"]):
        ours = lambda name, block=f"blocks.{i}": weights[f"{block}.{name}.weight"].T  # noqa: E731
        theirs |= {
            f"blocks.{i}.{name}.weight": ours(at)
            for name, at in (("out", "attention.out"), ("up", "up"), ("down", "down"))
        }
        theirs[f"blocks.{i}.qkv.weight"] = np.concatenate(
            [ours(f"attention.{name}") for name in ("query", "key", "value")]
        )
    model.load_state_dict(
        {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in theirs.items()},
        strict=False,
    )
    x, y = torch.from_numpy(x), torch.from_numpy(y).view(-1)

    def step() -> Any:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x).view(-1, data.GPT["vocabulary"]), y)
        loss.backward()
        optimizer.step()
        return loss

    bench.serve(step, lambda loss: loss.detach().numpy().reshape(1))


ROWS |= {f"train-{layout}": train for layout in ("dp8", "tp8", "dp2tp4")}


def small(kind: str) -> Callable[[Any], None]:
    def row(bench: Any) -> None:
        import data

        torch, placing, mesh = ranks()
        a, b = (
            placing.distribute_tensor(torch.from_numpy(v), mesh, [placing.Shard(0)])
            for v in data.small()
        )
        a, b = a.to_local(), b.to_local()
        if kind == "all-gather":
            split = placing.DTensor.from_local(a, mesh, [placing.Shard(1)], run_check=False)
            bench.serve(lambda: split.redistribute(mesh, [placing.Replicate()]), whole)
        operation = {"add": torch.add, "matmul": torch.matmul}[kind]
        bench.serve(
            lambda: operation(a, b),
            lambda y: whole(
                placing.DTensor.from_local(y, mesh, [placing.Shard(0)], run_check=False)
            ),
        )

    return row


ROWS |= {f"small-{kind}": small(kind) for kind in ("add", "matmul", "all-gather")}
