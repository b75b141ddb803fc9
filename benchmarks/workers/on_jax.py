"""JAX on 8 forced host devices.

MLP and collectives are those of peers/jax_mesh.py, which is read and run as it stands.

That file times its calls with a function `best`; here `best` hands the call to the harness instead,
so the peer decides what is done and the harness only holds the clock."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

PEERS = Path(__file__).resolve().parent.parent / "peers"
PEER = PEERS / "jax_mesh.py"
ROWS: dict[str, Callable[[Any], None]] = {}


def peer() -> dict[str, Any]:
    """The peer's names: its file up to where it reads its own command line."""
    tree = ast.parse(PEER.read_text())
    tree.body = tree.body[
        : next(i for i, node in enumerate(tree.body) if "sys.argv" in ast.unparse(node))
    ]
    names: dict[str, Any] = {"__name__": "jax_mesh", "__file__": str(PEER)}
    exec(compile(tree, str(PEER), "exec"), names)
    return names


def waited(call: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: call().block_until_ready()


def start_up(bench: Any) -> None:
    names = peer()
    import numpy as np

    jax, P, both = names["jax"], names["P"], names["BOTH"]
    x, w = (
        names["put"](np.ones((256, 32), np.float32), both, None),
        names["put"](np.ones((32, 32), np.float32), None, None),
    )
    step = names["spmd"](
        lambda x, w: jax.lax.all_gather(x @ w, both, axis=0, tiled=True),
        (P(both, None), P(None, None)),
        P(None, None),
        check_vma=False,
    )
    bench.report(value=float(np.asarray(step(x, w)).sum()))


ROWS["start-up"] = start_up


def distribute(sharded: bool) -> Callable[[Any], None]:
    def row(bench: Any) -> None:
        import data

        names = peer()
        jax, put, both = names["jax"], names["put"], names["BOTH"]
        w1, w2, x = data.mlp()
        bench.mark()
        if sharded:  # as in the peer's mlp()
            place = lambda: (put(x, None, None), put(w1, None, both), put(w2, both, None))  # noqa: E731
        else:
            place = lambda: (put(x, both, None), put(w1, None, None), put(w2, None, None))  # noqa: E731
        bench.serve(lambda: jax.block_until_ready(place()), lambda placed: placed[1][:8])

    return row


ROWS["distribute-replicate"], ROWS["distribute-shard"] = distribute(False), distribute(True)


def mlp(tensor_parallel: bool) -> Callable[[Any], None]:
    def row(bench: Any) -> None:
        names = peer()
        bench.mark()
        names["best"] = lambda call, n=5: bench.serve(waited(call), lambda y: y)
        names["mlp"](tensor_parallel)

    return row


ROWS["mlp-dp"], ROWS["mlp-tp"] = mlp(False), mlp(True)


def collective(index: int) -> Callable[[Any], None]:
    """The peer's collective of this number, counted in the order in which it times them."""

    def row(bench: Any) -> None:
        names = peer()
        bench.mark()
        seen = iter(range(9))

        def best(call: Callable[[], Any], n: int = 5) -> float:
            if next(seen) == index:
                bench.serve(waited(call), lambda y: y)
            return 0.0

        names["best"] = best
        names["collectives"]()

    return row


for _i, _size in enumerate(("4k", "256k", "64m")):
    for _j, _kind in enumerate(("all-gather", "all-reduce", "reduce-scatter")):
        ROWS[f"{_kind}-{_size}"] = collective(3 * _i + _j)


def all_gather_columns(bench: Any) -> None:
    import data

    names = peer()
    jax, P, both = names["jax"], names["P"], names["BOTH"]
    bench.mark()
    x = names["put"](data.collective("64m").reshape(1024, -1), both, None)
    call = names["spmd"](
        lambda x: jax.lax.all_gather(x, both, axis=1, tiled=True),
        P(both, None),
        P(None, None),
        check_vma=False,
    )
    bench.serve(waited(lambda: call(x)), lambda y: y)


ROWS["all-gather-columns-64m"] = all_gather_columns


def gpt2_block(bench: Any) -> None:
    """Two rows of devices take a sequence each, four columns a quarter of the heads and of the
    MLP; the formulas are those of peers/jax_gpt.py.
    """
    import data
    import numpy as np

    names = peer()
    jax, P = names["jax"], names["P"]
    jnp = jax.numpy
    bench.mark()
    x, params = data.gpt2_block()
    columns, rows, everywhere = P(None, "c"), P("c", None), P()
    specs = {
        name: columns
        if name in ("wq", "wk", "wv", "w1")
        else rows
        if name in ("wo", "w2")
        else P("c")
        if name in ("bq", "bk", "bv", "b1")
        else everywhere
        for name in params
    }
    mask = np.tril(np.ones((data.SEQUENCE, data.SEQUENCE), bool))

    def norm(x: Any, g: Any, b: Any) -> Any:
        m = x.mean(-1, keepdims=True)
        return (x - m) * jax.lax.rsqrt(
            ((x - m) ** 2).mean(-1, keepdims=True) + data.EPSILON
        ) * g + b

    def block(h: Any, k: Any) -> Any:
        a = norm(h, k["gain1"], k["shift1"])

        def split(t: Any) -> Any:
            heads = t.reshape(*t.shape[:2], data.HEADS // 4, data.WIDTH // data.HEADS)
            return heads.transpose(0, 2, 1, 3)

        q, kk, v = (split(a @ k["w" + n] + k["b" + n]) for n in "qkv")
        s = jnp.where(
            mask,
            q @ kk.swapaxes(-1, -2) / np.sqrt(data.WIDTH // data.HEADS).astype(np.float32),
            -1e9,
        )
        o = (jax.nn.softmax(s) @ v).transpose(0, 2, 1, 3).reshape(*h.shape[:2], -1)
        h = h + jax.lax.psum(o @ k["wo"], "c") + k["bo"]
        return (
            h
            + jax.lax.psum(
                jax.nn.gelu(norm(h, k["gain2"], k["shift2"]) @ k["w1"] + k["b1"]) @ k["w2"], "c"
            )
            + k["b2"]
        )

    call = names["spmd"](block, (P("r"), specs), P("r"))
    placed = {name: names["put"](value, *specs[name]) for name, value in params.items()}
    x = names["put"](x, "r")
    del params
    bench.serve(waited(lambda: call(x, placed)), lambda y: y)


ROWS["gpt2-block"] = gpt2_block


def small(kind: str) -> Callable[[Any], None]:
    def row(bench: Any) -> None:
        import data

        names = peer()
        jax, P, both = names["jax"], names["P"], names["BOTH"]
        a, b = (names["put"](v, both, None) for v in data.small())
        split, whole = P(both, None), P(None, None)
        if kind == "all-gather":
            gather = names["spmd"](
                lambda a: jax.lax.all_gather(a, both, axis=1, tiled=True),
                split,
                whole,
                check_vma=False,
            )
            bench.serve(waited(lambda: gather(a)), lambda y: y)
        call = names["spmd"](
            {"add": lambda a, b: a + b, "matmul": lambda a, b: a @ b}[kind], (split, split), split
        )
        bench.serve(waited(lambda: call(a, b)), lambda y: y)

    return row


ROWS |= {f"small-{kind}": small(kind) for kind in ("add", "matmul", "all-gather")}


def train(layout: str) -> Callable[[Any], None]:
    """A program of peers/ up to where it starts its own clock."""

    def row(bench: Any) -> None:
        import sys

        import numpy as np

        bench.mark()
        import data

        sys.path.insert(0, str(PEERS))  # they share jax_parts.py
        path = PEERS / data.TRAINED[layout].peer
        tree = ast.parse(path.read_text())
        tree.body = tree.body[
            : next(
                i
                for i, node in enumerate(tree.body)
                if ast.unparse(node).startswith(("start = time.", "report("))
            )
        ]
        sys.argv = [str(path), layout]
        names: dict[str, Any] = {"__name__": path.stem, "__file__": str(path)}
        exec(compile(tree, str(path), "exec"), names)
        state = list(names["state"])

        def step() -> Any:
            *state[:], loss = names["call"](*state, names["x"], names["y"])
            return loss.block_until_ready()

        bench.serve(step, lambda loss: np.asarray(loss).reshape(1))

    return row


TRAINED = ("dp8", "tp8", "dp2tp4", "zero2", "sp8", "cp8", "ep8")
ROWS |= {f"train-{layout}": train(layout) for layout in TRAINED}
