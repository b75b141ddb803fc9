#!/usr/bin/env python3
"""Set up the real ttnn without a card: `python3 setup.py DIR` then `. DIR/env.sh`.

Makes DIR/venv with ttnn 0.81.1 (wheels exist for CPython 3.10 and 3.12), a cluster descriptor of a T3000
(8 Wormhole chips, 2x4) and a stand-in for the kernel compiler. In this mock mode the library's host side is
the real C++ code: meshes, mappers, composers, shapes, placements, validation, `visualize_*`, tt-run. Kernels
do not execute, so the *contents* of device tensors after a device operation mean nothing.

env.sh turns slow dispatch on: device operations need it here (their shapes and placements are then real). Opening parts
of a mesh with fabric on needs it off (`unset TT_METAL_SLOW_DISPATCH_MODE`), as the cases in ../descriptors do.

Several ranks, started by Open MPI's mpiexec with LD_PRELOAD=$TTNN_LIBMPI (so that mpi4py shares the library's own MPI;
import ttnn before mpi4py), each with its own TT_METAL_MOCK_CLUSTER_DESC_PATH. Both were seen working with 2 ranks:
  two meshes    t3000_host{rank}.yaml, TT_MESH_ID=rank, TT_MESH_HOST_RANK=0, TT_MESH_GRAPH_DESC_PATH=two_meshes.textproto
  one big mesh  t3000_half{rank}.yaml, TT_MESH_ID=0, TT_MESH_HOST_RANK=rank, ...=one_mesh_two_hosts.textproto

Options: --torch also installs torch (several GB; from_torch and to_torch need it); --into-venv PATH uses an
existing venv instead of making one.
"""

import argparse
import base64
import pathlib
import shutil
import subprocess
import sys

ELF = "f0VMRgEBAQAAAAAAAAAAAAIA8wABAAAAAFAAADQAAACYAQAAAAAAADQAIAACACgABwAGAAEAAACAAAAAAFAAAABQAAAQAAAAEAAAAAUAAAAQAAAAAQAAAJAAAAAAYAAAEFAAAAQAAAAEAAAABgAAABAAAAAAAAAAAAAAAAAAAAA3ZQAAAyUFAGeAAABngAAAAQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAFAAAAAAAAADAAEAAAAAAABgAAAAAAAAAwADAAEAAAAAAAAAAAAAAAQA8f8KAAAAAFAAAAAAAAAAAAEAFQAAAAxQAAAAAAAAEAABABsAAAAAUAAAAAAAABAAAQAiAAAAAGAAAAAAAAAQAAMAAHRpbnlfci5vACR4cnYzMmkycDEAd3plcm8AX3N0YXJ0AGZvbwAAAABQAAAaBwAAAAAAAABQAAAzAAAAAAAAAARQAAAbBwAAAAAAAARQAAAzAAAAAAAAAAAuc3ltdGFiAC5zdHJ0YWIALnNoc3RydGFiAC5yZWxhLnRleHQALmRhdGEAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAACAAAAABAAAABgAAAABQAACAAAAAEAAAAAAAAAAAAAAABAAAAAAAAAAbAAAABAAAAEAAAAAAAAAAPAEAADAAAAAEAAAAAQAAAAQAAAAMAAAAJgAAAAEAAAADAAAAAGAAAJAAAAAEAAAAAAAAAAAAAAABAAAAAAAAAAEAAAACAAAAAAAAAAAAAACUAAAAgAAAAAUAAAAFAAAABAAAABAAAAAJAAAAAwAAAAAAAAAAAAAAFAEAACYAAAAAAAAAAAAAAAEAAAAAAAAAEQAAAAMAAAAAAAAAAAAAAGwBAAAsAAAAAAAAAAAAAAABAAAAAAAAAA=="

