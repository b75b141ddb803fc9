"""Helpers of several lessons: meshes, placed arrays, settings of a small GPT, planned layouts."""

import itertools
import re
import socket
import subprocess
import sys
from dataclasses import asdict, fields, replace
from typing import Any

import numpy as np

import ttkit
from ttkit import backend
from ttkit.lessons import tidy
from ttkit.train.config.settings import DeviceConfig, Settings, TrainingConfig, TransformerConfig
from ttkit.visualize.charts import Curves


class Doubling(Curves):
    """Curves over sizes that double from point to point, on a logarithmic axis."""

    def draw(self, ax) -> None:
        """Draw the curves on an axis whose labels are the sizes, not powers of 2."""
        super().draw(ax)
        ax.set_xscale("log", base=2)
        ax.xaxis.set_major_formatter("{x:,.0f}")


def opened(chips: int = 4):
    """Close all open meshes, and open a row of chips with a fabric, so that they can send."""
    tidy()
    ttnn = backend.load()
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    return ttnn.open_mesh_device(ttnn.MeshShape(1, chips))


def place(mesh, array: np.ndarray, dim: int | None = None):
    """Return the array on the mesh in tiles: sharded along a dimension, or replicated.

    Example:
        >>> mesh, x = opened(), np.ones((64, 128), np.float32)
        >>> place(mesh, x, dim=1).shape, place(mesh, x).shape
        (Shape([64, 32]), Shape([64, 128]))
        >>> tidy()
    """
    ttnn = backend.load()
    if dim is None:
        mapper = ttnn.ReplicateTensorToMesh(mesh)
    else:
        mapper = ttnn.ShardTensorToMesh(mesh, dim=dim)
    return ttkit.from_numpy(array, device=mesh, layout=ttnn.TILE_LAYOUT, mesh_mapper=mapper)


def terminal(*words: str, folder: str | None = None, until: str | None = None) -> None:
    """Run `ttkit WORDS` and print its output, in a form that is the same on every host.

    The name of this host is printed as HOST. The lines of `ttkit run` are sorted, so that the ranks
    are in order.

    Args:
        folder: the folder in which the command runs; by default the current one.
        until: print only the lines before the first line with this text.
    """
    command = [sys.executable, "-m", "ttkit", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    said = (done.stdout + done.stderr).replace(socket.gethostname(), "HOST")
    # Only the first two digits of a correlation are the same on every CPU, so the last three of
    # five digits are cut off.
    lines = re.sub(r"(0\.\d\d)\d{3}\b", r"\1", said).splitlines()
    if until:
        lines = list(itertools.takewhile(lambda line: until not in line, lines))
    print("\n".join(sorted(lines) if words[0] == "run" else lines))


# ---------------------------------------------------------------- settings
def changed(settings: Settings, **values) -> Settings:
    """Return the settings with new values for some keys, which may be in any section.

    Example:
        >>> other = changed(Settings(), mesh_shape=(2, 2), batch_size=8)
        >>> other.device_config.mesh_shape, other.training_config.batch_size
        ((2, 2), 8)
    """
    sections: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        homes = [f.name for f in fields(Settings) if key in asdict(settings)[f.name]]
        # `training_config` raises an error for a key that no section has.
        home = homes[0] if homes else "training_config"
        sections.setdefault(home, {})[key] = value
    new = {name: replace(getattr(settings, name), **keys) for name, keys in sections.items()}
    return replace(settings, **new)


def small_gpt(**values) -> Settings:
    """Return the settings of a small GPT whose tokens are bytes, with new values for some keys.

    By default its training writes no files.

    Example:
        >>> small_gpt(mesh_shape=(1, 4), enable_tp=True).device_config.enable_tp
        True
    """
    model = TransformerConfig(
        num_heads=4, embedding_dim=64, num_blocks=1, max_sequence_length=32, dropout_prob=0
    )
    training = TrainingConfig(
        batch_size=8, tokenizer_type="byte", learning_rate=0.01, checkpoint_dir="", eval_every=0
    )
    settings = Settings(DeviceConfig((1, 1)), training, transformer_config=model)
    return changed(settings, **values)


# ---------------------------------------------------------------- planned layouts
def candidate(
    model: TransformerConfig,
    layout,
    batch: int,
    sequence: int,
    system: str = "t3000",
    overlap: bool = False,
):
    """Return the planner's candidate for a `ttkit.train.Layout`, even if it needs too much memory.

    Args:
        batch: the number of sequences in a step, over all data-parallel replicas.
        overlap: whether communication overlaps with compute where it can.

    Raises:
        TTKitError: the layout does not shard this model and batch evenly.
    """
    from ttkit.hardware.systems import system_named
    from ttkit.layouts.dry_run import Job
    from ttkit.layouts.places import Machine, Place, place_of
    from ttkit.layouts.search import evaluate

    layout.check(model, batch, sequence)
    machine = Machine(system_named(system), headroom=-99, overlap=overlap)
    place = place_of(machine.system, layout, (1, 1))
    assert isinstance(place, Place), place
    job = Job(replace(model, experimental=None), batch, sequence, TrainingConfig())
    return evaluate(job, layout, place, machine)
