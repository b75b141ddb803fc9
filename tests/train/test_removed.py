"""A training step with one collective left out differs from one device: for each place where
there is one.
"""

import numpy as np
import pytest
from train.runs import Case, Form, backward, filled, opened, run, wrong_gradients, wrong_loss

from ttkit.train.config.settings import TransformerConfig
from ttkit.train.parallel import distributed
from ttkit.train.parallel.distributed import synchronize_gradients
from ttkit.train.run import optimizers
from ttkit.train.run.optimizers import clip_grad_norm

# In the order in which a model with one block reaches them.
PLACES = [
    "embedding: the sum over the parts of the vocabulary",
    "attention: the sum after the rows",
    "MLP: the sum after the rows",
    "cross-entropy: the highest logit",
    "cross-entropy: the sum of exponentials",
    "cross-entropy: the target's logit",
    "before the head, on the way back",
    "before the MLP, on the way back",
    "before attention, on the way back",
]
COLLECTIVES = ("reduced", "gathered", "reduce_scattered", "local_slice")


SQUARE = Form((2, 2), 0, 1)


def case(kind, form=SQUARE):
    config = TransformerConfig(
        kind,
        num_heads=4,
        num_groups=2,
        embedding_dim=16,
        dropout_prob=0.0,
        num_blocks=1,
        vocab_size=120,
        max_sequence_length=8,
    )
    return Case(config, form, batch=2, length=8)


def leave_out(monkeypatch, which):
    """Let the collective call of this number give back what it got; the list of calls grows with
    each one.
    """
    calls = []

    def without(real):
        def call(value, *rest):
            if distributed.alone(value, rest[-1]):
                return value
            calls.append(real.__name__)
            return value if len(calls) - 1 == which else real(value, *rest)

        return call

    for name in COLLECTIVES:
        monkeypatch.setattr(distributed, name, without(getattr(distributed, name)))
    return calls


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
@pytest.mark.parametrize("left_out", [None, *PLACES])
def test_a_collective_left_out_is_seen(kind, left_out, monkeypatch):
    tensor_parallel = case(kind, Form((1, 2), None, 1))
    loss, gradients, _ = run(tensor_parallel.on_one_device())
    which = None if left_out is None else PLACES.index(left_out)
    with opened(tensor_parallel.form) as mesh:
        model = filled(tensor_parallel, mesh)
        calls = leave_out(monkeypatch, which)
        losses = backward(tensor_parallel, model)
        assert len(calls) == len(PLACES)
        wrong = wrong_gradients(tensor_parallel, model, gradients) + ["loss"] * wrong_loss(
            tensor_parallel, losses, loss
        )
    assert bool(wrong) == (left_out is not None), wrong


def test_each_gradient_left_unsynchronized_is_seen(monkeypatch):
    both = case("gpt2")
    _, gradients, _ = run(both.on_one_device())
    with opened(both.form) as mesh:
        model = filled(both, mesh)
        parameters = model.parameters()
        with monkeypatch.context() as patched:
            patched.setattr("train.runs.average_gradients", lambda *_: None)
            backward(both, model)
        own = {name: p.get_grad() for name, p in parameters.items()}
        for place, left_out in [(None, None), *enumerate(parameters)]:
            for name, p in parameters.items():
                p.set_grad(own[name])
            with monkeypatch.context() as patched:
                calls = leave_out(patched, place)
                synchronize_gradients(parameters, [0])
            assert len(calls) == len(parameters)
            # whose gradient is zero: softmax does not see what all scores share
            if left_out != "blocks.0.attention.key.bias":
                assert {name for name, _ in wrong_gradients(both, model, gradients)} == (
                    {left_out} - {None}
                )


def test_the_norm_without_its_sum_over_shards_is_seen(monkeypatch):
    tensor_parallel = case("llama", Form((1, 2), None, 1))
    _, gradients, _ = run(tensor_parallel.on_one_device())
    with opened(tensor_parallel.form) as mesh:
        model = filled(tensor_parallel, mesh)
        backward(tensor_parallel, model)
        parameters = model.parameters()
        norms = {name: np.linalg.norm(gradients[name].astype(np.float64)) for name in parameters}
        assert clip_grad_norm(parameters, np.inf) == pytest.approx(
            np.linalg.norm(list(norms.values())), rel=1e-6
        )
        for whole in (True, False):
            if not whole:
                monkeypatch.setattr(optimizers.ttnn, "all_reduce", lambda value, **_: value)
            for name, p in parameters.items():
                right = clip_grad_norm({name: p}, np.inf) == pytest.approx(norms[name], rel=1e-5)
                assert right == (whole or p.shard_dim is None), name
