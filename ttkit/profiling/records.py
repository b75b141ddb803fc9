"""Records of calls, read from a tape: in numbers, in words, and what each call waits for."""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from ttkit.hardware.roofline import bound_by, default_fidelity, operation_s
from ttkit.plans.cost import cost
from ttkit.sim.mesh import MeshDevice
from ttkit.sim.ops import OPERATIONS, Operation
from ttkit.sim.ops.work import is_same, work_of
from ttkit.sim.tape import Event, Tape
from ttkit.visualize.lanes import COMMUNICATION, COMPUTE

HOST = "host"
# Operations of these kinds do not compute.
KINDS = {"write": HOST, "read": HOST, "collective": COMMUNICATION}


class Shard(NamedTuple):
    """The shape and type of each chip's shard of a tensor."""

    shape: tuple[int, ...]
    dtype: str


def _shards(tensors: Sequence) -> tuple[Shard, ...]:
    return tuple(Shard(tuple(t.shard_shape), t.dtype.name.lower()) for t in tensors)


class Record(NamedTuple):
    """One outermost call: what it did on each of its chips, and its modelled time.

    Args:
        name: the operation's key in `ttkit.sim.ops.OPERATIONS`, without ttnn in front.
        kind: "compute", "communication" (a collective) or "host" (to or from it, not timed).
        mesh: the mesh that it ran on.
        chips: device ids of the chips that took part; the others idle.
        operands, results: the shards on each of the chips.
        flops: those of the values on each chip; the time counts whole tiles instead.
        fidelity: the math fidelity, which says how many passes the matrix engine makes.
        bytes_read, bytes_written: the traffic of each chip's DRAM.
        bytes_on_links: the bytes over all cables, counted once for each hop.
        time_s: the modelled time.
        bound: what most of the time is for: "compute", "memory", "launch", "links", or "".
        after: the calls that it waits for, by number, the profile's first call being 1.
    """

    name: str
    kind: str
    mesh: MeshDevice
    chips: tuple[int, ...]
    operands: tuple[Shard, ...]
    results: tuple[Shard, ...]
    flops: int
    fidelity: str
    bytes_read: int
    bytes_written: int
    bytes_on_links: int
    time_s: float
    bound: str
    after: tuple[int, ...]


# By these ids a tensor is recognized in several events: its own, its memory's, its array's; 0 for
# none. The shards of `get_device_tensors` lie in one memory, and a replay of a trace puts the array
# of one tensor into another. The weak references of a tape stay, so their ids do not come again.
Keys = tuple[int, int, int]


def keys_of(tensor) -> Keys:
    """Return the keys of a described tensor."""
    own, memory, array = (
        0 if each is None else id(each) for each in (tensor.tensor, tensor.memory, tensor.array)
    )
    return own, memory, array


# ---------------------------------------------------------------- reading a tape
class Reader:
    """Reads the events of a tape as records; events that come later are read later."""

    def __init__(self, tape: Tape):
        self.tape = tape
        self._records: list[Record] = []
        self._seen = 0  # This many events have been read.
        # Each key has the call that made the values (0 if before the tape), then its readers.
        self._calls: defaultdict[int, list[int]] = defaultdict(lambda: [0])

    @property
    def records(self) -> list[Record]:
        """The calls that concern a mesh and did not fail, in order."""
        for event in self.tape.events[self._seen :]:
            self._seen += 1
            if event.returned and event.name in OPERATIONS:
                self._read(event, OPERATIONS[event.name])
        return self._records

    def _read(self, event: Event, operation: Operation) -> None:
        operands, results = event.operands, event.results
        like = next((t for t in (*results, *operands) if t.mesh is not None), None)
        if like is None:
            return
        given = operation.takes.given(event.args, event.kwargs)
        chip = like.mesh.system.chip
        kind = KINDS.get(operation.kind, COMPUTE)
        asked = getattr(given.get("compute_kernel_config"), "math_fidelity", None)
        fidelity = "Invalid" if asked is None else asked.name
        if fidelity == "Invalid":
            configured = any(given.get(key) is not None for key in ("program_config", "core_grid"))
            dtypes = [t.dtype.name for t in operands]
            fidelity = default_fidelity(chip, dtypes, configured=configured)
        work, on_links, time_s, bound = work_of(event, operation), 0, 0.0, ""
        if work and kind == COMMUNICATION and work.read:  # An empty tensor has no plan.
            plans = [collective.plan for collective in event.sent]
            on_links = sum(plan.total_bytes for plan in plans)
            time_s, bound = sum(cost(plan).time_s for plan in plans), "links"
        elif work and kind == COMPUTE:
            spent = (chip, work.flops_of_tiles, work.moved, fidelity)
            time_s, bound = float(operation_s(*spent)), bound_by(*spent)
        same = len(operands) == len(results) and all(map(is_same, operands, results))
        socket = given.get("mesh_socket")
        unchanged = not work and same and socket is None
        # A call without results, such as copy_host_to_device_tensor, writes its second operand.
        made = [] if unchanged else results or operands[1:]
        reads, writes = list(map(keys_of, operands)), list(map(keys_of, made))
        if socket is not None:  # A send writes the socket's queue, and a receive reads it.
            (reads if results else writes).append((id(socket._channel.queue), 0, 0))
        self._records.append(
            Record(
                name=event.name,
                kind=kind,
                mesh=like.mesh,
                chips=tuple(like.mesh.ids_over(like.grid)),
                operands=_shards(operands),
                results=_shards(results),
                flops=work.flops if work else 0,
                fidelity=fidelity,
                bytes_read=work.read if work else 0,
                bytes_written=work.written if work else 0,
                bytes_on_links=on_links,
                time_s=time_s,
                bound=bound,
                after=self._waits(reads, writes),
            )
        )

    def _waits(self, reads: list[Keys], writes: list[Keys]) -> tuple[int, ...]:
        """Return the calls that a call waits for: they made what it reads or read what it writes.

        Args:
            reads: the tensors that it reads.
            writes: the tensors that it makes or writes; one that is also read is overwritten.
        """
        number, calls = len(self._records) + 1, self._calls
        waits, written = set(), {tensor for tensor, _, _ in writes}
        for keys in reads:
            waits.add(max(calls[key][0] for key in keys if key))
            if keys[0] in written:
                waits.update(calls[keys[0]])
            else:
                calls[keys[0]].append(number)
        for tensor, memory, array in writes:
            calls[tensor][:] = [number]
            if memory:
                calls[memory][:] = [number]
            # A result may share an operand's array, which keeps the call that made it.
            if array and not calls[array][0]:
                calls[array][:] = [number]
        return tuple(sorted(waits - {0}))


# ---------------------------------------------------------------- in words
def last_name(name: str) -> str:
    """Return an operation's name without the module that it is in."""
    return name.rpartition(".")[2]
