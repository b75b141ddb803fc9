"""Routes over the fabric; transports themselves carry the runs of test_pipeline and test_hierarchy,
and sockets those of tests/sim/test_mpi.py.
"""

import pytest

from ttkit import TTKitError
from ttkit.plans import Schedule, one_f_one_b
from ttkit.train.parallel.p2p import fabric_routes


def test_routes_are_what_a_schedule_sends():
    assert fabric_routes(one_f_one_b(3, 4)) == [
        ("activations", 0, 1),
        ("activations", 1, 2),
        ("gradients", 1, 0),
        ("gradients", 2, 1),
    ]


def test_a_socket_keeps_the_order():
    with pytest.raises(
        TTKitError, match="stage 1 takes the activations of stage 0 in another order"
    ):
        fabric_routes(Schedule("swapped", 2, 2, ["F0 F1 B0 B1", "F1 F0 B0 B1"]))
