"""Make the pictures of README and of the welcome page from the kit itself:

`python docs/make_images.py`. With --check, exit status 1 when they are out of step.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import numpy as np

import ttkit
from ttkit.plans import all_gather, topology
from ttkit.sim import ttnn
from ttkit.visualize.drawing import CLASS, STYLE, Drawing
from ttkit.visualize.plan import draw_plan
from ttkit.visualize.tensor import draw_tensor

ROOT = pathlib.Path(__file__).resolve().parent.parent


def sharded() -> str:
    """A T3000 with a tensor cut along both axes of the mesh."""
    ttkit.use_system("t3000")
    with ttnn.open_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
        mapper = ttnn.create_mesh_mapper(
            mesh, ttnn.MeshMapperConfig([ttnn.PlacementShard(0), ttnn.PlacementShard(1)])
        )
        tensor = ttkit.from_numpy(
            np.zeros((64, 256), np.float32),
            device=mesh,
            layout=ttnn.TILE_LAYOUT,
            mesh_mapper=mapper,
        )
        return alone(draw_tensor(tensor).drawings[0])


def gathered() -> str:
    """An all-gather of eight chips, step by step."""
    plan = all_gather(topology("t3000"), 4096, axis=1)
    return alone(draw_plan(plan, moving=True).drawings[0])


def alone(drawing: Drawing) -> str:
    """Return a drawing as a file, which carries its own style and a background.

    The margin of pictures on a page would cut off the lower edge of a file.
    """
    page = f'<style>{STYLE}</style><rect width="100%" height="100%" fill="var(--page)"/>'
    svg = drawing.svg(f' class="{CLASS}" style="margin:0"')
    return svg.replace("</title>", f"</title>{page}", 1) + "\n"


def main() -> int:
    made = {ROOT / "docs/images/mesh.svg": sharded(), ROOT / "notebooks/all_gather.svg": gathered()}
    for target, text in made.items():
        if "--check" not in sys.argv[1:]:
            target.write_text(text, encoding="utf-8")
        elif not target.exists() or target.read_text(encoding="utf-8") != text:
            print(f"{target} is out of step: run python docs/make_images.py", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
