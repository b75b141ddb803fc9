"""Norms of images against torch's; the vectors and masks of group norms."""

import numpy as np
import pytest

import ttkit
from ttkit import ttnn
from ttkit.errors import TTKitError


@pytest.mark.parametrize(
    ("channels", "groups", "cores", "rows"),
    [(64, 4, 1, 1), (320, 16, 2, 2), (480, 8, 4, 4), (96, 8, 4, 2)],  # 96 fit on 2 cores, too
)
def test_group_norm(wide, put, check, torch, channels, groups, cores, rows):
    x, grid = put(wide, (2, 1, 40, channels), "S0R"), ttnn.CoreGrid(x=4, y=rows)
    vectors = [torch.rand(channels) for _ in range(2)]
    given = [ttnn.create_group_norm_weight_bias_rm(v, channels, cores) for v in vectors]
    weight, bias = (ttnn.from_torch(each, device=wide) for each in given)

    def reference(x):
        rows = torch.tensor(x).permute(0, 3, 1, 2)
        of = [each.double() for each in vectors]
        made = torch.nn.functional.group_norm(rows, groups, *of, 1e-5)
        return made.permute(0, 2, 3, 1).numpy()

    how = {"num_groups": groups, "core_grid": grid, "epsilon": 1e-5}
    made = ttnn.group_norm(x, weight=weight, bias=bias, **how)
    check(made, reference, x, additions=40 * channels)
    with pytest.raises(TTKitError, match="values of a vector are not"):
        ttnn.group_norm(x, weight=x, **how)


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm(wide, put, check, parts, torch, training):
    x, vectors = put(wide, (8, 3, 5, 4), "S0R"), [put(wide, (1, 3, 1, 1), low=0.5) for _ in "mvwb"]
    old = parts(vectors[0])[0], parts(vectors[1])[0]
    running = {"running_mean": vectors[0], "running_var": vectors[1]}

    def reference(x, *given):
        of = [torch.tensor(each.astype(float).ravel()) for each in (*old, *given)]
        x = torch.tensor(x)
        return torch.nn.functional.batch_norm(x, *of, training=training, momentum=0).numpy()

    how = {"weight": vectors[2], "bias": vectors[3]}
    made = ttnn.batch_norm(x, **running, training=training, momentum=0.25, **how)
    check(made, reference, x, *vectors[2:], additions=200)
    for tensor, was, function in zip(vectors, old, (np.mean, np.var)):
        now = 0.75 * was + 0.25 * function(parts(x)[0], (0, 2, 3), keepdims=True)
        np.testing.assert_allclose(parts(tensor)[0], now if training else was, rtol=1e-5)
    check(
        ttnn.batch_norm(x, **running), lambda x, m, v: (x - m) / np.sqrt(v + 1e-5), x, *vectors[:2]
    )


def test_masks_and_vectors(wide, torch):
    """The columns are those that ttnn 0.81.1 gives."""
    mask = ttkit.to_numpy(ttnn.create_group_norm_input_mask(320, 16, 2))
    assert mask.shape == (1, 16, 32, 64)
    np.testing.assert_array_equal(
        ttkit.to_numpy(ttnn.create_group_norm_input_negative_mask(320, 16, 2)), 1 - mask
    )
    for group, first in enumerate([0, 20, 8, 28, 16, 4, 24, 12] * 2):
        assert np.flatnonzero(mask[0, group, 7]).tolist() == list(range(first, first + 20))
    pair, mask = ttnn.dram_group_norm_params_from_torch([torch.rand(64)] * 2, 64, 4, wide)
    assert [list(each.shape) for each in (*pair, mask)] == [[1, 1, 2, 32]] * 2 + [[1, 4, 32, 32]]
