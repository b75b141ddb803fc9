"""Lesson 28, hosts with chip links: its exercise."""

from ttkit.lessons.exercises import Exercise

# With 8 sequences the mesh takes 6.0 s and the pipeline 7.1 s; with 16 it is 11.6 s and 10.0 s.
Exercise(
    "28.cables",
    asks="the number of sequences",
    reference=lambda: 8,
    mistakes={
        "with fewer cables a pair at the border sends for longer: add border(mesh, 1) - "
        "border(mesh, 4) to each step of the mesh": lambda: 16
    },
    praise="larger batches lose more at the border, and the pipeline waits less",
    hints=[
        "What does a step of n sequences take on the mesh with all cables, and in the pipeline?",
        "A pair at the border sends for border(mesh, 4) seconds with four cables, where mesh is "
        "best(both, n). For how long does it send with one?",
        "Compare mesh.times.total + border(mesh, 1) - border(mesh, 4) with "
        "best(galaxy, n, hosts=2).times.total.",
    ],
)
