"""The traffic of a program: the collectives at each line of the program, the differences between
two runs, and warnings of partial sums that the program uses without adding them up."""

import difflib
import json
import os
import runpy
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ttkit.errors import fail, users_frame
from ttkit.files import AnyPath, read_text, write_whole
from ttkit.plans.cost import cost
from ttkit.profiling import last_name
from ttkit.sim.ops import OPERATIONS
from ttkit.sim.tape import CollectiveRecord, DescribedTensor, Event
from ttkit.sim.tensor import PlacementShard
from ttkit.visualize.tables import Report
from ttkit.words import counted, short

# The key is a mesh axis, and the value is the line that made parts of a sum along this axis.
Parts = dict[int, str]
COLUMNS = ("<line", "<collective", "<along", "<operand", "<result", "calls", "on links", "time")


# The lines of a program are those outside of these files. The file of NumPy's `errstate` is in the
# list, because each call of an operation passes through `errstate`.
PACKAGE = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")
KIT_CODE = (PACKAGE, "<frozen", runpy.__file__, np.errstate.__call__.__code__.co_filename)


class ProgramLine(NamedTuple):
    """Equal calls at one line of the program: of a collective, or of a transfer from the host.

    Attributes:
        where: the file and the line.
        name: the name of the operation.
        along: the chips that communicate, such as "axis 1 of 4 chips", "all 8 chips" or "chip 0 to
            1"; "" where nothing is sent.
        operand, result: the shape of a chip's shard, its type, and its placement along each mesh
            axis: R (replicated), S1 (sharded along dim 1) or P (a part of a sum).
        calls: the number of calls.
        nbytes, time_s: the bytes over all cables, and the modelled seconds, of all calls together.
    """

    where: str
    name: str
    along: str
    operand: str
    result: str
    calls: int
    nbytes: int
    time_s: float

    @property
    def what(self) -> str:
        """The text by which two runs of a program are compared. It leaves out the line, the bytes
        and the time."""
        how = f" along {self.along}: {self.operand} ->" if self.along else ":"
        return f"{self.name}{how} {self.result}, {counted(self.calls, 'call')}"


def sent_by(events: Sequence[Event]) -> tuple[list[ProgramLine], list[str]]:
    """Return the lines of a run in the order of their first calls, and the warnings.

    Equal warnings are joined into one, with their number.
    """
    calls: Counter[tuple] = Counter()
    records: dict[tuple, Counter[CollectiveRecord]] = {}
    sums = Sums()
    for event in events:
        sums_up = (sent for sent in event.sent if "reduce" in sent.collective)
        added = {axis: "" for sent in sums_up for axis in _axes(sent)}
        operands = [_shard(held, sums.parts(held) | added) for held in event.operands[:1]]
        sums.follow(event)
        if event.returned and event.results and (event.sent or is_placed(event)):
            along = _axis_words(event.sent[0]) if event.sent else ""
            shown = " ".join(operands), _shard(event.results[0], sums.parts(event.results[0]))
            key = event.where, last_name(event.name), along, *shown
            calls[key] += 1
            records.setdefault(key, Counter()).update(event.sent)
    found = []
    for key, number in calls.items():
        # Equal collectives have one plan.
        sent = [(record.plan, times) for record, times in records[key].items()]
        nbytes = sum(times * plan.total_bytes for plan, times in sent)
        time_s = sum(times * cost(plan).time_s for plan, times in sent)
        found.append(ProgramLine(*key, number, nbytes, time_s))
    wrong = [f"{text} (x {n})" if n > 1 else text for text, n in sums.warnings.items()]
    return found, wrong if any(line.along for line in found) else [*wrong, *_same_on_chips(events)]


def note_line(event: Event) -> None:
    """Write down the line of the program that made a call."""
    frame, _ = users_frame()
    path = os.path.relpath(frame.f_code.co_filename)
    if path.startswith(".."):
        path = frame.f_code.co_filename
    event.where = f"{path}:{frame.f_lineno}"


def is_placed(event: Event) -> bool:
    """Return whether a call puts a tensor of the host on a mesh."""
    return event.name in OPERATIONS and OPERATIONS[event.name].kind == "write"


def table(found: Sequence[ProgramLine]) -> Report:
    """Return the collectives as a table."""
    rows = [
        (*line[:5], str(line.calls), short(line.nbytes, "B"), short(line.time_s, "s"))
        for line in found
        if line.along
    ]
    return Report("collectives: R replicated, S1 sharded along dim 1, P parts", COLUMNS, rows)


