"""The pipeline schedules that have a name, with the formulas of their papers.

In all formulas p is the number of stages, m the number of micro-batches, and v the number of chunks
on a stage. F and B are the times of a forward and a backward; I and W are the times of the two
parts of a backward. In each schedule a stage works for m (F + B); the rest of the time is the
bubble."""

import itertools
from collections.abc import Callable, Sequence

from ttkit.errors import fail
from ttkit.plans.schedule import Action, Schedule


def one_at_a_time(stages: int, micro_batches: int) -> Schedule:
    """Each micro-batch goes forward and backward through all stages before the next begins.

    The bubble is (p - 1) / p of the time for any number of micro-batches. A stage holds the
    activations of one micro-batch. This is the only schedule of ttml's pipeline training (tt-train,
    examples/multihost/pipeline_parallel_training).

    Example:
        >>> one_at_a_time(2, 2).actions[0]
        (F0, B0, F1, B1)
        >>> one_at_a_time(4, 8).timeline().bubble_fraction
        0.75
    """
    return _alternating("one at a time", micro_batches, [0] * stages)


def gpipe(stages: int, micro_batches: int) -> Schedule:
    """All forwards come first, then all backwards.

    The bubble is (p - 1) / (m + p - 1) of the time. A stage holds the activations of all m
    micro-batches, unless backward recomputes them, as in the paper (Huang et al. 2019, "GPipe",
    arXiv 1811.06965, section 2.3).

    Example:
        >>> gpipe(2, 2).actions[0]
        (F0, F1, B0, B1)
    """
    return _alternating("GPipe", micro_batches, [micro_batches] * stages)


def one_f_one_b(stages: int, micro_batches: int) -> Schedule:
    """A stage first does as many forwards as there are stages after it. Then it does one forward
    and one backward in turn, and at the end the backwards that are left.

    The bubble is that of GPipe, (p - 1) / (m + p - 1) of the time. Stage s, counted from 0, holds
    the activations of min(m, p - s) micro-batches (Narayanan et al. 2021, "Memory-Efficient
    Pipeline-Parallel DNN Training", arXiv 2006.09503, where it is called PipeDream-Flush; and
    "Efficient Large-Scale Language Model Training on GPU Clusters", arXiv 2104.04473, section
    2.2.1).

    Example:
        >>> one_f_one_b(2, 3).actions
        ((F0, F1, B0, F2, B1, B2), (F0, B0, F1, B1, F2, B2))
    """
    return _alternating("1F1B", micro_batches, list(range(stages))[::-1])


