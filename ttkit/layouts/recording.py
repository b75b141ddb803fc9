"""Record a dry run.

The record says which part of a training step makes each call, what the call sends, and
how many bytes are in memory after it.
"""

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np

from ttkit import ttnn
from ttkit.sim.mesh.opening import without_values
from ttkit.sim.tape import TapeWithoutValues
from ttkit.train.autograd import Value
from ttkit.train.config.layout import Layout

# The bytes of a tensor count under an owner. The owner of a weight is the part of the step that
# uses it first. The owner of any other tensor is the part that makes it, with three exceptions.
# The block's input has the owner INPUT, and its output has the owner OUTPUT. A gradient that
# earlier micro-batches left, and the gradient that is added to it, have an owner whose name ends
# with LATER.
INPUT = "block input"
OUTPUT = "head input"
LATER = " later"
# The two values say whether a stage has the embedding, and whether it has the head.
Ends = tuple[bool, bool]
# A `Send` is one collective: the part of the step that calls it, its name, the strategy ("dp", "cp"
# or "tp") of its mesh axis, and the bytes of a shard.
Send = tuple[str, str, str, int]
Sends = tuple[Send, ...]


def is_repeated(part: str) -> bool:
    """Return whether a part runs once in each block, so that its calls count once per block."""
    return part.startswith("block")


def is_on(layout: Layout, ends: Ends) -> Callable[[str], bool]:
    """Return a function that says, for a part or an owner, whether a stage with these ends runs the
    part, or holds the tensors of the owner."""
    embeds, has_head = ends
    # The name of a part or an owner begins with one of these keys. "stage" owns the output of a
    # stage without the head, and its gradient. "numbers" makes the token ids of a chip's logits.
    on = {"embedding": embeds, "block": True, "head": has_head, "stage": not has_head}
    on["numbers"] = has_head or (embeds and layout.tp > 1)
    without: tuple[str, ...] = (LATER, "scale") if layout.micro_batches == 1 else ()
    without += ("mean",) if layout.dp == layout.cp == 1 else ()
    return functools.cache(
        lambda part: on.get(part.split()[0], False) and not part.endswith(without)
    )


@dataclass
class DryRun:
    """A layout on a mesh without values, while the tape records its calls.

    Attributes:
        layout: the layout, placed on the mesh.
        calls: the tape.
        at: for each part of the step, the number of calls before it first began, and the bytes that
            each owner held then.
        edge: the bytes of the block's output.
    """

    layout: Layout
    calls: TapeWithoutValues
    at: dict[str, tuple[int, list[int]]] = field(default_factory=dict)
    edge: int = 0

    def begin(self, part: str) -> None:
        """Begin a part of the step: the calls that follow count under it. `at` keeps only the first
        beginning of a part."""
        if part in ("head", "block backward") and part not in self.at:
            # A stage without the head keeps its output from "head" on. From "block backward" on it
            # also has the gradient of its output, which is as large.
            self.calls.mesh.used["stage"] += self.edge
        self.at.setdefault(part, (len(self.calls.events), [*self.calls.mesh.used.values()]))
        self.calls.part = self.calls.mesh.owner = part

    def new(self, shape: Iterable[int], dtype=None, layout=ttnn.TILE_LAYOUT) -> Value:
        """Return a tensor on the mesh, of the layout's type if no other is given."""
        on = self.layout
        return ttnn.empty(list(shape), dtype=dtype or on.dtype, layout=layout, device=on.device)

    def tokens(self, rows: int, length: int) -> Value:
        """Return the tensor of token ids that each chip has, [rows, 1, 1, length]."""
        return self.new([rows, 1, 1, length], ttnn.uint32, ttnn.ROW_MAJOR_LAYOUT)


class Recording:
    """The calls of a dry run, and the bytes in memory after each call.

    Args:
        run: the dry run.
        first: the index of the first call that counts.

    Attributes:
        events, sends: the calls, and the collectives that they ran.
        names: the names of the parts that make calls, sorted.
        parts: for each call, the index of its part in `names`.
        moments: the names of the parts in the order in which they first began.
        after: for each call, then for each moment, how many calls had been made by then.
        held: for each entry of `after`, the bytes that each owner held; [entries, owners].
        owners: the names of the owners, in the order of `held`.
    """

    def __init__(self, run: DryRun, first: int):
        strategies = {axis: name for name, axis in run.layout.axes or ()}
        self.events = run.calls.events[first:]
        self.owners = list(run.calls.mesh.used)
        self.sends: Sends = tuple(
            (event.part, each.collective, strategies[each.axis or 0], each.shard_bytes)
            for event in self.events
            for each in event.sent
        )
        parts = [event.part for event in self.events]
        self.names, self.parts = np.unique(parts, return_inverse=True)
        self.moments = list(run.at)
        numbers, held = zip(*run.at.values())
        self.after = np.array([*range(1, len(parts) + 1), *(n - first for n in numbers)])
        # Owners are in the order of their first tensors. The list of bytes of an early call lacks
        # the owners that came later, so it is filled up with zeros.
        table = itertools.zip_longest(*run.calls.held[first:], *held, fillvalue=0)
        self.held = np.array(list(table)).T

    def where(self, holds: Callable[[str], bool]) -> np.ndarray:
        """Return for each call whether `holds` is true of its part."""
        return np.array(list(map(holds, self.names)))[self.parts]

    def share(self, runs: Callable[[str], bool]) -> tuple[np.ndarray, Sends, np.ndarray]:
        """Return the share of the dry run that belongs to a stage.

        Args:
            runs: says which parts the stage runs, and which owners it has.

        Returns:
            For each call, whether the stage makes it; the collectives of the stage; for each call,
            then for each moment, the bytes that the stage holds in the first micro-batch, and in
            the others, [entries, 2].
        """
        mine = list(map(runs, self.owners))
        first = [own and not owner.endswith(LATER) for own, owner in zip(mine, self.owners)]
        sends = tuple(send for send in self.sends if runs(send[0]))
        return self.where(runs), sends, self.held @ np.array([first, mine]).T


@contextmanager
def dry_run(layout: Layout) -> Iterator[DryRun]:
    """Open a mesh without values for a layout. Each of dp, cp and tp above 1 has a mesh axis."""
    rows, columns = [*(n for n in (layout.dp, layout.cp, layout.tp) if n > 1), 1, 1][:2]
    with without_values((rows, columns)) as (mesh, calls):
        yield DryRun(replace(layout, axes=None).on(mesh), calls)