def _axes(sent: CollectiveRecord) -> list[int]:
    return list(range(sent.mesh.shape.dims())) if sent.axis is None else [sent.axis]


def _axis_words(sent: CollectiveRecord) -> str:
    if sent.collective == "point_to_point":
        how = dict(sent.how)
        return f"chip {how['source']} to {how['destination']}"
    if sent.axis is None:
        return f"all {counted(sent.mesh.get_num_devices(), 'chip')}"
    return f"axis {sent.axis} of {counted(sent.mesh.shape[sent.axis], 'chip')}"


def _shard(held: DescribedTensor, parts: Parts) -> str:
    """Return the shape of a chip's shard, its type, and its placement along each mesh axis."""
    placed = []
    for axis, length in enumerate(held.lead):
        dim = _label(held, axis)
        # If the simulator keeps one copy (length 1), all chips have the same values, even if the
        # placement says otherwise.
        placed.append("R" if length == 1 else "P" if axis in parts or dim is None else f"S{dim}")
    return f"[{','.join(map(str, held.shard_shape))}] {held.dtype.name.lower()} {' '.join(placed)}"


def _label(held: DescribedTensor, axis: int) -> int | None:
    """Return the dimension that is sharded along a mesh axis, by the placements in the tensor's
    topology; None if none is."""
    placements = held.topology.placements()
    if len(placements) < len(held.lead):  # One placement is for all chips in a line.
        placements = placements * len(held.lead)
    each = placements[axis]
    rank = len(held.shard_shape)  # A number, such as a mean, has no dimension that is sharded.
    return each.dim % rank if rank and isinstance(each, PlacementShard) else None


# ---------------------------------------------------------------- files
def write(found: Sequence[ProgramLine], path: AnyPath) -> Path:
    """Write lines as JSON, for `ttkit report`."""
    text = json.dumps([line._asdict() for line in found], indent=1)
    return write_whole(path, text, f"write the report {path}")


def read(path: AnyPath) -> list[ProgramLine]:
    """Read the lines that `write` has written.

    Raises:
        TTKitError: the file cannot be read, or is not a report.
    """
    try:
        return [ProgramLine(**line) for line in json.loads(read_text(path, "report"))]
    except (TypeError, ValueError) as error:
        rule = f"it is no report: {error}"
        cure = "ttkit python --report FILE.json PROGRAM"
        fail(f"read {path}", rule, cure)


def compare(one: Sequence[ProgramLine], other: Sequence[ProgramLine]) -> str:
    """Return the lines of two runs as a text: those that only the first run has begin with "-", and
    those that only the second run has begin with "+"."""
    rows = []
    whats = [[line.what for line in lines] for lines in (one, other)]
    matcher = difflib.SequenceMatcher(a=whats[0], b=whats[1], autojunk=False)
    for kind, a, b, c, d in matcher.get_opcodes():
        if kind == "equal":
            rows += [f"  {line.what}" for line in one[a:b]]
            continue
        rows += [f"- {line.what}    at {line.where}" for line in one[a:b]]
        rows += [f"+ {line.what}    at {line.where}" for line in other[c:d]]
    same = whats[0] == whats[1]
    return "\n".join([*rows, "Both send the same." if same else "They differ at the marked lines."])


# ---------------------------------------------------------------- what is wrong
# These operations are linear: if their operand is a part of a sum, so is their result.
ADDS = {*"add add_ subtract subtract_ rsub".split()}
MULTIPLIES = {*"multiply multiply_ divide divide_".split()}
LINEAR = MULTIPLIES | {"neg", "sum", "mean", "experimental.fast_reduce_nc"}


