"""Parameters in buckets; the exchange between ranks is in the runs of test_hierarchy."""

from dataclasses import replace

import numpy as np
from train.pipelines import MODEL

from ttkit.train.exchange import WIDTH, Buckets
from ttkit.train.models import create_model
from ttkit.train.parallel import Layout


def test_buckets_hold_every_parameter_once():
    model = create_model(replace(MODEL, vocab_size=5000, embedding_dim=512, num_blocks=1), Layout())
    buckets = Buckets(model.parameters())
    assert 1 < len(buckets.buckets) < len(buckets.parameters)
    assert [p.name for bucket in buckets.buckets for p in bucket] == sorted(model.parameters())
    generator = np.random.default_rng(0)
    values = {
        p.name: generator.standard_normal((2, *p.global_shape[1:])).astype(np.float32)
        for p in buckets.parameters
    }
    packed = list(buckets.pack(lambda p: values[p.name]))
    assert all(
        array.shape == buckets.shape(i, 2) and array.shape[3] == WIDTH
        for i, array in enumerate(packed)
    )
    for group in range(2):
        for parameter, array in buckets.unpack([array[group] for array in packed]):
            assert (array == values[parameter.name][group]).all()
