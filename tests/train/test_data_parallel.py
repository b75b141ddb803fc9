"""Data parallelism against one device: ZeRO's steps, memory, traffic and checkpoints; and
buckets of gradients, which give the same means in fewer collectives."""

from dataclasses import replace

import numpy as np
import pytest
from train.runs import Case, Form, backward, different, filled, opened, small

import ttkit
from ttkit import ttnn
from ttkit.sim.tensor.tensor import bytes_in_use
from ttkit.train.autograd import no_grad
from ttkit.train.config.layout import Layout, tiled
from ttkit.train.model.models import create_model
from ttkit.train.parallel import data_parallel
from ttkit.train.parallel.data_parallel import average_gradients
from ttkit.train.run.optimizers import SGD, AdamW, AdamWConfig, SGDConfig, clip_grad_norm


def model(kind="gpt2", width=64, **changes):
    return small(kind, embedding_dim=width, **{"max_sequence_length": 32} | changes)


def adamw(parameters):
    return AdamW(parameters, AdamWConfig(1e-2, weight_decay=0.1))


def sgd(parameters):
    return SGD(parameters, SGDConfig(1e-1, momentum=0.9, nesterov=True))


def trained(case, optimizer=adamw, steps=2, max_norm=1e9):
    """The weights and the optimizer's state after some steps, and the norm of the gradients."""
    with opened(case.form) as mesh:
        built = filled(case, mesh)
        parameters = built.parameters()
        made = optimizer(parameters)
        for _ in range(steps):
            made.zero_grad()
            backward(case, built)
            norm = clip_grad_norm(parameters, max_norm)
            made.step()
        return {name: p.gather() for name, p in parameters.items()}, made.state_dict(), norm


@pytest.mark.parametrize(("stage", "optimizer"), [(1, adamw), (2, sgd), (3, adamw)])
def test_the_steps_are_those_of_one_device(stage, optimizer):
    case = Case(model(), Form((4, 2), 0, 1, zero=stage), batch=1, length=12)
    weights, state, norm = trained(case, optimizer, max_norm=1.0)
    wanted, alone, whole = trained(case.on_one_device(), optimizer, max_norm=1.0)
    assert norm == pytest.approx(whole, rel=1e-5) and norm > 1.0
    # a bias of keys has no gradient but rounding, of which Adam makes steps of full size
    moved = [name for name in wanted if not name.endswith("key.bias")]
    assert [name for name in moved if different(weights[name], wanted[name], 1e-4)] == []
    tensors, theirs = state["tensors"], alone["tensors"]
    assert tensors.keys() == theirs.keys()
    assert [key for key in theirs if different(tensors[key], theirs[key], 1e-4, 1e-6)] == []


def test_a_weight_is_cut_in_whole_tiles_or_not_at_all():
    eight = Layout(dp=8, zero=2)
    assert eight.zero_dim((1, 1, 256, 100)) == 2
    assert eight.zero_dim((1, 1, 100, 512)) == 3
    assert eight.zero_dim((1, 1, 128, 128)) is None
    assert replace(eight, zero=0).zero_dim((1, 1, 256, 256)) is None
    assert Layout(zero=2).zero_dim((1, 1, 256, 256)) is None


def kinds(case):
    """Bytes on a chip of weights, gradients and the optimizer's state, as the simulator counts."""
    with opened(case.form) as mesh:
        built = filled(case, mesh)
        layout, made = built.layout, adamw(built.parameters())
        found = [max(bytes_in_use().values())]
        tokens = layout.tokens(np.zeros((case.batch * layout.dp, 1, 1, case.length), int))
        with no_grad():  # masks and numbers stay
            built.loss(built(tokens), tokens)
        before = max(bytes_in_use().values())
        built.loss(built(tokens), tokens).backward()
        found.append(max(bytes_in_use().values()) - before)
        average_gradients(built.parameters())
        before = max(bytes_in_use().values())
        made.step()
        found.append(max(bytes_in_use().values()) - before)
        return tuple(found)


