"""Messages between ranks: what each rank calls, when each message arrives, who waits for whom."""

import itertools
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ttkit.lazy import drawn_by
from ttkit.words import counted, numbered

ANY_SOURCE = -1  # In MPI this means any sender. In `exchange` such a receive waits forever.
NONBLOCKING = {"Isend", "Irecv"}  # These calls return before the message arrives.


class Call(NamedTuple):
    """One call of a rank: it sends to rank `to`, receives from rank `source`, or both.

    Attributes:
        name: the name of the MPI call, such as "Send".
        nbytes: the size of the message that it sends.
        text: the value that it sends, if that is short.
        line: the place of the call in the code, such as "line 3 of shift: comm.Send(x, right)".
    """

    name: str
    to: int | None = None
    source: int | None = None
    nbytes: int = 0
    text: str = ""
    line: str = ""


class Message(NamedTuple):
    """One message. It is sent at the end of step `sent`, where 0 is the start, and arrives in step
    `step`."""

    sender: int
    receiver: int
    nbytes: int
    step: int
    sent: int
    text: str = ""


class Wait(NamedTuple):
    """A rank that waits forever: its call, and the peer that does not receive or send."""

    rank: int
    peer: int
    call: str
    receives: bool  # It is True while the rank waits to receive, False while it waits to send.
    since: int  # The rank has waited since the end of this step.
    line: str = ""

    @property
    def whom(self) -> str:
        """The peer in words."""
        return "any rank" if self.peer == ANY_SOURCE else f"rank {self.peer}"

    def __str__(self) -> str:
        verb = "send" if self.receives else "receive"
        return f"rank {self.rank} waits in {self.call} for {self.whom} to {verb}"


@dataclass(frozen=True, repr=False)
class Exchange:
    """The messages between ranks, step by step, and the ranks that wait in the end.

    A step is not a unit of time: in each step at most one message arrives from each rank at each
    other rank. A notebook shows a picture: ranks as rows, steps to the right, an arrow for each
    message.

    Args:
        ranks: the number of ranks.
        messages: the messages in the order in which they arrived.
        waits: the calls of ranks that wait forever; () if all are done.
        results: the return values of the ranks' functions, in rank order; () without functions.
    """

    ranks: int
    messages: tuple[Message, ...]
    waits: tuple[Wait, ...] = ()
    results: tuple = field(default=(), compare=False)

    @property
    def steps(self) -> int:
        """The number of steps until the last message has arrived."""
        return max((message.step for message in self.messages), default=0)

    @property
    def cycle(self) -> tuple[int, ...]:
        """Ranks that wait for each other in a ring, the lowest first; () where there is none."""
        peers = {wait.rank: wait.peer for wait in self.waits}
        for rank in sorted(peers):
            way = [rank]
            while (peer := peers.get(way[-1])) is not None and peer not in way:
                way.append(peer)
            if peer == rank:
                return tuple(way)
        return ()

    @property
    def title(self) -> str:
        """The run in one line."""
        sent = counted(len(self.messages), "message")
        if not self.waits:
            return f"{self.ranks} ranks: {sent} in {counted(self.steps, 'step')}"
        if self.cycle:
            ring = (*self.cycle, self.cycle[0])
            pairs = ", ".join(f"{a} for {b}" for a, b in itertools.pairwise(ring))
            pairs = pairs.replace(" for", " waits for", 1)
            return f"{self.ranks} ranks, {sent}, then a deadlock: rank {pairs}"
        waiting = numbered("rank", [wait.rank for wait in self.waits])
        return f"{self.ranks} ranks, {sent}, then {waiting} cannot go on"

    def __repr__(self) -> str:
        lines = [self.title]
        for step in range(1, self.steps + 1):
            arrows = (
                f"{m.sender} > {m.receiver} {m.text or f'{m.nbytes:,} B'}"
                for m in self.messages
                if m.step == step
            )
            lines.append(f"step {step}: {', '.join(arrows)}")
        return "\n  ".join([*lines, *self.waiting])

    @property
    def waiting(self) -> list[str]:
        """Lines of text: which rank waits for which, and where. If all wait at the same line of
        code, that line comes last."""
        places = {wait.line for wait in self.waits}
        if len(places) > 1:
            return [f"{wait}, at {wait.line}" if wait.line else str(wait) for wait in self.waits]
        return [*map(str, self.waits), *(f"each at {place}" for place in places if place)]

    _repr_html_ = drawn_by("lanes:draw_exchange")


def exchange(programs: Sequence[Sequence[Call]], buffered: bool = False) -> Exchange:
    """Follow the calls of all ranks until all calls are done, or no call can go on.

    Messages between two ranks arrive in the order in which they were sent; tags are ignored.

    Args:
        programs: the calls of each rank.
        buffered: whether `Send` returns at once, as in MPI for small messages, which MPI copies
            into a buffer. Otherwise a send waits until the other rank receives, as for large ones.

    Example:
        >>> exchange([[Call("Send", to=1, nbytes=8)], [Call("Recv", source=0)]])
        2 ranks: 1 message in 1 step
          step 1: 0 > 1 8 B
        >>> exchange([[Call("Recv", source=1)], [Call("Recv", source=0)]])
        2 ranks, 0 messages, then a deadlock: rank 0 waits for 1, 1 for 0
          rank 0 waits in Recv for rank 1 to send
          rank 1 waits in Recv for rank 0 to send
    """
    # A key is (sender, receiver). A queue holds the sends, or the receives, that have no match yet.
    sends: Any = defaultdict(deque)
    receives: Any = defaultdict(deque)
    begun = list(map(iter, programs))
    clocks = [0] * len(programs)
    # The list of a rank holds the sends and receives that its call waits for.
    holds: list[list] = [[] for _ in programs]

    def go_on(rank: int) -> None:
        """Make the rank's calls up to the first that waits."""
        while not holds[rank] and (call := next(begun[rank], None)):
            at_once = call.name in NONBLOCKING or (buffered and call.name == "Send")
            ends = []
            if call.to is not None:
                ends.append((rank, call.to, call, False, clocks[rank]))
                sends[rank, call.to].append(ends[-1])
            if call.source is not None:
                ends.append((rank, call.source, call, True, clocks[rank]))
                receives[call.source, rank].append(ends[-1])
            holds[rank] += [] if at_once else ends

    for rank in range(len(programs)):
        go_on(rank)
    messages: list[Message] = []
    step = 0
    while pairs := [
        (sends[way].popleft(), receives[way].popleft())
        for way in sorted(sends)
        if sends[way] and receives[way]
    ]:
        step += 1
        for sent, received in pairs:
            a, b, call, _, clock = sent
            # The message of a send that waits leaves at the start of this step, which
            # is the end of the step before. A message of any other send left when the
            # send was called.
            moment = step - 1 if sent in holds[a] else clock
            messages.append(Message(a, b, call.nbytes, step, moment, call.text))
            for rank, part in ((a, sent), (b, received)):
                if part in holds[rank]:
                    holds[rank].remove(part)
        for rank in {rank for pair in pairs for rank in (pair[0][0], pair[1][0])}:
            if not holds[rank]:
                clocks[rank] = step
                go_on(rank)
    waits = [
        Wait(rank, peer, call.name, receives, clock, call.line)
        for rank, held in enumerate(holds)
        for _, peer, call, receives, clock in held[:1]
    ]
    return Exchange(len(programs), tuple(messages), tuple(waits))
