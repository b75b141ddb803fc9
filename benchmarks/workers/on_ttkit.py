"""ttkit's simulator: ttnn calls as a user writes them, on a 2x4 mesh; collectives over all 8
devices on a 1x8 mesh.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

ROWS: dict[str, Callable[[Any], None]] = {}


def start_up(bench: Any) -> None:
    import numpy as np

    import ttkit
    from ttkit import ttnn

    mesh = opened(ttnn)
    x = ttkit.from_numpy(
        np.ones((256, 32), np.float32),
        device=mesh,
        layout=ttnn.TILE_LAYOUT,
        mesh_mapper=ttnn.ShardTensorToMesh(mesh, 0),
    )
    w = ttkit.from_numpy(
        np.ones((32, 32), np.float32),
        device=mesh,
        layout=ttnn.TILE_LAYOUT,
        mesh_mapper=ttnn.ReplicateTensorToMesh(mesh),
    )
    y = ttnn.all_gather(ttnn.all_gather(ttnn.matmul(x, w), 0, cluster_axis=1), 0, cluster_axis=0)
    bench.report(value=float(ttkit.to_numpy(ttnn.get_device_tensors(y)[0]).sum()))


def open_galaxy(bench: Any) -> None:
    """The first mesh of a process, so nothing is in a cache."""
    import ttkit
    from ttkit import ttnn

    began = time.perf_counter()
    ttkit.use_system("galaxy")
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(8, 4))
    taken = time.perf_counter() - began
    bench.report(seconds=taken, value=mesh.get_num_devices())


def gib_on_32(bench: Any) -> None:
    import numpy as np
    from data import GIB_SHAPE
    from worker import reset_peak, status_mib

    import ttkit
    from ttkit import ttnn

    ttkit.use_system("galaxy")
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(8, 4))
    source = np.ones(GIB_SHAPE, np.float32)
    fair, before = reset_peak(), status_mib("VmRSS")
    began = time.perf_counter()
    tensor = ttkit.from_numpy(
        source, device=mesh, layout=ttnn.TILE_LAYOUT, mesh_mapper=ttnn.ReplicateTensorToMesh(mesh)
    )
    taken, top = time.perf_counter() - began, status_mib("VmHWM")
    source[0, 0] = 2  # the tensor owns its data
    value = float(ttkit.to_numpy(ttnn.get_device_tensors(tensor)[31])[0, 0])
    bench.report(
        seconds=taken,
        value=value,
        added_mib=top - before if fair and top is not None and before is not None else None,
    )


ROWS |= {"start-up": start_up, "open-galaxy": open_galaxy, "replicate-1gib": gib_on_32}


def opened(ttnn: Any, rows: int = 2, columns: int = 4) -> Any:
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    return ttnn.open_mesh_device(ttnn.MeshShape(rows, columns))


def placer(ttnn: Any, mesh: Any) -> Callable[..., Any]:
    """put(array, dim): split along dim over all devices, in tiles; without dim, replicated."""
    import ttkit

    def put(array: Any, dim: int | None = None, layout: Any = ttnn.TILE_LAYOUT) -> Any:
        mapper = (
            ttnn.ReplicateTensorToMesh(mesh) if dim is None else ttnn.ShardTensorToMesh(mesh, dim)
        )
        return ttkit.from_numpy(array, device=mesh, layout=layout, mesh_mapper=mapper)

    return put


def joined(ttnn: Any, mesh: Any, dim: int) -> Callable[[Any], Any]:
    import ttkit

    return lambda tensor: ttkit.to_numpy(tensor, mesh_composer=ttnn.ConcatMeshToTensor(mesh, dim))


def one_device(ttnn: Any) -> Callable[[Any], Any]:
    import ttkit

    return lambda tensor: ttkit.to_numpy(ttnn.get_device_tensors(tensor)[0])


def distribute(sharded: bool) -> Callable[[Any], None]:
    def row(bench: Any) -> None:
        import data

        from ttkit import ttnn

        mesh = opened(ttnn)
        put = placer(ttnn, mesh)
        w1, w2, x = data.mlp()
        bench.mark()

        def step() -> Any:
            placed = (put(x), put(w1, 1), put(w2, 0)) if sharded else (put(x, 0), put(w1), put(w2))
            ttnn.synchronize_device(mesh)
            return placed

        bench.serve(
            step,
            lambda placed: (joined(ttnn, mesh, 1) if sharded else one_device(ttnn))(placed[1])[:8],
        )

    return row


ROWS["distribute-replicate"], ROWS["distribute-shard"] = distribute(False), distribute(True)


def mlp(tensor_parallel: bool) -> Callable[[Any], None]:
    def row(bench: Any) -> None:
        import data

        from ttkit import ttnn

        mesh = opened(ttnn)
        put = placer(ttnn, mesh)
        tanh = ttnn.GeluVariant.Tanh
        bench.mark()
        w1, w2, x = data.mlp()
        x, w1 = (put(x), put(w1, 1)) if tensor_parallel else (put(x, 0), put(w1))
        w2 = put(w2, 0) if tensor_parallel else put(w2)

        def step() -> Any:
            y = ttnn.linear(ttnn.gelu(ttnn.linear(x, w1), variant=tanh), w2)
            if tensor_parallel:
                y = ttnn.all_reduce(y)
            ttnn.synchronize_device(mesh)
            return y

        bench.serve(step, one_device(ttnn) if tensor_parallel else joined(ttnn, mesh, 0))

    return row


ROWS["mlp-dp"], ROWS["mlp-tp"] = mlp(False), mlp(True)


def collective(kind: str, size: str) -> Callable[[Any], None]:
    def row(bench: Any) -> None:
        import data

        from ttkit import ttnn

        mesh = opened(ttnn, 1, 8)
        put = placer(ttnn, mesh)
        bench.mark()
        if kind == "all-gather-columns":
            x = put(data.collective(size).reshape(1024, -1), 0)
        else:
            x = put(data.collective(size), 0, ttnn.ROW_MAJOR_LAYOUT)
        call = {
            "all-gather": lambda: ttnn.all_gather(x, 0, cluster_axis=1),
            "all-gather-columns": lambda: ttnn.all_gather(x, 1, cluster_axis=1),
            "all-reduce": lambda: ttnn.all_reduce(x, cluster_axis=1),
            "reduce-scatter": lambda: ttnn.reduce_scatter(x, 1, cluster_axis=1),
        }[kind]

        def step() -> Any:
            y = call()
            ttnn.synchronize_device(mesh)
            return y

        bench.serve(step, joined(ttnn, mesh, 1) if kind == "reduce-scatter" else one_device(ttnn))

    return row


ROWS |= {
    f"{kind}-{size}": collective(kind, size)
    for kind in ("all-gather", "all-reduce", "reduce-scatter")
    for size in ("4k", "256k", "64m")
}
ROWS["all-gather-columns-64m"] = collective("all-gather-columns", "64m")


def gpt2_block(bench: Any) -> None:
    """The two rows of the mesh take a sequence each, its four columns a quarter of the heads and
    of the MLP each.
    """
    import data

    import ttkit
    from ttkit import ttnn

    mesh = opened(ttnn)
    bench.mark()
    shard, replicate = ttnn.PlacementShard, ttnn.PlacementReplicate()

    def put(array: Any, *placements: Any) -> Any:
        mapper = ttnn.create_mesh_mapper(mesh, ttnn.MeshMapperConfig(list(placements)))
        return ttkit.from_numpy(array, device=mesh, layout=ttnn.TILE_LAYOUT, mesh_mapper=mapper)

    x, params = data.gpt2_block()
    x = put(x[:, None], shard(0), replicate)  # [1, 1, SEQUENCE, WIDTH] on a device
    p = {}
    for name, value in params.items():
        value = value[None] if value.ndim == 1 else value
        split = (
            shard(1)
            if name in ("wq", "wk", "wv", "bq", "bk", "bv", "w1", "b1")
            else shard(0)
            if name in ("wo", "w2")
            else replicate
        )
        p[name] = put(value, replicate, split)
    del params
    heads, size = data.HEADS // 4, data.WIDTH // data.HEADS
    tanh = ttnn.GeluVariant.Tanh

    def split_heads(t: Any) -> Any:
        return ttnn.permute(ttnn.reshape(t, (1, data.SEQUENCE, heads, size)), (0, 2, 1, 3))

    def step() -> Any:
        a = ttnn.layer_norm(x, epsilon=data.EPSILON, weight=p["gain1"], bias=p["shift1"])
        q, k, v = (split_heads(ttnn.linear(a, p["w" + n], bias=p["b" + n])) for n in "qkv")
        o = ttnn.transformer.scaled_dot_product_attention(q, k, v, is_causal=True)
        o = ttnn.reshape(ttnn.permute(o, (0, 2, 1, 3)), (1, 1, data.SEQUENCE, heads * size))
        h = ttnn.add(x, ttnn.add(ttnn.all_reduce(ttnn.linear(o, p["wo"]), cluster_axis=1), p["bo"]))
        a = ttnn.layer_norm(h, epsilon=data.EPSILON, weight=p["gain2"], bias=p["shift2"])
        up = ttnn.gelu(ttnn.linear(a, p["w1"], bias=p["b1"]), variant=tanh)
        y = ttnn.add(
            h, ttnn.add(ttnn.all_reduce(ttnn.linear(up, p["w2"]), cluster_axis=1), p["b2"])
        )
        ttnn.synchronize_device(mesh)
        return y

    def read(y: Any) -> Any:
        both = ttkit.to_numpy(
            y, mesh_composer=ttnn.create_mesh_composer(mesh, ttnn.MeshComposerConfig([0, 1]))
        )
        return both[:, 0]

    bench.serve(step, read)


ROWS["gpt2-block"] = gpt2_block


def decoder(bench: Any) -> None:
    """The program of examples/decoders/llama.py, in bfloat16: groups of eight chips."""
    import pathlib
    import sys

    import data
    import numpy as np

    import ttkit
    from ttkit import ttnn

    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples" / "decoders"))
    import llama

    size = llama.Size(**data.DECODER)
    ttkit.use_system("galaxy")
    mesh = opened(ttnn, 8, 4)
    bench.mark()
    model = llama.Decoder(mesh, llama.random_weights(size), size, users=1, axis=0)
    x = np.random.default_rng(1).standard_normal(
        (data.USERS, data.PROMPT + 1, size.width), np.float32
    )

    def step() -> Any:
        model.prefill(x[:, :-1], 0)
        return model.decode(x[:, -1:], data.PROMPT)

    bench.serve(step)


ROWS["decoder"] = decoder


def train(layout: str) -> Callable[[Any], None]:
    def row(bench: Any) -> None:
        import data
        import numpy as np

        from ttkit import ttnn
        from ttkit.backend import to_numpy
        from ttkit.train import AdamW, AdamWConfig, create_model
        from ttkit.train.config.layout import Layout
        from ttkit.train.config.settings import TransformerConfig
        from ttkit.train.parallel.data_parallel import average_gradients

        row = data.TRAINED[layout]
        gpt, mesh = row.model, opened(ttnn, *row.shape)
        bench.mark()
        lies = Layout(axes=tuple(row.axes.items()), **row.shares).on(mesh)
        shape = {
            "num_heads": gpt["heads"],
            "embedding_dim": gpt["width"],
            "num_blocks": gpt["blocks"],
            "vocab_size": gpt["vocabulary"],
            "num_experts": row.experts,
        }
        model = create_model(
            TransformerConfig(
                **shape, max_sequence_length=gpt["sequence"], dropout_prob=0, bias=False
            ),
            lies,
        )
        parameters = model.parameters()
        weights, x, y = data.trained(row)
        model.init_weights(0)  # the norms, which start at one and zero
        # a linear layer's weight is [out, in] here, a table's is [rows, width]
        for name, array in weights.items():
            parameters[name].place(
                np.ascontiguousarray(
                    array if name in ("vocabulary.table", "position") else array.swapaxes(-1, -2)
                ).reshape(parameters[name].global_shape)
            )
        optimizer = AdamW(parameters, AdamWConfig.make(3e-4, weight_decay=0.0))
        x, y = (lies.tokens(ids[:, None, None]) for ids in (x, y))

        def step() -> Any:
            optimizer.zero_grad()
            loss = model.loss(model(x), y)
            loss.backward()
            average_gradients(parameters)
            optimizer.step()
            ttnn.synchronize_device(mesh)
            return loss

        bench.serve(
            step,
            lambda loss: np.mean(
                [to_numpy(t).ravel() for t in ttnn.get_device_tensors(loss.get_value())], axis=0
            ),
        )

    return row


TRAINED = ("dp8", "tp8", "dp2tp4", "zero2", "sp8", "cp8", "ep8")
ROWS |= {f"train-{layout}": train(layout) for layout in TRAINED}


def small(kind: str) -> Callable[[Any], None]:
    def row(bench: Any) -> None:
        import data

        from ttkit import ttnn

        mesh = opened(ttnn, 1, 8)
        put = placer(ttnn, mesh)
        a, b = (put(v, 0) for v in data.small())
        step = {
            "add": lambda: ttnn.add(a, b),
            "matmul": lambda: ttnn.matmul(a, b),
            "all-gather": lambda: ttnn.all_gather(a, 1, cluster_axis=1),
        }[kind]
        bench.serve(step, one_device(ttnn) if kind == "all-gather" else joined(ttnn, mesh, 0))

    return row


ROWS |= {f"small-{kind}": small(kind) for kind in ("add", "matmul", "all-gather")}


def plan(system: str) -> Callable[[Any], None]:
    """The first plan of a process, so nothing is in a cache: topology, transfers, and the check
    that they do an all-gather.
    """

    def row(bench: Any) -> None:
        from ttkit.hardware import SYSTEMS, System
        from ttkit.plans import all_gather, topology

        if system in SYSTEMS:
            asked = SYSTEMS[system]
        else:
            rows, columns = (int(n) for n in system.split("x"))
            ids = tuple(tuple(range(r * columns, (r + 1) * columns)) for r in range(rows))
            asked = System(system, SYSTEMS["galaxy"].chip, ids, links_per_pair=4)
        began = time.perf_counter()
        built = all_gather(topology(asked), 4096)
        built.validate()
        bench.report(seconds=time.perf_counter() - began, value=sum(map(len, built.steps)))

    return row


ROWS |= {
    f"plan-{name}": plan(system)
    for name, system in (
        ("galaxy", "galaxy"),
        ("torus", "galaxy_torus"),
        ("32x32", "32x32"),
        ("1x1024", "1x1024"),
    )
}
