"""Arrays for exercises, and the arrays that each device should hold."""

import math

import numpy as np


def numbers(*shape: int) -> np.ndarray:
    """Return an array of this shape with different float32 values from -8 up to 8."""
    size = math.prod(shape)
    order = np.random.default_rng(size).permutation(size).reshape(shape)
    return (order * np.float32(16 / size) - 8).astype(np.float32)


def split(mesh, array: np.ndarray, dim: int) -> list[np.ndarray]:
    """Return the part of an array that each device holds if the array is cut over all devices."""
    return np.split(array, mesh.get_num_devices(), dim)


def replicas(mesh, array: np.ndarray) -> list[np.ndarray]:
    """Return what each device holds if the array is replicated: for each device the array."""
    return [array] * mesh.get_num_devices()
