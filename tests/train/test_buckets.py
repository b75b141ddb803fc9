"""Buckets of gradients: the same means in fewer collectives."""

from dataclasses import replace

import numpy as np
import pytest
from train.runs import Case, Form, backward, filled, opened

import ttkit
from ttkit import ttnn
from ttkit.train.config.settings import TransformerConfig
from ttkit.train.parallel import data_parallel
from ttkit.train.parallel.data_parallel import average_gradients

MODEL = TransformerConfig(
    num_heads=4,
    embedding_dim=128,
    dropout_prob=0.0,
    num_blocks=2,
    vocab_size=70,
    max_sequence_length=33,
)


def averaged(monkeypatch, form, bucket_mb, config=MODEL):
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
            prof.time_s,
        )


@pytest.mark.parametrize("form", [Form((8, 1), 0), Form((2, 4), 0, 1), Form((2, 4), 1, 0)])
@pytest.mark.parametrize("bucket_mb", [0.05, 25])
def test_the_means_are_the_same(monkeypatch, form, bucket_mb):
    alone, each, parameters, slow = averaged(monkeypatch, form, 0)
    together, few, _, fast = averaged(monkeypatch, form, bucket_mb)
    assert each == parameters and (few == 1 if bucket_mb == 25 else 1 < few < each)
    assert all(np.array_equal(alone[name], together[name]) for name in alone)
    assert fast < slow


def test_widths_that_fill_no_row_are_sent_alone(monkeypatch):
    odd = replace(MODEL, embedding_dim=68, bias=True)
    alone, each, *_ = averaged(monkeypatch, Form((4, 1), 0), 0, odd)
    together, few, *_ = averaged(monkeypatch, Form((4, 1), 0), 25, odd)
    assert 1 < few < each
    assert all(np.array_equal(alone[name], together[name]) for name in alone)


def test_weights_that_zero_cuts_stay_by_themselves(monkeypatch):
    form, narrow = Form((2, 2), 0, 1, zero=2), replace(MODEL, embedding_dim=64)
    alone, each, *_ = averaged(monkeypatch, form, 0, narrow)
    together, few, *_ = averaged(monkeypatch, form, 25, narrow)
    assert few == 1 < each
    assert all(np.array_equal(alone[name], together[name]) for name in alone)


def test_a_bucket_is_not_too_large():
    class Fake:
        def __init__(self, rows):
            self.local_shape, self.layout = (1, 1, rows, 32), None
            self.dtype = ttnn.float32

    parameters = [Fake(rows) for rows in (100, 100, 100, 500, 10, 10)]
    found = [[p.local_shape[2] for p in b] for b in data_parallel._buckets(parameters, 200 * 128)]
    assert found == [[100, 100], [100], [500], [10, 10]]
