"""Meshes of chips: opened, shaped, traced."""
