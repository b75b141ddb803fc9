"""Lesson 12: its exercise with right and with wrong answers."""

from answers import both

from ttkit import ttnn


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


def all_gathered_gradients(w, grad, axis, update):
    """Each chip adds all gradients itself."""
    n = w.device().shape[axis]
    every = ttnn.all_gather(grad, 0, cluster_axis=axis)
    mean = ttnn.multiply(ttnn.sum(every, dim=0, keepdim=True), 1 / n)
    mine, part = (ttnn.mesh_partition(x, 2, cluster_axis=axis) for x in (w, mean))
    return ttnn.all_gather(update(mine, part), 2, cluster_axis=axis)


def mean_of(grad, axis):
    return ttnn.multiply(ttnn.all_reduce(grad, cluster_axis=axis), 1 / grad.device().shape[axis])


def returns_the_old(w, grad, axis, update):
    zero1(w, grad, axis, update)
    return w


def divided_by(n):
    def answer(w, grad, axis, update):
        return parted(w, ttnn.multiply(grad, 1 / n), axis, update, mean=False)

    return answer


def all_reduced_and_sliced(w, grad, axis, update):
    mine, part = (ttnn.mesh_partition(x, 2, cluster_axis=axis) for x in (w, mean_of(grad, axis)))
    return ttnn.all_gather(update(mine, part), 2, cluster_axis=axis)


def whole_state(w, grad, axis, update):
    return update(w, mean_of(grad, axis))


test_a_right_answer_passes, test_a_wrong_answer_is_told_where = both(
    {
        "12.step": (
            [zero1, by_columns, divided_first],
            {
                "it is right, but you called all_reduce, all_gather: ": all_reduced_and_sliced,
                "bytes on links; the budget is 7,340,032": all_gathered_gradients,
                "update was given [1, 1, 256, 512], so it keeps 1,048,576 bytes": whole_state,
                "the weight moved by the sum of the gradients, not their mean": lambda *a: parted(
                    *a, mean=False
                ),
                "all_gather is missing": lambda *a: parted(*a, gather=False),
                "that is the old weight": returns_the_old,
                "divided by all 8 chips; only those along the axis": divided_by(8),
                "returned nothing": lambda *a: None,
                "device 4 at (0, 0): element [0, 0, 0, 0] should be": lambda *a: ttnn.add(
                    zero1(*a), 0.01
                ),
            },
        )
    }
)
