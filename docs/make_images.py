"""Make docs/images from the kit itself:

`python docs/make_images.py`. With --check, exit status 1 when they are out of step.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import numpy as np

import ttkit
from ttkit.sim import ttnn
from ttkit.visualize.drawing import CLASS, STYLE
from ttkit.visualize.tensor import draw_tensor

IMAGES = pathlib.Path(__file__).resolve().parent / "images"


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
        # The file carries its own style and a background.
        page = f'<style>{STYLE}</style><rect width="100%" height="100%" fill="var(--page)"/>'
        svg = draw_tensor(tensor).drawings[0].svg(f' class="{CLASS}"')
        return svg.replace("</title>", f"</title>{page}", 1)


def main() -> int:
    target, text = IMAGES / "mesh.svg", sharded() + "\n"
    if "--check" not in sys.argv[1:]:
        IMAGES.mkdir(exist_ok=True)
        target.write_text(text, encoding="utf-8")
    elif not target.exists() or target.read_text(encoding="utf-8") != text:
        print("docs/images is out of step: run python docs/make_images.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
