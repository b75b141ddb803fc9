"""Lesson 16: its exercises with right and with wrong answers."""

from answers import both

from ttkit import from_numpy, ttnn


def spread(mesh, array):
    config = ttnn.MeshMapperConfig([ttnn.PlacementShard(0), ttnn.PlacementShard(1)])
    mapper = ttnn.create_mesh_mapper(mesh, config)
    return from_numpy(array, device=mesh, layout=ttnn.TILE_LAYOUT, mesh_mapper=mapper)


def levels(between=True, over=lambda mesh: mesh.get_num_devices(), dim=2):
    def two_level(mesh, gradients):
        t = ttnn.reduce_scatter(spread(mesh, gradients), dim=dim, cluster_axis=1)
        if between:
            t = ttnn.all_reduce(t, cluster_axis=0)
        return ttnn.all_gather(t, dim=dim, cluster_axis=1) * (1 / over(mesh))

    return two_level


def scaled_first(mesh, gradients):
    return levels(over=lambda mesh: 1)(mesh, gradients / mesh.get_num_devices())


def with_levels_swapped(mesh, gradients):
    t = ttnn.reduce_scatter(spread(mesh, gradients), dim=2, cluster_axis=0)
    t = ttnn.all_gather(ttnn.all_reduce(t, cluster_axis=1), dim=2, cluster_axis=0)
    return t * (1 / mesh.get_num_devices())


def by_axis(mesh, gradients):
    t = ttnn.all_reduce(spread(mesh, gradients), cluster_axis=0)
    return ttnn.all_reduce(t, cluster_axis=1) * (1 / mesh.get_num_devices())


def each(hosts, nbytes):
    return 2 * (hosts - 1) / hosts * nbytes


test_a_right_answer_passes, test_a_wrong_answer_is_told_where = both(
    {
        "16.two_level": (
            [levels(), scaled_first],
            {
                "the all-reduce between the hosts is missing": levels(
                    between=False, over=lambda mesh: mesh.shape[1]
                ),
                "2 times the mean: the sum was divided by the chips of one host": levels(
                    over=lambda mesh: mesh.shape[1]
                ),
                "bytes on links; the budget is": by_axis,
                "720,896 bytes on links": with_levels_swapped,
                "NumPy did it on the host": lambda mesh, g: spread(mesh, 0 * g + g.mean((0, 1))),
            },
        ),
        "16.bytes": (
            [
                lambda h, c, n: (c * each(h, n), each(h, n)),
                lambda h, c, n: [c * each(h, n), c * each(h, n / c)],
            ],
            {
                "element [0] should be 16384, but is 4096": lambda h, c, n: (
                    each(h, n),
                    c * each(h, n),
                ),
                "the second number is that of a flat ring": lambda h, c, n: (
                    c * each(h, n),
                    each(h * c, n),
                ),
                "element [1] should be 4096, but is 1024": lambda h, c, n: (
                    c * each(h, n),
                    each(h, n / c),
                ),
            },
        ),
    }
)