def interleaved(stages: int, micro_batches: int, chunks: int) -> Schedule:
    """Return 1F1B with several smaller parts of the model, called chunks, on each stage.

    Each round of micro-batches goes through the chunks of a stage in turn.

    With rounds of p micro-batches the bubble is (p - 1) / (v m + p - 1) of the time. The bubble
    lasts 1 / v as long as in 1F1B (Narayanan et al. 2021, arXiv 2104.04473, section 2.2.2), with
    v times as many messages. The first stage holds the activations of min(v m, v p + p - 1) chunks,
    1 + (p - 1) / (p v) times those of 1F1B (Korthikanti et al. 2022, arXiv 2205.05198, section
    4.2.3). A round may be longer than p; where m < p, one round has all micro-batches. As in torch,
    m must be a multiple of the number of rounds, max(1, m // p).

    Args:
        stages, micro_batches: the numbers of stages and of micro-batches.
        chunks: the number of chunks on each stage.

    Raises:
        TTKitError: the micro-batches do not divide evenly into the rounds.

    Example:
        >>> interleaved(2, 2, 2).actions[1]
        (F0, F1, 1F0, 1B0, 1F1, 1B1, B0, B1)
        >>> [s.timeline().bubble_fraction for s in (one_f_one_b(4, 8), interleaved(4, 8, 3))]
        [0.27..., 0.11...]
    """
    rounds = max(1, micro_batches // stages)
    if micro_batches % rounds:
        fail(
            f"interleaved({stages}, {micro_batches}, {chunks})",
            f"{micro_batches} micro-batches do not fill {rounds} rounds of at least {stages} "
            "evenly",
            f"{rounds * stages} or {(rounds + 1) * stages} micro-batches",
        )
    length = micro_batches // rounds
    turns = [
        (chunk, start + i)
        for start in range(0, micro_batches, length)
        for chunk in range(chunks)
        for i in range(length)
    ]
    ahead_on_last = (chunks - 1) * length  # The last stage does this many forwards ahead.
    ahead = [2 * (stages - 1 - stage) + ahead_on_last for stage in range(stages)]
    return _alternating("interleaved 1F1B", micro_batches, ahead, turns, chunks)


def zb_h1(stages: int, micro_batches: int) -> Schedule:
    """Return 1F1B with each backward split in two.

    A stage computes the gradients of weights later, when it would otherwise have to wait.

    Stage s delays these gradients by s micro-batches, so that all stages hold the activations of
    the same number of micro-batches. For m >= p the bubble is (p - 1) (F + I - W), which is a third
    of that of 1F1B if F, I and W are equal. Each stage holds the activations of at most min(m, p)
    micro-batches, as the first stage of 1F1B does (Qi et al. 2023, "Zero Bubble Pipeline
    Parallelism", arXiv 2401.10241, sections 2.1 and 2.3).

    Example:
        >>> zb_h1(2, 2).actions
        ((F0, F1, I0, W0, I1, W1), (F0, I0, F1, I1, W0, W1))
        >>> zb_h1(4, 8).timeline(forward_s=1, backward_s=2).time_s
        27.0
    """
    rows = []
    for stage, row in enumerate(one_f_one_b(stages, micro_batches).actions):
        order: list[Action] = []
        for action in row:
            order.append(action._replace(kind="I") if action.kind == "B" else action)
            if action.kind == "B" and action.micro_batch >= stage:
                order.append(Action("W", action.micro_batch - stage))
        late = range(max(0, micro_batches - stage), micro_batches)
        rows.append((*order, *(Action("W", i) for i in late)))
    return Schedule("ZB-H1", stages, micro_batches, tuple(rows))


# A training configuration may use these names.
SCHEDULES: dict[str, Callable[..., Schedule]] = {
    "one_at_a_time": one_at_a_time,
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "interleaved": interleaved,
    "zb_h1": zb_h1,
}


def schedule_of(name: str, stages: int, micro_batches: int, chunks: int) -> Schedule:
    """Return the schedule that a training configuration names.

    Raises:
        TTKitError: a stage has several chunks, but the schedule is not the interleaved one; or the
            micro-batches do not divide evenly into the rounds of the interleaved one.
    """
    if name == "interleaved":
        return interleaved(stages, micro_batches, chunks)
    if chunks > 1:
        fail(
            f"a schedule for {stages} stages",
            f"chunks_per_rank is {chunks}, but {name} has one chunk on each rank",
            "schedule: interleaved",
        )
    return SCHEDULES[name](stages, micro_batches)


def _alternating(
    name: str,
    micro_batches: int,
    ahead: list[int],
    turns: Sequence[tuple[int, int]] = (),
    chunks: int = 1,
) -> Schedule:
    """Return a schedule in which each stage first does some forwards, then one forward and one
    backward in turn, then the backwards that are left.

    Args:
        ahead: how many forwards each stage does before forwards and backwards take turns.
        turns: (chunk, micro-batch) of each forward, in order. The backwards have the same order,
            with the numbers of the chunks reversed. By default a stage has one chunk.
    """
    turns = turns or [(0, i) for i in range(micro_batches)]
    forwards = [Action("F", i, chunk) for chunk, i in turns]
    backwards = [Action("B", i, chunks - 1 - chunk) for chunk, i in turns]
    rows = []
    for many in ahead:
        order = forwards[:many]
        for forward, backward in itertools.zip_longest(forwards[many:], backwards):
            order += [forward, backward] if forward else [backward]
        rows.append(tuple(order))
    return Schedule(name, len(ahead), micro_batches, tuple(rows), chunks)
