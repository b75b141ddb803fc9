"""Engines of a notebook: MPI ranks that run its cells."""