def test_each_stage_takes_less_memory():
    form = Form((4, 1), 0)
    config = model(width=128, vocab_size=128, max_sequence_length=128)  # all weights divide
    found = [kinds(Case(config, replace(form, zero=n), 1, 128)) for n in range(4)]
    weights, gradients, state = found[0]
    assert gradients == weights and state == 2 * weights
    layout = Layout(dp=form.shape[0], zero=3)
    cut = create_model(config, layout).parameters().values()
    part = sum(4 * tiled(p.shard_shape) for p in cut)
    assert part < 0.26 * weights
    assert found[1] == (weights, gradients, 2 * part)
    assert found[2] == (weights, part, 2 * part)
    assert found[3] == (part, part, 2 * part)


@pytest.mark.parametrize("stage, gathers, scatters", [(1, 1, 1), (2, 1, 2), (3, 4, 2)])
def test_what_is_sent_in_a_step(stage, gathers, scatters):
    """Of two micro-batches; in units of the weights, each of which is used once."""
    config = model("llama", 128, vocab_size=128, intermediate_dim=128)
    case = Case(config, Form((4, 1), 0, zero=stage), 1, 32, micro_batches=2)
    with opened(case.form) as mesh:
        built = filled(case, mesh)
        made = adamw(built.parameters())
        with ttkit.profile() as prof:
            backward(case, built)
            made.step()
        weights = sum(4 * tiled(p.local_shape) for p in built.parameters().values())
    sent = {}
    for record in prof.records:
        if record.kind == "communication":
            size = record.bytes_read * (4 if record.name == "all_gather" else 1)
            sent[record.name] = sent.get(record.name, 0) + size
    # the table needs no gradient of its input, so stage 3 does not gather it in the backward
    spared = 2 * 4 * 128 * 128 if stage == 3 else 0
    assert sent == {"all_gather": gathers * weights - spared, "reduce_scatter": scatters * weights}


def test_checkpoints_are_whole():
    case = Case(model(), Form((2, 4), 0, 1, zero=3), batch=1, length=12)
    _, state, _ = trained(case)
    with opened(Form((1, 2), 1)) as mesh:
        other = filled(Case(model(), Form((1, 2), 1, zero=2), batch=1, length=12), mesh)
        made = adamw(other.parameters())
        made.load_state_dict(state)
        again = made.state_dict()["tensors"]
    assert all(np.array_equal(again[key], array) for key, array in state["tensors"].items())


MODEL = small(embedding_dim=128, max_sequence_length=33)


def averaged(monkeypatch, form, bucket_mb, config):
    """Each chip's gradients after the mean, and the all-reduces that it took."""
    with opened(form) as mesh:
        case = Case(config, form, batch=1, length=12)
        model = filled(case, mesh)
        with monkeypatch.context() as before:
            before.setattr("train.runs.average_gradients", lambda parameters: None)
            backward(case, model)
        with ttkit.profile() as prof:
            average_gradients(model.parameters(), bucket_mb=bucket_mb)
        return (
            {name: p.gather_grad() for name, p in model.parameters().items()},
            sum(record.name == "all_reduce" for record in prof.records),
            len(model.parameters()),
            sum(record.time_s for record in prof.records if record.name == "all_reduce"),
        )


@pytest.mark.parametrize(
    "form, bucket_mb, width, in_one",
    [
        (Form((8, 1), 0), 25, 128, True),
        (Form((2, 4), 1, 0), 0.05, 128, False),
        (Form((4, 1), 0), 25, 68, False),
        (Form((2, 2), 0, 1, zero=2), 25, 64, True),
    ],
)
def test_the_means_are_the_same(monkeypatch, form, bucket_mb, width, in_one):
    """Widths that fill no row of 32 are sent alone, and weights that ZeRO cuts stay alone."""
    config = replace(MODEL, embedding_dim=width)
    alone, each, parameters, slow = averaged(monkeypatch, form, 0, config)
    together, few, _, fast = averaged(monkeypatch, form, bucket_mb, config)
    assert (each == parameters) == (not form.zero)
    assert (few == 1 if in_one else 1 < few) and few < each and fast < slow
    assert all(np.array_equal(alone[name], together[name]) for name in alone)


def test_a_bucket_is_not_too_large():
    class Fake:
        def __init__(self, rows):
            self.local_shape, self.layout = (1, 1, rows, 32), None
            self.dtype, self.zero_dim, self.expert = ttnn.float32, None, False

    parameters = [Fake(rows) for rows in (100, 100, 100, 500, 10, 10)]
    found = [[p.local_shape[2] for p in b] for b in data_parallel._buckets(parameters, 200 * 128)]
    assert found == [[100, 100], [100], [500], [10, 10]]
