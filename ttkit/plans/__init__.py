"""Collectives and pipelines as data: topologies, plans and their modelled costs; schedules of
stages and micro-batches.
"""

from ttkit.plans.collectives import (
    all_gather,
    all_reduce,
    all_to_all,
    broadcast,
    point_to_point,
    reduce_scatter,
    shift,
)
from ttkit.plans.cost import Cost, cost, crossover
from ttkit.plans.pipelines import gpipe, interleaved, one_at_a_time, one_f_one_b, zb_h1
from ttkit.plans.plan import Plan, Transfer
from ttkit.plans.schedule import Action, Schedule, Timetable
from ttkit.plans.topology import LINE, RING, Topology, topology
