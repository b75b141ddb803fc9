"""Traces: a run of operations captured once and replayed on the current contents of its inputs."""

from __future__ import annotations

import itertools
from typing import Any

from ttkit.errors import fail
from ttkit.sim.arguments import describe
from ttkit.sim.mesh import MeshDevice
from ttkit.sim.ops.operation import OPERATIONS, checked
from ttkit.sim.tape import Event, Tape, running, tensors_in


class MeshTraceId:
    """A captured run: a tape with its tensors, whose values a replay reads as they are then."""

    _numbers = itertools.count()

    def __init__(self, mesh: MeshDevice):
        self._number, self.mesh = next(self._numbers), mesh
        self.released = False
        self.tape = Tape(keeps=OPERATIONS, before=_refuse_host_data)

    def __int__(self) -> int:
        return self._number

    def __repr__(self) -> str:
        return f"MeshTraceId({self._number})"


_capturing: list[MeshTraceId] = []  # At most one trace is being captured.


def _refuse_host_data(event: Event) -> None:
    """Refuse what cannot be part of a trace: data between a mesh and the host."""
    kind = OPERATIONS[event.name].kind if event.name in OPERATIONS else ""
    if kind not in ("write", "read"):
        return
    given = [*event.args, *event.kwargs.values()]
    on_a_mesh = any(tensor.mesh is not None for tensor in event.operands)
    if on_a_mesh or any(isinstance(value, MeshDevice) for value in given):
        what = "Writes" if kind == "write" else "Reads"
        rule = f"{what} are not supported during trace capture"
        cure = "move data before begin_trace_capture or after end_trace_capture"
        fail(describe(event.name, event.args, event.kwargs), rule, cure)


def _tape(mesh_device: MeshDevice, trace_id: MeshTraceId, asked: object) -> Tape:
    mesh_device.check_open(asked)
    if trace_id.released or trace_id.mesh is not mesh_device:
        rule = f"{trace_id!r} is no trace of {mesh_device!r}"
        fail(asked, rule, "the id that begin_trace_capture gave, before release_trace")
    return trace_id.tape


def _end() -> None:
    for trace in _capturing:
        running.remove(trace.tape)
    _capturing.clear()


@checked("begin_trace_capture")
def begin_trace_capture(mesh_device: MeshDevice, *, cq_id: Any = None) -> MeshTraceId:
    """Start to record the operations on a mesh and its submeshes; they also run."""
    mesh_device.check_open("begin_trace_capture")
    # Closing a mesh ends a capture on it that was never ended.
    if any(trace.mesh.is_open for trace in _capturing):
        rule = "another trace is being captured"
        fail("begin_trace_capture", rule, "ttnn.end_trace_capture first")
    _end()
    trace = MeshTraceId(mesh_device)
    _capturing.append(trace)
    running.append(trace.tape)
    return trace


@checked("end_trace_capture")
def end_trace_capture(mesh_device: MeshDevice, trace_id: MeshTraceId, *, cq_id: Any = None) -> None:
    """Stop recording; the trace can be executed now."""
    _tape(mesh_device, trace_id, "end_trace_capture")
    _end()


@checked("execute_trace")
def execute_trace(
    mesh_device: MeshDevice, trace_id: MeshTraceId, *, cq_id: Any = None, blocking: bool = True
) -> None:
    """Run the recorded operations again, on the values that their inputs have now.

    The tensors of their results get the new values.
    """
    tape = _tape(mesh_device, trace_id, "execute_trace")
    if tape in running:
        rule = f"{trace_id!r} is still being captured"
        fail("execute_trace", rule, "ttnn.end_trace_capture first")
    for event in tape.events:
        if event.returned and event.name in OPERATIONS:
            again = tensors_in(OPERATIONS[event.name].call(*event.args, **event.kwargs))
            for captured, fresh in zip(event.results, again, strict=True):
                captured.rebind(fresh.array)


@checked("release_trace")
def release_trace(mesh_device: MeshDevice, trace_id: MeshTraceId) -> None:
    """Forget a trace."""
    _tape(mesh_device, trace_id, "release_trace").events.clear()
    trace_id.released = True
