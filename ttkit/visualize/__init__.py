"""Pictures: figures in a notebook, text on a terminal.

For meshes and tensors, the text is the table that ttnn prints."""

import bisect
import itertools
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from ttkit import backend
from ttkit.hardware import current_system
from ttkit.visualize.charts import memory
from ttkit.visualize.drawing import Figure, size_text
from ttkit.visualize.mesh import described, draw_chips, draw_mesh, draw_ranks, grid_of, system_grid
from ttkit.visualize.tables import TABLES, as_text
from ttkit.visualize.tensor import draw_tensor
from ttkit.words import in_notebook


def _show(picture, text: str = "") -> None:
    """Show a picture in a notebook, with a text for viewers without HTML; else print the text."""
    if not in_notebook():
        print(text or picture)
        return
    from IPython.display import display

    display({"text/html": picture._repr_html_(), "text/plain": text or repr(picture)}, raw=True)


def _as_ttnn(what: str, draw: Callable, *of) -> None:
    """Show a picture, with ttnn's table as its text; on a terminal, call ttnn's own function."""
    if not in_notebook():
        getattr(backend.load(), f"visualize_{what.replace(' ', '_')}")(*of)
        return
    try:
        text = as_text(TABLES[what](*of))
    except Exception:  # Like ttnn's own table, this one supports only meshes of two axes.
        text = ""
    _show(draw(*of), text)


def visualize_mesh_device(mesh_device) -> None:
    """Show a mesh: its chips, ids, coordinates and links. On a terminal, ttnn prints its table."""
    _as_ttnn("mesh device", draw_mesh, mesh_device)


def visualize_system_mesh() -> None:
    """Show the whole machine. On a terminal, ttnn prints its table."""
    _as_ttnn("system mesh", _draw_machine)


def _draw_machine() -> Figure:
    if backend.is_simulated():
        from ttkit.sim.ranks import machine

        return draw_chips(system_grid(machine()))
    ttnn = backend.load()
    system = ttnn._ttnn.multi_device.SystemMeshDescriptor()
    ids = tuple(map(system.get_device_id, ttnn.MeshCoordinateRange(system.shape())))
    shape = tuple(system.shape())
    return draw_chips(grid_of(f"this machine: {'x'.join(map(str, shape))} chips", shape, ids))


def visualize_tensor(tensor) -> None:
    """Show which part of a tensor each chip holds. On a terminal, ttnn prints its table."""
    _as_ttnn("tensor", draw_tensor, tensor)


def visualize_descriptor(descriptor) -> None:
    """Show the host and chip at each coordinate of a descriptor, and which meshes are joined.

    No machine is needed.

    Args:
        descriptor: a descriptor, or the path of its file.

    Raises:
        TTKitError: the file cannot be read, or its descriptor is not valid.

    Example:
        >>> from ttkit.cluster import descriptor_path
        >>> visualize_descriptor(descriptor_path(8))
        mesh 0: 2x4 WORMHOLE_B0, LINE x LINE, 2 links between neighbours, RELAXED
          device 4  device 0  device 2  device 6
          device 5  device 1  device 3  device 7
    """
    if isinstance(descriptor, (str, os.PathLike)):
        from ttkit.descriptors.reading import read_descriptor

        descriptor = read_descriptor(descriptor)
    _show(descriptor, described(descriptor))


def visualize_ranks(cluster) -> None:
    """Show which process of a cluster owns which cards, on which host; nothing is started.

    Args:
        cluster: a `ttkit.Cluster`, or the argument of its constructor: a number of ranks, or the
            folder of a configuration.

    Example:
        >>> visualize_ranks(4)
        4 ranks: each is a process with its own memory and its own cards
          rank 0: card 0 (2 chips: 0, 4)
          rank 1: card 1 (2 chips: 1, 5)
          rank 2: card 2 (2 chips: 2, 6)
          rank 3: card 3 (2 chips: 3, 7)
    """
    if isinstance(cluster, (int, str, os.PathLike)):
        from ttkit.cluster.engines.cluster import Cluster

        cluster = Cluster(cluster)
    _show(draw_ranks(cluster, current_system()))


