"""The names of ttml that the Python programs of tt-train import. `ttkit.train` implements them.

ttml's own Python modules, such as `ttml.common`, are imported from the sources of tt-train, if
these are on `sys.path` or below TT_METAL_HOME. docs/ttnn.md lists the names that are not here.

Example:
    >>> from ttkit import ttml
    >>> ttml.autograd.AutoContext.get_instance().get_seed()
    5489
"""

import os
import sys
from collections.abc import Iterator
from types import ModuleType

from ttkit.lazy import attach

# Each line has a module of ttml, the module of ttkit.train that implements it, and the names. The
# module `bindings` implements names whose form in ttml differs from that in ttkit.train.
_NAMES = """
autograd                  autograd                 Tensor
autograd                  context                  AutoContext DistributedConfig GradMode
autograd                  context                  ParallelismContext
autograd                  bindings                 DataType
core                      bindings                 clip_grad_norm empty_like ones_like zeros_like
core.distributed          context                  DistributedContext SocketManager SocketType
core.distributed          bindings                 concat_mesh_to_tensor_composer enable_fabric
core.distributed          bindings                 shard_tensor_to_mesh_mapper synchronize_gradients
core.distributed          bindings                 synchronize_parameters
core.utils                bindings                 MemoryUsageTracker
models                    bindings                 RunnerType WeightTyingType
models.distributed        bindings                 RunnerType
models.distributed.gpt2   sharded_models           create_gpt2_model
models.distributed.llama  sharded_models           create_llama_model
models.gpt2               bindings                 GPT2TransformerConfig create_gpt2_model
models.linear_regression  bindings                 create_linear_regression_model
models.llama              bindings                 LlamaConfig create_llama_model
modules                   model.modules            ColumnParallelLinear Dropout LayerNorm Parameter
modules                   model.modules            RMSNorm RowParallelLinear
modules                   bindings                 LinearLayer ModuleBase
ops                       bindings                 ReduceType
ops.attention             autograd.ops             scaled_dot_product_attention
ops.binary                bindings                 add mul sub
ops.distributed           parallel.distributed     GradOutputType all_gather all_reduce broadcast
ops.distributed           parallel.distributed     reduce_scatter scatter
ops.distributed           parallel.ring_attention  ring_attention_sdpa
ops.layernorm             autograd.ops             layernorm
ops.linear                autograd.ops             linear
ops.loss                  bindings                 cross_entropy_loss
ops.loss                  autograd.ops             mse_loss
ops.multi_head_utils      autograd.ops             heads_creation heads_fusion
ops.rmsnorm               autograd.ops             rmsnorm
ops.unary                 autograd.ops             gelu mean relu silu
optimizers                run.optimizers           AdamW AdamWConfig SGD SGDConfig
optimizers                run.hierarchy            RemoteOptimizer
optimizers                bindings                 MorehAdamW OptimizerBase
"""


class _Sources:
    """The folders that may hold a module of ttml in tt-train's sources. Each use reads `sys.path`
    again, so that later changes of `sys.path` count.
    """

    def __init__(self, module: str):
        self.below = os.path.join("ttml", *module.split("."))

    def __iter__(self) -> Iterator[str]:
        home = os.path.join(os.environ.get("TT_METAL_HOME", ""), "tt-train/sources/ttml")
        return (os.path.join(path, self.below) for path in (*sys.path, home))


_tables = {"": "bindings Layout"}
for _line in _NAMES.strip().splitlines():
    _space, _held = _line.split(maxsplit=1)
    _tables[_space] = f"{_tables.get(_space, '')}\n{_held}"
for _space, _table in _tables.items():
    _full = f"{__name__}.{_space}".rstrip(".")
    _made = sys.modules.setdefault(_full, ModuleType(_full))
    _load, _dir, _all = attach(_full, _table, parent="ttkit.train")
    vars(_made).update(__getattr__=_load, __dir__=_dir, __all__=_all, __path__=_Sources(_space))
    if _space:
        _outer, _, _last = _full.rpartition(".")
        setattr(sys.modules[_outer], _last, _made)
