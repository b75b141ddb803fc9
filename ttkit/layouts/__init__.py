"""Layouts: how a model can be cut for a machine, and what that costs."""
