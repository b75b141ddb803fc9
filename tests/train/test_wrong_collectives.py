"""A training step with one collective left out, or made along the wrong axis, differs from one
device: for each call of a collective, on each kind of layout.
"""

from dataclasses import replace

import numpy as np
import pytest
from train.runs import Case, Form, backward, different, filled, opened, run

from ttkit import ttnn
from ttkit.train.config.settings import TransformerConfig

MODEL = TransformerConfig(
    num_heads=4,
    num_groups=2,
    embedding_dim=64,
    dropout_prob=0.0,
    num_blocks=1,
    vocab_size=120,
    max_sequence_length=128,
    bias=False,
)
MIXTURE = replace(MODEL, num_experts=4, capacity_factor=2.0)
FORMS = {
    "ZeRO 1": (MODEL, Form((2, 2), 0, 1, zero=1)),
    "ZeRO 2, SP": (MODEL, Form((2, 2), 1, 0, zero=2, sequence_parallel=True)),
    "ZeRO 3": (MODEL, Form((2, 2), 0, 1, zero=3)),
    "CP, TP": (MODEL, Form((2, 2), None, 1, cp_axis=0)),
    "DP, CP": (MODEL, Form((2, 2), 0, None, cp_axis=1)),
    "EP, TP": (MIXTURE, Form((2, 2), 0, 1, ep=True)),
}
EXCHANGE = "all_to_all_async_generic"


class Wrong:
    """Stands in for the collectives, and makes the call of one number wrong."""

    def __init__(self, monkeypatch, which, how):
        self.calls, self.which, self.how = [], which, how
        for name in ("all_reduce", "all_gather", "reduce_scatter", "mesh_partition"):
            monkeypatch.setattr(ttnn, name, self.instead(name, getattr(ttnn, name)))
        real = getattr(ttnn.experimental, EXCHANGE)
        monkeypatch.setattr(ttnn.experimental, EXCHANGE, self.instead(EXCHANGE, real))

    def instead(self, name, real):
        def call(value, *dims, cluster_axis, **how):
            self.calls.append(name)
            if len(self.calls) - 1 != self.which:
                return real(value, *dims, cluster_axis=cluster_axis, **how)
            if self.how == "wrong axis":
                return real(value, *dims, cluster_axis=1 - cluster_axis, **how)
            return self.left_out(name, value, dims, how)

        return call

    def left_out(self, name, value, dims, how):
        """The same shape, of what the chip has itself."""
        if name == "all_reduce":
            return value
        if name == "all_gather":
            return ttnn.concat([value, value], dim=dims[0])
        if name == EXCHANGE:
            into, cut = dims or (how["in_dim"], how["out_dim"])
            half = first_half(value, cut)
            return ttnn.concat([half, half], dim=into)
        return first_half(value, dims[0])


def first_half(value, dim):
    end = list(value.shape)
    end[dim] //= 2
    return ttnn.slice(value, [0] * len(end), end)


def step(case, monkeypatch, which, how):
    """The calls of a step, its loss and its gradients."""
    with opened(case.form) as mesh:
        model = filled(case, mesh)
        with monkeypatch.context() as patched:
            wrong = Wrong(patched, which, how)
            losses = backward(case, model)
        gradients = {name: p.gather_grad() for name, p in model.parameters().items()}
        apart = np.ptp(losses.reshape(case.form.shape), axis=case.form.tp_axis).max()
        # chips that have the same tokens have the same loss
        loss = np.nan if case.form.tp_axis is not None and apart > 1e-4 else losses.mean()
        return wrong.calls, loss, gradients


def is_right(case, found, wanted):
    _, loss, gradients = found
    return not different(loss, wanted[0]) and not any(
        different(gradients[name], wanted[1][name], 2e-5) for name in gradients
    )


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
@pytest.mark.parametrize("name", FORMS)
def test_each_wrong_collective_is_seen(monkeypatch, name, kind):
    model, form = FORMS[name]
    case = Case(replace(model, model_type=kind), form, batch=1, length=128)
    wanted = run(case.on_one_device())
    right = step(case, monkeypatch, None, "")
    assert is_right(case, right, wanted)
    assert len(right[0]) > 3
    unseen = [
        (number, call, how)
        for number, call in enumerate(right[0])
        for how in ("left out", "wrong axis")
        if is_right(case, step(case, monkeypatch, number, how), wanted)
    ]
    assert unseen == []
