"""The named schedules: their papers' formulas, torch's own pipelining as an oracle, and that
they run without a hang.
"""

from types import SimpleNamespace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ttkit.errors import TTKitError
from ttkit.plans import gpipe, interleaved, one_at_a_time, one_f_one_b, zb_h1
from ttkit.plans.pipelines import SCHEDULES
from ttkit.plans.schedule import timetable

STAGES, MICRO_BATCHES, CHUNKS = range(2, 17), range(1, 65), range(1, 5)
BUILDERS = {"one at a time": one_at_a_time, "GPipe": gpipe, "1F1B": one_f_one_b, "ZB-H1": zb_h1}
shapes = st.tuples(st.sampled_from(STAGES), st.sampled_from(MICRO_BATCHES))
every_shape = pytest.mark.parametrize("p", STAGES)
# forward and backward, of which the weight gradients are half; no W is longer than an F
TIMES = [(1, 2), (3, 4), (3, 6)]


def fills_rounds(p, m):
    return m % max(1, m // p) == 0


def check_formulas(p, m, times=TIMES):
    """Time, bubble and memory of the schedules without chunks, for p stages and m micro-batches."""
    built = {name: build(p, m) for name, build in BUILDERS.items()}
    for f, b in times:
        work = m * (f + b)
        found = {name: timetable(schedule, f, b) for name, schedule in built.items()}
        assert found["one at a time"].time_s == p * work
        assert found["GPipe"].time_s == found["1F1B"].time_s == work + (p - 1) * (f + b)
        # the paper's from m = p on
        assert found["ZB-H1"].time_s == work + (p - 1) * f + max(0, p - m) * b / 2
        for name in ("GPipe", "1F1B"):
            assert found[name].bubble_fraction == pytest.approx((p - 1) / (m + p - 1))
        assert found["one at a time"].bubble_fraction == pytest.approx((p - 1) / p)
        assert found["ZB-H1"].bubbles == pytest.approx([1 - work / found["ZB-H1"].time_s] * p)
    peaks = {name: schedule.peak_activations() for name, schedule in built.items()}
    assert peaks["one at a time"] == (1,) * p and peaks["GPipe"] == (m,) * p
    assert peaks["1F1B"] == tuple(min(m, p - s) for s in range(p))
    assert peaks["ZB-H1"] == (min(m, p),) * p


def check_interleaved(p, m, v):
    """Time and memory with v chunks; a forward is v long, so that all times are whole."""
    schedule = interleaved(p, m, v)
    length = m // max(1, m // p)
    if m >= p:
        found = schedule.timeline(v, 2 * v)
        assert found.time_s == 3 * (v * m + p - 1)
        assert found.bubble_fraction == pytest.approx((p - 1) / (v * m + p - 1))
    assert schedule.peak_activations() == tuple(
        min(m * v, 2 * (p - 1 - s) + (v - 1) * length + 1) / v for s in range(p)
    )
    if length == p and m > p:  # what Korthikanti et al. say of the first stage, in micro-batches
        assert schedule.peak_activations()[0] == pytest.approx(p * (1 + (p - 1) / (p * v)))


@settings(max_examples=5)
@given(shapes)
@example((2, 1))
@example((16, 64))
@example((16, 3))
def test_formulas(shape):
    check_formulas(*shape, times=TIMES[:2])


@settings(max_examples=12)
@given(shapes.filter(lambda shape: fills_rounds(*shape)), st.sampled_from(CHUNKS))
@example((4, 8), 2)
@example((4, 10), 3)
def test_formulas_with_chunks(shape, chunks):
    check_interleaved(*shape, chunks)


@pytest.mark.long
@every_shape
def test_formulas_for_all_shapes(p):
    for m in MICRO_BATCHES:
        check_formulas(p, m)
        for v in CHUNKS:
            if fills_rounds(p, m):
                check_interleaved(p, m, v)
            else:
                with pytest.raises(TTKitError, match=r"do not fill \d+ rounds"):
                    interleaved(p, m, v)


@pytest.mark.parametrize(
    ("p", "m", "phrase"), [(4, 13, "12 or 16 micro-batches"), (2, 63, "62 or 64")]
)
def test_micro_batches_that_fill_no_rounds(p, m, phrase):
    with pytest.raises(TTKitError, match=phrase):
        interleaved(p, m, 2)


# ---------------------------------------------------------------- torch as an oracle
class Recorder:
    """Stands for torch's pipeline stage: has no neighbours, writes down what it is asked to do."""

    def __init__(self, stage):
        self.stage_index, self.done = stage, []

    def __getattr__(self, name):
        kind = {"forward_one_chunk": "F", "backward_one_chunk": "B"}.get(name)

        def method(micro_batch=None, *args, **kwargs):
            if kind:
                self.done.append(f"{self.stage_index}{kind}{micro_batch}")
            return []

        return method


def recorded(schedules, name, p, m):
    """What torch's GPipe or 1F1B does on each rank, without ranks.

    (Its `_get_pipeline_order` starts 1F1B's last rank at 1F1.)
    """
    rows = []
    for rank in range(p):
        stage = Recorder(rank)
        nothing = dict.fromkeys(
            ("_initialize_stage", "_maybe_compute_loss", "_maybe_get_loss", "_update_losses"),
            lambda *args: None,
        )
        inputs = {"_check_inputs": lambda *args: ([()] * m, [{}] * m), "scale_grads": False}
        runner = SimpleNamespace(
            _stage=stage, _num_stages=p, _n_microbatches=m, **nothing, **inputs
        )
        getattr(schedules, name)._step_microbatches(runner)
        rows.append(stage.done)
    return rows


def calculated(schedules, name, p, m, v):
    """What torch's schedules with chunks do on each rank."""
    runner = SimpleNamespace(
        pp_group_size=p,
        n_local_stages=v,
        _n_microbatches=m,
        microbatches_per_round=m // max(1, m // p),
    )
    rows = (
        getattr(schedules, name)._calculate_single_rank_operations(runner, rank)
        for rank in range(p)
    )
    return [[str(action) for action in row if action is not None] for row in rows]


def in_torchs_words(schedule):
    """torch numbers the parts of the model where we number chunks."""
    return [
        [f"{a.chunk * schedule.stages + s}{a.kind}{a.micro_batch}" for a in row]
        for s, row in enumerate(schedule.actions)
    ]


def check_against_torch(p, m):
    from torch.distributed.pipelining import schedules

    built = [gpipe(p, m), one_f_one_b(p, m), one_at_a_time(p, m), zb_h1(p, m)]
    assert in_torchs_words(built[0]) == recorded(schedules, "ScheduleGPipe", p, m)
    assert in_torchs_words(built[1]) == recorded(schedules, "Schedule1F1B", p, m)
    if fills_rounds(p, m):
        assert in_torchs_words(built[3]) == calculated(
            schedules, "ScheduleInterleavedZeroBubble", p, m, 1
        )
        for v in CHUNKS:
            built.append(interleaved(p, m, v))
            assert in_torchs_words(built[-1]) == calculated(
                schedules, "ScheduleInterleaved1F1B", p, m, v
            )
    for schedule in built:
        parts = p * schedule.chunks
        rows = {
            s: [schedules._Action.from_str(text) for text in row]
            for s, row in enumerate(in_torchs_words(schedule))
        }
        assert schedules._validate_schedule(rows, p, parts, m) == {
            part: part % p for part in range(parts)
        }
        with_messages = schedules._add_send_recv(
            {s: list(row) for s, row in rows.items()}, lambda part: part % p, parts
        )
        schedules._simulate_comms_compute(with_messages, lambda part, p=p: part % p, parts)


@settings(max_examples=4)
@given(st.tuples(st.integers(2, 8), st.integers(1, 24)))
@example((4, 8))
def test_torch_has_the_same_actions_in_the_same_order(torch, shape):
    check_against_torch(*shape)


@pytest.mark.long
@every_shape
def test_torch_has_the_same_actions_for_all_shapes(torch, p):
    for m in MICRO_BATCHES:
        check_against_torch(p, m)


# ---------------------------------------------------------------- run by stages that know nothing
# of each other
NAMED = {name: build for name, build in SCHEDULES.items() if name != "interleaved"} | {
    "two chunks": lambda p, m: interleaved(p, m * p, 2),
    "three chunks": lambda p, m: interleaved(p, m * p, 3),
}


@settings(max_examples=20)
@given(st.sampled_from(sorted(NAMED)), st.integers(2, 8), st.integers(1, 12))
def test_messages_are_taken_in_the_order_in_which_they_are_sent(name, p, m):
    """So that a queue for each source and kind will do; and each message has one sender and one
    receiver.
    """
    schedule = NAMED[name](p, m)
    sent, taken = {}, {}
    for stage in range(schedule.stages):
        for action, receive, send in schedule.tasks(stage):
            if receive:
                assert receive.destination == (stage, action.chunk)
                taken.setdefault((receive.source.stage, stage, receive.what), []).append(receive)
            if send:
                assert send.source == (stage, action.chunk)
                sent.setdefault((stage, send.destination.stage, send.what), []).append(send)
    assert sent == taken and all(len(set(messages)) == len(messages) for messages in sent.values())
