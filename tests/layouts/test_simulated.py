"""Dry runs in a process that has the simulator, as on a machine with a card."""

import numpy as np
import pytest

from ttkit import backend
from ttkit.errors import TTKitError
from ttkit.layouts.passes import pass_of
from ttkit.train.config.layout import Layout
from ttkit.train.config.settings import TransformerConfig

CONFIG = TransformerConfig(num_heads=4, embedding_dim=128, num_blocks=1, max_sequence_length=128)


def test_the_other_process_finds_the_same(monkeypatch):
    run, case = pass_of.__wrapped__, (CONFIG, Layout(tp=2), (True, True), 3)
    wanted = run(*case)
    monkeypatch.setattr(backend, "is_simulated", lambda: False)
    for _ in range(2):  # The process answers as often as it is asked.
        for one, other in zip(run(*case), wanted, strict=True):
            np.testing.assert_equal(one, other)
        with pytest.raises(TTKitError, match="num_heads = 4, devices = 3"):
            run(CONFIG, Layout(tp=3), (True, True), 3)
