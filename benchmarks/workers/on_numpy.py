"""Plain NumPy on one device: the same total work once, in the fastest forms known. The floor."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

BLOCK = 1 << 17  # elements: what stays in cache through all passes over a block
ROWS: dict[str, Callable[[Any], None]] = {}


def start_up(bench: Any) -> None:
    import numpy as np

    x = np.ones((256, 32), np.float32)
    bench.report(value=float((x @ x[:32]).sum()))


ROWS["start-up"] = start_up


def gelu(x: Any) -> Any:
    """GELU by tanh, in blocks, on two threads where that pays."""
    import numpy as np

    scale = math.sqrt(2 / math.pi)
    out = np.empty_like(x)
    flat, flat_out = x.reshape(-1), out.reshape(-1)

    def run(low: int, high: int) -> None:
        scratch = np.empty(BLOCK, np.float32)
        for i in range(low, high, BLOCK):
            v, o, t = (
                flat[i : min(i + BLOCK, high)],
                flat_out[i : min(i + BLOCK, high)],
                scratch[: min(BLOCK, high - i)],
            )
            np.multiply(v, v, out=t)
            t *= np.float32(0.044715 * scale)
            t += np.float32(scale)
            t *= v
            np.tanh(t, out=t)
            t += np.float32(1)
            np.multiply(t, v, out=o)
            o *= np.float32(0.5)

    middle = flat.size // 2 // BLOCK * BLOCK
    if middle < 4 * BLOCK:
        run(0, flat.size)
    else:
        other = POOL.submit(run, 0, middle)
        run(middle, flat.size)
        other.result()
    return out


POOL = ThreadPoolExecutor(1)


def distribute(bench: Any) -> None:
    import data

    sources = data.mlp()
    bench.mark()
    bench.serve(lambda: [a.copy() for a in sources], lambda copies: copies[0][:8])


ROWS["distribute-replicate"] = ROWS["distribute-shard"] = distribute


def mlp(bench: Any) -> None:
    import data

    bench.mark()
    w1, w2, x = data.mlp()
    bench.serve(lambda: gelu(x @ w1) @ w2, lambda y: y)


ROWS["mlp-dp"] = ROWS["mlp-tp"] = mlp


def collective(kind: str, size: str) -> Callable[[Any], None]:
    def row(bench: Any) -> None:
        import data
        import numpy as np

        bench.mark()
        x = data.collective(size)
        ones = np.ones((1, 8), np.float32)
        step: Callable[[], Any]
        if kind == "all-gather-columns":
            step = lambda: np.concatenate(x.reshape(8, 128, -1), axis=1)  # noqa: E731
        else:
            step = x.copy if kind == "all-gather" else lambda: ones @ x
        bench.serve(step, lambda y: y)

    return row


ROWS |= {
    f"{kind}-{size}": collective(kind, size)
    for kind in ("all-gather", "all-reduce", "reduce-scatter")
    for size in ("4k", "256k", "64m")
}
ROWS["all-gather-columns-64m"] = collective("all-gather-columns", "64m")


def gpt2_block(bench: Any) -> None:
    import data
    import numpy as np

    bench.mark()
    x, p = data.gpt2_block()
    size, heads, rows = data.WIDTH // data.HEADS, data.HEADS, 256
    later = np.triu(np.full((rows, rows), -np.inf, np.float32), 1)
    ones = np.ones(data.FFN, np.float32)

    def norm(v: Any, gain: Any, shift: Any) -> Any:
        out = np.empty_like(v)
        for i in range(0, len(v), rows):
            o = np.subtract(
                v[i : i + rows],
                (v[i : i + rows] @ ones[: v.shape[1]] / np.float32(v.shape[1]))[:, None],
                out=out[i : i + rows],
            )
            o *= (
                1
                / np.sqrt(
                    np.einsum("ij,ij->i", o, o) / np.float32(v.shape[1]) + np.float32(data.EPSILON)
                )[:, None]
            )
            o *= gain
            o += shift
        return out

    def attention(q: Any, k: Any, v: Any) -> Any:
        """Causal attention of one head in blocks of query rows; keys that lie behind a block are
        not touched.
        """
        out = np.empty((len(q), size), np.float32)
        for i in range(0, len(q), rows):
            scores = q[i : i + rows] @ k[: i + rows].T
            scores[:, i:] += later
            scores -= scores.max(-1, keepdims=True)
            np.exp(scores, out=scores)
            np.matmul(scores, v[: i + rows], out=out[i : i + rows])
            out[i : i + rows] /= (scores @ ones[: i + rows])[:, None]
        return out

    def step() -> Any:
        h = x.reshape(-1, data.WIDTH)
        a = norm(h, p["gain1"], p["shift1"])
        q, k, v = (a @ p["w" + n] + p["b" + n] for n in "qkv")
        q *= np.float32(1 / math.sqrt(size))
        mixed = np.empty_like(h)
        for b in range(data.BATCH):
            for head in range(heads):
                part = np.s_[
                    b * data.SEQUENCE : (b + 1) * data.SEQUENCE, head * size : (head + 1) * size
                ]
                mixed[part] = attention(q[part], k[part], v[part])
        h = h + (mixed @ p["wo"] + p["bo"])
        up = norm(h, p["gain2"], p["shift2"]) @ p["w1"]
        up += p["b1"]
        return (h + (gelu(up) @ p["w2"] + p["b2"])).reshape(x.shape)

    bench.serve(step, lambda y: y)


ROWS["gpt2-block"] = gpt2_block


def decoder(bench: Any) -> None:
    """The products of a prompt and of one more token: nothing else, and no rounding."""
    import data
    import numpy as np

    d, rng = data.DECODER, np.random.default_rng(0)
    head, layers = d["width"] // d["heads"], range(d["layers"])

    def normal(*shape: int) -> Any:
        return rng.standard_normal(shape, np.float32) / np.float32(shape[-2] ** 0.5)

    bench.mark()
    shapes = {
        "qkv": (d["width"], (d["heads"] + 2 * d["kv_heads"]) * head),
        "out": (d["width"], d["width"]),
        "gate": (d["width"], d["inner"]),
        "up": (d["width"], d["inner"]),
        "down": (d["inner"], d["width"]),
    }
    w = [{name: normal(*shape) for name, shape in shapes.items()} for _ in layers]
    keys = normal(data.USERS, d["heads"], head, data.PROMPT + 1)
    x = normal(data.USERS, data.PROMPT + 1, d["width"])

    def products(x: Any, seen: int) -> Any:
        x = np.ascontiguousarray(x).reshape(-1, d["width"])
        queries = x.reshape(data.USERS, -1, d["heads"], head).swapaxes(1, 2)
        for each in w:
            x @ each["qkv"]
            scores = queries @ keys[..., :seen]
            scores @ keys[..., :seen].swapaxes(-1, -2)
            x @ each["out"]
            x @ each["gate"]
            x = (x @ each["up"]) @ each["down"]
        return x

    def step() -> Any:
        products(x[:, :-1], data.PROMPT)
        return products(x[:, -1:], data.PROMPT + 1)

    bench.serve(step)


ROWS["decoder"] = decoder


def small(kind: str) -> Callable[[Any], None]:
    def row(bench: Any) -> None:
        import data
        import numpy as np

        a, b = (v.reshape(8, 32, 32) for v in data.small())
        step = {
            "add": lambda: np.add(a, b),
            "matmul": lambda: np.matmul(a, b),
            "all-gather": lambda: a.transpose(1, 0, 2).reshape(32, 256),
        }[kind]
        bench.serve(step, lambda y: y if kind == "all-gather" else y.reshape(256, 32))

    return row


ROWS |= {f"small-{kind}": small(kind) for kind in ("add", "matmul", "all-gather")}
