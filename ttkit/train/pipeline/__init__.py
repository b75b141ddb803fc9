"""Pipelines of stages: what a stage computes, and what travels between stages."""
