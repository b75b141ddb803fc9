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
    """The name of a captured trace."""

    _numbers = itertools.count()

    def __init__(self) -> None:
        self._number = next(self._numbers)

    def __int__(self) -> int:
        return self._number

    def __repr__(self) -> str:
        return f"MeshTraceId({self._number})"


class _Capture:
    """A captured run: a tape with its tensors; a replay reads the values that these have then."""

    def __init__(self, mesh: MeshDevice):
        self.mesh = mesh
        self.tape = Tape(keeps=OPERATIONS, before=_refuse_host_data)

    @property
    def done(self) -> bool:
        """Whether the capture has ended."""
        return self.tape not in running

    def end(self) -> None:
        """Stop recording."""
        if not self.done:
            running.remove(self.tape)

    def replay(self) -> None:
        """Make the calls again; the tensors of their results get the new values."""
        for event in self.tape.events:
            if event.returned and event.name in OPERATIONS:
                again = tensors_in(OPERATIONS[event.name].call(*event.args, **event.kwargs))
                for captured, fresh in zip(event.results, again, strict=True):
                    captured.rebind(fresh.array)


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


_traces: dict[MeshTraceId, _Capture] = {}


def _find(mesh_device: MeshDevice, trace_id: MeshTraceId, asked: object) -> _Capture:
    mesh_device.check_open(asked)
    if trace_id not in _traces or _traces[trace_id].mesh is not mesh_device:
        rule = f"{trace_id!r} is no trace of {mesh_device!r}"
        fail(asked, rule, "the id that begin_trace_capture gave, before release_trace")
    return _traces[trace_id]


@checked("begin_trace_capture")
def begin_trace_capture(mesh_device: MeshDevice, *, cq_id: Any = None) -> MeshTraceId:
    """Start to record the operations on a mesh and its submeshes; they also run."""
    mesh_device.check_open("begin_trace_capture")
    for trace, capture in list(_traces.items()):
        # A closed mesh takes its traces with it, even one whose capture was never ended.
        if not capture.mesh.is_open:
            _forget(trace)
    if any(not capture.done for capture in _traces.values()):
        rule = "another trace is being captured"
        fail("begin_trace_capture", rule, "ttnn.end_trace_capture first")
    trace = MeshTraceId()
    _traces[trace] = _Capture(mesh_device)
    running.append(_traces[trace].tape)
    return trace


@checked("end_trace_capture")
def end_trace_capture(mesh_device: MeshDevice, trace_id: MeshTraceId, *, cq_id: Any = None) -> None:
    """Stop recording; the trace can be executed now."""
    capture = _find(mesh_device, trace_id, "end_trace_capture")
    if capture.done:
        fail("end_trace_capture", f"{trace_id!r} has ended already")
    capture.end()


@checked("execute_trace")
def execute_trace(
    mesh_device: MeshDevice, trace_id: MeshTraceId, *, cq_id: Any = None, blocking: bool = True
) -> None:
    """Run the recorded operations again, on the values that their inputs have now."""
    capture = _find(mesh_device, trace_id, "execute_trace")
    if not capture.done:
        rule = f"{trace_id!r} is still being captured"
        fail("execute_trace", rule, "ttnn.end_trace_capture first")
    capture.replay()


@checked("release_trace")
def release_trace(mesh_device: MeshDevice, trace_id: MeshTraceId) -> None:
    """Forget a trace."""
    _find(mesh_device, trace_id, "release_trace")
    _forget(trace_id)


def _forget(trace_id: MeshTraceId) -> None:
    _traces.pop(trace_id).end()
