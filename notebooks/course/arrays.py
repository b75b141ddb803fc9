"""Arrays for exercises, and what each device should hold of them."""

import math

import numpy as np


def numbers(*shape: int) -> np.ndarray:
    """Return [shape] float32 values between -8 and 8, no two alike."""
    size = math.prod(shape)
    order = np.random.default_rng(size).permutation(size).reshape(shape)
    return (order * np.float32(16 / size) - 8).astype(np.float32)


def split(mesh, array: np.ndarray, dim: int) -> list[np.ndarray]:
    """Return what each device holds of an array that is cut over all devices."""
    return np.split(array, mesh.get_num_devices(), dim)


def replicas(mesh, array: np.ndarray) -> list[np.ndarray]:
    """Return what each device holds of an array that all of them hold."""
    return [array] * mesh.get_num_devices()
