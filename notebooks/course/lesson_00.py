"""Lesson 00, start here: its exercises."""

from course.arrays import numbers, replicas, split
from ttkit.lessons.exercises import Exercise
from ttkit.lessons.on_meshes import Budget, OnMeshes

Exercise(
    "00.double",
    asks="double(mesh, x)",
    reference=lambda mesh, x: split(mesh, 2 * x, 1),
    cases=OnMeshes(
        [(2, 4), (1, 3)], lambda rows, columns: [(numbers(96, 64 * rows * columns), (96, 64))]
    ),
    mistakes={
        "the columns are there, but they were not doubled": lambda mesh, x: split(mesh, x, 1),
        "the columns were doubled twice": lambda mesh, x: split(mesh, 4 * x, 1),
        "you cut rows (dimension 0); cut columns": lambda mesh, x: split(mesh, 2 * x, 0),
        "every device holds all columns": lambda mesh, x: replicas(mesh, 2 * x),
    },
    budget=Budget(sends=0),
    praise="every device doubled its own columns",
    hints=[
        "The lesson cuts rows, which are dimension 0. Which dimension are the columns?",
        "You need three things: a mapper that cuts that dimension over the mesh, a tensor on the "
        "mesh, and an operation on the tensor. x itself stays as it is.",
        "mapper = ttnn.ShardTensorToMesh(mesh, dim=1); tensor = ttkit.from_numpy(x, device=mesh, "
        "layout=ttnn.TILE_LAYOUT, mesh_mapper=mapper). Then double the tensor, and return it.",
    ],
)

Exercise(
    "00.share",
    asks="the number of elements",
    reference=lambda: 384,
    mistakes={
        "that is the whole tensor; eight devices share it": lambda: 48 * 64,
        "that is how many rows a chip holds; each row has 64 elements": lambda: 48 // 8,
        "that is how many rows all eight hold, or you divided by eight twice": lambda: 48,
        "that is the shape of a shard; multiply": lambda: (6, 64),
        "that cuts columns; cut rows, so that each row stays whole": lambda: 64 // 8,
        "that is the size in bytes; give the number of elements": lambda: 4 * 384,
    },
    praise="384 elements on each device",
    hints=[
        "How many rows does each chip hold?",
        "Each of these rows has all 64 elements. Multiply.",
    ],
)
