"""The exercises of lesson 15: right answers, and wrong ones that are told what is wrong."""

import numpy as np
import pytest
from answers import right, wrong
from machine import strict_with_fabric

import ttkit
from ttkit import ttnn
from ttkit.lessons.lesson_15 import held
from ttkit.train import AutoContext, Trainer
from ttkit.train.config import (
    DeviceConfig,
    LayoutConfig,
    Settings,
    TrainingConfig,
    TransformerConfig,
)


@pytest.fixture(autouse=True)
def as_in_a_lesson():
    with strict_with_fabric():
        yield
        AutoContext.get_instance().close_device()


def parted(w, grad, axis, update, dim=2, mean=True, scatter=None, partition=None, gather=True):
    """ZeRO 1, with a place for each mistake."""
    part = ttnn.reduce_scatter(grad, dim, cluster_axis=axis if scatter is None else scatter)
    if mean:
        part = ttnn.multiply(part, 1 / w.device().shape[axis])
    mine = ttnn.mesh_partition(w, dim, cluster_axis=axis if partition is None else partition)
    new = update(mine, part)
    return ttnn.all_gather(new, dim, cluster_axis=axis) if gather else new


def zero1(w, grad, axis, update):
    return parted(w, grad, axis, update)


def by_columns(w, grad, axis, update):
    return parted(w, grad, axis, update, dim=3)


def divided_first(w, grad, axis, update):
    return parted(w, ttnn.multiply(grad, 1 / w.device().shape[axis]), axis, update, mean=False)


def divided_twice(w, grad, axis, update):
    return parted(w, ttnn.multiply(grad, 1 / w.device().shape[axis]), axis, update)


def tidy(w, grad, axis, update):
    """Frees what it no longer needs, its arguments too."""
    part = ttnn.reduce_scatter(grad, 3, cluster_axis=axis)
    ttnn.deallocate(grad)
    mean = ttnn.multiply(part, 1 / w.device().shape[axis])
    ttnn.deallocate(part)
    mine = ttnn.mesh_partition(w, 3, cluster_axis=axis)
    ttnn.deallocate(w)
    new = update(mine, mean)
    ttnn.deallocate(mine)
    ttnn.deallocate(mean)
    return ttnn.all_gather(new, 3, cluster_axis=axis)


def all_gathered_gradients(w, grad, axis, update):
    """Each chip adds all gradients itself."""
    n = w.device().shape[axis]
    every = ttnn.all_gather(grad, 0, cluster_axis=axis)
    mean = ttnn.multiply(ttnn.sum(every, dim=0, keepdim=True), 1 / n)
    mine, part = (ttnn.mesh_partition(x, 2, cluster_axis=axis) for x in (w, mean))
    return ttnn.all_gather(update(mine, part), 2, cluster_axis=axis)


def with_autograds_names(w, grad, axis, update):
    from ttkit.train import zero
    from ttkit.train.parallel import MeshLayout

    layout = MeshLayout(ddp_axis=axis, ddp_size=w.device().shape[axis], zero=1)
    return zero.whole(update(zero.part(w, 2, layout), zero.mean_part(grad, 2, layout)), 2, layout)


def mean_of(grad, axis):
    return ttnn.multiply(ttnn.all_reduce(grad, cluster_axis=axis), 1 / grad.device().shape[axis])


def reshaped(w, grad, axis, update):
    """The same numbers in longer rows; its parts are whole rows."""
    shape = tuple(w.shape)
    rows = shape[2] * shape[3] // 512
    w, grad = (ttnn.reshape(x, (1, 1, rows, 512)) for x in (w, grad))
    return ttnn.reshape(zero1(w, grad, axis, update), shape)


def returns_the_old(w, grad, axis, update):
    zero1(w, grad, axis, update)
    return w


def freed(w, grad, axis, update):
    new = zero1(w, grad, axis, update)
    ttnn.deallocate(new)
    return new


def divided_by(n):
    def answer(w, grad, axis, update):
        return parted(w, ttnn.multiply(grad, 1 / n), axis, update, mean=False)

    return answer


def gathered_along_axis_1(w, grad, axis, update):
    return ttnn.all_gather(parted(w, grad, axis, update, gather=False), 2, cluster_axis=1)


def all_reduced_and_sliced(w, grad, axis, update):
    mine, part = (ttnn.mesh_partition(x, 2, cluster_axis=axis) for x in (w, mean_of(grad, axis)))
    return ttnn.all_gather(update(mine, part), 2, cluster_axis=axis)


