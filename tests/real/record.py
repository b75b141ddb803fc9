"""Run each lesson, and a training step of each form, on the simulator and write down the ttnn
calls, and the namespace: `record.py FILE`.
"""

import contextlib
import io
import itertools
import json
import os
import pathlib
import sys

os.environ["TTKIT_BACKEND"] = "sim"
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

from tape import tape  # noqa: E402  the settings above come first

# Cells that start ranks (tests/real/engines.py has those) or train hundreds of alike steps (one of
# each form is below) are left out, and cells that need what those have made.
LEFT_OUT = ("%%px", "Cluster(", "Trainer(")


def lesson(path: pathlib.Path) -> list[dict]:
    """The calls of one lesson."""

    cells = [c for c in json.loads(path.read_text())["cells"] if c["cell_type"] == "code"]
    names: dict = {"__name__": "__lesson__"}
    os.chdir(path.parent)  # as Jupyter does; a lesson may go elsewhere
    with tape() as calls, contextlib.redirect_stdout(io.StringIO()):
        for cell in cells:
            source = "".join(cell["source"])
            if any(word in source for word in LEFT_OUT):
                continue
            with contextlib.suppress(Exception):  # meant, or it needs what was left out
                exec(compile(source, f"{path.name}", "exec"), names)
    from ttkit.sim.mesh import opened_meshes
    from ttkit.train import AutoContext

    AutoContext.get_instance().close_device()  # what the lesson would have closed further on
    for mesh in list(opened_meshes):
        mesh.close()
    return list(calls)


# replicas, and devices that share the weights
SEQUENCE = {"sequence_parallel": True}
FORMS: dict[str, tuple] = {  # the mesh, the strategies' axes, what is shared beside
    "data parallel 8": ((8, 1), {"dp": 0}, {}),
    "tensor parallel 8": ((1, 8), {"tp": 1}, {}),
    "data 2 x tensor 4": ((2, 4), {"dp": 0, "tp": 1}, {}),
    "ZeRO 1": ((2, 4), {"dp": 0, "tp": 1}, {"zero": 1}),
    "ZeRO 2": ((8, 1), {"dp": 0}, {"zero": 2}),
    "ZeRO 3, sequence parallel": ((2, 4), {"dp": 0, "tp": 1}, {"zero": 3} | SEQUENCE),
    "ring attention": ((1, 8), {"cp": 1}, {}),
    "ring attention x tensor": ((2, 4), {"cp": 0, "tp": 1}, {}),
    "experts": ((2, 4), {"dp": 0, "tp": 1}, {"ep": 2}),
}


def training(kind: str, dtype: str, form: str) -> list[dict]:
    """The calls of one training step (forward, backward, averaging, clipping, AdamW), and of one
    generated token; lengths that fill no tile.
    """
    import numpy as np

    import ttkit
    from ttkit import ttnn
    from ttkit.train.config.layout import Layout
    from ttkit.train.config.settings import TransformerConfig
    from ttkit.train.model.models import create_model
    from ttkit.train.parallel.data_parallel import average_gradients
    from ttkit.train.run.generation import Sampler
    from ttkit.train.run.optimizers import AdamW, AdamWConfig, clip_grad_norm

    (shape, axes, shares), narrow = FORMS[form], dtype == "bfloat16"
    length = 1024 if "cp" in axes else 32 if shares else 20  # 20 fills no tile
    config = TransformerConfig(
        kind, num_heads=8, num_groups=8, embedding_dim=256 if shares else 64, num_blocks=1,
        vocab_size=97, max_sequence_length=max(40, length), dropout_prob=0.1, weight_tying=narrow,
        num_experts=4 if "ep" in shares else 0,
    )  # fmt: skip
    ttkit.use_system("t3000")  # the mock's machine; the last lesson may have chosen another
    ttkit.strict()
    with tape() as calls:
        fabric = ttnn.FabricConfig.FABRIC_2D if "cp" in axes else ttnn.FabricConfig.FABRIC_1D
        ttnn.set_fabric_config(fabric)
        with ttnn.open_mesh_device(ttnn.MeshShape(*shape)) as mesh:
            layout = Layout(precision=dtype, axes=tuple(axes.items()), **shares).on(mesh)
            model = create_model(config, layout)
            model.init_weights(0)
            parameters = model.parameters()
            optimizer = AdamW(parameters, AdamWConfig.make(1e-3, master_weights=narrow))
            tokens = layout.tokens(np.zeros((2 * layout.dp, 1, 1, length), int))
            model.loss(model(tokens), tokens).backward()
            average_gradients(parameters)
            clip_grad_norm(parameters, 0.01)
            optimizer.step()
            if not shares and "cp" not in axes:
                model.eval()
                Sampler(model, layout.dp).feed(3, [1] * layout.dp)
    ttkit.strict(False)
    return list(calls)


def namespace() -> dict[str, list[str]]:
    """Public names of the simulated ttnn and of its inner namespaces."""
    from ttkit.sim import ttnn

    def public(space) -> list[str]:
        return sorted(name for name in vars(space) if not name.startswith("_"))

    inside = ("transformer", "experimental", "kv_cache", "model_preprocessing")
    return {"": public(ttnn), **{name: public(getattr(ttnn, name)) for name in inside}}


def main() -> None:
    tapes = {path.stem: lesson(path) for path in sorted((ROOT / "notebooks").glob("*.ipynb"))}
    for kind, dtype, form in itertools.product(("gpt2", "llama"), ("float32", "bfloat16"), FORMS):
        tapes[f"training step, {kind}, {dtype}, {form}"] = training(kind, dtype, form)
    pathlib.Path(sys.argv[1]).write_text(json.dumps({"namespace": namespace(), "tapes": tapes}))


if __name__ == "__main__":
    main()