def visualize_matmul(x=None, w=None, result=None, **described) -> None:
    """Show which part of x @ w each chip holds and computes, and which partial sums must be added.

    The arguments are two tensors of a mesh, or they describe how the matrices are cut. Partial sums
    are drawn as sheets that lie over one another. Blocks that no chip computes are hatched.

    Args:
        x: a tensor of a mesh.
        w: a tensor of the same mesh, a matrix.
        result: the tensor x @ w; on the simulator its values show whether partial sums were added.
        described: keywords in place of tensors. `cut` is "samples", "columns", "rows", "both" or
            "nothing". `chips` is the number of chips. `shape` has the numbers of samples, inputs
            and outputs, by default about 8, 12 and 16. `reduced=True`, which may also be given with
            tensors, shows the partial sums after an all_reduce.

    Raises:
        TTKitError: the cut is unknown, a size cannot be divided evenly, or `reduced=True` is given
            for chips that hold no partial sums.

    Example:
        >>> visualize_matmul(cut="rows", chips=2)
        x [8, 12] @ w [12, 16] on 2 chips: the columns of x (and rows of w) are cut
          chip 0: x[:, 0:6] @ w[0:6, :] -> a partial sum of result[:, :]
          chip 1: x[:, 6:12] @ w[6:12, :] -> a partial sum of result[:, :]
          Each sheet is a partial sum of one chip. all_reduce adds the 2 sheets.
    """
    from ttkit.visualize.matmul import draw_matmul

    _show(draw_matmul(x, w, result, **described))


def visualize_memory(mesh) -> None:
    """Show how full each chip's memory is; `memory(mesh).plot(ax)` draws it into your Axes."""
    _show(memory(mesh))


def visualize_plan(plan, step: int | None = None, names: Sequence[str] = ()) -> None:
    """Show all steps of a plan, or one step: the transfers, and what the chips hold after it.

    On a terminal the plan is printed as text. If a plan does not work, its picture shows where it
    fails.

    Args:
        plan: a plan of `ttkit.plans`.
        step: the number of the step to show; 0 shows the chips before the first step. By default
            all steps are shown.
        names: the names of the chips, in the order of the mesh, such as "abcd"; by default the ids.

    Raises:
        TTKitError: the plan has no such step.
    """
    from ttkit.visualize.plan import draw_plan, draw_step

    _show(draw_plan(plan, names) if step is None else draw_step(plan, step, names))


