"""Models whose layers are sharded over the chips of a tensor-parallel axis
(ttml.models.distributed)."""

from ttkit.errors import fail
from ttkit.train import bindings
from ttkit.train.model.modules import sharded_layout


def create_gpt2_model(config: bindings.GPT2TransformerConfig) -> bindings.Model:
    """Return a sharded model whose initial values are the same as on one chip.

    Raises:
        TTKitError: the parallelism context has no tensor parallelism; or there is no such context,
            and the mesh is not a line.
    """
    layout = sharded_layout()
    if layout.tp_axis is None:
        fail(
            f"ttml.models.distributed.{config.model_type}",
            "tensor parallelism is off, so each chip would have a whole model",
            f"DistributedConfig(enable_tp=True), or ttml.models.{config.model_type}",
        )
    return bindings.Model(config, layout)


create_llama_model = create_gpt2_model
