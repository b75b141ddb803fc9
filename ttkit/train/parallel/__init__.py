"""How chips and ranks share a model's tensors: collectives with gradients, and each parallelism."""
