"""A deliberately naive simulator: a list of arrays, one a device, and loops.

The real one is compared with it.
"""

import itertools
import math

import numpy as np


class Naive:
    """A tensor as {coordinate: array} over a mesh shape."""

    def __init__(self, mesh, parts):
        self.mesh, self.parts = mesh, parts

    @classmethod
    def placed(cls, mesh, array, placements):
        """One placement (None or a dim) for each mesh axis."""
        parts = {}
        for coordinate in itertools.product(*map(range, mesh)):
            piece = array
            for axis, dim in enumerate(placements):
                if dim is not None:
                    piece = np.split(piece, mesh[axis], dim)[coordinate[axis]]
            parts[coordinate] = piece.copy()
        return cls(mesh, parts)

    @classmethod
    def line(cls, mesh, array, dim):
        """One dimension over the devices in row-major order, by chunks as large as the first;
        devices may stay empty.
        """
        size = -(-array.shape[dim] // math.prod(mesh))
        pieces = np.split(array, range(size, array.shape[dim], size), dim)
        parts = zip(itertools.product(*map(range, mesh)), (p.copy() for p in pieces))
        return cls(mesh, dict(parts))

    @classmethod
    def everywhere(cls, mesh, array):
        """The same array on each device."""
        return cls(mesh, {c: array.copy() for c in itertools.product(*map(range, mesh))})

    def each(self, function, *others):
        """A function of the parts on each device that all operands cover."""
        here = [c for c in self.parts if all(c in o.parts for o in others)]
        return Naive(
            self.mesh, {c: function(self.parts[c], *(o.parts[c] for o in others)) for c in here}
        )

    def group(self, coordinate, axis):
        """The devices along an axis (all, for None), in order."""
        if axis is None:
            return list(itertools.product(*map(range, self.mesh)))
        return [coordinate[:axis] + (i,) + coordinate[axis + 1 :] for i in range(self.mesh[axis])]

    def along(self, axis, function):
        """Each device's part, of its place along the axis and of all parts along it."""
        parts = {}
        for c in self.parts:
            group = self.group(c, axis)
            parts[c] = function(group.index(c), [self.parts[g] for g in group])
        return Naive(self.mesh, parts)

    def all_gather(self, dim, axis):
        return self.along(axis, lambda place, shards: np.concatenate(shards, dim))

    def all_reduce(self, axis):
        return self.along(axis, lambda place, shards: sum(shards))

    def reduce_scatter(self, dim, axis):
        return self.all_reduce(axis).partition(dim, axis)

    def partition(self, dim, axis):
        return self.along(
            axis, lambda place, shards: np.split(shards[place], len(shards), dim)[place]
        )

    def send(self, sender, receiver):
        parts = {c: p.copy() for c, p in self.parts.items()}
        parts[receiver] = self.parts[sender].copy()
        return Naive(self.mesh, parts)
