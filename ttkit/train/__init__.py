"""Training on meshes, with ttml's names.

The order to read it: `config` (settings), `parallel` and `context` (which mesh axis does what),
`autograd`, `ops` and `distributed` (gradients, and collectives in them), `modules`, `attention` and
`models` (layers), `optimizers`, `data` and `tokenizers` (text), then `trainer`: one step from top
to bottom. `replicas`, `pipeline` and `hierarchy` train on several ranks; `p2p` sends between them.

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

# Modules are loaded when one of their names is first used.
_NAMES = {
    "axes": "parallel_axes",
    "autograd": "Tensor no_grad",
    "checkpoint": "DamagedCheckpoint check_matches",
    "config": "Settings",
    "config_files": "read_settings",
    "context": "AutoContext DistributedConfig ParallelismContext",
    "data": "Batches TokenDataset builtin_corpus read_text",
    "distributed": "synchronize_gradients",
    "generation": "Sampler generate",
    "hierarchy": "Aggregator HierarchicalTrainer RemoteOptimizer role_of",
    "models": "GPT Llama create_model",
    "optimizers": "AdamW AdamWConfig SGD SGDConfig clip_grad_norm",
    "layout": "Layout",
    "pipeline": "PipelineTrainer",
    "plan": "training_plan",
    "tokenizers": "BPETokenizer ByteTokenizer CharTokenizer Tokenizer make_tokenizer "
    "tokenizer_from_dict",
    "trainer": "Trainer",
}
__getattr__, __dir__, __all__ = attach(__name__, _NAMES)
