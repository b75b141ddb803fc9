"""Run by every rank: tests/sim/test_ccl.py, collectives against loops over the chips, on a mesh
that the ranks share.

python collectives.py EXAMPLES   draws as many places and tensors, the same on every rank.
"""

import os
import pathlib
import sys

from hypothesis import Phase, settings

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "support"), str(HERE.parent)]
os.environ.setdefault("TT_MESH_ID", "0")
os.environ.setdefault("TT_MESH_HOST_RANK", os.environ["OMPI_COMM_WORLD_RANK"])
# Nothing may depend on a rank: no random seed, no examples from the disk, no search for a smaller
# one after a failure.
settings.register_profile(
    "ranks", derandomize=True, database=None, phases=[Phase.generate], deadline=None
)
settings.load_profile("ranks")

import places  # noqa: E402  the settings above come first

import ttkit  # noqa: E402
from ttkit import ttnn  # noqa: E402


def parts(tensor):
    """{coordinate: values} of all chips: those of other ranks come from there."""
    return dict(
        zip(
            tensor.grid.covers,
            map(ttkit.to_numpy, ttnn.get_device_tensors(tensor.cpu())),
            strict=True,
        )
    )


# the ranks share a 2x4 mesh
places.WORLDS[:] = [world for world in places.WORLDS if world[0] == "t3000"]
places.parts = parts
with_examples = places.many
places.many = lambda examples: with_examples(int(sys.argv[1]))

import test_ccl  # noqa: E402

if __name__ == "__main__":
    ttkit.strict()
    tests = [
        test_ccl.test_gathers_and_sums,
        test_ccl.test_given_outputs_are_written,
        test_ccl.test_refused,
    ]
    for test in tests:
        test()
        print(f"passed {test.__name__}", flush=True)
