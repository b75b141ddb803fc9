"""The kinds of parallelism: collectives with gradients, by which chips and ranks share a model."""
