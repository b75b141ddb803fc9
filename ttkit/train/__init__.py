"""Training on meshes, with ttml's names.

Read it in this order: `config` (settings, and the layout over a mesh), `context` (the open mesh),
`autograd` (gradients), `parallel.distributed` (collectives with gradients), `model` (layers),
`run.optimizers`, `run.data` and `run.tokenizers`, then `run.trainer`: one step from top to bottom.
`run.pipeline` and `run.hierarchy` train on several ranks.

Example:
    >>> from ttkit.train import AutoContext, DistributedConfig
    >>> context = AutoContext.get_instance()
    >>> context.open_device([1, 4])
    >>> context.initialize_parallelism_context(DistributedConfig(enable_tp=True))
    >>> context.get_parallelism_context().get_tp_size()
    4
    >>> context.close_device()
"""

from ttkit.lazy import attach

# Each line has a module and names that the module defines. A name is imported on first use. If a
# line has no names, the last part of the module's name is the name.
_NAMES = """
config
autograd.ops
model.experts
model.modules
autograd              Tensor no_grad
config.settings       Settings parallel_axes
config.files          read_settings
context               AutoContext DistributedConfig ParallelismContext
run.data              Batches TokenDataset builtin_corpus
parallel.distributed  synchronize_gradients
run.generation        Sampler generate
run.hierarchy         Aggregator HierarchicalTrainer RemoteOptimizer announce_role
model.models          Transformer create_model
run.optimizers        AdamW AdamWConfig SGD SGDConfig clip_grad_norm
config.layout         Layout
run.pipeline          PipelineTrainer
plan                  training_plan
run.tokenizers        BPETokenizer ByteTokenizer CharTokenizer Tokenizer make_tokenizer
run.tokenizers        tokenizer_from_dict
run.trainer           Trainer
"""
__getattr__, __dir__, __all__ = attach(__name__, _NAMES)
