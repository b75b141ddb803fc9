"""The tape: one event for each outermost call, with what it was given, returned and sent."""

import numpy as np
import pytest

import ttkit
from ttkit import ttnn
from ttkit.sim.tape import DescribedTensor, HostArray, running, tape


def tiles(wide):
    return ttnn.ones([64, 64], dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=wide)


def test_a_tape_inside_another_ends_alone():
    with tape() as outer:
        with tape():
            pass  # as empty as the one around it, which goes on
        ttnn.zeros([1])
    ttnn.zeros([2])
    assert [event.results[0].shard_shape for event in outer.events] == [(1,)] and not running


def test_an_event_describes_arguments_and_result(wide):
    with tape() as calls:
        x = ttkit.from_numpy(np.ones((32, 64), np.float32), device=wide)
        with pytest.raises(RuntimeError):
            ttnn.matmul(x, x)
    write, product = calls.events
    assert write.returned and write.args[0] == HostArray((32, 64), "float32")
    assert isinstance(write.result, DescribedTensor) and write.result.mesh is wide
    assert write.in_use == 32 * 64 * 4  # on each chip
    assert not product.returned and product.operands[0].tensor() is x


def test_an_event_has_every_collective_of_its_call(wide):
    x = tiles(wide)
    ttnn.all_reduce(x, cluster_axis=0)
    with tape() as calls:
        how = {"mesh_device": wide, "topology": ttnn.Topology.Ring}
        how |= {"cluster_axis": 1, "multi_device_global_semaphore": None}
        ttnn.experimental.ring_attention_all_gather_async([x] * 100, None, 1, **how)
        last = ttkit.last_plan()
        ttnn.add(x, x)
    gathers, add = calls.events
    assert [each.collective for each in gathers.sent] == ["all_gather"] * 100 and not add.sent
    assert {each.plan for each in gathers.sent} == {last}


def test_a_trace_of_the_library_is_shown(wide, capsys):
    with ttnn.tracer.trace():
        ttnn.tracer.visualize(ttnn.exp(tiles(wide)))
    assert "exp" in capsys.readouterr().out
    with ttnn.tracer.trace():
        y = ttnn.sin(tiles(wide))
    ttnn.tracer.visualize(y)
    shown = capsys.readouterr().out
    assert "sin" in shown and "exp" not in shown


def test_parts_and_kept_tensors(wide):
    with tape(keeps={"exp"}) as calls:
        calls.part = "first"
        y = ttnn.exp(tiles(wide))
        calls.part = "second"
        ttnn.sqrt(y)
    assert [event.part for event in calls.events] == ["first", "first", "second"]
    made, exp, sqrt = calls.events
    assert (
        exp.result is y
        and isinstance(made.result, DescribedTensor)
        and isinstance(sqrt.result, DescribedTensor)
    )