def whole_state(w, grad, axis, update):
    return update(w, mean_of(grad, axis))


def own_gradient(w, grad, axis, update):
    mine, part = (ttnn.mesh_partition(x, 2, cluster_axis=axis) for x in (w, grad))
    return ttnn.all_gather(update(mine, part), 2, cluster_axis=axis)


def summed_along_the_other(w, grad, axis, update):
    if grad.device().shape[1 - axis] == 1:
        return zero1(w, grad, axis, update)
    mine, part = (
        ttnn.mesh_partition(x, 2, cluster_axis=axis) for x in (w, mean_of(grad, 1 - axis))
    )
    return ttnn.all_gather(update(mine, part), 2, cluster_axis=axis)


def on_the_host(w, grad, axis, update):
    shards = [ttkit.to_numpy(shard) for shard in ttnn.get_device_tensors(grad)]
    assert np.isfinite(shards).all()
    return zero1(w, grad, axis, update)


def other_part(w, grad, axis, update):
    turned = ttnn.concat([w[:, :, 256:], w[:, :, :256]], dim=2)
    return parted(turned, grad, axis, update)


def twice(w, grad, axis, update):
    zero1(w, grad, axis, update)
    return zero1(w, grad, axis, update)


def gathered_the_wrong_way(w, grad, axis, update):
    new = parted(w, grad, axis, update, gather=False)
    n, columns = w.device().shape[axis], w.shape[3]
    return ttnn.reshape(ttnn.all_gather(new, 3, cluster_axis=axis), (1, 1, w.shape[2], columns)), n


def shuffled(w, grad, axis, update):
    whole = zero1(w, grad, axis, update)
    return ttnn.concat([whole[:, :, 256:], whole[:, :, :256]], dim=2)


def bytes_per_parameter(stage, chips, precision):
    weight, grad, state = {"float32": (4, 4, 8), "bfloat16": (2, 2, 12)}[precision]
    cuts = [chips if stage >= at else 1 for at in (3, 2, 1)]
    return weight / cuts[0] + grad / cuts[1] + state / cuts[2]


def smallest(parameters, groups, parts, precision, room, needs=bytes_per_parameter):
    for stage in range(4):
        if parameters / parts * needs(stage, groups, precision) <= room:
            return stage


def by_a_table(parameters, groups, parts, precision, room):
    wide, n = precision == "float32", groups
    table = [16, (8 if wide else 4) + (8 if wide else 12) / n]
    table += [4 + 12 / n if wide else 2 + 14 / n, 16 / n]
    return next((np.int64(i) for i, b in enumerate(table) if b * parameters <= room * parts), None)


test_right_answers = right(
    [
        ("15.step", zero1),
        ("15.step", by_columns),
        ("15.step", divided_first),
        ("15.step", lambda *a: parted(*a, dim=-1)),
        ("15.step", with_autograds_names),
        ("15.step", tidy),
        ("15.step", reshaped),
        ("15.smallest", smallest),
        ("15.smallest", by_a_table),
        (
            "15.smallest",
            lambda *a: None if smallest(*a) is None else float(smallest(*a)),
        ),
    ]
)