COMPILER = """#!/bin/sh
# Stand-in for the kernel compiler: mock devices never run a kernel, they only load an ELF file.
case "$*" in *--version*) echo "riscv-tt-elf-g++ (stand-in) 15.1.0"; exit 0;; *-dumpversion*) echo 15.1.0; exit 0;; esac
out=; prev=
for a in "$@"; do [ "$prev" = "-o" ] && out="$a"; prev="$a"; done
[ -n "$out" ] || exit 0
cp "{elf}" "$out"
case "$out" in *.o) echo "$out: {elf}" > "${{out%.o}}.d";; esac
"""

# (chip, channel, chip, channel): the cables of a T3000, two links between neighbours.
LINKS = [
    (0, 6, 2, 6), (0, 7, 2, 7), (0, 8, 4, 0), (0, 9, 4, 1), (0, 14, 1, 14), (0, 15, 1, 15),
    (1, 0, 3, 0), (1, 1, 3, 1), (1, 8, 5, 0), (1, 9, 5, 1),
    (2, 8, 6, 0), (2, 9, 6, 1), (2, 14, 3, 14), (2, 15, 3, 15), (3, 8, 7, 0), (3, 9, 7, 1),
    (4, 6, 5, 6), (4, 7, 5, 7), (6, 6, 7, 6), (6, 7, 7, 7),
]  # fmt: skip
COORDS = [(1, 0), (1, 1), (2, 0), (2, 1), (0, 0), (0, 1), (3, 0), (3, 1)]
HARVEST = [544, 513, 640, 513, 576, 513, 513, 528]


def t3000(host: int = 0, chips: tuple[int, ...] = tuple(range(8))) -> str:
    """A cluster descriptor of the T3000 `host`, or of the part of it that holds `chips` (ids renumbered from 0)."""
    local = {chip: i for i, chip in enumerate(chips)}

    def unique(chip):
        return (host + 1) * 10226774059 + chip

    x0 = min(COORDS[chip][0] for chip in chips)
    boards = [
        (left, right)
        for left, right in ((4, 0), (5, 1), (6, 2), (7, 3))
        if left in local and right in local
    ]
    lines = ["arch:"] + [f"  {i}: wormhole_b0" for i in local.values()]
    lines += ["chips:"] + [
        f"  {i}: [{COORDS[c][0] - x0}, {COORDS[c][1]}, 0, 0]" for c, i in local.items()
    ]
    lines += ["chip_unique_ids:"] + [f"  {i}: {unique(c)}" for c, i in local.items()]
    lines += ["ethernet_connections:"]
    lines += [
        f"  - [{{chip: {local[a]}, chan: {b}}}, {{chip: {local[c]}, chan: {d}}}]"
        for a, b, c, d in LINKS
        if a in local and c in local
    ]
    remote = [(a, b, c, d) for a, b, c, d in LINKS if a in local and c not in local]
    remote += [(c, d, a, b) for a, b, c, d in LINKS if c in local and a not in local]
    lines += ["ethernet_connections_to_remote_devices:" + ("" if remote else " []")]
    lines += [
        f"  - [{{chip: {local[a]}, chan: {b}}}, {{remote_chip_id: {unique(c)}, chan: {d}}}]"
        for a, b, c, d in remote
    ]
    mmio = {0: 0, 1: 1, 2: 3, 3: 2} if len(chips) == 8 else {0: 0, 1: 1}
    lines += [
        "chips_with_mmio: [" + ", ".join(f"{{{k}: {v}}}" for k, v in mmio.items()) + "]",
        "harvesting:",
    ]
    lines += [
        f"  {i}: {{noc_translation: true, harvest_mask: {HARVEST[c]}, dram_harvesting_mask: 0, eth_harvesting_mask: 0, pcie_harvesting_mask: 0}}"
        for c, i in local.items()
    ]
    lines += ["chip_to_boardtype:"] + [f"  {i}: n300" for i in local.values()]
    lines += ["boards:"] + [
        f"  - [{{board_id: {72058994491928619 + 4 * host + left}}}, {{board_type: n300}}, {{chips: [{local[left]}, {local[right]}]}}]"
        for left, right in boards
    ]
    return "\n".join(lines) + "\n"


