"""Training on meshes, with ttml's names: autograd, parallelism, models, data, checkpoints, the
loop.

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

# What is loaded when it is first asked for: module -> the names that it holds.
_NAMES = {
    "autograd": "Tensor no_grad",
    "axes": "parallel_axes",
    "checkpoint": "DamagedCheckpoint check_matches",
    "config": "Settings",
    "config_files": "read_settings",
    "context": "AutoContext DistributedConfig ParallelismContext",
    "corpus": "builtin_corpus read_text standard_library_text",
    "data": "Batches TokenDataset",
    "distributed": "synchronize_gradients",
    "generation": "Sampler Traced generate",
    "hierarchy": "Aggregator HierarchicalTrainer RemoteOptimizer role_of",
    "models": "GPT Llama create_model",
    "optimizers": "AdamW AdamWConfig SGD SGDConfig clip_grad_norm",
    "pipeline": "PipelineTrainer",
    "plan": "training_plan",
    "tokenizers": "BPETokenizer ByteTokenizer CharTokenizer Tokenizer make_tokenizer "
    "tokenizer_from_dict",
    "trainer": "Trainer",
}
__getattr__, __dir__, __all__ = attach(__name__, _NAMES)
