"""Lesson 18: its exercises with right and with wrong answers."""

from answers import both, cut, put

from ttkit import ttnn


def longest(room, width, blocks, n, sequence_parallel):
    return int(room / (width * blocks * (34 / n if sequence_parallel else 10 + 24 / n)))


def in_whole_numbers(room, width, blocks, n, sequence_parallel):
    return int(room) * n // ((34 if sequence_parallel else 10 * n + 24) * width * blocks)


def placed(mesh, normed, terms):
    return put(mesh, normed[None, None], cut(mesh, 2)), put(mesh, terms[:, None], cut(mesh, 0))


def own_row(mesh, normed, terms, add=ttnn.sum):
    """The gradient from a chip's own tokens."""
    normed, terms = placed(mesh, normed, terms)
    grad = ttnn.reduce_scatter(terms, dim=2, cluster_axis=1)
    return add(ttnn.multiply(grad, normed), dim=2, keepdim=True)


def weight(*given):
    return ttnn.all_reduce(own_row(*given), cluster_axis=1)


def by_mean(*given):  # A chip has 64 tokens.
    return ttnn.multiply(ttnn.all_reduce(own_row(*given, ttnn.mean), cluster_axis=1), 64)


def all_reduced(mesh, normed, terms):
    """Every chip gets the gradient of all tokens."""
    normed, terms = placed(mesh, normed, terms)
    grad = ttnn.mesh_partition(ttnn.all_reduce(terms, cluster_axis=1), 2, cluster_axis=1)
    row = ttnn.sum(ttnn.multiply(grad, normed), dim=2, keepdim=True)
    return ttnn.all_reduce(row, cluster_axis=1)


test_a_right_answer_passes, test_a_wrong_answer_is_told_where = both(
    {
        "18.longest": (
            [longest, in_whole_numbers],
            {
                "only sequence parallelism divides": lambda *c: longest(*c[:4], False),
                "should be": lambda room, width, _, *more: longest(room, width, 1, *more),
            },
        ),
        "18.weight": (
            [weight, by_mean],
            {
                "each chip has the gradient of its own tokens only": own_row,
                "the budget is": all_reduced,
            },
        ),
    }
)
