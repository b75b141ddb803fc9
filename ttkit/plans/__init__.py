"""Collectives as data: topologies, plans and what they cost."""

from ttkit.plans.collectives import all_gather, all_reduce, all_to_all, broadcast, point_to_point, reduce_scatter
from ttkit.plans.cost import Cost, candidates, cost, crossover, fastest
from ttkit.plans.plan import Plan, Step, Transfer
from ttkit.plans.topology import LINE, RING, Topology, topology

__all__ = [
    "LINE",
    "RING",
    "Cost",
    "Plan",
    "Step",
    "Topology",
    "Transfer",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "broadcast",
    "candidates",
    "cost",
    "crossover",
    "fastest",
    "point_to_point",
    "reduce_scatter",
    "topology",
]