class Sums:
    """Sums whose parts lie on several chips, followed from the matmul that makes the parts.

    A matmul by a weight that the host sharded along its contracted dimension gives every chip a
    part of the sum. An operation that is not linear may use the sum only after an all-reduce or a
    reduce-scatter along that axis.
    """

    def __init__(self) -> None:
        self.warnings = Counter[str]()
        # These are tensors that the host placed, and tensors that a training step made from them.
        # Each is the id of its weak reference, which an event keeps, so no id is used twice.
        self._placed: set[int] = set()
        self._parts: dict[int, Parts] = {}

    def parts(self, held: DescribedTensor) -> Parts:
        """Return the mesh axes along which a tensor is a part of a sum, each with the line of the
        matmul that made the parts."""
        return self._parts.get(id(held.tensor), {})

    def follow(self, event: Event) -> None:
        """Note which results of a call are parts of a sum; warn if the call uses parts wrongly."""
        operation = OPERATIONS.get(event.name)
        if operation is None:
            return
        operands = event.operands
        given = list(map(self.parts, operands))
        made: Parts = {axis: where for parts in given for axis, where in parts.items()}
        if event.sent:
            made = self._reduced(event, given[0] if given else {})
        elif not event.returned:  # Parts of a sum may be the reason why the call was refused.
            made = self._used(event, made) if operation.kind != "collective" else made
        elif operation.kind == "product":
            made = self._multiplied(event, given)
        elif event.name in ADDS:
            self._check_terms(event, operands, made)
        elif event.name in MULTIPLIES and sum(map(bool, given)) > 1:
            made = self._used(event, made)
        elif operation.kind not in ("store", "arrange") and event.name not in LINEAR:
            made = self._used(event, made)
        keeps = operation.kind == "store" or event.name in ADDS | MULTIPLIES
        placed = is_placed(event) or (keeps and id(operands[0].tensor) in self._placed)
        for result in event.results:
            self._parts[id(result.tensor)] = made
            if placed:
                self._placed.add(id(result.tensor))

    def _warn(self, event: Event, text: str) -> None:
        self.warnings[f"{event.where}: {last_name(event.name)} {text}"] += 1

    def _used(self, event: Event, made: Parts) -> Parts:
        """Warn that a call uses parts as if they were the sum. Its results do not count as parts,
        so that there is only one warning."""
        for axis, where in made.items():
            self._warn(
                event,
                f"uses a partial sum as if it were the sum: the matmul at {where} leaves one on "
                f"each chip of axis {axis}, and no all_reduce or reduce_scatter has added them",
            )
        return {}

    def _multiplied(self, event: Event, given: Sequence[Parts]) -> Parts:
        """Return the axes along which a product is a part of a sum. It is linear in its first
        operand. A bias may be added only to the finished sum."""
        weight = event.operands[1]
        made = dict(given[0])
        contracted = len(weight.shard_shape) - (1 if event.kwargs.get("transpose_b") else 2)
        for axis, length in enumerate(weight.lead):
            placed = length > 1 and id(weight.tensor) in self._placed
            if placed and _label(weight, axis) == contracted:
                made[axis] = event.where
        self._check_terms(event, event.operands[2:], made)
        return self._used(event, made) if event.kwargs.get("activation") else made

    def _check_terms(self, event: Event, terms: Sequence[DescribedTensor], made: Parts) -> None:
        """Warn if a term that is the same on all chips is added to parts of a sum."""
        for axis, where in made.items():
            if any(held.lead[axis : axis + 1] == (1,) for held in terms):
                self._warn(
                    event,
                    f"adds the same term to a partial sum on each chip of axis {axis}: the sum "
                    f"from the matmul at {where} will have this term once for each chip",
                )

    def _reduced(self, event: Event, parts: Parts) -> Parts:
        """Return the parts that remain after a collective, which adds or gathers those along its
        axis."""
        left = dict(parts)
        for sent in event.sent:
            lead = event.operands[0].lead
            axes = _axes(sent)
            copies = len(lead) > max(axes) and all(lead[axis] == 1 for axis in axes)
            along = _axis_words(sent)
            others = [axis for axis in left if axis not in axes]
            if copies and sent.collective in ("all_reduce", "reduce_scatter", "all_gather"):
                does = "gathers" if sent.collective == "all_gather" else "adds up"
                self._warn(event, f"{does} equal values: its operand is replicated along {along}")
            elif others and "reduce" in sent.collective and len(others) == len(left):
                self._warn(
                    event,
                    f"adds along {along}, and the matmul at {left[others[0]]} has left "
                    f"partial sums along axis {others[0]}",
                )
            left = {axis: left[axis] for axis in others}
        return left


def _same_on_chips(events: Sequence[Event]) -> list[str]:
    """Return a warning if several chips have computed the same values."""
    made = [held for event in events for held in event.results if held.mesh is not None]
    chips = max((held.mesh.get_num_devices() for held in made), default=1)
    if chips == 1 or any(length > 1 for held in made for length in held.lead):
        return []
    return [f"{chips} chips computed the same values and sent nothing: no tensor is sharded"]
