"""Traces: a run of operations captured once and replayed on the current contents of its inputs."""

from __future__ import annotations

import itertools
from typing import Any

from ttkit.errors import fail
from ttkit.sim.arguments import describe
from ttkit.sim.mesh.mesh import MeshDevice
from ttkit.sim.ops.operation import OPERATIONS, checked, watchers
from ttkit.sim.tensor.tensor import Tensor


class MeshTraceId:
    """The name of a captured trace."""

    _numbers = itertools.count()

    def __init__(self) -> None:
        self._number = next(self._numbers)

    def __int__(self) -> int:
        return self._number

    def __repr__(self) -> str:
        return f"MeshTraceId({self._number})"


def tensors_in(value: Any) -> list[Tensor]:
    """The tensors in an argument or a result, in order."""
    if isinstance(value, Tensor):
        return [value]
    if type(value) in (list, tuple):  # not a `CoreCoord`, a tuple that cannot be walked
        return [t for v in value for t in tensors_in(v)]
    return []


def _kept(value: Any) -> Any:
    """An argument as it is now: a list may be changed after the call."""
    return [_kept(v) for v in value] if isinstance(value, list) else value


class _Capture:
    """Record calls with their tensors; a replay reads the values that these have then."""

    def __init__(self, mesh: MeshDevice):
        self.mesh = mesh
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any], list[Tensor]]] = []
        self.done = False

    def before(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        kind = OPERATIONS[name].kind
        if kind not in ("write", "read"):
            return  # only data between host and device cannot be part of a trace
        given = [*args, *kwargs.values()]
        on_a_mesh = any(t.mesh is not None for t in tensors_in(given))
        if on_a_mesh or any(isinstance(v, MeshDevice) for v in given):
            what = "Writes" if kind == "write" else "Reads"
            rule = f"{what} are not supported during trace capture"
            cure = "move data before begin_trace_capture or after end_trace_capture"
            fail(describe(name, args, kwargs), rule, cure)

    def after(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        kept = {key: _kept(value) for key, value in kwargs.items()}
        self.calls.append((name, tuple(map(_kept, args)), kept, tensors_in(result)))

    def replay(self) -> None:
        for name, args, kwargs, outputs in self.calls:
            again = tensors_in(OPERATIONS[name].call(*args, **kwargs))
            for captured, fresh in zip(outputs, again, strict=True):
                captured.rebind(fresh.array)


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
        # its traces went with the mesh; one may have been left in the middle of a capture
        if not capture.mesh.is_open:
            _forget(trace)
    if any(isinstance(w, _Capture) for w in watchers):
        rule = "another trace is being captured"
        fail("begin_trace_capture", rule, "ttnn.end_trace_capture first")
    trace = MeshTraceId()
    _traces[trace] = _Capture(mesh_device)
    watchers.append(_traces[trace])
    return trace


@checked("end_trace_capture")
def end_trace_capture(mesh_device: MeshDevice, trace_id: MeshTraceId, *, cq_id: Any = None) -> None:
    """Stop recording; the trace can be executed now."""
    capture = _find(mesh_device, trace_id, "end_trace_capture")
    if capture.done:
        fail("end_trace_capture", f"{trace_id!r} has ended already")
    watchers.remove(capture)
    capture.done = True


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
    capture = _traces.pop(trace_id)
    if capture in watchers:
        watchers.remove(capture)