def step_through(plan, *others, names: Sequence[str] = ()) -> None:
    """Show the steps of a plan one by one, with a slider. On a saved page or a terminal, show all
    steps.

    Args:
        plan: a plan of `ttkit.plans`.
        others: more plans to show beside the first one. The slider is then the modelled time in
            microseconds, and each plan is shown as it is at this time. A saved page or a terminal
            first shows the times of all plans.
        names: the names of the chips, in the order of the mesh, such as "abcd"; by default the ids.
    """
    from ttkit.plans.cost import cost
    from ttkit.visualize.lanes import Bar, Lane, Lanes, Look
    from ttkit.visualize.plan import draw_plan, step_figure, step_pictures
    from ttkit.visualize.widgets.play import play

    plans = (plan, *others)
    strips = [step_pictures(one, names) for one in plans]
    # `ends[p][i]` is the modelled time in microseconds at which plan p has done i steps.
    ends = [[0.0, *itertools.accumulate(s * 1e6 for s in cost(one).step_times_s)] for one in plans]

    def draw_after(numbers: Iterable[int]) -> list[Figure]:
        """Draw each plan as it is after the step that `numbers` has for it."""
        figures = []
        for one, strip, end, number in zip(plans, strips, ends, numbers):
            sofar = sum(t.bytes for step, t in one.transfers if step <= number)
            sent = f"{size_text(sofar)} of {size_text(one.total_bytes)}"
            note = f"{sent} sent in {end[number]:.1f} of {end[-1]:.1f} µs (modelled)."
            figure = step_figure(strip[number], note)
            legend = figure.notes if one is plans[-1] else figure.notes[:1]
            figures.append(replace(figure, notes=legend))
        return figures

    def steps_done(microseconds: float) -> list[int]:
        """Return for each plan the number of steps that it has done at a modelled time."""
        return [bisect.bisect_right(end, microseconds + 0.05) - 1 for end in ends]

    def draw_clock(microseconds: float) -> Figure:
        """Draw the progress of all plans at a modelled time, on one axis."""
        lanes = []
        alike = len({one.collective for one in plans}) == 1
        for one, end, done in zip(plans, ends, steps_done(microseconds)):
            steps = enumerate(itertools.pairwise(end))
            bars = [Bar(*step, "done" if i < done else "to come") for i, step in steps]
            name = one.algorithm if alike else one.collective
            lanes.append(Lane(name, bars, f"takes {end[-1]:.1f} µs"))
        title = f"after {microseconds:.1f} µs"
        axis = "modelled time in µs; each box is a step"
        looks = {"done": Look("", "#5b8fdc"), "to come": Look("", "var(--frame)")}
        clock = Lanes(lanes, looks, max(map(max, ends)), title=title, axis=axis)
        return Figure(f"{title}: {', '.join(f'{one.name} {one.about}' for one in lanes)}", [clock])

    def draw_at(microseconds: float) -> list[Figure]:
        """Draw the clock at a modelled time, then each plan as it is then."""
        return [draw_clock(microseconds), *draw_after(steps_done(microseconds))]

    still = [draw_plan(one, names, moving=True) for one in plans]
    *before, last = still  # Below the last plan is the legend of all that have the same one.
    still = [*(replace(one, notes=()) if one.notes == last.notes else one for one in before), last]
    if others:
        still.insert(0, draw_clock(max(map(max, ends))))
        play(
            draw_at,
            purpose="let the plans race",
            moves="microseconds",
            microseconds=sorted({round(time, 1) for end in ends for time in end}),
            still=still,
        )
    else:
        steps = range(len(strips[0]))
        purpose = "step through the plan"
        play(
            lambda step: draw_after([step]), purpose=purpose, moves="step", step=steps, still=still
        )


def on_one_axis(pictures: Iterable) -> list:
    """Return the given pictures of schedules or timelines with one common axis of time.

    Example:
        >>> from ttkit.plans import gpipe, one_at_a_time
        >>> from ttkit.visualize.lanes.schedule import schedule_picture
        >>> pictures = map(schedule_picture, (one_at_a_time(2, 4), gpipe(2, 4)))
        >>> [(picture.end_s, picture.until) for picture in on_one_axis(pictures)]
        [(24, 24), (15, 24)]
    """
    given = list(pictures)
    end = max(picture.end_s for picture in given)
    return [replace(picture, until=end) for picture in given]


def visualize_schedule(schedule, moving: bool = False) -> None:
    """Show the actions of each stage of a pipeline over time, its bubble and its memory.

    On a terminal the schedule is printed as text. If a schedule does not work, its picture shows
    where the stages stop.

    Args:
        schedule: a schedule of `ttkit.plans`, or a timetable. The `timeline(...)` of a schedule
            makes a timetable with times of your own. The `timetable()` of a pipeline's trainer has
            the times of a run.
        moving: whether time runs along the axis, while a dot follows the first micro-batch.

    Example:
        >>> from ttkit.plans import gpipe
        >>> visualize_schedule(gpipe(2, 2))
        GPipe: 2 stages, 2 micro-batches · bubble 33.3% of the time
          stage 0 |F0----F1----..................B0----------B1----------| holds 2
          stage 1 |......F0----F1----B0----------B1----------............| holds 2
    """
    from ttkit.visualize.lanes.schedule import schedule_picture

    _show(replace(schedule_picture(schedule), moving=moving))
