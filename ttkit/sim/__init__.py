"""The simulated ttnn: meshes, tensors, operations and collectives in NumPy."""