MESH = (
    'mesh_descriptors {{ name: "M0" arch: WORMHOLE_B0 device_topology {{ dims: [ 2, 4 ] }} '
    "host_topology {{ dims: [ 1, {hosts} ] }} channels {{ count: 2 policy: RELAXED }} }}\n"
)
ONE_MESH_TWO_HOSTS = (
    MESH.format(hosts=2) + 'top_level_instance { mesh { mesh_descriptor: "M0" mesh_id: 0 } }\n'
)
TWO_MESHES = MESH.format(hosts=1) + (
    'graph_descriptors { name: "G0" type: "FABRIC" instances { mesh { mesh_descriptor: "M0" mesh_id: 0 } } '
    'instances { mesh { mesh_descriptor: "M0" mesh_id: 1 } } }\ntop_level_instance { graph { graph_descriptor: "G0" graph_id: 0 } }\n'
)


def python() -> str | None:
    """A Python that ttnn has a wheel for."""
    for name in ("python3.12", "python3.10"):
        roots = sorted(pathlib.Path.home().glob(f".pyenv/versions/{name[6:]}*/bin/{name}"))
        for path in [shutil.which(name), *map(str, roots)]:
            if (
                path
                and subprocess.run([path, "-c", "import venv"], capture_output=True).returncode == 0
            ):
                return path
    return None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dir", type=pathlib.Path)
    parser.add_argument("--torch", action="store_true")
    parser.add_argument("--into-venv", type=pathlib.Path)
    args = parser.parse_args()
    root = args.dir.resolve()
    root.mkdir(parents=True, exist_ok=True)
    venv = args.into_venv.resolve() if args.into_venv else root / "venv"
    if not (venv / "bin/python").exists():
        fits = python() or sys.exit("needs CPython 3.12 or 3.10: ttnn has wheels for no other")
        subprocess.run([fits, "-m", "venv", venv], check=True)
    pip = [venv / "bin/python", "-m", "pip", "install", "-q"]
    subprocess.run([*pip, "ttnn==0.81.1", "rich", "pydantic"], check=True)
    if args.torch:
        subprocess.run([*pip, "torch<2.7", "numpy<2"], check=True)

    (root / "kernel.elf").write_bytes(base64.b64decode(ELF))
    (root / "t3000.yaml").write_text(t3000())
    for host in range(4):
        (root / f"t3000_host{host}.yaml").write_text(t3000(host))
    for half, chips in enumerate(((0, 1, 4, 5), (2, 3, 6, 7))):
        (root / f"t3000_half{half}.yaml").write_text(t3000(0, chips))
    (root / "one_mesh_two_hosts.textproto").write_text(ONE_MESH_TWO_HOSTS)
    (root / "two_meshes.textproto").write_text(TWO_MESHES)
    site = subprocess.run(
        [venv / "bin/python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    tools = pathlib.Path(site, "ttnn/runtime/sfpi/compiler/bin")
    tools.mkdir(parents=True, exist_ok=True)
    for tool in ("g++", "gcc", "objcopy", "objdump", "nm"):
        path = tools / f"riscv-tt-elf-{tool}"
        path.write_text(COMPILER.format(elf=root / "kernel.elf"))
        path.chmod(0o755)
    libmpi = next(pathlib.Path(site, "ttnn.libs").glob("libmpi-*"))
    (root / "env.sh").write_text(
        f"export TT_METAL_MOCK_CLUSTER_DESC_PATH={root}/t3000.yaml TT_METAL_SLOW_DISPATCH_MODE=1 TTNN_LIBMPI={libmpi} "
        f"TT_METAL_CACHE={root}/cache LOGURU_LEVEL=ERROR\nexport PATH={venv}/bin:$PATH\n"
    )
    print(
        f"ready: . {root}/env.sh && python -c 'import ttnn; print(ttnn.open_mesh_device(ttnn.MeshShape(2, 4)))'"
    )


if __name__ == "__main__":
    main()