test_wrong_answers = wrong(
    [
        (
            "15.step",
            all_reduced_and_sliced,
            "it is right, but all_reduce, all_gather sent .* bytes; the budget is",
        ),
        ("15.step", all_gathered_gradients, "all_gather sent .* bytes; the budget is"),
        ("15.step", whole_state, "given the whole weight .* bytes of moments on each chip"),
        ("15.step", own_gradient, "each chip's own: nothing was summed"),
        ("15.step", summed_along_the_other, "summed along axis 1, over chips with other weights"),
        ("15.step", lambda *a: parted(*a, mean=False), "the sum of 8 gradients, 8 times"),
        ("15.step", divided_twice, "8 times too small: divided twice"),
        ("15.step", lambda *a: parted(*a, gather=False), "an all_gather is missing"),
        (
            "15.step",
            lambda w, g, axis, update: parted(w, g, 1, update),
            "a part of 4; that is axis 1, axis 0 has 2 chips",
        ),
        ("15.step", lambda *a: parted(*a, partition=1), "cut both alike, along the same axis"),
        ("15.step", on_the_host, "went through the host"),
        ("15.step", other_part, "the part of the weight that update was given is not"),
        ("15.step", twice, "update was called 2 times, not once"),
        ("15.step", lambda w, grad, axis, update: w, "update was called 0 times"),
        ("15.step", lambda *a: None, "gave nothing back"),
        ("15.step", returns_the_old, "that is the old weight; return the one that update gives"),
        ("15.step", divided_by(8), "the sum is divided by 8; along axis 0 are 2 chips"),
        (
            "15.step",
            lambda w, grad, axis, update: parted(w, grad, axis, lambda x, y: update(y, x)),
            r"it is the weight; the order is update\(w, grad\)",
        ),
        (
            "15.step",
            lambda *a: ttnn.reshape(zero1(*a), (512, 256)),
            r"you give \[512, 256\] of the weight \[1, 1, 512, 256\] back: reshape it",
        ),
        ("15.step", lambda w, grad, axis, update: update([w], grad), "it was given a list"),
        (
            "15.step",
            lambda *a: ttnn.reshape(zero1(*a), (1, 1, 512, 256)),
            r"you give \[1, 1, 512, 256\] of the weight \[1, 1, 256, 512\] back: reshape it",
        ),
        ("15.step", lambda *a: ttnn.add(zero1(*a), 0.01), "the new weight is not one device's"),
        ("15.smallest", lambda *a: f"ZeRO-{smallest(*a)}", "a stage from 0 to 3, or None"),
        ("15.smallest", lambda *a: smallest(*a) or None, "you found none, but stage 0 takes"),
        ("15.step", freed, "the weight that came back was deallocated"),
        ("15.step", gathered_along_axis_1, "more than all of it; gather along axis 0"),
        (
            "15.smallest",
            lambda *a: smallest(*a[:4], room=a[4] * (1 - 1e-9)),
            "stage 1 takes 9.00 GB on a chip, which fits, but so does stage 0, 16.00 GB",
        ),
        ("15.step", gathered_the_wrong_way, "should give a ttnn tensor, gave a tuple"),
        ("15.step", shuffled, "the new weight is not one device's: device"),
        ("15.smallest", lambda *a: 3, "which fits, but so does stage 1, .* which cuts less"),
        ("15.smallest", lambda *a: 0, "stage 0 takes 120.00 GB on a chip, which does not fit"),
        ("15.smallest", lambda *a: None, "you found none, but stage 1 takes"),
        ("15.smallest", lambda *a: 4, "a stage from 0 to 3, or None"),
        ("15.smallest", lambda *a: "1", "a stage from 0 to 3, or None"),
        (
            "15.smallest",
            lambda p, g, t, precision, room: smallest(p, g, t, "float32", room),
            "stage 2 takes 16.64 GB on a chip, which fits, but so does stage 1",
        ),
        (
            "15.smallest",
            lambda p, g, t, precision, room: smallest(p, g * t, 1, precision, room),
            "4 groups x 8 parts, .*: stage 3 takes 4.02 GB .* but so does stage 2",
        ),
        (
            "15.smallest",
            lambda p, g, t, precision, room: smallest(p, g, g * t, precision, room),
            "stage 0 takes .* which does not fit",
        ),
        (
            "15.smallest",
            lambda *a: 3 if smallest(*a) is None else smallest(*a),
            "no stage fits, so the answer is None",
        ),
        (
            "15.smallest",
            lambda *a: smallest(*a, needs=lambda stage, n, _: 16 / n if stage else 16),
            "stage 1 takes .* which does not fit",
        ),
    ]
)


def test_what_a_step_keeps_is_counted():
    """Each of four chips' weights, gradients and moments, for a model without narrow weights."""
    model = TransformerConfig(
        num_heads=4,
        embedding_dim=128,
        num_blocks=1,
        vocab_size=256,
        max_sequence_length=128,
        dropout_prob=0,
        bias=False,
    )
    how = {"tokenizer_type": "byte", "checkpoint_dir": "", "eval_every": 0}
    whole, part = (
        held(
            Trainer(
                Settings(
                    DeviceConfig((1, 4), enable_ddp=True),
                    TrainingConfig(batch_size=4, **how),
                    transformer_config=model,
                    layout=LayoutConfig(zero=stage),
                )
            )
        )["chip 0"]
        for stage in (0, 2)
    )
    weights = whole["weights"]
    assert whole == {"weights": weights, "gradients": weights, "optimizer": 2 * weights}
    assert part == {"weights": weights, "gradients": weights / 4, "optimizer": weights / 2}
