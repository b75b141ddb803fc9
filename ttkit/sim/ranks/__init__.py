"""Several processes that share a mesh, or send each other tensors."""
