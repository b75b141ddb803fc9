"""Engines on the real ttnn's mock cluster:

`engines.py REAL`, where REAL is what setup_mock.py made. Two ranks, as two meshes and as one big
one.

The two meshes run lesson 06's own cells; values mean nothing there, and `lessons.same` says so.
Exit status 1, with what went wrong, else a line for each."""

import contextlib
import io
import json
import os
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
REAL = pathlib.Path(sys.argv[1]).resolve()
FOLDERS = [str(ROOT), str(ROOT / "notebooks")]
sys.path[:0] = FOLDERS
os.environ |= {
    "TTKIT_BACKEND": "ttnn",
    "TTKIT_PROGRESS": "0",
    "TT_METAL_SLOW_DISPATCH_MODE": "1",
    "LOGURU_LEVEL": "ERROR",
    "PYTHONPATH": os.pathsep.join(FOLDERS),
}
# of this process; each rank has its own
os.environ["TT_METAL_MOCK_CLUSTER_DESC_PATH"] = str(REAL / "t3000.yaml")

import ttkit  # noqa: E402
from ttkit import lessons  # noqa: E402
from ttkit.cluster.engines.results import run_cell  # noqa: E402

# the cells of lesson 06 that run on any two ranks with a mesh each
APPLY = ("06-06", "06-14", "06-17", "06-18", "06-20")


def bindings(folder, parts, descriptor, shared):
    """A configuration folder for two ranks, each with the cluster descriptor of its part."""
    lines = ["rank_bindings:"]
    for rank in range(2):
        place = (
            f"mesh_id: 0, mesh_host_rank: {rank}"
            if shared
            else f"mesh_id: {rank}, mesh_host_rank: 0"
        )
        mock = f"TT_METAL_MOCK_CLUSTER_DESC_PATH: {REAL}/{parts}{rank}.yaml"
        lines.append(f"  - {{rank: {rank}, {place}, env_overrides: {{{mock}}}}}")
    (folder / "rank_bindings.yaml").write_text(
        "\n".join([*lines, f"mesh_graph_desc_path: {REAL}/{descriptor}"]) + "\n"
    )
    return folder


def lesson_cells():
    """The sources of those cells."""
    cells = json.loads((ROOT / "notebooks/06_engines_and_ranks.ipynb").read_text())["cells"]
    found = {cell["id"]: "".join(cell["source"]) for cell in cells}
    # Which cards a rank has is in the mock's descriptor here, not in a variable.
    named, perhaps = 'os.environ["TT_VISIBLE_DEVICES"]', 'os.environ.get("TT_VISIBLE_DEVICES")'
    assert named in found[APPLY[0]]
    return [found[name].replace(named, perhaps) for name in APPLY]


def two_meshes(folder):
    """Lesson 06 on two ranks, each with a mesh of its own."""
    import numpy

    from course.ranks import watch

    said = io.StringIO()
    with (
        ttkit.Cluster(bindings(folder, "t3000_host", "two_meshes.textproto", False)) as cluster,
        contextlib.redirect_stdout(said),
    ):
        names = {"np": numpy, "cluster": cluster, "lessons": lessons, "watch": watch}
        for cell in lesson_cells():
            if cell.startswith("%%px\n"):
                run_cell(cluster, cell.removeprefix("%%px\n"))
            else:
                exec(cell, names)
        kinds = cluster.run(lambda: type(mesh).__module__.partition(".")[0])  # type: ignore[name-defined]  # noqa: F821
        sums = cluster.run(lambda: float(comm.allreduce(comm.rank + 1.0)))  # type: ignore[name-defined]  # noqa: F821
    text, run = said.getvalue(), names["run"]
    assert kinds == ["ttnn", "ttnn"], kinds
    assert sums == [3.0, 3.0], sums
    assert text.count("I am rank ") == 2 and "I am rank 1 of 2" in text, text
    # 16 samples over two ranks of two chips
    assert text.count("mine (8, 4), on one chip (4, 4)") == 2, text
    assert run.steps == 1 and run.results[0] == run.results[1], run
    assert text.count("(shape only: no kernel runs on a mock cluster)") == 1, text
    assert text.count("the total is ") == 2, text
    return f"two meshes: lesson 06's cells, {len(APPLY)} of them; MPI's sum is right"


def on_the_big_mesh():
    import contextlib
    import io

    import numpy
    from mpi4py import MPI

    import ttkit
    from ttkit import ttnn
    from ttkit.visualize.mesh import draw_mesh

    comm = MPI.COMM_WORLD
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(2, 4))
    table = io.StringIO()
    with contextlib.redirect_stdout(table):
        ttnn.visualize_mesh_device(mesh)
    picture = table.getvalue() + draw_mesh(mesh)._repr_html_()
    mapper = ttnn.ShardTensor2dMesh(mesh, dims=(0, 1), mesh_shape=(2, 4))
    x = ttkit.from_numpy(
        numpy.zeros((64, 128), numpy.float32),
        device=mesh,
        layout=ttnn.TILE_LAYOUT,
        mesh_mapper=mapper,
    )
    y = ttnn.gelu(x)
    z = ttnn.all_gather(x, dim=1, cluster_axis=1, topology=ttnn.Topology.Linear)
    total = numpy.empty(3)
    comm.Allreduce(numpy.arange(3.0) * (comm.rank + 1), total)
    shapes = [tuple(each.shape) for each in (x, y, z)]
    return tuple(mesh.shape), mesh.get_num_devices(), picture, shapes, total.tolist()


def one_big_mesh(folder):
    """A 2 x 4 mesh that two ranks share: both see all of it, half of it as their own."""
    with ttkit.Cluster(
        bindings(folder, "t3000_half", "one_mesh_two_hosts.textproto", True)
    ) as cluster:
        answers = cluster.run(on_the_big_mesh)
        # What is open on a card is not known.
        assert [cluster.report(rank).meshes for rank in range(2)] == [(), ()]
    for shape, devices, picture, shapes, total in answers:
        assert (shape, devices, total) == ((2, 4), 8, [0.0, 3.0, 6.0]), (shape, devices, total)
        for word in ("Remote", "Local", "Dev. ID", ">other rank<"):
            assert picture.count(word) == 4, (word, picture)
        assert shapes == [(32, 32), (32, 32), (32, 128)], shapes
    return (
        "one big mesh: 2x4 on both ranks, 4 devices local to each; "
        "gelu and all_gather have their shapes; MPI's sum is right"
    )


def main():
    for what in (two_meshes, one_big_mesh):
        with tempfile.TemporaryDirectory() as folder:
            print("engines:", what(pathlib.Path(folder)))


if __name__ == "__main__":
    main()
