"""Collectives as data: topologies, plans and what they cost."""

from ttkit.plans.collectives import all_gather, all_reduce, all_to_all, broadcast, point_to_point, reduce_scatter
from ttkit.plans.plan import Plan, Step, Transfer
from ttkit.plans.topology import LINE, RING, Topology, topology

__all__ = [
    "LINE",
    "RING",
    "Plan",
    "Step",
    "Topology",
    "Transfer",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "broadcast",
    "point_to_point",
    "reduce_scatter",
    "topology",
]
